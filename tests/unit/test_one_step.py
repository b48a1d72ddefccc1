"""A search whose store answers the lanes and reads the passages in one step."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from threading import Event, Thread, get_ident

import pytest

from ragchat_retrieval.chunking import WholeText
from ragchat_retrieval.embedders import HashingEmbedder
from ragchat_retrieval.engine import Snapshot
from ragchat_retrieval.errors import ScopeViolation, StageTimeout
from ragchat_retrieval.filters import Eq, Filter, Ne
from ragchat_retrieval.fusion import RRF, Weighted
from ragchat_retrieval.index import HybridIndex
from ragchat_retrieval.policy import Policy, StagePolicy
from ragchat_retrieval.stores import questions
from ragchat_retrieval.stores.memory import MemoryStore
from ragchat_retrieval.stores.questions import WordRows
from ragchat_retrieval.stores.sqlite import SQLiteStore
from ragchat_retrieval.values import Document, Query

GUARD = 60
"""Seconds after which a test that waits has failed."""


class Counting(MemoryStore):
    """Tells what it is asked for by the index."""

    def __init__(self):
        super().__init__()
        self.asked = []

    async def search_and_read(self, queries, limit, **options):
        self.asked.append("search_and_read")
        return await super().search_and_read(queries, limit, **options)

    async def search_both(self, queries, limit, **options):
        self.asked.append("search_both")
        return await super().search_both(queries, limit, **options)

    async def get(self, passage_ids, *, scope):
        self.asked.append("get")
        return await super().get(passage_ids, scope=scope)


class LaneByLane(Counting):
    """Has a lane of its own, and so does not take both in one step."""

    async def search_text(self, terms, limit, **bounds):
        return await super().search_text(terms, limit, **bounds)


ONLY = {"keyword": Weighted(1.0), "vector": Weighted(0.0)}
TEXTS = [f"apple {n} {'pear ' * (n % 4)}" for n in range(12)]


async def index_of(store, *texts, **settings):
    index = HybridIndex(store, splitter=WholeText(), embedder=HashingEmbedder(64), **settings)
    await index.ingest(
        *(Document(f"d{n}", text, metadata={"even": n % 2 == 0}) for n, text in enumerate(texts))
    )
    return index


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"fusion": RRF()},
        {"fusion": Weighted(0.5, complete=False)},
        {"explain": True, "top_k": 3},
        {"min_similarity": 0.3},
        {"scope": Eq("even", value=True), "filter": Eq("document_id", "d4")},
        {"mmr": 0.5},
        {"top_k": None},
        {"neighbours": 1},
        {"fusion": ONLY["keyword"]},
        {"fusion": ONLY["vector"], "explain": True},
        {"fusion": ONLY["keyword"], "scope": Eq("even", value=True), "filter": Ne("even", 3)},
        {"fusion": ONLY["vector"], "min_similarity": 0.3, "scope": Eq("even", value=True)},
    ],
)
async def test_one_step_finds_what_many_find(options):
    """How a store is asked makes no difference to what is found."""
    stores = Counting(), LaneByLane()
    one, many = [await index_of(store, *TEXTS) for store in stores]
    found = await one.search("apple pear 4", **options)
    expected = await many.search("apple pear 4", **options)
    assert list(found) == list(expected)
    assert len(found)
    stages = [[timing.stage for timing in result.trace.stages] for result in (found, expected)]
    if options.get("fusion") in ONLY.values():
        assert stages[0] == stages[1]
    assert stores[0].asked == ["search_and_read"]
    assert stores[1].asked[-1] == "get"
    assert "search_and_read" not in stores[1].asked


@pytest.mark.parametrize("expander", [None, lambda query: [query.with_text("pear")]])
async def test_lanes_asked_in_one_step_stand_beside_each_other_in_the_trace(expander):
    """Neither lane is a part of the other; both take the time of the step."""
    store = Counting()
    index = await index_of(store, *TEXTS)
    found = await index.retriever(expander=expander)(Query("apple 3"))
    assert store.asked[0] == ("search_both" if expander else "search_and_read")
    (search,), (keyword,) = found.trace.of("search"), found.trace.of("keyword")
    embedding, vector = found.trace.of("vector")
    assert {keyword.parent, embedding.parent, vector.parent} == {search.number}
    assert vector.seconds == pytest.approx(keyword.seconds, abs=0.1)


async def test_titles_are_read_before_anything_is_ranked():
    """A fusion that weighs titles reads passages of its own accord."""
    index = await index_of(store := Counting(), *TEXTS, fusion=Weighted(0.3, title=0.1))
    assert await index.search("apple")
    assert store.asked == ["search_both", "get", "get"]


async def test_several_questions_are_read_one_by_one():
    """Which passages are wanted is known when all wordings are ranked."""
    index = await index_of(store := Counting(), *TEXTS)
    rows = await index.search_batch(["apple 1", "pear"])
    assert store.asked == ["search_both", "get", "get"]
    assert rows == [await index.search("apple 1"), await index.search("pear")]


async def test_a_way_of_reading_that_a_subclass_changes_is_used():
    """A store that inherits the one step reads with the `get` that it has itself."""

    class Empty(MemoryStore):
        async def get(self, passage_ids, *, scope):
            del passage_ids, scope
            return {}

    assert not await (await index_of(Empty(), *TEXTS)).search("apple")


async def test_passages_read_in_one_step_are_checked_against_filter_and_scope():
    """What a store reads is withheld if it lies outside, whatever the store promised."""

    class Broken(MemoryStore):
        async def search_and_read(self, queries, limit, *, filter, scope, **options):
            return await super().search_and_read(
                queries, limit, filter=Filter(), scope=Filter(), **options
            )

    index = await index_of(Broken(), *TEXTS)
    for bound in ("filter", "scope"):
        with pytest.raises(ScopeViolation):
            await index.search("apple", **{bound: Eq("even", value=True)})


async def test_what_the_one_step_leaves_out_is_asked_for():
    """Passages that a store has found and not read are read by themselves."""

    class Lazy(Counting):
        async def search_and_read(self, queries, limit, **options):
            passages = await super().search_and_read(queries, limit, **options)
            return dict(list(passages.items())[:2])

    index = await index_of(store := Lazy(), *TEXTS)
    assert list(await index.search("apple")) == list(
        await (await index_of(MemoryStore(), *TEXTS)).search("apple")
    )
    assert store.asked == ["search_and_read", "get"]


@pytest.mark.parametrize("fusion", [None, *ONLY.values()], ids=["both", *ONLY])
async def test_a_step_that_fails_is_taken_lane_by_lane(fusion):
    """Each lane then answers, is skipped or fails under the policy's rule for it."""

    class Broken(Counting):
        async def search_and_read(self, queries, limit, **options):
            await super().search_and_read(queries, limit, **options)
            raise ConnectionError

    index = await index_of(store := Broken(), *TEXTS)
    found = await index.search("apple", policy=Policy(), fusion=fusion)
    assert store.asked == ["search_and_read", "get"]
    assert not found.degraded
    whole = await index_of(MemoryStore(), *TEXTS)
    assert list(found) == list(await whole.search("apple", fusion=fusion))


