"""Duplicates: the same text, the same words, a simhash within a few bits, a close vector."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat_retrieval.duplicates import (
    Duplicate,
    DuplicateFinder,
    duplicate_groups,
    hamming,
    simhash,
)
from ragchat_retrieval.embedders import HashingEmbedder
from ragchat_retrieval.errors import InvalidDocument, InvalidSetting
from ragchat_retrieval.ingest import Duplicates, IngestReport, deduplicated, records
from ragchat_retrieval.values import Document

WORDS = [f"word{n}" for n in range(400)]
LONG = " ".join(np.random.default_rng(1).choice(WORDS, 900))
EDITED = LONG.replace(LONG.split()[450], "changed", 1)
OTHER = " ".join(np.random.default_rng(2).choice(WORDS, 900))


def test_a_small_change_turns_few_bits_and_another_text_turns_half():
    assert hamming(simhash(LONG), simhash(EDITED)) <= 5
    assert 16 < hamming(simhash(LONG), simhash(OTHER)) < 48
    assert simhash("") == simhash(" \n!") == 0


def test_case_spacing_and_punctuation_do_not_count_and_the_order_of_words_does():
    assert simhash("Green tea, in the hills.") == simhash("green  TEA in the\nhills")
    assert simhash("one two three four") != simhash("four three two one")


def test_it_is_the_same_in_every_process_and_version():
    assert simhash("Tea is grown in the hills.") == 0x1280508034042252
    code = "from ragchat_retrieval import simhash; print(simhash('喝茶 and tea'))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert int(other.stdout) == simhash("喝茶 and tea")


@given(st.text(max_size=60))
def test_a_simhash_has_64_bits(text):
    assert 0 <= simhash(text) < 2**64


def test_each_way_is_told_by_its_name():
    finder = DuplicateFinder(cosine=0.9)
    near, far = np.array([0.8, 0.6], dtype=np.float32), np.array([0, 1], dtype=np.float32)
    first = np.array([1, 0], dtype=np.float32)
    assert finder.look(Document("a", LONG), first) is None
    assert finder.look(Document("b", LONG)) == Duplicate("b", "a", "exact", 1.0)
    assert finder.look(Document("c", LONG.upper() + "!")) == Duplicate("c", "a", "text", 1.0)
    found = finder.look(Document("d", EDITED))
    assert (found.of, found.kind, 59 / 64 <= found.similarity < 1.0) == ("a", "near", True)
    assert finder.look(Document("e", OTHER), far) is None
    assert finder.look(Document("f", "brief"), near) is None
    found = finder.look(Document("g", "short"), np.array([0.81, 0.58], dtype=np.float32))
    assert (found.of, found.kind) == ("f", "vector")


def test_blank_documents_repeat_nothing_and_a_second_look_finds_nothing_new():
    finder = DuplicateFinder()
    assert finder.look(Document("a", " ")) is finder.look(Document("b", " ")) is None
    assert finder.look(Document("c", "?!")) is None
    assert finder.look(Document("d", "?!")) == Duplicate("d", "c", "exact", 1.0)
    assert finder.look(Document("e", LONG)) is finder.look(Document("e", LONG)) is None


@given(
    st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), st.sets(st.integers(0, 63), max_size=8)), max_size=12),
    st.integers(0, 15),
)
def test_the_nearest_hash_within_the_bits_is_always_found(hashes, changes, bits):
    """Compared with a search through all."""
    finder = DuplicateFinder(bits=bits)
    for number, value in enumerate(hashes):
        finder._remember(value, f"{number}")
    for place, turned in changes:
        value = hashes[place % len(hashes)]
        for bit in turned:
            value ^= 1 << bit
        distances = [(hamming(value, other), f"{n}") for n, other in enumerate(hashes)]
        assert finder._nearest(value) == min((d for d in distances if d[0] <= bits), default=None)


def test_groups_come_largest_first():
    documents = [
        Document("a", "one"),
        Document("b", LONG),
        Document("c", "One!"),
        Document("d", EDITED),
        Document("e", LONG),
        Document("f", "alone"),
    ]
    assert duplicate_groups(documents) == [("b", "d", "e"), ("a", "c")]
    assert duplicate_groups(documents, bits=None) == [("a", "c"), ("b", "e")]


@pytest.mark.parametrize(
    "options", [{"bits": -1}, {"bits": 16}, {"cosine": 0.0}, {"cosine": 1.5}], ids=str
)
def test_settings_outside_their_range_are_refused(options):
    with pytest.raises(InvalidSetting):
        DuplicateFinder(**options)


# On the way into an index


DOCUMENTS = [
    Document("a", LONG, metadata={"year": 1}),
    Document("b", OTHER),
    Document("c", EDITED, metadata={"year": 2}),
    Document("d", OTHER.upper()),
]


class Shelf(list):
    """A sink that keeps what it gets."""

    def __call__(self, documents):
        self += documents


async def run(settings, documents=DOCUMENTS, *, batch=2, **options):
    shelf = Shelf()
    report = await records(
        documents, lambda document: document, deduplicated(shelf, settings, **options), batch=batch
    )
    assert [(d.id, d.of, d.kind) for d in report.duplicates] == [
        ("c", "a", "near"),
        ("d", "b", "text"),
    ]
    return report, shelf


async def test_duplicates_are_reported_across_batches():
    report, shelf = await run(Duplicates())
    assert (report.documents, [d.id for d in shelf]) == (4, ["a", "b", "c", "d"])


async def test_duplicates_are_dropped_and_the_dropped_ones_told_of():
    dropped = []
    report, shelf = await run(Duplicates("drop"), on_drop=dropped.append)
    assert (report.documents, [d.id for d in shelf]) == (2, ["a", "b"])
    assert [d.id for d in dropped] == ["c", "d"]


async def test_duplicates_are_grouped_by_a_mark_on_the_later_ones():
    _, shelf = await run(Duplicates("group"))
    assert [dict(d.metadata) for d in shelf] == [
        {"year": 1},
        {},
        {"year": 2, "duplicate_of": "a"},
        {"duplicate_of": "b"},
    ]


async def test_documents_of_close_vectors_are_found_with_an_embedder():
    documents = [
        Document("a", "tea in the hills"),
        Document("b", "tea on the hills"),
        Document("c", "x"),
    ]
    settings = Duplicates(cosine=0.7, embedder=HashingEmbedder(256))
    report = await records(documents, lambda d: d, deduplicated(Shelf(), settings))
    assert [(d.id, d.of, d.kind) for d in report.duplicates] == [("b", "a", "vector")]


async def test_a_document_that_a_sink_refuses_does_not_make_the_others_repeat_themselves():
    def picky(documents):
        if any(d.id == "b" for d in documents):
            raise InvalidDocument("no", document_id="b")
        return IngestReport(documents=len(documents))

    documents = [Document("a", LONG), Document("b", "refused"), Document("c", OTHER)]
    report = await records(documents, lambda d: d, deduplicated(picky, Duplicates("drop")))
    assert (report.documents, report.duplicates) == (2, ())


@pytest.mark.parametrize(
    "options",
    [
        {"action": "merge"},
        {"bits": 16},
        {"cosine": 0.9},
        {"embedder": HashingEmbedder()},
        {"cosine": 2.0, "embedder": HashingEmbedder()},
    ],
    ids=str,
)
def test_settings_that_cannot_work_are_refused(options):
    with pytest.raises(InvalidSetting):
        Duplicates(**options)
