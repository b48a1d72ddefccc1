"""Filters over metadata: one meaning, whichever store evaluates them.

A filter is a conjunction of conditions; an empty one matches everything. Matching is total: a
condition matches or it does not, it never fails. What two values have to do with each other is in
`ragchat_retrieval.comparison`. Beyond that:

* A key is present whatever its value, null included. Every operator but `NotExists` requires it.
* ``Eq(key, None)`` matches null only. `Ne` is "present and not `Eq`", so that null, another kind, a
  list or a map match it. No other operator matches across kinds.
* Lists and maps are never equal, ordered or members. `In` without values matches nothing.
* The keys ``id``, ``document_id``, ``source`` and ``title`` address fields of a passage or
  document; a title or source of None is absent. Of a document, ``id`` and ``document_id`` are the
  same.
* An operand must be a value that metadata can hold, and a string without NUL and lone surrogates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, final

from ragchat_retrieval.comparison import Kind, ScalarKey, scalar_key
from ragchat_retrieval.conditions import (
    KEY_PATTERN,
    RESERVED_KEYS,
    Condition,
    Eq,
    Exists,
    Gt,
    Gte,
    In,
    Lt,
    Lte,
    Ne,
    NotExists,
    Op,
    in_values,
    validate_key,
)
from ragchat_retrieval.detection import as_filterable, is_semantic
from ragchat_retrieval.errors import InvalidFilter
from ragchat_retrieval.text import corpus_prefix

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ragchat_retrieval.values import Document, Passage

__all__ = [
    "KEY_PATTERN",
    "RESERVED_KEYS",
    "Condition",
    "Eq",
    "Exists",
    "Filter",
    "Gt",
    "Gte",
    "In",
    "Kind",
    "Lt",
    "Lte",
    "Ne",
    "NotExists",
    "Op",
    "ScalarKey",
    "as_filterable",
    "fields_of",
    "in_values",
    "is_semantic",
    "scalar_key",
    "validate_key",
]


@final
class Filter:
    """An immutable conjunction of conditions; equal to any filter with the same canonical bytes.

    Args:
        *conditions: All must match; none matches everything.

    Raises:
        InvalidFilter: An argument is no `Condition`.
    """

    __slots__ = ("_canonical", "conditions")

    conditions: tuple[Condition, ...]
    """In the order given."""

    _canonical: bytes

    def __init__(self, *conditions: Condition) -> None:
        for condition in conditions:
            if not isinstance(condition, Condition):
                raise InvalidFilter("a filter is made of conditions; Filter.of reads other forms")
        canonical = b"\n".join(sorted({c.canonical_bytes() for c in conditions}))
        object.__setattr__(self, "conditions", conditions)
        object.__setattr__(self, "_canonical", canonical)

    @classmethod
    def of(cls, value: object) -> Filter:
        """Reads a filter from any of its forms.

        Args:
            value: None (matches everything), a `Filter`, a `Condition`, a mapping (`Eq` per key),
                or a list whose members are conditions or ``{"key", "op", "value"}`` mappings.

        Raises:
            InvalidFilter: Another form, an unknown operator, a missing or extra member.
            InvalidFilterKey: A key does not match `KEY_PATTERN`.
        """
        if value is None:
            return cls()
        if isinstance(value, Filter):
            return value
        if isinstance(value, Condition):
            return cls(value)
        if isinstance(value, Mapping):
            return cls(*(Condition(key, Op.EQ, operand) for key, operand in value.items()))
        if isinstance(value, list | tuple):
            return cls(*map(_condition_of, value))
        raise InvalidFilter("a filter is a mapping, or a list of {key, op, value}")

    def canonical_bytes(self) -> bytes:
        """Returns an encoding that is equal for filters that select the same; empty gives ``b""``.

        Order and repetition of conditions, 3 or 3.0, time zones, and order and repetition inside
        `In` make no difference; `In` with one value is `Eq`.
        """
        return self._canonical

    def to_json(self) -> list[dict[str, Any]]:
        """Returns the JSON list form; ``Filter.of`` of it is an equal filter."""
        return [condition.to_json() for condition in self.conditions]

    def matches(self, metadata: Mapping[str, Any] | None) -> bool:
        """Says whether every condition matches a mapping; None is a mapping without keys."""
        present = metadata or {}
        return all(
            c.test(present[c.key]) if c.key in present else c.test_absent() for c in self.conditions
        )

    def matches_passage(self, passage: Passage) -> bool:
        """Says whether every condition matches a passage's metadata and reserved fields."""
        return not self.conditions or self.matches(fields_of(passage))

    def matches_document(self, document: Document) -> bool:
        """Says whether every condition matches a document's metadata and reserved fields."""
        return not self.conditions or self.matches(fields_of(document))

    def __and__(self, other: Filter) -> Filter:
        if not isinstance(other, Filter):
            return NotImplemented
        return Filter(*self.conditions, *other.conditions) if other else self

    def __iter__(self) -> Iterator[Condition]:
        return iter(self.conditions)

    def __len__(self) -> int:
        return len(self.conditions)

    def __eq__(self, other: object) -> bool:
        return self._canonical == other._canonical if isinstance(other, Filter) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._canonical)

    def __repr__(self) -> str:
        return f"Filter({', '.join(map(repr, self.conditions))})"

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a filter is immutable")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("a filter is immutable")

    def __reduce__(self) -> tuple[type[Filter], tuple[Condition, ...]]:
        return (Filter, self.conditions)


def _condition_of(member: object) -> Condition:
    if isinstance(member, Condition):
        return member
    if not isinstance(member, Mapping) or set(member) != {"key", "op", "value"}:
        raise InvalidFilter("a condition has exactly the members key, op and value")
    return Condition(member["key"], member["op"], member["value"])


def fields_of(item: Passage | Document) -> dict[str, Any]:
    """Returns what filters see of a passage or document: metadata and the reserved fields.

    A title or source of None is left out. A document's id stands under ``id`` and ``document_id``.
    Ids are those that were written: the name of a passage's corpus is no part of them.
    """
    fields = {**item.metadata, "id": item.id, "document_id": getattr(item, "document_id", item.id)}
    corpus: str | None = getattr(item, "corpus", None)
    if corpus is not None:
        prefix = corpus_prefix(corpus)
        fields |= {name: fields[name].removeprefix(prefix) for name in ("id", "document_id")}
    if item.source is not None:
        fields["source"] = item.source
    if item.title is not None:
        fields["title"] = item.title
    return fields