@pytest.mark.parametrize("fusion", [None, *ONLY.values()], ids=["both", *ONLY])
async def test_other_tasks_have_their_turn_between_two_searches(fusion):
    """What embedder and store answer at once holds up the loop for one search, not for all."""
    index = await index_of(MemoryStore(), *TEXTS)
    turns = []

    async def other():
        while True:
            turns.append(len(turns))
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    for _ in range(20):
        assert await index.search("apple", fusion=fusion)
    assert len(turns) >= 20
    task.cancel()


async def test_a_lane_that_has_nothing_to_look_for_is_not_asked():
    """Stop words alone are no question to the keyword lane."""
    index = await index_of(store := Counting(), *TEXTS)
    found = await index.search("the of", fusion=ONLY["keyword"])
    assert not found
    assert not store.asked
    assert not found.trace.of("keyword")


class Remote(HashingEmbedder):
    """Answers when it is told to."""

    def __init__(self):
        super().__init__(64)
        self.answer, self.cancelled = asyncio.Event(), False

    async def embed(self, texts, kind="query"):
        if kind == "query":
            try:
                await self.answer.wait()
            except asyncio.CancelledError:
                self.cancelled = True
                raise
        return await super().embed(texts, kind)


@pytest.mark.parametrize("questions", [["apple 4"], ["apple", "pear 3"]])
async def test_words_are_searched_while_the_question_is_embedded(questions):
    """A store without one step for both lanes does not wait for a remote model to begin."""

    class Telling(LaneByLane):
        async def search_text(self, terms, limit, **bounds):
            found = await super().search_text(terms, limit, **bounds)
            remote.answer.set()
            return found

    remote, index = Remote(), await index_of(Telling(), *TEXTS)
    expected = await index.search_batch(questions)
    remote.answer.clear()
    index.embedder = remote
    async with asyncio.timeout(GUARD):
        found = await index.search_batch(questions)
    assert [list(row) for row in found] == [list(row) for row in expected]
    embedded, words = found[0].trace.of("vector")[0], found[0].trace.of("keyword")[0]
    assert embedded.started <= words.started
    assert words.started + words.seconds <= embedded.started + embedded.seconds


