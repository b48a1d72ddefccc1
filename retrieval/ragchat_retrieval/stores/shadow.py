"""Filters for engines with a query language of their own, over typed shadow fields.

What a filter sees of a passage or document is written beside it in a form that any engine can ask
exactly: **tokens** for presence and equality (hashes, so that no value is too long or of the
wrong type), numbers under ``n.KEY``, and strings under ``s.KEY.c0``, ``s.KEY.c1`` … as numbers of
six bytes each, whose order is that of code points, and −1 where the string ends. A filter becomes a
`Clause` over these fields, which an adapter translates node by node.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ragchat_retrieval.filters import Filter, Op, ScalarKey, fields_of, scalar_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ragchat_retrieval.filters import Condition
    from ragchat_retrieval.values import Document, Passage

TOKENS = "f"
"""The field of the tokens, a list of strings."""

CHUNK = 6
"""Bytes of a string in one number: 48 bits are exact in a float."""

LEVELS = 64
"""How many chunks of a string are written; filters on longer ones are checked again on reading."""

Comparison: TypeAlias = Literal["gt", "gte", "lt", "lte"]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """A field of strings, one or many, holds one of these."""

    field: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Compare:
    """A field holds a number that compares so."""

    field: str
    op: Comparison
    number: float


@dataclass(frozen=True, slots=True)
class Both:
    """All clauses hold; of none, everything matches."""

    clauses: tuple[Clause, ...] = ()


@dataclass(frozen=True, slots=True)
class Either:
    """One of the clauses holds; of none, nothing matches."""

    clauses: tuple[Clause, ...] = ()


@dataclass(frozen=True, slots=True)
class StringOrder(Either):
    """How a string compares: over its chunks, and in one piece for engines that order strings."""

    key: str = ""
    op: Comparison = "gt"
    digits: str = ""
    """The operand as `digits_of` writes strings."""


@dataclass(frozen=True, slots=True)
class Neither:
    """The clause does not hold; of comparisons only where the field is always there."""

    clause: Clause


Clause: TypeAlias = AnyOf | Compare | Both | Either | Neither

EVERYTHING = Both()

_END = -1.0
"""Stands after the last chunk of a string, and before any other."""

_COMPARISONS: dict[Op, Comparison] = {Op.GT: "gt", Op.GTE: "gte", Op.LT: "lt", Op.LTE: "lte"}


@dataclass(frozen=True, slots=True)
class Plan:
    """A filter as a clause."""

    clause: Clause
    exact: bool
    """Whether the clause selects what the filter selects; else more, to be checked on reading."""


def shadow(item: Passage | Document) -> dict[str, Any]:
    """Returns the shadow fields of a passage or document: tokens, numbers and strings."""
    return shadow_of(fields_of(item))


def shadow_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the shadow fields of what filters see: ``{"f": […], "n": {…}, "s": {…}}``."""
    tokens: list[str] = []
    numbers: dict[str, float] = {}
    strings: dict[str, dict[str, float]] = {}
    for key, value in fields.items():
        tokens.append(_presence(key))
        scalar = scalar_key(value)
        if scalar is None:
            continue
        tokens.append(_equality(key, scalar))
        kind, canonical = scalar
        if kind == "number":
            numbers[key] = _number(canonical)
        elif kind == "string":
            chunks = [*_chunks(str(canonical)), _END][:LEVELS]
            strings[key] = {f"c{level}": chunk for level, chunk in enumerate(chunks)}
    return {TOKENS: tokens, "n": numbers, "s": strings}


def digits_of(chunks: Iterable[float]) -> str:
    """Returns the written chunks of a string as hexadecimal digits, ordered as the strings."""
    return "".join(f"{int(chunk):0{2 * CHUNK}x}" for chunk in chunks if chunk != _END)


def plan_of(*filters: Filter) -> Plan:
    """Translates a conjunction of filters."""
    clauses: list[Clause] = []
    exact = True
    for given in filters:
        for condition in given:
            clause, sure = _clause(condition)
            clauses.append(clause)
            exact = exact and sure
    return Plan(Both(tuple(clauses)), exact)


def both(*clauses: Clause) -> Clause:
    """Joins clauses, without those that say nothing."""
    told = tuple(clause for clause in clauses if clause != EVERYTHING)
    return told[0] if len(told) == 1 else Both(told)


def _clause(condition: Condition) -> tuple[Clause, bool]:
    key, op = condition.key, condition.op
    present = AnyOf(TOKENS, (_presence(key),))
    if op is Op.EXISTS:
        return (present if condition.value else Neither(present)), True
    equal = AnyOf(TOKENS, tuple(sorted(_equality(key, operand) for operand in condition.operands)))
    if op is Op.NE:
        return Both((present, Neither(equal))), True
    if op in {Op.EQ, Op.IN}:
        return (equal if equal.values else Either()), True
    (operand,) = condition.operands
    kind, canonical = operand
    comparison = _COMPARISONS[op]
    if kind == "number":
        return Compare(f"n.{key}", comparison, _number(canonical)), True
    return _string_order(key, comparison, str(canonical), equal)


def _string_order(key: str, op: Comparison, operand: str, equal: AnyOf) -> tuple[Clause, bool]:
    chunks = _chunks(operand)
    exact = len(chunks) < LEVELS
    options: list[Clause] = [equal] if op in {"gte", "lte"} else []
    before: tuple[Clause, ...] = ()
    for level, chunk in enumerate([*chunks, _END][:LEVELS]):
        field = f"s.{key}.c{level}"
        options.append(
            Both((*before, Compare(field, "gt" if op in {"gt", "gte"} else "lt", chunk)))
        )
        before = (*before, Compare(field, "gte", chunk), Compare(field, "lte", chunk))
    if not exact:
        options.append(Both(before))
        op = "gte" if op in {"gt", "gte"} else "lte"
    return StringOrder(tuple(options), key=key, op=op, digits=digits_of(chunks[:LEVELS])), exact


def _chunks(text: str) -> list[float]:
    data = text.encode()
    return [
        float(int.from_bytes(data[at : at + CHUNK].ljust(CHUNK, b"\0")))
        for at in range(0, len(data), CHUNK)
    ]


def _number(canonical: object) -> float:
    assert isinstance(canonical, float | int)  # noqa: S101 - the kind says so
    return float(canonical)


def _presence(key: str) -> str:
    return _token("present", key)


def _equality(key: str, scalar: ScalarKey) -> str:
    return _token("equal", key, *scalar)


def _token(*parts: object) -> str:
    return blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()
