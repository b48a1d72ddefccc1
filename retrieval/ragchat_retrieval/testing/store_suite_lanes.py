"""The contract of stores: the keyword lane and the vector lane."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ragchat_retrieval.errors import InvalidVector
from ragchat_retrieval.filters import Filter, In
from ragchat_retrieval.ports import (
    CountsTerms,
    LaneQuery,
    SearchesAndReads,
    SearchesBoth,
    SearchesVectors,
    term_counts,
)
from ragchat_retrieval.testing.store_suite_kit import (
    ALL,
    DIMENSION,
    KEYWORD_ONLY,
    axis,
    bm25,
    by_vector,
    by_words,
    close_to,
    ids_of,
    passage_ids,
    put,
    revision,
    terms_of,
    vector_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.ports import BothLanes, Hit, Store

    Said = list[tuple[list[Hit], dict[str, float]] | None]

HOSTILE = (
    "PRJ-204",
    "title:secret",
    "don't",
    'say "hi',
    "a AND",
    "NEAR(x y)",
    "x*",
    "^x",
    "(",
    "38.101",
    "C++ {x}",
    "--",
    "' OR 1=1 --",
    "a & b | !c :*",
    "\\ % _ ?",
    "喝茶 🔬",
    "x" * 5000,
)
"""Queries whose words are operators somewhere."""

TEXTS = (
    "the pump has a red valve",
    "the valve of the boiler leaks",
    "the boiler is red red red",
    "a long note on pumps boilers and other parts without the word",
    "valve valve valve",
    "nothing here",
)


class KeywordLaneContract:
    """What searching by words promises."""

    async def test_scores_are_those_of_bm25(self, store: Store) -> None:
        """Scores equal a plain reference over exact statistics, also after replacements."""
        gone = revision("gone", "valve boiler pump pump pump")
        given = [revision(f"d{n}", text) for n, text in enumerate(TEXTS)]
        await put(store, gone, revision("d0", "red red wording that is replaced"))
        await put(store, *given)
        await store.delete(["gone"], scope=ALL)
        corpus = {g.passages[0].id: terms_of(g.passages[0].text) for g in given}
        for words in ("valve", "red valve", "the", "boiler leaks", "valve valve", "pump missing"):
            assert close_to(await by_words(store, words), bm25(terms_of(words), corpus))

    async def test_terms_have_weights(self, store: Store) -> None:
        """A term's weight multiplies its part of the score."""
        given = [revision(f"d{n}", text) for n, text in enumerate(TEXTS)]
        await put(store, *given)
        corpus = {g.passages[0].id: terms_of(g.passages[0].text) for g in given}
        weights = {"valve": 0.25, "red": 2.5}
        hits = await store.search_text(weights, 10, filter=ALL, scope=ALL)
        assert close_to([*hits], bm25(weights, corpus))

    async def test_no_common_term_is_no_result(self, store: Store) -> None:
        """A passage without any of the terms is not returned, however few others there are."""
        await put(store, revision("a", "one two"), revision("b", "three"))
        assert ids_of(await by_words(store, "two missing")) == passage_ids(revision("a", "one two"))
        assert await by_words(store, "missing") == []
        assert [*await store.search_text({}, 10, filter=ALL, scope=ALL)] == []

    async def test_scores_are_positive_and_tell_degrees_apart(self, store: Store) -> None:
        """Better matches have higher scores, and all scores are above zero."""
        texts = ["pump valve seal", "pump valve other", "pump other words", "some other words"]
        given = [revision(f"d{n}", text) for n, text in enumerate(texts)]
        await put(store, *given)
        hits = await by_words(store, "pump valve seal")
        assert ids_of(hits) == passage_ids(*given[:3])
        scores = [hit.score for hit in hits]
        assert scores == sorted(set(scores), reverse=True)
        assert scores[-1] > 0

    async def test_a_term_in_half_of_the_passages_counts(self, store: Store) -> None:
        """A common term scores above zero, and a more common one never outweighs a rarer one."""
        texts = ["the valve", "valve here", "the pump", "the boiler"]
        given = [revision(f"d{n}", text) for n, text in enumerate(texts)]
        await put(store, *given)
        hits = dict(await by_words(store, "valve"))
        assert set(hits) == set(passage_ids(*given[:2]))
        assert min(hits.values()) > 0
        both = await by_words(store, "the valve")
        assert ids_of(both)[:2] == passage_ids(*given[:2])
        alone = dict(await by_words(store, "the valve"))
        rare, common = passage_ids(given[1], given[2])
        assert alone[rare] > alone[common]

    async def test_a_term_in_every_passage_counts(self, store: Store) -> None:
        """Even a term that all passages have gives results with scores above zero."""
        await put(store, *(revision(f"d{n}", "same") for n in range(3)))
        hits = await by_words(store, "same")
        assert len(hits) == len(range(3))
        assert all(hit.score > 0 for hit in hits)

    @pytest.mark.parametrize("query", HOSTILE)
    async def test_words_are_only_words(self, store: Store, query: str) -> None:
        """Whatever a term looks like, it finds the passage that holds it and nothing else."""
        given = revision("a", f"{query} here")
        other = revision("b", "title secret near x hi and or c prj 204 38 101 don t say y")
        await put(store, given, other)
        for term in terms_of(query):
            hits = await store.search_text({term: 1.0}, 10, filter=ALL, scope=ALL)
            expected = [g for g in (given, other) if g.terms and term in g.terms[0]]
            assert set(ids_of([*hits])) == set(passage_ids(*expected))

    async def test_terms_are_counted_as_scores_weigh_them(self, store: Store) -> None:
        """A store that counts terms counts the passages that are there, in its corpus alone."""
        offered = isinstance(store, CountsTerms)
        assert await term_counts(store, ["one"]) == ((0, {}) if offered else None)
        await put(store, revision("a", "one two", "two two"), revision("b", "two"))
        await put(store.corpus("other"), revision("c", "one"))
        await store.delete(["b"], scope=ALL)
        counts = await term_counts(store, ["one", "two", "none", "one", "\0", "\ud800"])
        assert counts == ((2, {"one": 1, "two": 2}) if offered else None)

    async def test_ties_are_ordered_by_passage_id(self, store: Store) -> None:
        """Equal passages come in ascending order of ids, also where the limit cuts."""
        names = ["m", "c", "z", "a", "é", "B"]
        await put(store, *(revision(n, "tied", ids=[n], vectors=axis(0)[None]) for n in names))
        for limit in range(1, len(names) + 2):
            assert ids_of(await by_words(store, "tied", limit)) == sorted(names)[:limit]
            assert ids_of(await by_vector(store, axis(0), limit)) == sorted(names)[:limit]

    async def test_limits_cut_the_same_order(self, store: Store) -> None:
        """A smaller limit gives the beginning of what a larger one gives; none gives nothing."""
        texts = ["word " * (n % 7 + 1) + "filler " * (n % 5) for n in range(60)]
        await put(store, *(revision(f"d{n}", text) for n, text in enumerate(texts)))
        whole = await by_words(store, "word", 1000)
        assert len(whole) == len(texts)
        for limit in (1, 2, 10, 59, 60, 61):
            assert await by_words(store, "word", limit) == whole[:limit]
        assert await by_words(store, "word", 0) == []
        assert await by_words(store, "word", -1) == []

    async def test_scoring_agrees_exactly_with_searching(self, store: Store) -> None:
        """Scores of given passages are those of the search, and 0 without a common term."""
        given = [revision(f"d{n}", text) for n, text in enumerate(TEXTS)]
        await put(store, *given)
        ids = passage_ids(*given)
        for words in ("red valve", "the", "boiler pump valve", "missing"):
            found = dict(await by_words(store, words))
            scored = await store.score_text(terms_of(words), ids[::-1], scope=ALL)
            assert dict(scored) == {i: found.get(i, 0.0) for i in ids}
        assert dict(await store.score_text({}, ids, scope=ALL)) == dict.fromkeys(ids, 0.0)

    async def test_the_history_of_writes_leaves_no_mark(self, store: Store) -> None:
        """Equal content gives equal scores, however it came about."""
        given = [revision(f"d{n}", text) for n, text in enumerate(TEXTS)]
        other = store.corpus("other")
        await put(store, *given)
        for n, _ in enumerate(TEXTS):
            await put(other, revision(f"d{n}", f"early red valve text {n}"))
            await put(other, revision(f"x{n}", "boiler to be removed"))
        for one in reversed(given):
            await put(other, one)
        await other.delete([f"x{n}" for n, _ in enumerate(TEXTS)], scope=ALL)
        for words in ("red valve", "the boiler", "pump leaks a"):
            assert await by_words(other, words) == await by_words(store, words)
        assert await by_vector(other, axis(2)) == await by_vector(store, axis(2))

    async def test_a_keyword_only_corpus_is_searched_by_words(self, store: Store) -> None:
        """Without vectors the keyword lane works, and the vector lane finds nothing."""
        given = revision("a", "one two", embedded=False)
        await put(store, given, identity=KEYWORD_ONLY)
        assert ids_of(await by_words(store, "two")) == passage_ids(given)
        assert await by_vector(store, axis(0)) == []
        assert not await store.score_vector(axis(0), passage_ids(given), scope=ALL)

    async def test_a_passage_without_terms_is_never_found_by_words(self, store: Store) -> None:
        """A passage whose text has no term is stored, counted and found by its vector."""
        await put(store, revision("a", "— …", vectors=axis(0)[None]), revision("b", "word"))
        assert len(await by_words(store, "word")) == 1
        assert len(await by_vector(store, axis(0))) == len("ab")


