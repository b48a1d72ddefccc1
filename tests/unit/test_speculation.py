"""A `Preparer` that searches while the model still rewrites; waits are counted with events."""

from __future__ import annotations

import asyncio
import json

import pytest

from ragchat import ChatModel, Preparer
from ragchat.expansion import MultiQueryExpander
from ragchat.testing import ScriptedChatModel
from ragchat.transforms import CompressionTransformer, HistoryExpansionTransformer
from ragchat_retrieval.embedders import HashingEmbedder
from ragchat_retrieval.errors import InvalidSetting, ScopeViolation
from ragchat_retrieval.index import HybridIndex
from ragchat_retrieval.policy import Policy
from ragchat_retrieval.values import Candidate, Document, Passage, Query, SearchResult

HISTORY = [
    {"role": "user", "content": "Which pumps are there?"},
    {"role": "assistant", "content": "A red one and a blue one."},
]
TURN = [*HISTORY, {"role": "user", "content": "and the blue one?"}]
REWRITE = "What does the blue pump cost?"
DOCUMENTS = {
    "prices": "The blue pump costs ten francs.",
    "kinds": "Pumps come in red and in blue.",
    "valves": "Valves are made of brass.",
}


def found(*texts):
    return [Candidate(Passage(text, id=text), 1.0 - i / 10) for i, text in enumerate(texts)]


def ids(prepared):
    return [candidate.passage.id for candidate in prepared.retrieval.candidates]


def compress(reply):
    double = ScriptedChatModel(reply)
    return double, CompressionTransformer(ChatModel(double.create, model="small"))


class Ahead:
    """Hears the provisional search end; the model's reply can wait for that."""

    def __init__(self):
        self.ended = asyncio.Event()

    def __call__(self, event):
        if (event.stage, event.phase) == ("speculate", "end"):
            self.ended.set()

    async def reply(self, _):
        await self.ended.wait()
        return REWRITE


class Retriever:
    """Answers by what it is asked."""

    def __init__(self, **answers):
        self.answers = answers
        self.asked = []

    async def __call__(self, query):
        self.asked.append(query.text)
        answer = self.answers["rewrite" if query.text == REWRITE else "turn"]
        return answer(query) if callable(answer) else answer


async def test_the_model_free_query_is_searched_while_the_model_is_still_writing():
    retriever = Retriever(turn=found("a"), rewrite=found("b"))
    ahead = Ahead()  # the reply waits for ever if nothing is searched before it
    _, transformer = compress(ahead.reply)
    preparer = Preparer(retriever, query_transformer=transformer, speculative=True, on_stage=ahead)
    prepared = await preparer.prepare(messages=TURN)
    assert retriever.asked == ["and the blue one?", REWRITE]
    assert [query.text for query in prepared.retrieval.queries] == [REWRITE, "and the blue one?"]
    assert prepared.retrieval.queries[1].context  # the conversation is in it
    assert ids(prepared) == ["b", "a"]
    assert prepared.retrieval.degraded == ()


async def test_without_it_the_search_waits_for_the_model():
    retriever = Retriever(rewrite=found("b"))

    def reply(_):
        assert retriever.asked == []
        return REWRITE

    _, transformer = compress(reply)
    await Preparer(retriever, query_transformer=transformer).prepare(messages=TURN)
    assert retriever.asked == [REWRITE]


async def test_the_rewrites_own_order_stands_where_both_found_the_same():
    retriever = Retriever(turn=found("a", "b", "c"), rewrite=found("c", "a", "b"))
    ahead = Ahead()
    _, transformer = compress(ahead.reply)
    preparer = Preparer(retriever, query_transformer=transformer, speculative=True, on_stage=ahead)
    prepared = await preparer.prepare(messages=TURN)
    assert prepared.retrieval.candidates == tuple(found("c", "a", "b"))
    assert len(prepared.retrieval.queries) == 2


async def test_the_rewrite_counts_double_where_they_differ():
    retriever = Retriever(turn=found("x", "a", "y"), rewrite=found("a", "b"))
    ahead = Ahead()
    _, transformer = compress(ahead.reply)
    preparer = Preparer(
        retriever, query_transformer=transformer, speculative=True, on_stage=ahead, top_k=3
    )
    prepared = await preparer.prepare(messages=TURN)
    assert ids(prepared) == ["a", "b", "x"]
    scores = [candidate.score for candidate in prepared.retrieval.candidates]
    assert scores == pytest.approx([2 / 61 + 1 / 62, 2 / 62, 1 / 61])


async def test_nothing_waits_for_a_provisional_search_that_is_not_done():
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def retrieve(query):
        if query.text == REWRITE:
            return found("b")
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async def reply(_):
        await begun.wait()
        return REWRITE

    _, transformer = compress(reply)
    preparer = Preparer(retrieve, query_transformer=transformer, speculative=True)
    prepared = await preparer.prepare(messages=TURN)
    assert ids(prepared) == ["b"]
    assert [query.text for query in prepared.retrieval.queries] == [REWRITE]
    assert stopped.is_set()
    assert "the search of the provisional query was dropped" in prepared.retrieval.trace.notes


@pytest.mark.parametrize("reply", [OSError("down"), {"content": "", "finish_reason": "stop"}])
async def test_if_the_transform_fails_the_provisional_result_stands(reply):
    retriever = Retriever(turn=found("a"))
    _, transformer = compress(reply)
    preparer = Preparer(retriever, query_transformer=transformer, speculative=True)
    prepared = await preparer.prepare(messages=TURN)
    assert retriever.asked == ["and the blue one?"]
    assert ids(prepared) == ["a"]
    assert [d.stage for d in prepared.retrieval.degraded] == ["transform"]
    assert prepared.retrieval.degraded[0].reason.endswith("; history expansion instead")


async def test_a_transformer_that_leaves_the_provisional_query_costs_no_second_search():
    retriever = Retriever(turn=found("a"))
    preparer = Preparer(
        retriever, query_transformer=HistoryExpansionTransformer(), speculative=True
    )
    prepared = await preparer.prepare(messages=TURN)
    assert len(retriever.asked) == len(prepared.retrieval.queries) == 1


async def test_a_turn_that_needs_no_retrieval_ends_the_provisional_search():
    stopped, begun = asyncio.Event(), asyncio.Event()

    async def retrieve(query):
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async def nothing(conversation):
        await begun.wait()

    preparer = Preparer(retrieve, query_transformer=nothing, speculative=True)
    prepared = await preparer.prepare(messages=TURN)
    assert prepared.retrieval.skipped == "transform"
    assert prepared.retrieval.candidates == ()
    assert stopped.is_set()


async def test_a_failed_provisional_search_is_told_and_changes_nothing_else():
    def broken(query):
        raise ConnectionError

    retriever = Retriever(turn=broken, rewrite=found("b"))
    ahead = Ahead()
    _, transformer = compress(ahead.reply)
    preparer = Preparer(retriever, query_transformer=transformer, speculative=True, on_stage=ahead)
    prepared = await preparer.prepare(messages=TURN)
    assert ids(prepared) == ["b"]
    assert [(d.stage, d.reason) for d in prepared.retrieval.degraded] == [
        ("speculate", "ConnectionError")
    ]


async def test_if_both_the_transform_and_the_search_fail_the_search_error_raises():
    def broken(query):
        raise ConnectionError

    _, transformer = compress(OSError())
    preparer = Preparer(Retriever(turn=broken), query_transformer=transformer, speculative=True)
    with pytest.raises(ConnectionError):
        await preparer.prepare(messages=TURN)


async def test_a_provisional_search_outside_the_scope_is_never_passed_over():
    retriever = Retriever(turn=found("foreign"), rewrite=[])
    ahead = Ahead()
    _, transformer = compress(ahead.reply)
    preparer = Preparer(
        retriever,
        query_transformer=transformer,
        speculative=True,
        on_stage=ahead,
        scope={"tenant": "a"},
    )
    with pytest.raises(ScopeViolation):
        await preparer.prepare(messages=TURN)


@pytest.mark.parametrize("while_", ["transform", "retrieve"])
async def test_cancelling_leaves_no_task_behind(while_):
    reached = asyncio.Event()

    async def wait_here():
        reached.set()
        await asyncio.Event().wait()

    async def transform(conversation):
        if while_ == "transform":
            await wait_here()
        return Query(REWRITE)

    async def retrieve(query):
        if query.text == REWRITE:
            await wait_here()
        await asyncio.Event().wait()

    before = asyncio.all_tasks()
    preparer = Preparer(retrieve, query_transformer=transform, speculative=True)
    task = asyncio.create_task(preparer.prepare(messages=TURN))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == before


async def test_a_strict_policy_ends_the_provisional_search_when_the_transform_fails():
    before = asyncio.all_tasks()

    async def retrieve(query):
        await asyncio.Event().wait()

    _, transformer = compress(OSError("down"))
    preparer = Preparer(
        retrieve, query_transformer=transformer, speculative=True, policy=Policy.strict()
    )
    with pytest.raises(OSError, match="down"):
        await preparer.prepare(messages=TURN)
    assert asyncio.all_tasks() == before


def test_speculative_is_a_switch():
    with pytest.raises(InvalidSetting):
        Preparer(lambda query: [], speculative="yes")


# A pipeline: what runs when


class Counting(HashingEmbedder):
    """Notes which texts were embedded as questions."""

    def __init__(self):
        super().__init__(64)
        self.asked = []

    async def embed(self, texts, kind="query"):
        if kind == "query":
            self.asked.append(list(texts))
        return await super().embed(texts, kind)


async def pipeline(embedder, **stages):
    index = HybridIndex(embedder=embedder)
    await index.ingest(*(Document(id_, text) for id_, text in DOCUMENTS.items()))
    return index.retriever(top_k=3, **stages)


async def test_expander_and_reranker_run_once_on_the_rewrite_with_both_searches_in_the_pool():
    embedder, seen = Counting(), []

    def rerank(query, candidates):
        seen.append((query.text, len(candidates)))
        return [1.0 if c.passage.document_id == "prices" else 0.5 for c in candidates]

    expansion = ScriptedChatModel([json.dumps({"queries": ["price of the blue pump"]})])
    expander = MultiQueryExpander(ChatModel(expansion.create, model="small"), 1)

    ahead = Ahead()

    async def reply(_):
        await ahead.ended.wait()
        assert expansion.calls == []
        assert seen == []
        return REWRITE

    _, transformer = compress(reply)
    retriever = await pipeline(embedder, expander=expander, rerank=rerank)
    preparer = Preparer(retriever, query_transformer=transformer, speculative=True, on_stage=ahead)
    prepared = await preparer.prepare(messages=TURN)
    assert [query.text for query in prepared.retrieval.queries] == [
        REWRITE,
        "price of the blue pump",
        "and the blue one?",
    ]
    assert seen == [(REWRITE, 3)]
    assert REWRITE in expansion.prompts[0]
    assert prepared.retrieval.candidates[0].passage.document_id == "prices"
    assert [texts[0] for texts in embedder.asked] == ["and the blue one?", REWRITE]


async def test_if_the_transform_fails_the_pipeline_goes_on_with_what_its_lanes_have_found():
    embedder, reranked = Counting(), []

    def rerank(query, candidates):
        reranked.append(query.text)
        return [0.5] * len(candidates)

    expanded = []

    def expander(query):
        expanded.append(query.text)
        return [query.with_text("another wording")]

    _, transformer = compress(OSError())
    retriever = await pipeline(embedder, expander=expander, rerank=rerank)
    preparer = Preparer(retriever, query_transformer=transformer, speculative=True)
    plain = await Preparer(retriever, query_transformer=transformer).prepare(messages=TURN)
    embedder.asked.clear()
    expanded.clear()
    reranked.clear()
    prepared = await preparer.prepare(messages=TURN)
    assert prepared.retrieval.candidates == plain.retrieval.candidates
    assert prepared.retrieval.queries == plain.retrieval.queries
    assert expanded == reranked == ["and the blue one?"]
    assert sorted(texts[0] for texts in embedder.asked) == ["and the blue one?", "another wording"]


async def test_a_pipelines_own_order_stands_where_both_searches_agree():
    ahead = Ahead()
    _, transformer = compress(ahead.reply)
    retriever = await pipeline(Counting())
    preparer = Preparer(retriever, query_transformer=transformer, speculative=True, on_stage=ahead)
    prepared = await preparer.prepare(messages=TURN)
    alone = await retriever(Query(REWRITE))
    assert prepared.retrieval.candidates == alone.candidates
    assert len(prepared.retrieval.queries) == 2


async def test_what_the_lanes_skipped_under_a_policy_of_the_pipelines_own_is_told():
    class Broken(Counting):
        async def embed(self, texts, kind="query"):
            if kind == "query":
                raise ConnectionError
            return await super().embed(texts, kind)

    embedder = Broken()
    retriever = await pipeline(embedder, policy=Policy())
    _, transformer = compress(OSError())
    preparer = Preparer(retriever, query_transformer=transformer, speculative=True)
    prepared = await preparer.prepare(messages=TURN)
    assert {d.stage for d in prepared.retrieval.degraded} == {"transform", "vector"}


@pytest.mark.parametrize("top_k", [0, -1])
async def test_asked_for_nothing_a_pipeline_anticipates_nothing(top_k):
    embedder = Counting()
    retriever = await pipeline(embedder)
    _, transformer = compress(REWRITE)
    preparer = Preparer(retriever, query_transformer=transformer, speculative=True, top_k=top_k)
    prepared = await preparer.prepare(messages=TURN)
    assert prepared.retrieval.candidates == ()
    assert embedder.asked == []


async def test_the_queries_and_degradations_of_both_results_are_kept():
    def result(name):
        return lambda query: SearchResult(
            tuple(found(name)), queries=(query, Query(f"variant of {name}"))
        )

    retriever = Retriever(turn=result("a"), rewrite=result("b"))
    ahead = Ahead()
    _, transformer = compress(ahead.reply)
    preparer = Preparer(retriever, query_transformer=transformer, speculative=True, on_stage=ahead)
    prepared = await preparer.prepare(messages=TURN)
    assert [query.text for query in prepared.retrieval.queries] == [
        REWRITE,
        "variant of b",
        "and the blue one?",
        "variant of a",
    ]
