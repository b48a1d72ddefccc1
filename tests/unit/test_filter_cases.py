"""The shipped conformance cases: whole, distinct, and true of the reference evaluator."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from ragchat_retrieval.errors import InvalidFilterKey, InvalidMetadata
from ragchat_retrieval.filters import Eq, Exists, Filter, Gt, Gte, In, Lt, Lte, Ne, NotExists
from ragchat_retrieval.metadata import Metadata, encode
from ragchat_retrieval.testing import FILTER_CASES, HOSTILE_KEYS
from ragchat_retrieval.testing.filter_cases import TERM
from ragchat_retrieval.text import check_document

cases = pytest.mark.parametrize("case", FILTER_CASES, ids=lambda case: case.id)


@cases
def test_the_reference_evaluator_selects_what_the_case_says(case):
    assert case.filter.matches_passage(case.passage) is case.expected


@cases
def test_a_case_is_the_same_after_the_json_form_and_the_stored_form(case):
    again = Filter.of(case.filter.to_json())
    assert again == case.filter
    assert again.matches_passage(case.passage) is case.expected


@cases
def test_a_case_can_be_stored(case):
    check_document(case.document, [case.passage])
    assert TERM in case.passage.text
    start, end = case.passage.span
    assert case.document.text[start:end] == case.passage.text


def test_there_are_at_least_120_cases_and_every_group_has_both_answers():
    assert len(FILTER_CASES) >= 120
    answers = {(case.group, case.expected) for case in FILTER_CASES}
    groups = {case.group for case in FILTER_CASES}
    assert {group for group in groups if len({a for a in answers if a[0] == group}) < 2} == {
        "empty"
    }


def test_no_two_cases_share_an_id():
    for name in ("id", "document_id"):
        counts = Counter(getattr(case, name) for case in FILTER_CASES)
        assert max(counts.values()) == 1


def test_no_two_cases_are_the_same():
    seen = Counter(
        (
            case.filter.canonical_bytes(),
            encode(case.metadata),
            case.title,
            case.source,
            case.document_id if case.group == "reserved" else None,
        )
        for case in FILTER_CASES
    )
    assert [key for key, count in seen.items() if count > 1] == []


@pytest.mark.parametrize("key", HOSTILE_KEYS, ids=ascii)
def test_a_key_outside_the_pattern_is_refused_in_filters_and_at_writes(key):
    for build in (
        *(partial(operator, key, 1) for operator in (Eq, Ne, Gt, Gte, Lt, Lte)),
        *(partial(In, key, [1]), partial(Exists, key), partial(NotExists, key)),
        *(partial(Filter.of, form) for form in ({key: 1}, [{"key": key, "op": "eq", "value": 1}])),
    ):
        with pytest.raises(InvalidFilterKey):
            build()
    with pytest.raises(InvalidMetadata):
        Metadata({key: 1})
