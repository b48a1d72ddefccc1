"""The engine's two lanes, against plain computations over what is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragchat_retrieval.engine import Batch, Engine, Postings
from ragchat_retrieval.engine import matrix as matrix_module
from ragchat_retrieval.engine import snapshot as snapshot_module
from ragchat_retrieval.engine import writer as writer_module
from ragchat_retrieval.engine.strings import StringTable
from ragchat_retrieval.filters import Eq, Filter
from ragchat_retrieval.lexical import bm25

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.engine import Found, Snapshot

DIMENSION = 6
WORDS = "abcdefgh"


@dataclass(frozen=True)
class Entry:
    """A passage as the plain model keeps it."""

    id: str
    terms: Mapping[str, int]
    vector: tuple[float, ...] | None
    group: int


class Model:
    """An engine beside a plain dict of what it should hold."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.entries: dict[int, Entry] = {}
        self.next_key = 0

    def write(self, add: Sequence[Entry], remove: Sequence[int] = ()) -> None:
        keys = range(self.next_key, self.next_key + len(add))
        self.next_key += len(add)
        for key in remove:
            self.entries.pop(key, None)
        self.entries |= dict(zip(keys, add, strict=True))
        self.engine.apply(add=batch(keys, add), remove_keys=remove)

    def text(self, terms: Mapping[str, float]) -> dict[str, float]:
        """Returns the BM25 scores of passages with a common term."""
        entries = list(self.entries.values())
        scores = bm25(terms, [entry.terms for entry in entries])
        return {e.id: score for e, score in zip(entries, scores, strict=True) if score}

    def vectors(self, query: NDArray[np.float32]) -> dict[str, float]:
        """Returns the products of the passages with a vector."""
        return {
            e.id: float(np.dot(np.float64(np.float32(e.vector)), np.float64(query)))
            for e in self.entries.values()
            if e.vector is not None
        }


def batch(keys: Sequence[int], entries: Sequence[Entry]) -> Batch:
    """Makes a batch of entries, each its own document."""
    vectors = np.array([e.vector or (0.0,) * DIMENSION for e in entries], np.float32)
    has_vector = np.array([e.vector is not None for e in entries], np.bool_)
    return Batch(
        keys=keys,
        ids=[e.id for e in entries],
        document_ids=[f"doc-{e.id}" for e in entries],
        titles=[None for _ in entries],
        sources=[f"source{e.group}" for e in entries],
        metadata=[{"group": e.group} for e in entries],
        terms=[e.terms for e in entries],
        vectors=vectors.reshape(len(entries), DIMENSION) if has_vector.any() else None,
        has_vector=has_vector,
    )


def hits(snapshot: Snapshot, found: Found) -> list[tuple[str, float]]:
    """Returns ids with scores."""
    return list(zip(snapshot.ids(found.rows), found.scores.tolist(), strict=True))


def best(scores: Mapping[str, float], limit: int) -> list[tuple[str, float]]:
    """Returns the expected order: score descending, ties by id."""
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))[: max(limit, 0)]


def drawn(seed: int, count: int, prefix: str = "p", *, vectors: bool = True) -> list[Entry]:
    """Makes random entries."""
    rng = np.random.default_rng(seed)
    entries = []
    for n in range(count):
        chosen = rng.choice(list(WORDS), rng.integers(1, 6))
        vector = rng.normal(size=DIMENSION)
        vector /= np.linalg.norm(vector)
        entries.append(
            Entry(
                f"{prefix}{n:04}",
                {str(word): int(rng.integers(1, 4)) for word in chosen},
                tuple(vector.tolist()) if vectors else None,
                int(rng.integers(0, 5)),
            )
        )
    return entries


ENTRIES = st.builds(
    Entry,
    st.uuids().map(str),
    st.dictionaries(st.sampled_from(WORDS), st.integers(1, 300), max_size=4),
    st.one_of(
        st.none(),
        st.sampled_from([(1.0, 0, 0, 0, 0, 0), (0, 1.0, 0, 0, 0, 0), (0.6, 0.8, 0, 0, 0, 0)]),
    ),
    st.integers(0, 2),
)


