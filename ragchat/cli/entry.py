"""The console script's entry: works far enough without the extra to say that it is missing."""

from __future__ import annotations

import io
import os
import sys
import threading
from time import monotonic
from typing import NoReturn

from ragchat_retrieval.errors import MissingExtra

NEEDED = frozenset({"typer", "rich"})
"""What the extra ``cli`` brings and every command needs."""

WORKERS = "ragchat-worker"
"""How the names of a command's worker threads begin."""

_PATIENCE = 1.0
"""Seconds that a thread gets whose work nobody waits for any more."""


def main() -> None:
    """Runs the command line on `sys.argv` and exits with 0, 1 (it failed) or 2 (misused)."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by whoever started it, as in: ragchat … >&-
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 - it stays open
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character gets a replacement, not a crash.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        from ragchat.cli.app import app  # noqa: PLC0415 - it needs the extra
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in NEEDED:
            raise
        sys.stderr.write(f"ragchat: {MissingExtra('cli', 'the command line')}\n")
        sys.exit(2)
    try:
        app(prog_name="ragchat")
    except OSError as error:  # of the very first words, such as those of --version
        _give_up(error)
    except SystemExit as end:
        _end(end)


def _end(end: SystemExit) -> NoReturn:
    """Ends once all is written; a thread that is at what was given up is left behind."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _give_up(error, told=bool(end.code))
    if _works_on():
        sys.stderr.flush()
        os._exit(end.code if isinstance(end.code, int) else bool(end.code))
    raise end


def _works_on() -> bool:
    """Says whether a thread is still at what was given up; the interpreter would wait for it."""
    until = monotonic() + _PATIENCE
    workers = [each for each in threading.enumerate() if each.name.startswith(WORKERS)]
    for worker in workers:
        worker.join(max(0.0, until - monotonic()))
    return any(worker.is_alive() for worker in workers)


def _give_up(error: OSError, *, told: bool = False) -> NoReturn:
    """Ends with 1 because nothing can be written, which only a reader that left need not hear."""
    # The interpreter must not try to flush at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if not (told or isinstance(error, BrokenPipeError)):
        sys.stderr.write(f"ragchat: {error.strerror}\n")
    sys.exit(1)
