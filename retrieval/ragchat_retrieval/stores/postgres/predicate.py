"""Filters as SQL over a shadow of the fields.

Beside the metadata as given, each row keeps a shadow in one ``jsonb`` column: every key that is
present, with its value in the canonical form of `ragchat_retrieval.comparison`. Null, bools,
numbers and strings stay what they are, dates become their canonical string, lists and maps become
an empty object: present, and equal to nothing. So containment (``@>``, which the GIN index serves)
is filter equality, and the conditions mean what they mean everywhere. Keys and operands are bound
parameters.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ragchat_retrieval.comparison import scalar_key
from ragchat_retrieval.filters import Op

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ragchat_retrieval.filters import Condition, Filter

_write = json.JSONEncoder(separators=(",", ":")).encode

_ORDERED: Final = {Op.GT: ">", Op.GTE: ">=", Op.LT: "<", Op.LTE: "<="}

_ALTERNATIVES = 32
"""Most members of `In` that are spelled out, each found by the index."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition for a ``WHERE`` clause, with the values of its named parameters."""

    sql: str = "true"
    params: Mapping[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.sql != "true"


def shadow(fields: Mapping[str, Any]) -> str:
    """Returns the shadow of what filters see of a passage or document, as JSON text."""
    return _write({key: _canonical(value) for key, value in fields.items()})


def predicate(*filters: Filter, column: str) -> Predicate:
    """Returns the conjunction of filters as SQL.

    Args:
        *filters: All must match.
        column: The shadow's column, qualified; a constant.
    """
    distinct = {c.canonical_bytes(): c for each in filters for c in each}
    if not distinct:
        return Predicate()
    values = _Values()
    parts = [_condition(condition, column, values) for condition in distinct.values()]
    return Predicate(" AND ".join(parts), values.named)


class _Values:
    def __init__(self) -> None:
        self.named: dict[str, Any] = {}

    def bind(self, value: object) -> str:
        """Returns the placeholder of a value."""
        name = f"filter_{len(self.named)}"
        self.named[name] = value
        return f"%({name})s"


def _condition(condition: Condition, column: str, values: _Values) -> str:
    if condition.op in _ORDERED:
        return _ordered(condition, column, values)
    if condition.op in {Op.EQ, Op.IN}:
        return _equal(condition, column, values)
    present = f"{column} ? {values.bind(condition.key)}"
    if condition.op is Op.NE:
        return f"({present} AND NOT {_equal(condition, column, values)})"
    return present if condition.value else f"NOT {present}"


def _equal(condition: Condition, column: str, values: _Values) -> str:
    members = [value for _, value in condition.operands]
    if len(members) > _ALTERNATIVES:
        # PostgreSQL looks equality up in a hash table; containment it would try for each member.
        alike = values.bind(sorted(map(_write, members)))
        return f"{column} -> {values.bind(condition.key)} = ANY({alike}::jsonb[])"
    holders = sorted(_write({condition.key: value}) for value in members)
    parts = [f"{column} @> {values.bind(holder)}::jsonb" for holder in holders]
    return f"({' OR '.join(parts)})" if parts else "false"


def _ordered(condition: Condition, column: str, values: _Values) -> str:
    ((kind, operand),) = condition.operands
    sign, key = _ORDERED[condition.op], values.bind(condition.key)
    # CASE keeps a value of another kind from ever being cast.
    if kind == "number":
        # The shortest text of a float names it exactly and orders as the floats do.
        compared = f"({column} ->> {key})::numeric {sign} {values.bind(repr(operand))}::numeric"
    else:
        compared = f'({column} ->> {key}) COLLATE "C" {sign} {values.bind(operand)}::text'
    return f"CASE WHEN jsonb_typeof({column} -> {key}) = '{kind}' THEN {compared} ELSE false END"


def _canonical(value: object) -> object:
    scalar = scalar_key(value)
    return {} if scalar is None else scalar[1]