@settings(max_examples=40)
@given(st.data())
def test_any_history_of_writes_gives_exact_statistics(data: st.DataObject) -> None:
    """After adds, replacements and removals, both lanes equal plain sums over what is there."""
    model = Model()
    for _ in range(data.draw(st.integers(1, 6))):
        added = data.draw(st.lists(ENTRIES, max_size=6, unique_by=lambda e: e.id))
        known = sorted(model.entries)
        removed = data.draw(st.lists(st.sampled_from(known), max_size=4)) if known else []
        model.write(added, removed)
        if data.draw(st.booleans()):
            model.engine.compact()
    snapshot = model.engine.snapshot
    terms = data.draw(
        st.dictionaries(st.sampled_from(WORDS + "z"), st.floats(0.1, 4), min_size=1, max_size=4)
    )
    limit = data.draw(st.integers(-1, 30))
    group = data.draw(st.integers(0, 2))
    mask = data.draw(st.sampled_from([None, snapshot.mask(Filter(Eq("group", group)))]))
    allowed = {e.id for e in model.entries.values() if mask is None or e.group == group}

    expected = {i: s for i, s in model.text(terms).items() if i in allowed}
    got = hits(snapshot, snapshot.search_text(terms, limit, mask))
    assert len(got) == min(max(limit, 0), len(expected))
    assert dict(got) == pytest.approx({i: expected[i] for i, _ in got}, rel=1e-9)
    assert got == best(dict(got), limit)
    left_out = [score for i, score in expected.items() if i not in dict(got)]
    assert not (got and left_out) or max(left_out) <= got[-1][1] * (1 + 1e-9)

    query = np.array([0.6, 0.8, 0, 0, 0, 0], np.float32)
    expected = {i: s for i, s in model.vectors(query).items() if i in allowed}
    got = hits(snapshot, snapshot.search_vector(query, limit, mask))
    assert got == best(expected, limit)
    assert (snapshot.live, snapshot.vectors) == (
        len(model.entries),
        sum(e.vector is not None for e in model.entries.values()),
    )


def test_equal_content_has_equal_scores_to_the_last_bit() -> None:
    """However it was written, in however many segments, with whatever was removed meanwhile."""
    entries = drawn(1, 500)
    whole, parts = Model(), Model()
    whole.write(entries)
    noise = drawn(2, 120, "x")
    parts.write(noise[:60])
    for low in range(0, 500, 37):
        parts.write(entries[low : low + 37][::-1])
    parts.write(noise[60:])
    gone = [key for key, e in parts.entries.items() if e.id.startswith("x")]
    parts.write([], gone)
    one, other = whole.engine.snapshot, parts.engine.snapshot
    assert len(other.segments) > 1
    rng = np.random.default_rng(3)
    for _ in range(20):
        terms = {str(w): float(rng.random()) for w in rng.choice(list(WORDS), 4)}
        query = rng.normal(size=DIMENSION).astype(np.float32)
        assert hits(one, one.search_text(terms, 50)) == hits(other, other.search_text(terms, 50))
        assert hits(one, one.search_vector(query, 50)) == hits(
            other, other.search_vector(query, 50)
        )


def test_scores_of_given_rows_are_those_of_the_search() -> None:
    """To the last bit, in any order of rows; zeros and NaN stand for what the lanes leave out."""
    model = Model()
    model.write(drawn(4, 200))
    model.write(drawn(5, 50, "q", vectors=False), list(range(0, 200, 9)))
    snapshot = model.engine.snapshot
    terms = {"a": 1.0, "c": 0.5, "h": 2.0}
    query = np.random.default_rng(6).normal(size=DIMENSION).astype(np.float32)
    rows = np.random.default_rng(7).permutation(snapshot.live_rows())
    found = dict(hits(snapshot, snapshot.search_text(terms, 1000)))
    scored = snapshot.score_text(terms, rows)
    assert dict(zip(snapshot.ids(rows), scored.tolist(), strict=True)) == {
        i: found.get(i, 0.0) for i in snapshot.ids(rows)
    }
    near = dict(hits(snapshot, snapshot.search_vector(query, 1000)))
    scores = snapshot.score_vector(query, rows)
    assert np.isnan(scores).sum() == 50
    assert {
        i: s
        for i, s in zip(snapshot.ids(rows), scores.tolist(), strict=True)
        if s == s  # noqa: PLR0124 - NaN
    } == near


def test_scores_are_the_same_whether_or_not_a_search_went_before() -> None:
    """Scores kept from a search equal those computed anew, whatever filter the search had."""
    model = Model()
    model.write(drawn(5, 60))
    snapshot = model.engine.snapshot
    rows = np.arange(0, snapshot.rows, 3)
    questions: list[dict[str, float]] = [
        {word: 1.0, "h": weight} for word in WORDS[:7] for weight in (0.0, 0.5)
    ]
    anew = [snapshot.score_text(terms, rows).tolist() for terms in questions]
    assert any(map(any, anew))
    for terms, expected in zip(questions, anew, strict=True):
        snapshot.search_text(terms, 3, snapshot.mask(Filter(Eq("group", 1))))
        assert snapshot.score_text(terms, rows).tolist() == expected
    for terms, expected in zip(questions, anew, strict=True):
        assert snapshot.score_text(terms, rows).tolist() == expected


