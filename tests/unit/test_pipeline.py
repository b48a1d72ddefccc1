"""The retrieval pipeline, federation and fallback."""

from __future__ import annotations

import asyncio
import functools

import pytest

from ragchat_retrieval.chunking import WholeText
from ragchat_retrieval.combining import fallback, federate
from ragchat_retrieval.embedders import HashingEmbedder
from ragchat_retrieval.errors import (
    InvalidCandidates,
    InvalidQuery,
    InvalidSetting,
    ScopeViolation,
)
from ragchat_retrieval.filters import Eq, Filter
from ragchat_retrieval.fusion import RRF, Weighted
from ragchat_retrieval.index import HybridIndex
from ragchat_retrieval.pipeline import RetrievalPipeline
from ragchat_retrieval.policy import Policy, Run, running
from ragchat_retrieval.rerank import Rerank
from ragchat_retrieval.stages import call_stage
from ragchat_retrieval.stores.memory import MemoryStore
from ragchat_retrieval.values import Candidate, Document, Passage, Query


async def index_of(*texts: str, **settings) -> HybridIndex:
    index = HybridIndex(splitter=WholeText(), **settings)
    await index.ingest(*(Document(f"d{i}", text) for i, text in enumerate(texts)))
    return index


def found(*ids: str, **fields) -> list[Candidate]:
    return [
        Candidate(Passage(f"text of {id_}", id=id_, **fields), 1 / n)
        for n, id_ in enumerate(ids, start=1)
    ]


def ids(result) -> list[str]:
    return [candidate.passage.id for candidate in result]


async def test_a_pipeline_without_stages_finds_what_its_index_finds():
    index = await index_of("red apple", "green apple", embedder=HashingEmbedder(64))
    assert list(await index.retriever(top_k=2)("apple")) == list(
        await index.search("apple", top_k=2)
    )


async def test_a_store_is_asked_once_a_retrieval_what_it_was_written_with():
    """For a store elsewhere, each further look would be a way there and back."""
    asked = []

    class Counting(MemoryStore):
        async def identity(self):
            asked.append(1)
            return await super().identity()

    index = await index_of("red apple", "green apple", store=Counting())
    retriever = index.retriever(expander=lambda q: [q.with_text("green")])
    asked.clear()
    assert len(await retriever("apple")) == 2
    assert len(asked) == 1


async def test_the_original_counts_double_among_the_wordings():
    async def retrieve(query):
        return found("a", "b") if query.text == "original" else found("b", "a")

    pipeline = RetrievalPipeline(retrieve, expander=lambda q: [q.with_text("variant")])
    result = await pipeline(Query("original"))
    assert ids(result) == ["a", "b"]
    assert result[0].score == pytest.approx(2 / 61 + 1 / 62)
    assert [q.text for q in result.queries] == ["original", "variant"]


async def test_the_order_does_not_depend_on_what_finished_first():
    first_done = asyncio.Event()

    async def retrieve(query):
        if query.text == "original":
            await first_done.wait()
            return found("a", "b")
        first_done.set()
        return found("c", "a")

    pipeline = RetrievalPipeline(retrieve, expander=lambda q: [q.with_text("variant")])
    assert ids(await pipeline("original")) == ["a", "b", "c"]


async def test_wordings_of_one_turn_share_one_embedding_call():
    calls = []

    class Counting(HashingEmbedder):
        async def embed(self, texts, kind="query"):
            calls.append(list(texts))
            return await super().embed(texts, kind)

    index = await index_of("tea", embedder=Counting(16))
    calls.clear()
    await index.retriever(expander=lambda q: [q.with_text("b"), q.with_text("c")])("a")
    assert calls == [["a", "b", "c"]]


async def test_variants_that_a_query_brings_replace_the_expander():
    def expander(query):
        raise AssertionError

    seen = []

    async def retrieve(query):
        seen.append(query.text)
        return []

    await RetrievalPipeline(retrieve, expander=expander)(Query("a", variants=("b", "a", "b")))
    assert seen == ["a", "b"]


async def test_no_stage_can_widen_the_callers_bounds():
    scope, narrow = Filter(Eq("tenant", "me")), Filter(Eq("year", 1))
    caller = Query("q", scope=scope, filter=narrow, top_k=3)
    seen = []

    async def retrieve(query):
        seen.append(query)
        return []

    pipeline = RetrievalPipeline(
        retrieve,
        transformers=[lambda q: Query("rewritten")],
        expander=lambda q: [Query("variant")],
    )
    await pipeline(caller)
    assert [(q.text, q.scope, q.filter, q.top_k) for q in seen] == [
        ("rewritten", scope, narrow, 3),
        ("variant", scope, narrow, 3),
    ]