class VectorLaneContract:
    """What searching by meaning promises."""

    async def test_scores_are_cosine_similarities(self, store: Store) -> None:
        """Scores equal the products of normalised vectors, best first, negative ones included."""
        given = [revision(f"d{n}", f"text {n}") for n in range(30)]
        await put(store, *given)
        query = vector_of("the question")
        expected = {g.passages[0].id: float(vector_of(g.passages[0].text) @ query) for g in given}
        hits = await by_vector(store, query, 100)
        assert close_to(hits, expected)
        assert ids_of(hits) == sorted(expected, key=lambda i: (-expected[i], i))
        assert hits[0].score > 0 > hits[-1].score

    async def test_limits_of_vectors_cut_the_same_order(self, store: Store) -> None:
        """A smaller limit gives the beginning of what a larger one gives; none gives nothing."""
        await put(store, *(revision(f"d{n}", f"text {n}") for n in range(60)))
        whole = await by_vector(store, axis(1), 1000)
        assert len(whole) == len(range(60))
        for limit in (1, 2, 10, 59, 60, 61):
            assert await by_vector(store, axis(1), limit) == whole[:limit]
        assert await by_vector(store, axis(1), 0) == []
        assert await by_vector(store, axis(1), -1) == []

    async def test_scoring_by_vector_agrees_exactly_with_searching(self, store: Store) -> None:
        """Similarities of given passages are those of the search."""
        given = [revision(f"d{n}", f"text {n}") for n in range(40)]
        await put(store, *given)
        ids = passage_ids(*given)
        found = dict(await by_vector(store, axis(3), 100))
        assert dict(await store.score_vector(axis(3), ids, scope=ALL)) == found
        for one in ids[:5]:
            assert dict(await store.score_vector(axis(3), [one], scope=ALL)) == {one: found[one]}

    async def test_vectors_searched_together_find_what_each_finds_alone(self, store: Store) -> None:
        """Where a store searches for several vectors at once, hits and scores are those of each."""
        await put(
            store, *(revision(f"d{n}", f"text {n}", metadata={"k": n % 2}) for n in range(60))
        )
        queries = [axis(0), vector_of("text 7"), -axis(2)]
        for bounds in (ALL, Filter.of({"k": 1}), Filter.of({"k": "none"})):
            alone = [await by_vector(store, query, 9, filter=bounds) for query in queries]
            if isinstance(store, SearchesVectors):
                rows = await store.search_vectors(queries, 9, filter=bounds, scope=ALL)
                assert [[*row] for row in rows] == alone
                with pytest.raises(InvalidVector):
                    await store.search_vectors([axis(0), 0 * axis(0)], 9, filter=bounds, scope=ALL)

    async def test_both_lanes_together_say_what_each_says_alone(self, store: Store) -> None:
        """Where a store answers both lanes in one step, each scores what only the other found."""
        given = [revision(f"d{n}", f"{'word ' * (n % 5)}text {n}") for n in range(40)]
        await put(store, *given, revision("bare", "word", embedded=False))
        queries = [
            LaneQuery(terms_of("word 3 17"), axis(1)),
            LaneQuery(terms_of("missing"), vector_of("word")),
            LaneQuery({}, -axis(0)),
        ]
        for bounds in (ALL, Filter(In("document_id", ("d3", "d4", "d7", "bare")))):
            expected = [await _lane_by_lane(store, query, 5, bounds) for query in queries]
            if isinstance(store, SearchesBoth):
                both = partial(store.search_both, filter=bounds, scope=bounds)
                rows = await both(queries, 5, complete=True)
                assert list(map(_plain, rows)) == expected
                rows = await both(queries, 5, complete=False)
                assert list(map(_plain, rows)) == [
                    [lane and (lane[0], {}) for lane in row] for row in expected
                ]
                bad = LaneQuery({}, 0 * axis(0))
                with pytest.raises(InvalidVector):
                    await both([*queries, bad], 5, complete=False)

    async def test_what_is_chosen_in_one_step_is_read_as_by_itself(self, store: Store) -> None:
        """Where a store reads in the step of both lanes, it reads what is there and in scope."""
        await put(store, *(revision(f"d{n}", f"word {n}", f"more {n}") for n in range(9)))
        queries = [LaneQuery(terms_of("word 3"), axis(1)), LaneQuery({}, vector_of("more 4"))]
        bounds = Filter(In("document_id", ("d3", "d4", "d7")))
        every = await store.ids(scope=ALL)
        expected = await store.get(every, scope=bounds)
        assert 0 < len(expected) < len(every)
        heard: list[Sequence[BothLanes]] = []

        def choose(rows: Sequence[BothLanes]) -> Sequence[str]:
            heard.append(rows)
            return ["unknown", *every]

        def fail(_: object) -> Sequence[str]:
            raise LookupError

        if isinstance(store, SearchesAndReads) and isinstance(store, SearchesBoth):
            ask = partial(store.search_and_read, filter=ALL, scope=bounds, complete=True)
            assert await ask(queries, 5, choose=choose) == expected
            told = await store.search_both(queries, 5, filter=ALL, scope=bounds, complete=True)
            assert list(map(_plain, heard[-1])) == list(map(_plain, told))
            for alone in (LaneQuery(terms_of("word 3"), None), LaneQuery(None, axis(1))):
                assert await ask([alone], 5, choose=choose) == expected
                said = await _lane_by_lane(store, alone, 5, bounds)
                assert list(map(_plain, heard[-1])) == [said]
            assert not await ask(queries, 5, choose=lambda _: [])
            with pytest.raises(LookupError):
                await ask(queries, 5, choose=fail)
            with pytest.raises(InvalidVector):
                await ask([LaneQuery({}, 0 * axis(0))], 5, choose=choose)

    @pytest.mark.parametrize(
        "vector",
        [
            np.full(DIMENSION, np.nan, np.float32),
            np.full(DIMENSION, np.inf, np.float32),
            np.zeros(DIMENSION, np.float32),
            np.ones(DIMENSION + 1, np.float32),
            np.ones(0, np.float32),
            np.ones((1, DIMENSION), np.float32),
            np.array(["x"] * DIMENSION),
        ],
        ids=["nan", "infinity", "zeros", "too-long", "empty", "matrix", "strings"],
    )
    async def test_a_bad_query_vector_is_refused(
        self, store: Store, vector: NDArray[np.float32]
    ) -> None:
        """A non-finite, zero or wrongly sized query vector is a typed error without a document."""
        given = revision("a", "one")
        await put(store, given)
        with pytest.raises(InvalidVector) as caught:
            await by_vector(store, vector)
        assert caught.value.document_id is None
        with pytest.raises(InvalidVector):
            await store.score_vector(vector, passage_ids(given), scope=ALL)

    async def test_passages_without_a_vector_never_come_back(self, store: Store) -> None:
        """In a corpus that took a model late, the vector lane holds what has a vector."""
        await put(store, revision("old", "one", embedded=False), identity=KEYWORD_ONLY)
        new = revision("new", "two")
        await put(store, new)
        assert ids_of(await by_vector(store, -vector_of("two"))) == passage_ids(new)
        assert len(await by_words(store, "one")) == 1

    async def test_some_documents_of_a_write_may_lack_vectors(self, store: Store) -> None:
        """In a corpus with a model, documents without vectors stand beside others, in any order."""
        given = [revision(f"d{n}", f"word {n}", embedded=n % 2 == 0) for n in range(6)]
        await put(store, *given)
        await put(store, *given[::-1])
        assert await store.count(scope=ALL) == (6, 6, 3)
        assert set(ids_of(await by_vector(store, axis(0)))) == set(passage_ids(*given[::2]))
        assert len(await by_words(store, "word")) == len(given)
        found = await store.vectors(passage_ids(*given), scope=ALL)
        assert {i: vector.tolist() for i, vector in found.items()} == {
            g.passages[0].id: vector_of(g.passages[0].text).tolist() for g in given[::2]
        }


def _plain(row: BothLanes) -> Said:
    """Returns what the lanes said as values that can be compared."""
    return [None if lane is None else ([*lane.hits], dict(lane.completed)) for lane in row]


async def _lane_by_lane(store: Store, query: LaneQuery, limit: int, bounds: Filter) -> Said:
    """Returns hits of the lanes that are asked, each with its scores of the other's rest."""
    within = {"filter": bounds, "scope": bounds}
    terms, vector = query
    if terms is None:
        assert vector is not None
        return [None, ([*await store.search_vector(vector, limit, **within)], {})]
    by_terms = [*await store.search_text(terms, limit, **within)]
    if vector is None:
        return [(by_terms, {}), None]
    near = [*await store.search_vector(vector, limit, **within)]
    rest = [i for i in ids_of(near) if i not in ids_of(by_terms)] if terms else []
    others = [i for i in ids_of(by_terms) if i not in ids_of(near)]
    return [
        (by_terms, dict(await store.score_text(terms, rest, scope=bounds))),
        (near, dict(await store.score_vector(vector, others, scope=bounds))),
    ]
