"""The sentences of a passage, with what stands above them and where they stand in the document."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ragchat_retrieval.chunking.sentences import iterate_sentences
from ragchat_retrieval.values import Span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ragchat_retrieval.lexical import Analyzer
    from ragchat_retrieval.values import Passage

HEADING = re.compile(r"\s*#{1,6}\s")
"""Begins a line that is a heading."""

ABOVE_CREDIT = 0.7
"""What a term counts that stands only in the title or headings above a sentence."""

_MARKUP = re.compile(r"\A(?:[-*+>]|\d+[.)])\s+")
_CODE = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1|\Z)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a passage."""

    text: str
    """As it stands in the passage, less line breaks, list markers and the outer bars of a table."""

    span: Span
    """Where it stands in its document's text; in the passage's, if that has no span itself."""

    terms: tuple[str, ...]
    """Its terms in order."""

    above: frozenset[str] = frozenset()
    """The terms of the document's title and of the headings above it."""

    distinct: frozenset[str] = field(init=False, repr=False, compare=False)
    """Its terms, each once."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "distinct", frozenset(self.terms))


def sentences_of(passage: Passage, analyzer: Analyzer, *, prose: bool = True) -> Iterator[Sentence]:
    """Yields the sentences of a passage that have terms, in order.

    Args:
        passage: The passage.
        analyzer: Analysis of words; that of the index.
        prose: Leaves out headings, which say what the sentences under them are about, and code.
    """
    above = frozenset(analyzer.terms("\n".join([passage.title or "", *passage.headings])))
    offset = passage.span.start if passage.span is not None else 0
    code = [match.span() for match in _CODE.finditer(passage.text)]
    block = 0
    for start, end in iterate_sentences(passage.text, 0, len(passage.text)):
        raw = passage.text[start:end]
        while block < len(code) and code[block][1] <= start:
            block += 1
        if prose and (HEADING.match(raw) or (block < len(code) and code[block][0] < end)):
            continue
        text = readable(raw)
        if terms := tuple(analyzer.terms(text)):
            yield Sentence(text, Span(offset + start, offset + end), terms, above)


def readable(raw: str) -> str:
    """Returns a sentence on one line, without its list marker and the outer bars of a table."""
    text = " ".join(_MARKUP.sub("", raw.strip(), count=1).split())
    return text.strip("| ") if text.startswith("|") else text
