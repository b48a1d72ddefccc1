"""The structure of Markdown: sections under their headings, and what they are made of.

The parser is markdown-it-py (CommonMark and tables), of which only the line ranges of blocks are
used; inline markup is read in headings alone. Ranges of text are made from lines, so that every
character of a section but white space belongs to one of its nodes: also what renders to nothing,
such as the definition of a link's address, which goes with the node before it, if any.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ragchat_retrieval.chunking.breaks import trimmed
from ragchat_retrieval.chunking.lines import LineIndex
from ragchat_retrieval.values import LONGEST_LABEL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from markdown_it import MarkdownIt
    from markdown_it.token import Token

    from ragchat_retrieval.values import Span

_FRONT_MATTER = re.compile(
    r"\ufeff?---[ \t]*+(?>\r\n?|\n)"
    r"(?:[ \t]*+(?:\#[^\r\n]*+)?(?>\r\n?|\n))*+"
    r"(?:[\w\"'.-]++[ \t]*+:[^\r\n]*+(?>\r\n?|\n)(?:[^\r\n]*+(?>\r\n?|\n))*?)?"
    r"(?:---|\.\.\.)[ \t]*+(?>\r\n?|\n|\Z)"
)
_RULE = re.compile(r"[-*_ \t]+")
_CONTAINERS = frozenset({"bullet_list", "ordered_list", "list_item", "blockquote", "table", "tr"})
_TITLE_REACH = 16 * 1024
"""Characters at the start of a text in which its title is looked for."""


@dataclass(frozen=True, slots=True)
class Node:
    """A block of Markdown with its range of the text."""

    kind: str
    """The parser's name of it: ``paragraph``, ``bullet_list``, ``table``, ``fence``, …"""

    span: Span
    children: tuple[Node, ...] = ()
    """Items of a list, blocks of an item or a quotation, rows of a table from its header on."""


@dataclass(frozen=True, slots=True)
class Section:
    """What stands under one heading, up to the next one."""

    headings: tuple[str, ...]
    """Path of the headings above, outermost first, as plain text."""

    nodes: tuple[Node, ...]


@dataclass(slots=True)
class _Block:
    """A block while the tree is built; lines count from 0."""

    kind: str
    first: int
    last: int
    """The line after its last one."""

    level: int = 0
    """Of a heading, 1 … 6."""

    content: str = ""
    """Of a heading: its Markdown."""

    children: list[_Block] = field(default_factory=list)


def sections(text: str, lines: LineIndex | None = None) -> list[Section]:
    """Returns the sections of a Markdown text that hold anything, in order.

    Front matter (YAML between ``---`` lines at the very start) is left out, and so are heading
    lines: they are in the paths. The one exception is a heading with nothing below it, neither text
    nor further headings. It makes a section of its own, so that nothing is lost. What is longer
    than `LONGEST_LABEL` is no heading.

    Args:
        text: The whole text.
        lines: Its lines, where the caller has them already.
    """
    index = lines or LineIndex(text)
    skipped = _front_matter_lines(text)
    path: list[tuple[int, str]] = []
    found: list[Section] = []
    groups = list(_by_heading(_parse(text, index, skipped), skipped, len(index)))
    for position, (heading, blocks, end) in enumerate(groups):
        begin = skipped
        above = tuple(title for _, title in path if title)
        if heading is not None:
            while path and path[-1][0] >= heading.level:
                path.pop()
            above = tuple(title for _, title in path if title)
            path.append((heading.level, _plain(heading.content)))
            begin = heading.last
        nodes = _partition(text, index, blocks, begin, end)
        if nodes:
            found.append(Section(tuple(title for _, title in path if title), nodes))
        elif heading is not None:
            following = groups[position + 1][0] if position + 1 < len(groups) else None
            if following is None or following.level <= heading.level:
                found.append(Section(above, _leaf(text, index, heading)))
    return found


def first_heading(text: str) -> str | None:
    """Returns the first heading within the first 16 KiB of a Markdown text, as plain text."""
    head = text[:_TITLE_REACH]
    for block in _parse(head, LineIndex(head), _front_matter_lines(head)):
        if _is_heading(block) and (title := _plain(block.content)):
            return title
    return None