async def test_a_failing_expander_is_skipped_only_under_a_policy_that_says_so():
    def expander(query):
        raise ValueError("content")

    pipeline = RetrievalPipeline(lambda query: found("a"), expander=expander)
    with pytest.raises(ValueError, match="content"):
        await pipeline("q")
    run = Run(Policy())
    with running(run):
        result = await pipeline("q")
    assert ids(result) == ["a"]
    assert [(d.stage, d.reason) for d in result.degraded] == [("expand", "ValueError")]


@pytest.mark.parametrize("junk", [None, 3, "q", ["q"], [None], Query("q")])
async def test_an_expander_that_returns_no_queries_counts_as_failed(junk):
    pipeline = RetrievalPipeline(lambda query: found("a"), expander=lambda query: junk)
    with pytest.raises(InvalidQuery, match="expand"):
        await pipeline("q")
    with running(Run(Policy())):
        result = await pipeline("q")
    assert ids(result) == ["a"]
    assert [d.stage for d in result.degraded] == ["expand"]


@pytest.mark.parametrize("junk", [None, "q", [Query("q")]])
async def test_a_transformer_that_returns_no_query_counts_as_failed(junk):
    pipeline = RetrievalPipeline(lambda query: found("a"), transformers=[lambda query: junk])
    with pytest.raises(InvalidQuery, match="transform"):
        await pipeline("q")
    with running(Run(Policy())):
        result = await pipeline("q")
    assert [query.text for query in result.queries] == ["q"]
    assert [d.stage for d in result.degraded] == ["transform"]


async def test_if_one_wording_fails_the_others_are_cancelled_and_awaited():
    cancelled = asyncio.Event()

    async def retrieve(query):
        if query.text == "original":
            raise ConnectionError
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(ConnectionError):
        await RetrievalPipeline(retrieve, expander=lambda q: [q.with_text("v")])("original")
    assert cancelled.is_set()
    assert len(asyncio.all_tasks()) == 1


async def test_rerank_sees_the_fused_list_and_the_cut_comes_after():
    index = await index_of("tea one", "tea two", "tea three")

    async def scorer(query, candidates):
        return [float(c.passage.text == "tea three") for c in candidates]

    result = await index.retriever(top_k=1, rerank=scorer)("tea")
    assert [c.passage.text for c in result] == ["tea three"]


async def test_a_malformed_ranking_is_skipped_whole_with_one_warning(caplog):
    index = await index_of("tea one", "tea two")
    plain = await index.search("tea")
    result = await index.search("tea", rerank=lambda q, c: [2.0, 0.1], policy=Policy())
    assert list(result) == list(plain)
    assert [d.stage for d in result.degraded] == ["rerank"]
    assert len(caplog.records) == 1


async def test_the_floor_of_a_skipped_reranker_is_not_applied():
    index = await index_of("tea one", "tea two")

    def broken(query, candidates):
        raise ConnectionError

    kept = await index.search("tea", rerank=broken, min_rerank=0.9, policy=Policy())
    assert len(kept) == 2
    cut = await index.search("tea", rerank=lambda q, c: [0.95, 0.1], min_rerank=0.9)
    assert len(cut) == 1


@pytest.mark.parametrize("answer", [None, 7, "abc", ["x"], [Passage("p")]])
async def test_a_retriever_that_returns_no_candidates_is_named(answer):
    with pytest.raises(InvalidCandidates, match="retrieve"):
        await RetrievalPipeline(lambda query: answer)("q")


async def test_a_foreign_passage_outside_the_scope_is_withheld():
    query = Query("q", scope=Filter(Eq("tenant", "me")))
    with pytest.raises(ScopeViolation):
        await RetrievalPipeline(lambda q: found("a", metadata={"tenant": "you"}))(query)


async def test_a_foreign_retriever_is_shown_the_text_of_its_kind():
    class Semantic:
        semantic = True

        def __call__(self, query):
            seen.append(query.text)
            return []

    seen = []
    query = Query("text", lexical="words", semantic="meaning")
    await RetrievalPipeline(Semantic())(query)
    await RetrievalPipeline(lambda q: seen.append(q.text) or [])(query)
    assert seen == ["meaning", "words"]


