"""``ragchat mcp``: the index as tools and resources of the Model Context Protocol."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ragchat.cli.options import DEFAULT_CORPUS, DEFAULT_INDEX, Index, flag, read_filter
from ragchat.cli.output import Face
from ragchat.cli.running import opened, run
from ragchat_retrieval.filters import Filter

if TYPE_CHECKING:
    from sys import UnraisableHookArgs


def mcp_server(
    *,
    index: Index = DEFAULT_INDEX,
    corpus: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A corpus that may be used; may be given several times. Without it: default.",
        ),
    ] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE|JSON",
            help="Metadata of all that may be read; stamped on what is written.",
        ),
    ] = None,
    read_only: Annotated[bool, flag("--read-only", "Leave out the tools that write.")] = False,
) -> None:
    """Serve the documents to an MCP client over stdin and stdout."""
    face = Face.open(json=False)
    corpora = tuple(dict.fromkeys(corpus or (DEFAULT_CORPUS,)))
    run(_serve(index, corpora, read_filter(scope, "--scope"), read_only=read_only), face)


async def _serve(index: str, corpora: tuple[str, ...], scope: Filter, *, read_only: bool) -> None:
    # --help stays quick; the second needs an extra
    from ragchat.mcp_server import create_server, serve_stdio  # noqa: PLC0415
    from ragchat.tools import RagTools  # noqa: PLC0415

    async with opened(index, corpora[0], create=not read_only) as opened_index:
        tools = RagTools(opened_index, scope=scope, corpora=corpora)
        try:
            await serve_stdio(create_server(tools, read_only=read_only))
        except* BrokenPipeError:  # of the SDK's tasks: the client is gone
            # What was not written is tried once more where the SDK's file is let go.
            sys.unraisablehook = _tell_of_others


def _tell_of_others(unraisable: UnraisableHookArgs) -> None:
    if not isinstance(unraisable.exc_value, BrokenPipeError):
        sys.__unraisablehook__(unraisable)
