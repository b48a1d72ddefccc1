"""The console script's entry: works far enough without the extra to say that it is missing."""

from __future__ import annotations

import io
import os
import sys

from ragchat_retrieval.errors import MissingExtra

NEEDED = frozenset({"typer", "rich"})
"""What the extra ``cli`` brings and every command needs."""


def main() -> None:
    """Runs the command line on `sys.argv` and exits with 0, 1 (it failed) or 2 (misused)."""
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
    finally:
        _flush()


def _flush() -> None:
    """Writes what is left, while it can still be told quietly that the reader went away."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
