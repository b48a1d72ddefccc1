"""Running a command: its index opened, its errors told in one line."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ragchat.cli.entry import WORKERS
from ragchat_retrieval.errors import RagchatError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator

    from ragchat.cli.output import Face
    from ragchat_retrieval.index import HybridIndex
    from ragchat_retrieval.lexical import Analyzer


_PASSWORD = re.compile(r"(?<=://)([^:/]*):[^/]*(?=@)|(?<=password=)[^&#]+", re.IGNORECASE)
"""What must not be shown of a URL: before its host, or as a parameter."""


class CommandFailed(RagchatError):
    """A command cannot do what it was asked; the message says what would help."""


class _Workers(ThreadPoolExecutor):
    """The loop's worker threads; one that nobody waits for any more does not hold up its end.

    A thread that reads a large file cannot be interrupted, and so goes on when a command was.
    """

    def __init__(self) -> None:
        super().__init__(thread_name_prefix=WORKERS)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - as above it
        """Takes no more work."""
        del wait
        super().shutdown(wait=False, cancel_futures=cancel_futures)


class _Notes(logging.Handler):
    """Shows the library's warnings as notes."""

    def __init__(self, face: Face) -> None:
        super().__init__(logging.WARNING)
        self._face = face

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one record as a note."""
        self._face.note(record.getMessage())


def run(work: Coroutine[Any, Any, None], face: Face) -> None:
    """Runs a command to its end.

    Raises:
        typer.Exit: With code 1, after one line on stderr, for what a user can put right: an error
            of ours, of a file, or of the chat model's client.
    """
    with noted(face), told(face):
        asyncio.run(_worked(work))


async def _worked(work: Coroutine[Any, Any, None]) -> None:
    asyncio.get_running_loop().set_default_executor(_Workers())
    await work


@contextmanager
def noted(face: Face) -> Iterator[None]:
    """Shows the library's warnings as notes, and ends quietly where the reader went away.

    Raises:
        typer.Exit: With code 1: nobody reads what is written (`| head`).
    """
    # It warns of every oddity of a file; files that cannot be read are in the report.
    logging.getLogger("pypdf").setLevel(logging.ERROR)
    log, notes = logging.getLogger("ragchat"), _Notes(face)
    log.addHandler(notes)
    log.propagate = False
    try:
        yield
    except BrokenPipeError:
        # The interpreter must not try to flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    finally:
        log.removeHandler(notes)
        log.propagate = True


@contextmanager
def told(face: Face) -> Iterator[None]:
    """Tells what a user can put right in one line, instead of a traceback.

    Raises:
        typer.Exit: With code 1, for an error of ours, of a file, or of the chat model's client.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except RagchatError as error:
        face.fail(type(error).__name__, str(error))
        raise typer.Exit(1) from None
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        face.fail(type(error).__name__, f"{where}{error.strerror or error}")
        raise typer.Exit(1) from None
    except Exception as error:
        problem = _client_problem(error)
        if problem is None:
            raise
        face.fail(type(error).__name__, problem)
        raise typer.Exit(1) from None


def _client_problem(error: Exception) -> str | None:
    """Says what went wrong at the chat model; None if the error is not its client's.

    Only status and code are told: a message may quote a key or a prompt.
    """
    if "openai" not in sys.modules:
        return None
    import openai  # noqa: PLC0415 - imported already, or this is none of its errors

    if not isinstance(error, openai.OpenAIError):
        return None
    told = type(error).__name__
    if isinstance(error, openai.APIStatusError):
        code = error.code or error.type
        told = f"HTTP {error.status_code}" + (f" ({code})" if code else "")
    elif isinstance(error, openai.APITimeoutError):
        told = "no answer in time"
    elif isinstance(error, openai.APIConnectionError):
        told = "no connection; is OPENAI_BASE_URL right?"
    elif not os.environ.get("OPENAI_API_KEY"):
        told = "OPENAI_API_KEY is not set (any text will do for a server without keys)"
    return f"chat model: {told}"


@asynccontextmanager
async def opened(
    url: str, corpus: str, *, create: bool = False, analyzer: Analyzer | None = None
) -> AsyncIterator[HybridIndex]:
    """Opens an index for a command.

    Args:
        url: Path or URL.
        corpus: Name of the corpus.
        create: Make it if it is not there; else the index is opened for reading.
        analyzer: Analyses words; None takes over what the corpus was written with, else English.

    Raises:
        CommandFailed: There is no such index and it shall not be made, or it cannot be.
    """
    from ragchat_retrieval.opening import open_index  # noqa: PLC0415 - --help stays quick

    if create:
        require_room(url)
    else:
        require(url)
    async with open_index(url, corpus=corpus, analyzer=analyzer, read_only=not create) as index:
        yield index


async def is_empty(index: HybridIndex) -> bool:
    """Says whether there is nothing in a corpus that could be found."""
    return not (await index.describe()).documents


def require(url: str) -> None:
    """Raises `CommandFailed` if `url` is a path at which there is no index."""
    path = path_of(url)
    if path is not None and not path.exists():
        raise CommandFailed(f"no index at {path}; make one with: ragchat ingest PATH")
    require_room(url)


def require_room(url: str) -> None:
    """Raises `CommandFailed` if `url` is a path at which no index can be."""
    path = path_of(url)
    if path is None:
        return
    if path.is_dir():
        raise CommandFailed(f"{path} is a folder; an index is a file")
    if not path.parent.is_dir():
        raise CommandFailed(f"there is no folder {path.parent} to keep the index in")


def path_of(url: str) -> Path | None:
    """Returns the file of an index; None if it is no file."""
    from ragchat_retrieval.opening import split_options  # noqa: PLC0415 - --help stays quick

    path, _ = split_options(url)
    return None if "://" in path else Path(path)


def shown(url: str) -> str:
    """Returns the URL of an index without the passwords in it, to be shown."""
    return _PASSWORD.sub(lambda found: f"{found[1]}:***" if found[1] is not None else "***", url)