class Wrapper:
    """Passes everything on, and says around what."""

    def __init__(self, inner):
        self._inner = inner

    def unwrap(self):
        return self._inner

    async def __call__(self, query):
        return await call_stage(self._inner, query)


@pytest.mark.parametrize("asking", [RetrievalPipeline, fallback, lambda r: federate([r])])
async def test_what_a_retriever_declares_is_seen_through_wrappers_and_at_run_time(asking):
    """`is_semantic` is the only detection point; it looks through `unwrap()`, also when asked."""

    class Meaning:
        semantic = True

        async def __call__(self, query):
            seen.append(query.text)
            return []

    class Words(Meaning):
        def semantic(self):
            return False

    @functools.wraps(Meaning())
    async def decorated(query):
        return await Meaning()(query)

    seen = []
    query = Query("text", lexical="words", semantic="meaning")
    for retriever in (Wrapper(Meaning()), decorated, Words()):
        await RetrievalPipeline(asking(retriever))(query)
    assert seen == ["meaning", "meaning", "words"]


@pytest.mark.parametrize(
    ("semantic", "query"),
    [(False, Query("holidays", lexical="Urlaub")), (True, Query("Urlaub", semantic="holidays"))],
)
async def test_a_pipeline_inside_a_function_still_gives_each_lane_its_own_text(semantic, query):
    """Decorating a stage is wrapping a function; what is meant for one lane stays in it."""
    embedded = []

    class Recording(HashingEmbedder):
        async def embed(self, texts, kind="query"):
            embedded.extend(texts)
            return await super().embed(texts, kind)

    index = await index_of("Urlaub", "holidays", embedder=Recording(64))
    inner = index.retriever(explain=True)

    async def logged(query):
        return await inner(query)

    logged.semantic = semantic
    embedded.clear()
    outer = await RetrievalPipeline(logged)(query)
    assert embedded == ["holidays"]
    assert [c.passage.text for c in outer if c.explain.keyword.score > 0] == ["Urlaub"]


def test_a_fusion_by_name_is_refused_before_anything_is_searched():
    with pytest.raises(InvalidSetting, match=r"fusion: must be a fusion, such as Weighted\(\)"):
        HybridIndex().retriever(fusion="rrf")


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({}, 3),
        ({"expander": lambda q: [q.with_text("other")]}, 3),
        ({"rerank": lambda q, pool: [0.5] * len(pool)}, 100),
        ({"rerank": Rerank(lambda q, pool: [0.5] * len(pool), pool=7)}, 7),
        ({"per_document": 1}, 100),
        ({"per_document": 1, "top_k": 400}, 500),
        ({"per_document": 1, "top_k": None}, None),
        ({"candidates": 20}, 20),
        ({"candidates": 20, "top_k": None}, 20),
        ({"candidates": 0}, None),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else str(value),
)
async def test_a_retriever_is_asked_for_what_the_stages_after_it_choose_from(options, asked):
    """Rerank and diversify come before the cut, whoever found the candidates."""
    seen = []

    async def retrieve(query):
        seen.append(query.top_k)
        return found(*map(str, range(query.top_k or 30)))

    options = {"top_k": 3} | options
    result = await RetrievalPipeline(retrieve, **options)("q")
    assert set(seen) == {asked}
    assert result.queries[0].top_k == options["top_k"]
    assert len(result) <= (options["top_k"] or 30)


def test_options_that_only_an_index_can_honour_are_refused_elsewhere():
    with pytest.raises(InvalidSetting, match="min_similarity"):
        RetrievalPipeline(lambda q: [], min_similarity=0.5)


async def test_federation_takes_passages_of_one_id_for_one_only_if_they_are():
    """An id is unique inside a corpus; evidence of another one must not be lost under it."""

    def found(*passages):
        return lambda query: [Candidate(passage, 1.0) for passage in passages]

    def passage(id_, text, digest=""):
        return Passage(text, id=id_, digest=digest)

    red, green = passage("p", "red apples"), passage("p", "green apples")
    whole, part = passage("w", "one two", "d"), passage("w", "two", "d")  # joined to a neighbour
    ask = federate([found(red, whole), found(green, part), found(red)])
    result = await ask(Query("apples"))
    assert [c.passage.text for c in result] == ["red apples", "one two", "green apples"]
    assert len({c.passage.id for c in result}) == 3
    assert result[0].passage is red
    again = await ask(Query("apples"))
    assert [c.passage.id for c in again] == [c.passage.id for c in result]


async def test_federation_merges_by_rank_in_the_order_of_declaration():
    gate = asyncio.Event()

    async def slow(query):
        await gate.wait()
        return found("a", "b")

    async def fast(query):
        gate.set()
        return found("b", "c")

    result = await federate([slow, fast])(Query("q", top_k=2))
    assert ids(result) == ["b", "a"]
    with pytest.raises(InvalidSetting):
        federate([])


async def test_a_fallback_stands_in_and_says_so():
    def broken(query):
        raise ConnectionError

    retriever = fallback(broken, lambda query: found("a"))
    run = Run(Policy())
    with running(run):
        assert ids(await retriever(Query("q"))) == ["a"]
    assert [(d.stage, d.reason) for d in run.record.degraded] == [("broken", "ConnectionError")]


async def test_a_fallback_that_is_asked_by_itself_warns_of_what_it_skipped(caplog):
    """Each skip is a warning in the log, whoever asks."""

    def broken(query):
        raise ConnectionError("secret")

    assert ids(await fallback(broken, lambda query: found("a"))(Query("q"))) == ["a"]
    assert [r.getMessage() for r in caplog.records] == ["stage broken skipped (ConnectionError)"]


async def test_the_last_of_a_fallback_raises_and_cancellation_is_never_swallowed():
    def broken(query):
        raise ConnectionError

    async def cancelled(query):
        raise asyncio.CancelledError

    with pytest.raises(ConnectionError):
        await fallback(broken, broken)(Query("q"))
    with pytest.raises(asyncio.CancelledError):
        await fallback(cancelled, broken)(Query("q"))


async def test_what_an_inner_retriever_skipped_is_told_by_the_outer_one():
    class Broken(HashingEmbedder):
        async def embed(self, texts, kind="query"):
            if kind == "query":
                raise ConnectionError
            return await super().embed(texts, kind)

    index = await index_of("tea", embedder=Broken(8))
    inner = index.retriever(policy=Policy())
    outer = RetrievalPipeline(federate([inner, inner]))
    for retriever in (inner, federate([inner]), outer, RetrievalPipeline(inner)):
        result = await retriever(Query("tea"))
        assert len(result) == 1
        assert [d.stage for d in result.degraded] == ["vector"]


@pytest.mark.parametrize("top_k", [0, -1])
async def test_a_federation_asked_for_nothing_asks_nobody(top_k):
    async def retrieve(query):
        raise AssertionError

    assert not await federate([retrieve])(Query("q", top_k=top_k))


async def test_the_constant_of_a_federation_can_be_set():
    async def retrieve(query):
        return found("a")

    result = await federate([retrieve, retrieve], fusion=RRF(k=9))(Query("q"))
    assert result[0].score == pytest.approx(2 / 10)


async def test_each_retriever_of_a_fallback_is_shown_its_own_text():
    seen = []

    class Semantic:
        semantic = True

        async def __call__(self, query):
            seen.append(query.text)
            raise ConnectionError

    async def lexical(query):
        seen.append(query.text)
        return []

    query = Query("q", lexical="words", semantic="meaning")
    await RetrievalPipeline(fallback(Semantic(), lexical))(query)
    assert seen == ["meaning", "words"]


def one_by_one(store: MemoryStore):
    """A handle on the same corpus that offers no search for several vectors at once."""
    kind = type("Plain", (MemoryStore,), {"search_vectors": None})
    plain = kind()
    plain._shared = store._shared
    plain.search_vector = store.search_vector
    return plain


@pytest.mark.parametrize("broken", [False, True])
async def test_wordings_of_one_question_are_searched_in_one_call_where_the_store_can(broken):
    calls = []

    class Store(MemoryStore):
        async def search_vectors(self, vectors, limit, **bounds):
            calls.append(len(vectors))
            if broken:
                raise ConnectionError
            return await super().search_vectors(vectors, limit, **bounds)

    texts = [f"apple {n}" for n in range(9)]
    index = await index_of(*texts, store=Store(), embedder=HashingEmbedder(64))
    options = {"expander": lambda q: [q.with_text("green")], "top_k": 4}
    result = await index.retriever(policy=Policy(), **options)(Query("apple 3"))
    assert calls == [2]
    assert [d.stage for d in result.degraded] == (["vector"] if broken else [])
    if not broken:
        index.store = one_by_one(index.store)
        assert list(await index.retriever(**options)(Query("apple 3"))) == list(result)


@pytest.mark.parametrize("fusion", [RRF(), Weighted(0.3), Weighted(0.3, complete=False)])
async def test_lanes_asked_in_one_step_rank_as_lanes_asked_one_by_one(fusion):
    """All wordings are one question to the store, whatever rule merges its answers."""

    class Store(MemoryStore):
        async def search_both(self, queries, limit, **bounds):
            asked.append(len(queries))
            return await super().search_both(queries, limit, **bounds)

    class Halting(HashingEmbedder):
        def legibility(self, text):
            return 0.25 if "pear" in text else 0.75

    asked = []
    texts = [f"apple {n} {'pear ' * (n % 4)}" for n in range(9)]
    index = await index_of(*texts, store=Store(), embedder=Halting(64))
    options = {"expander": lambda q: [q.with_text("pear")], "top_k": 4, "fusion": fusion}
    options |= {"candidates": 5, "explain": True}
    result = await index.retriever(**options)(Query("apple 3"))
    assert asked == [2]
    index.store = one_by_one(index.store)
    assert list(await index.retriever(**options)(Query("apple 3"))) == list(result)
    assert asked == [2]


@pytest.mark.parametrize("broken", [(), ("search_vector",), ("search_text",)])
async def test_lanes_that_fail_in_one_step_are_asked_one_by_one(broken):
    """Each lane then answers, is skipped or fails under the policy's rule for it."""

    class Store(MemoryStore):
        async def search_both(self, queries, limit, **bounds):
            asked.append(len(queries))
            raise ConnectionError

        async def search_text(self, terms, limit, **bounds):
            if "search_text" in broken:
                raise ConnectionError
            return await super().search_text(terms, limit, **bounds)

        async def search_vector(self, vector, limit, **bounds):
            if "search_vector" in broken:
                raise ConnectionError
            return await super().search_vector(vector, limit, **bounds)

    asked = []
    index = await index_of("apple", "apples", "pear", store=Store(), embedder=HashingEmbedder(64))
    if "search_text" in broken:
        with pytest.raises(ConnectionError):
            await index.search("apple", policy=Policy())
    else:
        found = await index.search("apple", policy=Policy())
        assert [d.stage for d in found.degraded] == (["vector"] if broken else [])
        assert found[0].passage.text == "apple"
    assert asked == [1]


async def test_a_lane_that_a_subclass_changes_is_asked_for_every_wording():
    """A call for all wordings that a store inherits stands for its own search of one."""

    class Store(MemoryStore):
        async def search_vector(self, vector, limit, **bounds):
            return (await super().search_vector(vector, limit, **bounds))[1:]

    index = await index_of("red", "green", "blue", store=Store(), embedder=HashingEmbedder(64))
    options = {"fusion": Weighted(keyword=0.0), "top_k": 9}
    alone = await index.search("red", **options)
    assert len(alone) == 2
    together = await index.search_batch(["red", "green"], **options)
    assert list(together[0]) == list(alone)
    assert len(together[1]) == 2


async def test_questions_with_bounds_of_their_own_are_searched_one_by_one():
    index = await index_of("red apple", "green apple", embedder=HashingEmbedder(64))
    queries = [Query("apple", top_k=1), Query("apple", filter=Eq("id", "d1")), Query("apple")]
    rows = await index.search_batch(queries)
    assert rows == [await index.search(query) for query in queries]


async def test_only_passages_that_the_reranker_may_move_are_read():
    read = []

    class Store(MemoryStore):
        async def get(self, passage_ids, *, scope):
            read.append(len(passage_ids))
            return await super().get(passage_ids, scope=scope)

    index = await index_of(*(f"apple {n}" for n in range(30)), store=Store())

    def score(query, pool):
        return [n / len(pool) for n in range(len(pool))]

    async def search(**options):
        read.clear()
        return await index.search("apple", **options)

    every = await search(top_k=2, rerank=Rerank(score))
    assert read == [30]
    pooled = await search(top_k=2, rerank=Rerank(score, pool=5))
    assert read == [5]
    assert len(every) == len(pooled) == 2
    assert len(await search(top_k=9, rerank=Rerank(score, pool=5))) == 9
    assert read == [9]
    # The margin compares the best two, however few are scored.
    await search(top_k=1, rerank=Rerank(score, pool=1, margin=0.5))
    assert read == [2]
    await search(top_k=2, rerank=Rerank(score, pool=5), mmr=0.5)
    assert read == [30]