def test_a_batch_of_queries_gives_what_each_gives() -> None:
    model = Model()
    model.write(drawn(8, 300))
    model.write(drawn(9, 40, "q"))
    snapshot = model.engine.snapshot
    queries = np.random.default_rng(10).normal(size=(5, DIMENSION)).astype(np.float32)
    mask = snapshot.mask(Filter(Eq("group", 1)))
    for limit, chosen in ((7, None), (1000, mask)):
        together = snapshot.search_vectors(queries, limit, chosen)
        for query, found in zip(queries, together, strict=True):
            alone = snapshot.search_vector(query, limit, chosen)
            assert hits(snapshot, found) == hits(snapshot, alone)


def test_large_corpora_are_cut_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shortcuts for many rows, wide and narrow masks, and many blocks select the same."""
    monkeypatch.setattr(matrix_module, "BLOCK", 512)
    model = Model()
    for part in range(24):
        model.write(drawn(20 + part, 300, f"{part:02}-"))
    model.write([], list(range(0, 7200, 5)))
    snapshot = model.engine.snapshot
    assert len(snapshot.matrix.blocks) > 8
    rng = np.random.default_rng(11)
    rare = {e.id for e in model.entries.values() if e.id.endswith("7")}
    masks = [(None, None), (Filter(Eq("group", 2)), None), (None, rare)]
    for chosen, narrow in masks:
        mask = None if chosen is None else snapshot.mask(chosen)
        if narrow is not None:
            flags = np.zeros(snapshot.rows, np.bool_)
            flags[snapshot.find(sorted(narrow)[:100])] = True
            mask = type(snapshot.mask(Filter(Eq("group", 2))))(flags)
        allowed = set(snapshot.ids(snapshot.live_rows(mask)))
        for limit in (1, 10, 400):
            terms = {"a": 1.0, "g": 0.3}
            expected = {i: s for i, s in model.text(terms).items() if i in allowed}
            got = hits(snapshot, snapshot.search_text(terms, limit, mask))
            cut = best(expected, limit)
            assert [s for _, s in got] == pytest.approx([s for _, s in cut], rel=1e-12)
            query = rng.normal(size=DIMENSION).astype(np.float32)
            near = {i: s for i, s in model.vectors(query).items() if i in allowed}
            found = hits(snapshot, snapshot.search_vector(query, limit, mask))
            assert [i for i, _ in found] == [i for i, _ in best(near, limit)]


def test_ties_at_the_cut_are_decided_by_id() -> None:
    """Of many equal passages the smallest ids are returned, wherever they stand."""
    model = Model()
    order = np.random.default_rng(12).permutation(5000)
    model.write([Entry(f"p{n:05}", {"a": 1}, (1.0, 0, 0, 0, 0, 0), 0) for n in order.tolist()])
    snapshot = model.engine.snapshot
    expected = [f"p{n:05}" for n in range(7)]
    query = np.eye(DIMENSION, dtype=np.float32)[0]
    assert snapshot.ids(snapshot.search_text({"a": 1.0}, 7).rows) == expected
    assert snapshot.ids(snapshot.search_vector(query, 7).rows) == expected


def test_the_best_vectors_are_found_among_almost_equal_ones() -> None:
    """Scores that differ less than float32 products err are ordered by their exact values."""
    rng = np.random.default_rng(13)
    base = rng.normal(size=64)
    rows = (base + rng.normal(size=(3000, 64)) * 1e-7).astype(np.float32)
    engine = Engine()
    size = len(rows)
    names = [f"p{n:04}" for n in range(size)]
    engine.apply(
        add=Batch(
            keys=range(size),
            ids=names,
            document_ids=names,
            titles=[None] * size,
            sources=[None] * size,
            metadata=[{}] * size,
            terms=[{}] * size,
            vectors=rows,
        )
    )
    query = base.astype(np.float32)
    exact = (rows.astype(np.float64) * query.astype(np.float64)).sum(axis=1)
    expected = sorted(range(size), key=lambda n: (-exact[n], n))[:20]
    snapshot = engine.snapshot
    assert snapshot.ids(snapshot.search_vector(query, 20).rows) == [names[n] for n in expected]


def test_a_reader_keeps_its_state_while_others_write() -> None:
    """A snapshot answers the same whatever is written, merged, compacted or cleared after it."""
    model = Model()
    model.write(drawn(14, 60))
    snapshot = model.engine.snapshot
    query = np.random.default_rng(15).normal(size=DIMENSION).astype(np.float32)

    def answers() -> object:
        mask = snapshot.mask(Filter(Eq("group", 1)))
        rows = snapshot.live_rows()
        return (
            hits(snapshot, snapshot.search_text({"a": 1.0, "b": 1.0}, 100)),
            hits(snapshot, snapshot.search_vector(query, 100, mask)),
            snapshot.ids(rows),
            snapshot.keys(rows).tolist(),
            snapshot.document_ids(rows),
            snapshot.find(["p0003", "q0003"]).tolist(),
            snapshot.vectors_of(rows).tolist(),
            snapshot.document_rows(["doc-p0007", "doc-q0001"]).tolist(),
        )

    before = answers()
    fresh = drawn(16, 700, "q")
    for low in range(0, 700, 50):
        model.write(fresh[low : low + 50], [low // 50, low // 50 + 30])
        assert answers() == before
    model.engine.compact()
    assert answers() == before
    model.engine.clear()
    assert answers() == before
    assert model.engine.snapshot.live == 0


def test_passages_are_found_by_id_key_and_document() -> None:
    model = Model()
    model.write(drawn(17, 30))
    model.write([Entry("p0003", {"z": 1}, None, 9)], [3, 4])
    snapshot = model.engine.snapshot
    rows = snapshot.find(["p0003", "p0004", "p0005", "nothing", "\ud800", "p0003"])
    assert snapshot.ids(rows[[0, 2]]) == ["p0003", "p0005"]
    assert rows[[1, 3, 4]].tolist() == [-1, -1, -1]
    assert rows[0] == rows[5]
    assert snapshot.find_keys([30, 3, 5, 99, -1]).tolist() == [rows[0], -1, rows[2], -1, -1]
    assert snapshot.document_rows(["doc-p0003"]).tolist() == [rows[0]]
    assert snapshot.document_rows(["doc-p0005", "doc-p0003", "doc-x"]).tolist() == sorted(
        [rows[2], rows[0]]
    )
    assert snapshot.document_rows(["doc-x"]).tolist() == []
    assert snapshot.document_rows([]).tolist() == []


def test_ids_just_given_lead_back_to_their_rows_without_a_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In any order, beside unknown ones, in bounded memory, and only in the state they are of."""
    monkeypatch.setattr(snapshot_module, "_NAMED", 40)
    model = Model()
    model.write(drawn(18, 200))
    model.write(drawn(19, 100, "q"), [3, 4])
    snapshot = model.engine.snapshot
    rows = snapshot.live_rows()
    for low in range(0, len(rows), 20):
        part = rows[low : low + 20]
        names = snapshot.ids(part)
        with monkeypatch.context() as patch:
            patch.setattr(StringTable, "first", None)
            assert snapshot.find(names[::-1]).tolist() == part[::-1].tolist()
        assert snapshot.find([*names, "nothing"]).tolist() == [*part.tolist(), -1]
        assert len(snapshot._named) <= 60
    last = snapshot.ids(rows[-2:])
    model.write([], [298, 299])
    assert model.engine.snapshot.find(last).tolist() == [-1, -1]
    assert snapshot.find(last).tolist() == rows[-2:].tolist()


