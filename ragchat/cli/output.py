"""Where commands write: results to stdout, everything else to stderr.

Text of documents and models is data: it is never read as markup, and control characters, which a
terminal would obey, are taken out of it.
"""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from ragchat.forms import unbroken
from ragchat_retrieval.text import is_storable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rich.console import RenderableType

_CONTROLS: dict[int, str | None] = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)])
_CONTROLS |= {ord(kept): kept for kept in "\n\t"}
_CONTROLS |= dict.fromkeys(range(0xD800, 0xE000), "\N{REPLACEMENT CHARACTER}")
_TURNS = dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)])
"""What turns the direction of the text behind it, so that a name reads like another."""

ROOM = 76
"""Columns from which tables have room."""

_ASCII = str.maketrans("→›│×–“”…·", '>>|x-""~-')
"""Our own typography on a terminal without it; one character for one, so that columns stay."""


def plain(text: str) -> str:
    """Returns text that a terminal shows and does not obey."""
    return text.translate(_CONTROLS)


def one_line(text: str) -> str:
    """Returns plain text on one line, every character where it was written, as labels need it."""
    return " ".join(plain(text).translate(_TURNS).split())


def counted(number: int, what: str) -> str:
    """Returns a number with what it counts, in the plural but for 1."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _iso(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _json(value: Mapping[str, object], *, indent: int | None) -> str:
    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
    if encoding.startswith("utf"):
        text = unbroken(json.dumps(value, ensure_ascii=False, indent=indent, default=_iso))
        if is_storable(text):
            return text
    return json.dumps(value, indent=indent, default=_iso)  # also half a surrogate pair


@dataclass(frozen=True, slots=True)
class Face:
    """The two streams of a command."""

    out: Console
    err: Console
    json: bool
    """One JSON document on stdout and nothing else."""

    lines: bool = False
    """Each of several such documents on a line of its own."""

    @classmethod
    def open(cls, *, json: bool = False, lines: bool = False) -> Face:
        """Returns the face of this process's streams."""
        out = Console(markup=False, highlight=False, emoji=False)
        err = Console(markup=False, highlight=False, emoji=False, stderr=True)
        return cls(out, err, json, lines)

    @property
    def wide(self) -> bool:
        """Whether tables have room."""
        return self.out.width >= ROOM

    def document(self, value: Mapping[str, object]) -> None:
        """Writes the JSON document of a command, or the next of several at once."""
        sys.stdout.write(_json(value, indent=None if self.lines else 2) + "\n")
        if self.lines:
            sys.stdout.flush()

    def show(self, body: RenderableType, *, indent: int = 0) -> None:
        """Writes a part of the results, wrapped at the terminal's width, no trailing blanks."""
        with self.out.capture() as captured:
            self.out.print(Padding(body, (0, 0, 0, indent)))
        lines = [line.rstrip() for line in captured.get().split("\n")[:-1]]
        text = "\n".join(lines) + "\n"
        self.out.file.write(text.translate(_ASCII) if self.out.options.ascii_only else text)

    def line(self, text: str = "", style: str = "") -> None:
        """Writes a line of results, wrapped at the terminal's width."""
        self.show(Text(plain(text), style=style))

    def write(self, text: str) -> None:
        """Writes a piece of streamed text at once."""
        self.out.file.write(plain(text))
        self.out.file.flush()

    def note(self, text: str) -> None:
        """Says something about the result on stderr."""
        self.err.print(Text(one_line(text), style="yellow"), soft_wrap=not self.err.is_terminal)

    def fail(self, kind: str, message: str) -> None:
        """Says why a command failed: one line on stderr, and an error object for ``--json``."""
        message = one_line(message)
        self.err.print(Text.assemble(("ragchat: ", "bold red"), message), soft_wrap=True)
        if self.json:
            with suppress(OSError):  # which may be what it is to tell
                self.document({"error": {"type": kind, "message": message}})

    @contextmanager
    def waiting(self, label: str) -> Iterator[None]:
        """Shows on a terminal that something is being waited for."""
        if self.json or not self.err.is_terminal:
            yield
            return
        with self.err.status(label):
            yield

    @contextmanager
    def progress(self, label: str) -> Iterator[Callable[[float], None]]:
        """Shows a progress bar on a terminal; yields what takes the share done, 0 … 1."""
        if self.json or not self.err.is_terminal:
            yield lambda _share: None
            return
        told = TextColumn("{task.description}", markup=False)
        columns = (told, BarColumn(bar_width=30), TimeRemainingColumn())
        with Progress(*columns, console=self.err, transient=True) as bar:
            task = bar.add_task(one_line(label), total=1.0)
            yield lambda share: bar.update(task, completed=share)
