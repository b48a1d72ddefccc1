"""Code blocks of Markdown pages, and running them as a reader would."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt
from openai import AsyncOpenAI

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import CodeType

SHELLS = frozenset({"bash", "sh", "shell", "console"})
_TITLE = re.compile(r'\btitle="([^"]+)"')
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced code block."""

    page: Path
    line: int
    """1-based line of the page at which its content begins."""

    language: str
    content: str
    title: str | None = None
    """Path of the file that the page has the reader write with this content."""

    output: str | None = None
    """Content of the ``text`` block that follows directly: what it must print."""

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    """Returns the fenced blocks of a page in order, each with the output block that follows it."""
    tokens = MarkdownIt("commonmark").parse(page.read_text("utf-8"))
    found = []
    for position, token in enumerate(tokens):
        if token.type != "fence":
            continue
        after = tokens[position + 1] if position + 1 < len(tokens) else None
        follows = after is not None and after.type == "fence" and after.info.strip() == "text"
        titled = _TITLE.search(token.info)
        found.append(
            Block(
                page,
                (token.map or [0])[0] + 2,
                token.info.strip().partition(" ")[0],
                token.content,
                titled[1] if titled else None,
                after.content if follows and after is not None else None,
            )
        )
    return found


def links_of(page: Path) -> list[str]:
    """Returns the targets of a page's links and images, as written."""
    inline = MarkdownIt("commonmark").parse(page.read_text("utf-8"))
    children = [child for token in inline for child in token.children or []]
    targets = [child.attrs.get("href") or child.attrs.get("src") for child in children]
    return [str(target) for target in targets if target]


def write_files(blocks: list[Block], folder: Path) -> None:
    """Writes the files that blocks are titled with, as the reader is told to."""
    for block in blocks:
        if block.title is not None:
            path = folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.content, "utf-8")


async def run_python(blocks: list[Block]) -> None:
    """Runs the blocks of one page one after the other, in one namespace.

    Top-level ``await`` and ``async with`` are allowed, as in a notebook. What a block prints is
    compared with the ``text`` block that follows it. Clients that a page leaves open, as an
    application does until it ends, are closed.
    """
    namespace: dict[str, object] = {"__name__": "__page__"}
    try:
        await _run_all(blocks, namespace)
    finally:
        for value in namespace.values():
            if isinstance(value, AsyncOpenAI):
                await value.close()


async def _run_all(blocks: list[Block], namespace: dict[str, object]) -> None:
    for block in blocks:
        tree = ast.parse(block.content, str(block.page))
        ast.increment_lineno(tree, block.line - 1)  # a traceback names the page's own line
        code = compile(tree, str(block.page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            await _run(code, namespace)
        if block.output is not None:
            assert printed.getvalue().strip() == block.output.strip(), f"output of {block}"


async def _run(code: CodeType, namespace: dict[str, object]) -> None:
    result = eval(code, namespace)  # noqa: S307 - the repository's own pages
    if inspect.isawaitable(result):
        async with asyncio.timeout(60):
            await result


def commands_of(block: Block) -> Iterator[list[str]]:
    """Yields the commands of a shell block, each as its words.

    In a ``console`` block only the lines after a ``$`` are commands. Comments, leading assignments
    and what comes after a pipe or a redirection are left out.
    """
    joined = block.content.replace("\\\n", " ")
    for line in joined.splitlines():
        if block.language == "console":
            if not line.startswith("$ "):
                continue
            line = line[2:]  # noqa: PLW2901 - the prompt is no part of it
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if set(word) <= set("|&;<>"):
                if words:
                    yield words
                words = []
                if word[0] in "<>":
                    break
            elif words or not _ASSIGNMENT.match(word):
                words.append(word)