def test_removing_most_gives_the_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays, filter values and the vocabulary shrink to what is left, and answers stay right."""
    monkeypatch.setattr(writer_module, "_FEW_ROWS", 10)
    model = Model()
    many = [Entry(f"p{n}", {f"word{n}": 1, "a": 1}, None, n) for n in range(3000)]
    model.write(many)
    model.write([], list(range(2900)))
    snapshot = model.engine.snapshot
    assert (snapshot.rows, snapshot.live, len(snapshot.segments)) == (100, 100, 1)
    values, _ = snapshot.columns.codes("group") or pytest.fail("no column")
    assert len(values.answers(Eq("group", 1))) == 100
    assert dict(hits(snapshot, snapshot.search_text({"word2950": 1.0}, 5))) == pytest.approx(
        model.text({"word2950": 1.0})
    )
    assert len(snapshot.search_text({"word3": 1.0}, 5).rows) == 0
    model.write([Entry("new", {"word3": 1, "word2950": 1}, None, 3)])
    after = model.engine.snapshot
    for terms in ({"word3": 1.0}, {"word2950": 1.0}, {"a": 1.0}):
        got = dict(hits(after, after.search_text(terms, 500)))
        assert got == pytest.approx(model.text(terms))


def test_removing_all_and_starting_again_works() -> None:
    model = Model()
    model.write(drawn(18, 20))
    model.write([], list(range(20)))
    assert (model.engine.snapshot.rows, model.engine.snapshot.dimension) == (0, DIMENSION)
    assert len(model.engine.snapshot.search_text({"a": 1.0}, 5).rows) == 0
    query = np.eye(DIMENSION, dtype=np.float32)[0]
    assert len(model.engine.snapshot.search_vector(query, 5).rows) == 0
    model.write(drawn(19, 5))
    got = hits(model.engine.snapshot, model.engine.snapshot.search_text({"a": 1.0}, 5))
    assert dict(got) == pytest.approx(model.text({"a": 1.0}))


def test_callers_may_bring_their_own_term_ids() -> None:
    """Flat arrays with ids of the caller's give what mappings of words give."""
    entries = drawn(20, 80)
    words = Model()
    words.write(entries)
    engine = Engine()
    ids = {word: 1000 - 7 * n for n, word in enumerate(WORDS)}
    engine.name_terms(ids)
    given_batch = batch(range(80), entries)
    flat = Postings(
        np.array([len(e.terms) for e in entries]),
        np.array([ids[w] for e in entries for w in e.terms], np.int32),
        np.array([c for e in entries for c in e.terms.values()], np.int32),
    )
    engine.apply(add=Batch(**{f: getattr(given_batch, f) for f in FIELDS} | {"terms": flat}))
    snapshot, other = engine.snapshot, words.engine.snapshot
    terms = {"a": 1.0, "h": 2.0, "unknown": 1.0}
    assert hits(snapshot, snapshot.search_text(terms, 80)) == hits(
        other, other.search_text(terms, 80)
    )


FIELDS = (
    "keys",
    "ids",
    "document_ids",
    "titles",
    "sources",
    "metadata",
    "terms",
    "vectors",
    "has_vector",
)


@pytest.mark.parametrize(
    "fault",
    [
        {"keys": [1, 1]},
        {"keys": [0, 5]},
        {"keys": [7, 6]},
        {"vectors": np.ones((2, DIMENSION + 1), np.float32), "has_vector": None},
        {"vectors": np.ones((1, DIMENSION), np.float32), "has_vector": None},
        {"titles": [None]},
    ],
    ids=["same", "old", "descending", "dimension", "count", "column"],
)
def test_a_faulty_batch_changes_nothing(fault: dict[str, object]) -> None:
    model = Model()
    model.write(drawn(21, 3))
    before = model.engine.snapshot
    good = batch([3, 4], drawn(22, 2, "q"))
    with pytest.raises(ValueError, match=r"batch|keys|vectors"):
        model.engine.apply(
            add=Batch(**{f: getattr(good, f) for f in FIELDS} | fault), remove_keys=[0]
        )
    assert model.engine.snapshot is before
    model.engine.apply(add=good)
    assert model.engine.snapshot.live == 5


def test_a_write_that_fails_half_way_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in the current state, and not in the next one."""
    model = Model()
    model.write(drawn(23, 5))
    before = model.engine.snapshot

    def fail(*_args: object) -> object:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(writer_module, "tidied", fail)
        with pytest.raises(MemoryError):
            model.engine.apply(add=batch([5, 6], drawn(24, 2, "lost")), remove_keys=[1])
    assert model.engine.snapshot is before
    model.write(drawn(25, 4, "q"))
    snapshot = model.engine.snapshot
    query = np.random.default_rng(26).normal(size=DIMENSION).astype(np.float32)
    found = dict(hits(snapshot, snapshot.search_vector(query, 99)))
    assert found == pytest.approx(model.vectors(query), rel=1e-12)
    assert snapshot.ids(snapshot.live_rows()) == [e.id for e in model.entries.values()]
    assert snapshot.find(["lost0000"]).tolist() == [-1]


def test_large_counts_are_kept_exactly() -> None:
    model = Model()
    model.write([Entry("a", {"x": 70_000, "y": 1}, None, 0), Entry("b", {"x": 2}, None, 0)])
    model.write([Entry("c", {"x": 300}, None, 0)])
    snapshot = model.engine.snapshot
    assert dict(hits(snapshot, snapshot.search_text({"x": 1.0}, 9))) == pytest.approx(
        model.text({"x": 1.0}), rel=1e-12
    )


def test_weights_of_zero_or_less_select_nothing() -> None:
    """So that scores are positive."""
    model = Model()
    model.write([Entry("a", {"x": 1}, None, 0), Entry("b", {"y": 1}, None, 0)])
    snapshot = model.engine.snapshot
    assert hits(snapshot, snapshot.search_text({"x": 0.0, "y": -1.0}, 9)) == []
