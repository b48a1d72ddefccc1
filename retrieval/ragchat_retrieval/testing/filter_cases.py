"""The conformance cases of filters: what every store must select, and what it must not.

Each case is one document with one passage, one filter, and whether the filter selects the passage.
Ids are unique, so that all documents may live in one corpus: ingest them all, search with each
case's filter, and see whether the case's passage is among the results. All texts are equal and all
hold `TERM`, so that a keyword search for it reaches every passage.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ragchat_retrieval.filters import (
    Condition,
    Eq,
    Exists,
    Filter,
    Gt,
    In,
    Ne,
    NotExists,
)
from ragchat_retrieval.metadata import Metadata
from ragchat_retrieval.testing.filter_rows import NOON, ROWS
from ragchat_retrieval.values import Document, Lines, Passage, Span

if TYPE_CHECKING:
    from collections.abc import Mapping

TERM = "conformance"
"""A word that every case's text holds."""

TEXT = f"A passage for the {TERM} of filters."
"""The text of every case."""

HOSTILE_KEYS: tuple[str, ...] = (
    "",
    " ",
    "a b",
    "a.b",
    "a/b",
    "a:b",
    "a'b",
    'a"b',
    "a`b",
    "a\\b",
    "a\nb",
    "a\n",
    "\na",
    "a\x00",
    "$where",
    "{a}",
    "[0]",
    "a[*]",
    "%",
    "*",
    "?",
    "caf\u00e9",
    "cafe\u0301",
    "\uff41",
    "\u0661",
    "\U0001f511",
    "\ud800",
    "owner' = 'x' OR '1'='1' --",
    'a"] != "" or m["b',
    "a'); DELETE FROM passages; --",
    "a" * 129,
)
"""Keys outside the key pattern: `InvalidFilterKey` in a filter, `InvalidMetadata` at a write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterCase:
    """One document with one passage, one filter, and whether the filter selects it."""

    id: str
    """Group and name, such as ``eq/number-int-is-float``; unique."""

    filter: Filter
    expected: bool
    """Whether the passage is selected."""

    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    title: str | None = None
    source: str | None = None
    document_id: str = ""
    """Left empty, the case's id."""

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "metadata", Metadata(self.metadata))
        put(self, "document_id", self.document_id or self.id)

    @property
    def group(self) -> str:
        """The part of the id before the slash."""
        return self.id.partition("/")[0]

    @property
    def document(self) -> Document:
        """The document to store."""
        return Document(
            self.document_id, TEXT, title=self.title, source=self.source, metadata=self.metadata
        )

    @property
    def passage(self) -> Passage:
        """The document's only passage, which covers its whole text; its id ends in ``#0``."""
        document = self.document
        return Passage(
            TEXT,
            id=f"{self.document_id}#0",
            document_id=self.document_id,
            title=self.title,
            source=self.source,
            metadata=self.metadata,
            lines=Lines(1, 1),
            span=Span(0, len(TEXT)),
            digest=document.digest,
        )


def _reserved(name: str, condition: Condition, *, expected: bool, **fields: Any) -> FilterCase:
    return FilterCase(id=f"reserved/{name}", filter=Filter(condition), expected=expected, **fields)


_RESERVED = (
    _reserved("source", Eq("source", "a/b.md"), source="a/b.md", expected=True),
    _reserved("source-other", Eq("source", "a/b.md"), source="a/c.md", expected=False),
    _reserved("source-absent", Ne("source", "a/b.md"), expected=False),
    _reserved("source-not-exists", NotExists("source"), expected=True),
    _reserved("source-exists", Exists("source"), source="", expected=True),
    _reserved("source-is-never-null", Eq("source", None), expected=False),
    _reserved("source-in", In("source", ["x", "y"]), source="y", expected=True),
    _reserved("title", Eq("title", "Leave"), title="Leave", expected=True),
    _reserved("title-case", Eq("title", "leave"), title="Leave", expected=False),
    _reserved("title-absent", Exists("title"), expected=False),
    _reserved("title-not-exists", NotExists("title"), title="Leave", expected=False),
    _reserved("title-ordered", Gt("title", "K"), title="Leave", expected=True),
    _reserved(
        "title-instant",
        Eq("title", NOON),
        title="2024-03-01T14:00:00+02:00",
        expected=True,
    ),
    _reserved("title-is-no-number", Eq("title", 3), title="3", expected=False),
    _reserved(
        "document-id",
        Eq("document_id", "notes/\u00fc.md"),
        document_id="notes/\u00fc.md",
        expected=True,
    ),
    _reserved("document-id-other", Eq("document_id", "nobody"), expected=False),
    _reserved("document-id-ne", Ne("document_id", "nobody"), expected=True),
    _reserved("document-id-exists", Exists("document_id"), expected=True),
    _reserved("id", Eq("id", "unit#0"), document_id="unit", expected=True),
    _reserved("id-is-the-passage", Eq("id", "whole"), document_id="whole", expected=False),
    _reserved("id-exists", NotExists("id"), expected=False),
    _reserved("id-in", In("id", ["none#0", "one#0"]), document_id="one", expected=True),
)

_FROM_ROWS = tuple(
    FilterCase(
        id=f"{group}/{name}",
        filter=Filter(*conditions),
        metadata=metadata,
        expected=expected,
    )
    for group, rows in ROWS.items()
    for name, conditions, metadata, expected in rows
)

FILTER_CASES: tuple[FilterCase, ...] = (*_FROM_ROWS, *_RESERVED)
"""All cases."""
