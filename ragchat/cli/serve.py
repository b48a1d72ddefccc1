"""``ragchat serve``: the OpenAI-compatible server."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import math
import signal
import socket
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ragchat.cli.options import (
    DEFAULT_CORPUS,
    DEFAULT_INDEX,
    Corpus,
    Index,
    MaxContextTokens,
    NoRerank,
)
from ragchat.cli.output import Face
from ragchat.cli.reranking import reranker_from_env
from ragchat.cli.running import opened, run
from ragchat_retrieval.errors import MissingExtra, RagchatError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import uvicorn

NO_MODEL = "no chat model is configured (--model or RAGCHAT_MODEL): answers are sentences"
BACKLOG = 2048


def serve(
    *,
    index: Index = DEFAULT_INDEX,
    corpus: Corpus = DEFAULT_CORPUS,
    model: Annotated[
        str | None,
        typer.Option(envvar="RAGCHAT_MODEL", metavar="NAME", help="The chat model that answers."),
    ] = None,
    host: Annotated[str, typer.Option(metavar="HOST", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="0 is any free one.")
    ] = 8080,
    keys: Annotated[
        Path | None,
        typer.Option(
            envvar="RAGCHAT_KEYS",
            metavar="FILE",
            help="API keys, made with: ragchat keys add. Needed to listen beyond this machine.",
        ),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(metavar="ORIGIN", help="A site whose pages may call the server."),
    ] = None,
    top_k: Annotated[
        int,
        typer.Option(
            "--top-k",
            "-k",
            metavar="N",
            min=1,
            max=50,
            help="How many passages, where a request says nothing else.",
        ),
    ] = 5,
    max_context_tokens: MaxContextTokens = 2000,
    no_rerank: NoRerank = False,
) -> None:
    """Serve the documents behind the OpenAI API."""
    face = Face.open(json=False)
    if keys is None and not is_local(host):
        problem = "needs --keys: without them everybody who reaches it could read and write"
        raise typer.BadParameter(problem, param_hint="--host")
    work = _serve(
        face,
        index=index,
        corpus=corpus,
        model=model or None,
        host=host,
        port=port,
        keys=keys,
        cors=tuple(cors or ()),
        top_k=top_k,
        budget=max_context_tokens,
        reranked=not no_rerank,
    )
    run(work, face)


async def _serve(
    face: Face,
    *,
    index: str,
    corpus: str,
    model: str | None,
    host: str,
    port: int,
    keys: Path | None,
    cors: tuple[str, ...],
    top_k: int,
    budget: int,
    reranked: bool,
) -> None:
    from ragchat.server import KeyFile, ServerSettings, create_app  # noqa: PLC0415 - quick help
    from ragchat.server.settings import LOOPBACK_HOSTS  # noqa: PLC0415 - as above

    try:
        import uvicorn  # noqa: PLC0415 - an extra's package
    except ModuleNotFoundError:
        raise MissingExtra("server", "the server") from None
    # It warns of every form that it cannot read; whoever sent it is told.
    logging.getLogger("python_multipart").setLevel(logging.ERROR)
    logging.getLogger("uvicorn.error").addFilter(_is_no_stop)
    ring = None if keys is None else KeyFile(keys)
    settings = ServerSettings(
        model=model,
        top_k=top_k,
        max_context_tokens=budget,
        cors=cors,
        hosts=LOOPBACK_HOSTS if ring is None else (),
    )
    with listening(host, port) as listener:
        async with (
            reranker_from_env(wanted=reranked) as rerank,
            opened(index, corpus, create=True) as opened_index,
        ):
            app = create_app(opened_index, settings, keys=ring, rerank=rerank)
            await app.state.ragchat.warm()
            config = uvicorn.Config(
                app,
                http="h11",  # it bounds the head of a request
                log_config=None,
                access_log=False,  # a path names documents
                server_header=False,
                timeout_graceful_shutdown=math.ceil(settings.grace),
            )
            address, at = listener.getsockname()[:2]
            shown = f"[{address}]" if ":" in address else address
            face.note(f"listening on http://{shown}:{at}; Ctrl-C stops")
            if model is None:
                face.note(NO_MODEL)
            with suppress(RagchatError):  # a store that is away keeps no server from starting
                if ring is None and not (await opened_index.describe()).documents:
                    face.note(f"corpus {corpus!r} is empty; ragchat ingest PATH fills it")
            await _running(uvicorn.Server(config), listener)


async def _running(server: uvicorn.Server, listener: socket.socket) -> None:
    """Runs a server to its orderly end; a second signal ends it at once.

    Its own way with signals would raise them again at the end, before the index is closed.
    """

    def stop(*_: object) -> None:
        server.force_exit, server.should_exit = server.should_exit, True

    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    server.capture_signals = _uncaptured  # type: ignore[method-assign]
    for each in before:
        signal.signal(each, stop)
    try:
        await server.serve(sockets=[listener])
        if server.force_exit:
            await server.lifespan.shutdown()
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _is_no_stop(record: logging.LogRecord) -> bool:
    """Says whether a record tells anything but that an answer was cancelled at the end."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


@contextmanager
def _uncaptured() -> Iterator[None]:
    yield


def listening(host: str, port: int) -> socket.socket:
    """Returns a socket that listens.

    Raises:
        OSError: The address is none of this machine's, or taken.
    """
    family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    return socket.create_server(address[:2], family=family, backlog=BACKLOG)


def is_local(host: str) -> bool:
    """Says whether an address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