def _front_matter_lines(text: str) -> int:
    """Returns how many lines the front matter takes, 0 without one."""
    match = _FRONT_MATTER.match(text)
    return 0 if match is None else len(LineIndex(match[0])) - 1


def _parse(text: str, index: LineIndex, skipped: int) -> list[_Block]:
    """Returns the top-level blocks after the first `skipped` lines."""
    body = "\n" * skipped + text[index.offset(skipped) :]
    return _tree(_parser().parse(body.removeprefix("\ufeff")))


def _tree(tokens: Sequence[Token]) -> list[_Block]:
    root = _Block("root", 0, 0)
    stack = [root]
    for token in tokens:
        kind = token.type.removesuffix("_open")
        if token.type == "inline":
            if stack[-1].kind == "heading":
                stack[-1].content = token.content
        elif token.nesting < 0:
            stack.pop()
        else:
            first, last = token.map or (stack[-1].first, stack[-1].last)
            block = _Block(kind, first, last)
            if kind == "heading":
                block.level = int(token.tag[1:])
            stack[-1].children.append(block)
            if token.nesting > 0:
                stack.append(block)
    return root.children


def _by_heading(
    blocks: Sequence[_Block], begin: int, end: int
) -> Iterator[tuple[_Block | None, list[_Block], int]]:
    """Yields each heading with the blocks below it and the line where they end."""
    heading: _Block | None = None
    below: list[_Block] = []
    for block in blocks:
        if _is_heading(block):
            yield heading, below, block.first
            heading, below = block, []
        elif block.kind == "heading":
            below.append(replace(block, kind="paragraph"))
        else:
            below.append(block)
    yield heading, below, max(begin, end)


def _is_heading(block: _Block) -> bool:
    # A line of dashes makes a heading of the whole paragraph above it.
    return block.kind == "heading" and len(block.content) <= LONGEST_LABEL


def _partition(
    text: str, index: LineIndex, blocks: Sequence[_Block], first: int, last: int
) -> tuple[Node, ...]:
    """Returns the nodes of consecutive blocks, which share the lines between them without a gap.

    Thematic breaks alone are no nodes. Lines before the first block make a paragraph.
    """
    given = list(blocks)
    if not given or given[0].first > first:
        given.insert(0, _Block("paragraph", first, last))
    starts = [first, *(block.first for block in given[1:]), last]
    nodes = []
    for block, begin, end in zip(given, starts, starts[1:], strict=False):
        span = _between(text, index, begin, end)
        if span is None or (block.kind == "hr" and _RULE.fullmatch(text, *span)):
            continue
        nodes.append(Node(block.kind, span, _children(text, index, block, begin, end)))
    return tuple(nodes)


def _children(text: str, index: LineIndex, block: _Block, begin: int, end: int) -> tuple[Node, ...]:
    if block.kind == "table":
        rows = [row for part in block.children for row in part.children]
        leaves = [_Block("row", row.first, row.last) for row in rows]
        return _partition(text, index, leaves, begin, end)
    if block.kind in _CONTAINERS and block.children:
        return _partition(text, index, block.children, begin, end)
    return ()


def _leaf(text: str, index: LineIndex, block: _Block) -> tuple[Node, ...]:
    span = _between(text, index, block.first, block.last)
    return () if span is None else (Node("paragraph", span),)


def _between(text: str, index: LineIndex, first: int, last: int) -> Span | None:
    """Returns the trimmed range of the lines from `first` up to, not including, `last`."""
    return trimmed(text, index.offset(first), index.offset(last))


def _plain(markdown: str) -> str:
    """Returns the text of inline Markdown, without marks, addresses and tags."""
    parser = _parser()
    tokens: list[Token] = []
    parser.inline.parse(markdown, parser, {}, tokens)
    parts = [
        " " if token.type in {"softbreak", "hardbreak"} else token.content
        for token in tokens
        if token.type != "html_inline"
    ]
    return " ".join("".join(parts).split())


@functools.cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt  # noqa: PLC0415 - 30 ms

    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser
