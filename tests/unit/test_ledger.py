from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat.citations import CitationLedger, Citations
from ragchat.errors import InvalidCitations, UnknownCitation
from ragchat_retrieval.values import Passage

A, B, C, D = (Passage(text, id=text, document_id=f"doc-{text}") for text in "ABCD")


def after(ledger: CitationLedger, *passages: Passage) -> CitationLedger:
    return ledger.admit(Citations(dict(zip(ledger.number(passages), passages, strict=True))))


def test_a_known_passage_keeps_its_number_and_new_ones_get_the_next():
    first = after(CitationLedger(), A, B)
    assert first.number([C, B, D, C]) == (3, 2, 4, 3)
    assert after(first, C, B).citations == {1: A, 2: B, 3: C}


def test_a_ledger_never_changes():
    empty = CitationLedger()
    first = after(empty, A)
    after(first, B)
    first.cite([1])
    assert (empty.citations, first.citations, first.cited) == ({}, {1: A}, ())
    assert empty == CitationLedger()
    assert len({first, after(CitationLedger(), A)}) == 1


@given(st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=5, unique=True), max_size=8))
def test_numbers_are_stable_dense_and_never_shared(turns: list[list[str]]):
    ledger = CitationLedger()
    seen: dict[str, int] = {}
    for turn in turns:
        passages = [Passage(text, id=text) for text in turn]
        for passage, number in zip(passages, ledger.number(passages), strict=True):
            assert seen.setdefault(passage.id, number) == number
        ledger = after(ledger, *passages)
    assert sorted(seen.values()) == list(range(1, len(seen) + 1))
    assert {p.id: n for n, p in ledger.citations.items()} == seen
    assert CitationLedger.from_json(ledger.to_json()) == ledger


def test_a_known_passage_is_kept_as_it_is_presented_now():
    renamed = Passage("A", id="A", title="new")
    assert after(after(CitationLedger(), A), renamed).citations[1].title == "new"


@pytest.mark.parametrize("presented", [{1: B}, {2: A}, {1: A, 2: A}])
def test_numbers_that_do_not_go_with_the_ledger_are_refused(presented):
    with pytest.raises(InvalidCitations):
        after(CitationLedger(), A).admit(Citations(presented))


def test_the_passages_cited_last_come_first():
    ledger = after(CitationLedger(), A, B, C).cite([1, 2]).cite([3, 1])
    assert ledger.cited == (2, 3, 1)
    assert ledger.recent() == (A, C, B)
    assert ledger.recent(1) == (A,)
    with pytest.raises(UnknownCitation):
        ledger.cite([4])


def test_forgetting_a_document_leaves_its_numbers_unused():
    ledger = after(CitationLedger(), A, B).cite([2, 1]).forget("doc-B", "doc-x")
    assert (ledger.citations, ledger.cited) == ({1: A}, (1,))
    assert ledger.number([B, C]) == after(ledger, A).number([B, C]) == (3, 4)
    assert CitationLedger.from_json(ledger.to_json()) == ledger
    with pytest.raises(InvalidCitations):
        ledger.admit(Citations({2: C}))


def test_the_stored_form_has_a_version():
    assert json.loads(CitationLedger().to_json()) == {
        "version": 1,
        "cited": [],
        "next": 1,
        "citations": [],
    }


ENTRY = {"number": 2, "text": "secret", "id": "x"}
GOOD = {"version": 1, "cited": [2], "next": 3, "citations": [ENTRY]}


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"cited": [1]},
        {"cited": [2, 2]},
        {"cited": ["2"]},
        {"cited": [[2]]},
        {"cited": None},
        {"next": 2},
        {"next": 0},
        {"next": True},
        {"next": "3"},
        {"citations": [ENTRY, {**ENTRY, "number": 1}]},
        {"citations": None},
    ],
)
def test_another_version_or_damage_is_an_error_that_repeats_nothing(change):
    assert CitationLedger.from_json(json.dumps(GOOD)).number([Passage("n")]) == (3,)
    with pytest.raises(InvalidCitations) as caught:
        CitationLedger.from_json(json.dumps(GOOD | change))
    assert "secret" not in str(caught.value)
