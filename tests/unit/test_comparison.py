"""Kinds, equality and order of metadata values, against independent oracles."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ragchat_retrieval.comparison import (
    MAX_INTEGER,
    canonical_date,
    canonical_datetime,
    plain_scalar,
    scalar_key,
)

NANOSECONDS = 1_000_000_000
DAY = 86_400 * NANOSECONDS


@st.composite
def rfc3339(draw) -> tuple[str, int]:
    """Draws an RFC 3339 string and its instant in whole nanoseconds since the day before year 1.

    The instant comes from day counts and integer arithmetic alone.
    """
    day = draw(st.dates())
    hour, minute, second = (
        draw(st.integers(0, 23)),
        draw(st.integers(0, 59)),
        draw(st.integers(0, 59)),
    )
    fraction = draw(st.text("0123456789", max_size=12))
    zone = draw(st.integers(-(23 * 60 + 59), 23 * 60 + 59))
    sign = "-" if zone < 0 else draw(st.sampled_from("+-")) if zone == 0 else "+"
    suffix = f"{sign}{abs(zone) // 60:02d}:{abs(zone) % 60:02d}"
    if zone == 0:
        suffix = draw(st.sampled_from(["Z", "z", suffix]))
    text = (
        f"{day.isoformat()}{draw(st.sampled_from('Tt'))}{hour:02d}:{minute:02d}:{second:02d}"
        f"{'.' + fraction if fraction else ''}{suffix}"
    )
    seconds = hour * 3600 + (minute - zone) * 60 + second
    part = int(Fraction(int(fraction or "0"), 10 ** len(fraction)) * NANOSECONDS)
    return text, day.toordinal() * DAY + seconds * NANOSECONDS + part


def representable(instant: int) -> bool:
    return DAY <= instant < (date.max.toordinal() + 1) * DAY


@given(rfc3339(), rfc3339())
def test_the_order_of_canonical_dates_is_that_of_the_instants(first, second):
    (text, instant), (other_text, other_instant) = first, second
    assume(representable(instant) and representable(other_instant))
    canonical, other = canonical_date(text), canonical_date(other_text)
    assert (canonical < other) is (instant < other_instant)
    assert (canonical == other) is (instant == other_instant)
    assert (canonical.encode() < other.encode()) is (canonical < other)


@given(rfc3339())
def test_a_date_is_canonical_exactly_if_its_instant_lies_in_the_years_1_to_9999(drawn):
    text, instant = drawn
    canonical = canonical_date(text)
    assert (canonical is not None) is representable(instant)
    if canonical is not None:
        assert len(canonical) == len("2024-03-01T12:00:00.000000000Z")
        assert canonical_date(canonical) == canonical


@given(rfc3339(), st.integers(-23 * 60, 23 * 60))
def test_one_instant_has_one_canonical_form_in_every_zone(drawn, minutes):
    text, instant = drawn
    assume(2 * DAY <= instant < date.max.toordinal() * DAY)
    moment = datetime(1, 1, 1, tzinfo=UTC) + timedelta(microseconds=(instant - DAY) // 1000)
    moved = moment.astimezone(timezone(timedelta(minutes=minutes)))
    assert canonical_datetime(moved) == canonical_datetime(moment)
    assert canonical_date(moved.isoformat()) == canonical_datetime(moment)
    # A datetime is exact to the microsecond, a string to the nanosecond.
    assert canonical_date(text)[:-4] == canonical_datetime(moment)[:-4]


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("2024-03-01T12:00:00Z", "2024-03-01T12:00:00.000000000Z"),
        ("2024-03-01T14:00:00+02:00", "2024-03-01T12:00:00.000000000Z"),
        ("2024-02-29T23:00:00-01:00", "2024-03-01T00:00:00.000000000Z"),
        ("2024-03-01t12:00:00.5z", "2024-03-01T12:00:00.500000000Z"),
        ("2024-03-01T12:00:00.0000000019Z", "2024-03-01T12:00:00.000000001Z"),
        ("2024-03-01T12:00:00-00:00", "2024-03-01T12:00:00.000000000Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000000000Z"),
        ("0000-12-31T23:30:00-01:00", "0001-01-01T00:30:00.000000000Z"),
        ("0400-02-29T23:59:59+00:00", "0400-02-29T23:59:59.000000000Z"),
        ("9999-12-31T23:59:59.999999999Z", "9999-12-31T23:59:59.999999999Z"),
    ],
)
def test_instants_have_a_canonical_form(text, canonical):
    assert canonical_date(text) == canonical


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2024",
        "2024-03-01",
        "2024-03-01T12:00:00",
        "2024-03-01 12:00:00Z",
        "2024-03-01T12:00Z",
        "2024-03-01T12:00:00.Z",
        "2024-03-01T12:00:00,5Z",
        "2024-03-01T12:00:00+0200",
        "2024-03-01T12:00:00+02",
        "2024-03-01T12:00:00+24:00",
        "2024-03-01T12:00:00+02:60",
        "2024-03-01T24:00:00Z",
        "2024-03-01T12:60:00Z",
        "2016-12-31T23:59:60Z",
        "2023-02-29T00:00:00Z",
        "2024-13-01T00:00:00Z",
        "2024-00-10T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+00:01",
        "9999-12-31T23:59:59-00:01",
        "12024-03-01T12:00:00Z",
        "-2024-03-01T12:00:00Z",
        "20240301T120000Z      ",
        "2024-W09-5T12:00:00Z",
        " 2024-03-01T12:00:00Z",
        "2024-03-01T12:00:00Z\n",
        "2024-03-01T12:00:00ZZ",
        "\u0662024-03-01T12:00:00Z",
        "2024-03-0\u0661T12:00:00Z",
    ],
    ids=ascii,
)
def test_what_only_looks_like_a_date_is_text(text):
    assert canonical_date(text) is None
    assert scalar_key(text) == ("string", text)


@given(st.text(), st.text())
def test_texts_are_ordered_by_code_point_which_is_the_order_of_their_utf8(first, second):
    key, other = scalar_key(first), scalar_key(second)
    assert (key[1] < other[1]) is (key[1].encode() < other[1].encode())
    assert (key == other) is (key[1] == other[1])


numbers = st.one_of(
    st.integers(-MAX_INTEGER, MAX_INTEGER), st.floats(allow_nan=False, allow_infinity=False)
)


@given(numbers, numbers)
def test_numbers_are_ordered_by_value(first, second):
    key, other = scalar_key(first), scalar_key(second)
    assert (key == other) is (Fraction(first) == Fraction(second))
    assert (key[1] < other[1]) is (Fraction(first) < Fraction(second))
    assert hash(key) == hash(other) or key != other


@given(st.integers())
def test_numbers_that_metadata_cannot_hold_still_compare_by_value(number):
    far = number + 10**400
    assert scalar_key(far) == ("number", far)
    assert scalar_key(far)[1] > scalar_key(1e308)[1]
    assert scalar_key(far)[1] < scalar_key(math.inf)[1]


def test_minus_zero_is_zero_in_every_way():
    assert math.copysign(1, scalar_key(-0.0)[1]) == 1


def test_values_of_different_kinds_never_share_a_key():
    values = [None, False, True, 0, 1, "", "0", "null", "false", "True"]
    assert len({scalar_key(value) for value in values}) == len(values)


@pytest.mark.parametrize(
    "value",
    [
        [],
        {},
        (),
        [1],
        {"a": 1},
        math.nan,
        b"x",
        {1},
        1j,
        object(),
        datetime.min.replace(tzinfo=UTC).replace(tzinfo=None),
        date(2024, 1, 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_everything_else_has_no_key(value):
    assert scalar_key(value) is None


@given(
    st.one_of(
        st.none(),
        st.booleans(),
        numbers,
        st.text(),
        st.datetimes(timezones=st.timezones(), allow_imaginary=False),
    )
)
def test_a_plain_scalar_has_the_key_of_what_was_given(value):
    if scalar_key(value) is None:  # too near to the ends of the calendar
        with pytest.raises(ValueError, match="years 0001 to 9999"):
            plain_scalar(value)
        return
    plain = plain_scalar(value)
    assert scalar_key(plain) == scalar_key(value)
    assert type(plain) in {type(None), bool, int, float, str, datetime}
