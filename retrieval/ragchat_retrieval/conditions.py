"""Conditions over one key: operators, operands, and which keys there are.

What they mean is told in `ragchat_retrieval.filters`, which gives them out as well.
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
    Scalar,
    ScalarKey,
    canonical_datetime,
    scalar_key,
    storable_scalar,
)
from ragchat_retrieval.errors import InvalidFilter, InvalidFilterKey

if TYPE_CHECKING:
    from collections.abc import Callable

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
    if isinstance(value, Mapping):
        problem = "a mapping is no scalar; an operator is written as [{key, op, value}]"
        raise InvalidFilter(problem, key=key)
    if isinstance(value, list | tuple | set | frozenset):
        problem = f"a {type(value).__name__} is no scalar; 'in' takes several values"
        raise InvalidFilter(problem, key=key)
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