async def test_a_keyword_lane_that_fails_ends_the_embedding():
    """Nobody waits for a vector that nothing will be searched with."""

    class Failing(LaneByLane):
        async def search_text(self, terms, limit, **bounds):
            raise ConnectionError

    index = await index_of(Failing(), *TEXTS)
    index.embedder = Remote()
    async with asyncio.timeout(GUARD):
        with pytest.raises(ConnectionError):
            await index.search("apple")
    assert index.embedder.cancelled


class Hung(LaneByLane):
    """Never answers both lanes in one step."""

    async def search_text(self, terms, limit, **bounds):
        self.asked.append("search_text")
        return await super().search_text(terms, limit, **bounds)

    async def search_vector(self, vector, limit, **bounds):
        self.asked.append("search_vector")
        return await super().search_vector(vector, limit, **bounds)

    async def search_and_read(self, queries, limit, **options):
        self.asked.append("search_and_read")
        await asyncio.Event().wait()

    async def search_both(self, queries, limit, **options):
        raise AssertionError


async def test_a_store_that_hangs_is_waited_for_once():
    """What the one step has used of a lane's time, the lane by itself has not."""
    index = await index_of(store := Hung(), *TEXTS)
    with pytest.raises(StageTimeout) as caught:
        await index.search("apple", policy=Policy(timeout=0.05))
    assert (caught.value.stage, caught.value.timeout) == ("keyword", 0.05)
    assert store.asked == ["search_and_read"]


@pytest.mark.parametrize(
    ("hasty", "other"), [("keyword", "search_vector"), ("vector", "search_text")]
)
async def test_a_lane_with_time_left_is_asked_by_itself(hasty, other):
    """The other one is skipped, and the result tells that."""
    index = await index_of(store := Hung(), *TEXTS)
    found = await index.search("apple", policy=Policy(**{hasty: StagePolicy("skip", 0.05)}))
    assert [(each.stage, each.reason[:12]) for each in found.degraded] == [(hasty, "StageTimeout")]
    assert store.asked[:2] == ["search_and_read", other]
    assert found


