"""Analysed terms in flat arrays."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat_retrieval.lexical import DEFAULT_ANALYZER
from ragchat_retrieval.terms import TermCounts, TermSlices, joined, tabulated
from ragchat_retrieval.values import Document, Revision

WORDS = st.sampled_from(["cat", "dog", "emu", "fox", "the", "v1.2", "日本語", "x" * 40])
TEXTS = st.lists(st.lists(WORDS, max_size=6).map(" ".join), max_size=8)
MANY = TEXTS.map(lambda texts: (texts * 100)[:100])


@given(TEXTS | MANY)
def test_a_slice_is_a_mapping_equal_to_the_counts(texts: list[str]) -> None:
    for counts, text in zip(DEFAULT_ANALYZER.counts_many(texts), texts, strict=True):
        expected = Counter(DEFAULT_ANALYZER.terms(text))
        assert counts == expected
        assert expected == counts
        assert {term: counts[term] for term in counts} == expected
        assert dict(zip(counts, counts.values(), strict=True)) == expected
        assert "absent" not in counts


@given(TEXTS | MANY)
def test_a_table_says_what_the_mappings_say(texts: list[str]) -> None:
    """Whole tables, parts of them, other orders and plain dicts give the same postings."""
    packed = list(DEFAULT_ANALYZER.counts_many(texts))
    mixed = [dict(counts) if n % 2 else counts for n, counts in enumerate(packed)]
    for terms in (packed, packed[1:], packed[:-1], packed[::-1], packed * 2, mixed):
        table = tabulated(terms)
        lengths = table.lengths
        assert len(table.numbers) == len(table.counts) == lengths.sum()
        ends = np.cumsum(lengths).tolist()
        for counts, end, length in zip(terms, ends, lengths.tolist(), strict=True):
            part = slice(end - length, end)
            names = [table.names[number] for number in table.numbers[part].tolist()]
            assert dict(zip(names, table.counts[part].tolist(), strict=True)) == counts


def test_a_whole_analysis_is_handed_on_as_it_is() -> None:
    terms = DEFAULT_ANALYZER.counts_many(["one cat", "", "two cats"] * 100)
    assert isinstance(terms[0], TermCounts)
    assert tabulated(terms) is terms[0].table
    assert len(tabulated(terms[:1]).names) < len(terms[0].table.names)


def test_what_neighbours_in_a_table_have_is_joined_there() -> None:
    """A write takes the arrays of its analysis, whichever passages its revisions have."""
    terms = DEFAULT_ANALYZER.counts_many([f"word{n} cat" for n in range(100)])
    whole = joined([terms[:1], (), terms[1:1], terms[1:60], terms[60:]])
    assert tabulated(whole) is tabulated(terms)
    part = joined([terms[3:5], terms[5:9]])
    assert isinstance(part, TermSlices)
    assert list(part) == list(terms)[3:9]
    for parts in ([terms[3:5], terms[6:9]], [terms[:5], [{"dog": 1}]], [terms, terms], []):
        assert list(joined(parts)) == [counts for some in parts for counts in some]


def test_slices_are_a_sequence() -> None:
    terms = DEFAULT_ANALYZER.counts_many(["one cat", "", "two cats"] * 100)
    expected = list(terms)
    assert terms[-1] == expected[-1] == {"two": 1, "cat": 1}
    for part in (slice(1, 5), slice(-7, None), slice(9, 3), slice(None, None, -2)):
        assert list(terms[part]) == expected[part]
    assert repr(terms[1:2]) == "({},)"
    with pytest.raises(IndexError):
        terms[2:5][3]


def test_more_texts_than_are_counted_together_keep_their_own_terms() -> None:
    texts = [f"word{n} cat" for n in range(3000)]
    counts = DEFAULT_ANALYZER.counts_many(texts)
    assert counts[2999] == DEFAULT_ANALYZER.counts(texts[2999])
    assert counts[1024] == DEFAULT_ANALYZER.counts(texts[1024])


def test_a_revision_keeps_a_private_copy_of_vectors_and_hands_it_on() -> None:
    given_vectors = np.eye(2, dtype=np.float32)
    view = given_vectors[:]
    view.setflags(write=False)
    for vectors in (given_vectors, view):
        revision = Revision(document=Document("d", "text"), passages=(), vectors=vectors)
        assert revision.vectors is not None
        assert not np.shares_memory(revision.vectors, given_vectors)
        assert not revision.vectors.flags.writeable
        assert replace(revision, fingerprint="x").vectors is revision.vectors
