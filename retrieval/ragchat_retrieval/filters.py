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

import json
import operator
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, final

from ragchat_retrieval.comparison import (
    Kind,
    Scalar,
    ScalarKey,
    canonical_datetime,
    scalar_key,
    storable_scalar,
)
from ragchat_retrieval.detection import as_filterable, is_semantic
from ragchat_retrieval.errors import InvalidFilter, InvalidFilterKey
from ragchat_retrieval.text import corpus_prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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

KEY_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,128}")
"""What a key is, by ``fullmatch``: safe to express in the query language of every engine."""

RESERVED_KEYS = frozenset({"id", "document_id", "source", "title"})
"""Keys that address fields; metadata may not use them."""


class Op(StrEnum):
    """The operators, by their names in the JSON form."""

    EQ = "eq"
    NE = "ne"
    GT = "gt"
    GTE = "gte"
    LT = "lt"
    LTE = "lte"
    IN = "in"
    EXISTS = "exists"


_ORDERED: dict[Op, Callable[[Any, Any], bool]] = {
    Op.GT: operator.gt,
    Op.GTE: operator.ge,
    Op.LT: operator.lt,
    Op.LTE: operator.le,
}


def validate_key(key: object) -> None:
    """Refuses a key that is no string of the key pattern.

    Raises:
        InvalidFilterKey: The key has another form.
    """
    if not isinstance(key, str) or KEY_PATTERN.fullmatch(key) is None:
        shown = key[:129] if isinstance(key, str) else type(key).__name__
        raise InvalidFilterKey("a key is 1 to 128 of A-Z, a-z, 0-9, '_' and '-'", key=shown)


def in_values(values: object, *, key: str | None = None) -> tuple[Scalar, ...]:
    """Returns the distinct candidate values that the operand of `In` stands for, in given order.

    Args:
        values: Any iterable of scalars, but no string, bytes or mapping.
        key: The condition's key, named in errors.

    Raises:
        InvalidFilter: `values` is no such iterable, or a member is no valid operand.
    """
    if isinstance(values, str | bytes | bytearray | Mapping) or not isinstance(values, Iterable):
        raise InvalidFilter("'in' takes a list of values", key=key)
    distinct: dict[ScalarKey | None, Scalar] = {}
    for value in values:
        plain = _operand(value, key)
        distinct.setdefault(scalar_key(plain), plain)
    return tuple(distinct.values())


def _operand(value: object, key: str | None) -> Scalar:
    try:
        return storable_scalar(value)
    except ValueError as error:
        raise InvalidFilter(str(error), key=key) from None


@final
@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """A predicate over one key. Equal to another if both select the same by the rules above.

    Raises:
        InvalidFilterKey: The key does not match `KEY_PATTERN`.
        InvalidFilter: The operator is unknown, or the operand does not suit it.
    """

    key: str
    op: Op
    """An `Op` or its name."""

    value: Any
    """A scalar; for ``in`` a tuple of distinct ones; for ``exists`` whether the key must exist."""

    _keys: frozenset[ScalarKey | None] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        validate_key(self.key)
        put(self, "key", str.__str__(self.key))
        try:
            op = Op(self.op)
        except ValueError:
            raise InvalidFilter("unknown operator", key=self.key) from None
        put(self, "op", op)
        put(self, "value", self._checked(op))
        operands = self.value if op is Op.IN else (self.value,)
        put(self, "_keys", frozenset(map(scalar_key, operands)))

    def _checked(self, op: Op) -> object:
        if op is Op.IN:
            return in_values(self.value, key=self.key)
        if op is Op.EXISTS:
            if not isinstance(self.value, bool):
                raise InvalidFilter("'exists' takes true or false", key=self.key)
            return self.value
        plain = _operand(self.value, self.key)
        if op in _ORDERED and (plain is None or isinstance(plain, bool)):
            raise InvalidFilter(f"'{op}' needs a number, a string or a date", key=self.key)
        return plain

    @property
    def operands(self) -> frozenset[ScalarKey]:
        """The canonical operands: one, or those of ``in``; for engines that translate filters."""
        return frozenset(key for key in self._keys if key is not None)

    def test(self, value: object) -> bool:
        """Says whether the condition matches a key that is present with this value."""
        if self.op is Op.EXISTS:
            return bool(self.value)
        actual = scalar_key(value)
        if self.op is Op.NE:
            return actual not in self._keys
        if actual is None:
            return False
        compare = _ORDERED.get(self.op)
        if compare is None:
            return actual in self._keys
        (expected,) = self.operands
        return actual[0] == expected[0] and compare(actual[1], expected[1])

    def test_absent(self) -> bool:
        """Says whether the condition matches where the key is absent."""
        return self.op is Op.EXISTS and not self.value

    def canonical_bytes(self) -> bytes:
        """Returns a stable encoding, equal for conditions that select the same."""
        op = Op.EQ if self.op is Op.IN and len(self._keys) == 1 else self.op
        operands = sorted(self._keys, key=json.dumps)
        return json.dumps([self.key, op, operands], separators=(",", ":")).encode("ascii")

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON form, ``{"key", "op", "value"}``; datetimes become RFC 3339 strings."""
        value = [*map(_json, self.value)] if self.op is Op.IN else _json(self.value)
        return {"key": self.key, "op": self.op.value, "value": value}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Condition):
            return NotImplemented
        return self.canonical_bytes() == other.canonical_bytes()

    def __hash__(self) -> int:
        return hash(self.canonical_bytes())


def _json(value: Scalar) -> bool | float | str | None:
    return canonical_datetime(value) if isinstance(value, datetime) else value


def Eq(key: str, value: Scalar) -> Condition:  # noqa: N802 - reads as a constructor
    """The key is present and its value equals `value`."""
    return Condition(key, Op.EQ, value)


def Ne(key: str, value: Scalar) -> Condition:  # noqa: N802 - as Eq
    """The key is present and its value does not equal `value`."""
    return Condition(key, Op.NE, value)


def Gt(key: str, value: float | str | datetime) -> Condition:  # noqa: N802 - as Eq
    """The value is of the same kind as `value` and greater."""
    return Condition(key, Op.GT, value)


def Gte(key: str, value: float | str | datetime) -> Condition:  # noqa: N802 - as Eq
    """The value is of the same kind as `value` and not less."""
    return Condition(key, Op.GTE, value)


def Lt(key: str, value: float | str | datetime) -> Condition:  # noqa: N802 - as Eq
    """The value is of the same kind as `value` and less."""
    return Condition(key, Op.LT, value)


def Lte(key: str, value: float | str | datetime) -> Condition:  # noqa: N802 - as Eq
    """The value is of the same kind as `value` and not greater."""
    return Condition(key, Op.LTE, value)


def In(key: str, values: Iterable[Scalar]) -> Condition:  # noqa: N802 - as Eq
    """The value equals one of `values`; kinds may be mixed. Without values nothing matches."""
    return Condition(key, Op.IN, values)


def Exists(key: str) -> Condition:  # noqa: N802 - as Eq
    """The key is present, whatever its value."""
    return Condition(key, Op.EXISTS, True)


def NotExists(key: str) -> Condition:  # noqa: N802 - as Eq
    """The key is absent."""
    return Condition(key, Op.EXISTS, False)


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