async def test_a_rule_of_the_callers_runs_in_the_callers_context(tmp_path):
    """Wherever a store asks which passages are wanted, the caller's variables are set."""
    tenant = ContextVar("tenant")

    class Rule(Weighted):
        def fuse(self, keyword, vector, titles=None):
            assert tenant.get() == "blue"
            return super().fuse(keyword, vector, titles)

    index = await index_of(SQLiteStore(tmp_path / "kb.sqlite"), *TEXTS, fusion=Rule())
    tenant.set("blue")
    found = await index.search("apple")
    assert len(found) == 5
    assert [timing.outcome for timing in found.trace.of("keyword")] == ["ok"]
    await index.aclose()


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("keyword", [0.0, 0.3, 1.0], ids=["vector", "both", "keyword"])
async def test_what_was_found_is_read_though_it_goes_away_meanwhile(tmp_path, kind, keyword):
    """What is found and what is read are of one state, whoever writes in between."""
    store = MemoryStore() if kind == "memory" else SQLiteStore(tmp_path / "kb.sqlite")

    class Interrupted(Weighted):
        def fuse(self, keyword, vector, titles=None):
            removing = Thread(target=lambda: asyncio.run(store.delete(every, scope=Filter())))
            removing.start()
            removing.join()
            return super().fuse(keyword, vector, titles)

    index = await index_of(store, *TEXTS, fusion=Interrupted(keyword))
    every = await index.document_ids()
    assert len(await index.search("apple")) == 5
    assert not await index.document_ids()
    assert not await index.search("apple")
    await index.aclose()


@pytest.fixture(params=["memory", "sqlite"])
def large(request, tmp_path, monkeypatch):
    """A store that takes any corpus for one whose vectors take long."""
    monkeypatch.setattr(questions, "_SMALL_FLOATS", 0)
    return MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "kb.sqlite")


async def test_words_are_looked_up_by_the_loop_while_vectors_are_compared(large, monkeypatch):
    """Nothing waits for them: when the vectors are compared, they are there."""
    plain_words, plain_vectors = WordRows._found, Snapshot.search_vectors
    looked_up, threads = Event(), []

    def words(self, snapshot):
        threads.append(get_ident())
        looked_up.set()
        return plain_words(self, snapshot)

    def vectors(self, *args):
        assert looked_up.wait(GUARD)
        return plain_vectors(self, *args)

    index = await index_of(large, *TEXTS)
    expected = list(await index.search("apple pear 4"))
    monkeypatch.setattr(WordRows, "_found", words)
    monkeypatch.setattr(Snapshot, "search_vectors", vectors)
    assert list(await index.search("apple pear 4")) == expected
    assert threads == [get_ident()]
    await index.aclose()


async def test_words_that_the_loop_has_no_time_for_are_looked_up_all_the_same(large, monkeypatch):
    """A busy loop holds up no search."""
    plain, threads = WordRows._found, []

    def words(self, snapshot):
        threads.append(get_ident())
        return plain(self, snapshot)

    index = await index_of(large, *TEXTS)
    expected = list(await index.search("apple pear 4"))
    monkeypatch.setattr(WordRows, "_found", words)
    monkeypatch.setattr(WordRows, "_look_up", lambda self, snapshot: None)
    assert list(await index.search("apple pear 4")) == expected
    assert len(threads) == 1
    assert threads != [get_ident()]
    await index.aclose()


async def test_what_the_loop_fails_to_look_up_fails_the_step(large, monkeypatch):
    """The error is not lost in the loop: the lanes are then asked one by one."""

    def words(self, snapshot):
        raise MemoryError

    index = await index_of(large, *TEXTS)
    expected = list(await index.search("apple pear 4"))
    monkeypatch.setattr(WordRows, "_found", words)
    found = await index.search("apple pear 4")
    assert next(timing.outcome for timing in found.trace.of("keyword")) == "failed"
    assert list(found) == expected
    await index.aclose()


async def test_a_provisional_search_reads_nothing_ahead():
    """What a final query takes over is read when it comes to that, as it is then."""
    index = await index_of(store := Counting(), *TEXTS)
    retriever = index.retriever()
    early = await retriever.anticipate(Query("apple"))
    assert store.asked == ["search_both"]
    assert not early.ranking.passages
