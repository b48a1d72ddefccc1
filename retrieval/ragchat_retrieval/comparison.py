"""How two metadata values compare, the same for every store.

A scalar has one of four kinds: null, bool, number, string. Values of different kinds are never
equal and never ordered. Numbers compare by value, strings by code point.

An instant in time is an aware ``datetime``, or a string of RFC 3339 section 5.6 (``T`` and ``Z`` in
either case). It counts as a string of a canonical form whose order is chronological: UTC with nine
fractional digits, as in ``2024-03-01T12:00:00.000000000Z``. Digits beyond the ninth are dropped.
Every other string is plain text; so are dates without a zone, leap seconds, days that do not exist,
and instants outside the years 0001 to 9999 of UTC.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Literal, TypeAlias

from ragchat_retrieval.text import is_storable

Kind = Literal["null", "bool", "number", "string"]

Scalar: TypeAlias = bool | int | float | str | datetime | None
"""What a metadata value or an operand may be, containers aside."""

ScalarKey: TypeAlias = tuple[Kind, bool | int | float | str | None]
"""A value's kind and its canonical form; equal exactly if the values are filter-equal."""

MAX_INTEGER = 2**53
"""Integers up to this size, of either sign, have an exact binary64 form, which engines keep."""

_RFC3339 = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})"
    r"(?:\.([0-9]+))?(?:[Zz]|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))"
)

# The Gregorian calendar repeats after 400 years. Early years are computed one cycle later, because
# an offset may carry an instant over the start of year 1, which `datetime` cannot do.
_CYCLE = 400


def scalar_key(value: object) -> ScalarKey | None:  # noqa: PLR0911 - one return a kind
    """Returns the kind and canonical form of a metadata value; total over all objects.

    Two values are filter-equal if and only if both have a key and the keys are equal. Of two keys
    of kind ``number``, or two of kind ``string``, the second members are ordered as the values are.

    Returns:
        None for what is present but never equal or ordered: lists, maps, NaN, naive datetimes and
        all objects that metadata cannot hold.
    """
    if value is None:
        return ("null", None)
    if isinstance(value, str):
        return ("string", canonical_date(value) or str.__str__(value))
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, int):
        # Larger ones do not occur in stored metadata, and `float` could round or overflow.
        return ("number", float(value) if abs(value) <= MAX_INTEGER else int(value))
    if isinstance(value, float):
        return None if math.isnan(value) else ("number", float(value) + 0.0)  # -0.0 becomes 0.0
    if isinstance(value, datetime):
        try:
            return ("string", canonical_datetime(value))
        except ValueError:
            return None
    return None


def plain_scalar(value: object) -> Scalar:
    """Returns a scalar as an exact builtin type, checked against what every store can keep.

    Subclasses (enum members, NumPy floats) become plain. A datetime keeps its wall clock and its
    offset; the offset is fixed, because a zone's rules may change or be missing elsewhere.

    Raises:
        ValueError: A container or another object, NaN, infinity, an integer beyond ±2^53, a naive
            datetime, or one outside the years 0001–9999 UTC. The message holds no value.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        if abs(value) > MAX_INTEGER:
            raise ValueError("integers beyond ±2^53 are not exact in every store")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("a number must be finite")
        return float(value)
    if isinstance(value, datetime):
        canonical_datetime(value)
        offset = value.utcoffset() or timedelta(0)
        fixed = timezone(offset) if offset else UTC
        return datetime.combine(value.date(), value.time(), tzinfo=fixed).replace(fold=0)
    kinds = "texts, numbers, booleans, null and datetimes with a time zone"
    raise ValueError(f"a {type(value).__name__} is no scalar; those are {kinds}")


def storable_scalar(value: object) -> Scalar:
    """Returns `plain_scalar(value)`, and also refuses strings with NUL or a lone surrogate.

    Raises:
        ValueError: As `plain_scalar`, or such a string.
    """
    plain = plain_scalar(value)
    if isinstance(plain, str) and not is_storable(plain):
        raise ValueError("a string must not hold NUL or a lone surrogate")
    return plain


def canonical_date(text: str) -> str | None:
    """Returns the canonical form of an RFC 3339 date-time, or None for any other string."""
    if len(text) < len("2024-03-01T12:00:00Z") or text[4] != "-":
        return None
    match = _RFC3339.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = map(int, match.group(1, 2, 3, 4, 5, 6))
    fraction, sign, zone_hours, zone_minutes = match.group(7, 8, 9, 10)
    shift = _CYCLE if year <= _CYCLE else 0
    try:
        moment = datetime(year + shift, month, day, hour, minute, second, tzinfo=UTC)
        if sign:
            offset = timedelta(hours=int(zone_hours), minutes=int(zone_minutes))
            moment += -offset if sign == "+" else offset
    except (ValueError, OverflowError):
        return None
    if moment.year == shift:  # the year before year 1
        return None
    return _canonical(moment.replace(tzinfo=None), moment.year - shift, fraction or "")


def canonical_datetime(value: datetime) -> str:
    """Returns the canonical form of an aware datetime.

    Raises:
        ValueError: It is naive, outside the years 0001–9999 UTC, or finer than a microsecond, as
            pandas' timestamps can be.
    """
    offset = value.utcoffset()
    if offset is None:
        raise ValueError("a datetime needs a time zone")
    if getattr(value, "nanosecond", 0):
        raise ValueError("a datetime is exact to the microsecond; give an RFC 3339 string instead")
    naive = datetime.combine(value.date(), value.time())
    try:
        moment = naive - offset
    except OverflowError:
        raise ValueError("a datetime must lie in the years 0001 to 9999 UTC") from None
    return _canonical(moment, moment.year, f"{moment.microsecond:06d}")


def _canonical(moment: datetime, year: int, fraction: str) -> str:
    return f"{year:04d}-{moment:%m-%dT%H:%M:%S}.{fraction[:9]:0<9}Z"
