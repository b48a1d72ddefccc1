"""A cached stage answers as the stage itself would, and asks it less often."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ragchat
from ragchat import Document, Eq, Query, cached
from ragchat.testing import ScriptedChatModel
from ragchat_retrieval.policy import Policy, Run, StagePolicy, running
from ragchat_retrieval.retry import Retries, retried
from ragchat_retrieval.trace import Degradation


class Stage:
    """Counts its calls, and answers with the count."""

    def __init__(self):
        self.calls = []

    async def __call__(self, *args):
        self.calls.append(args)
        return len(self.calls)


class Held:
    """A stage that waits until it is let go."""

    def __init__(self):
        self.calls = 0
        self.entered = asyncio.Event()
        self.go = asyncio.Event()
        self.ended = []

    async def __call__(self, query):
        self.calls += 1
        self.entered.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        self.ended.append("done")
        return [query.text, self.calls]


async def turns(count=3):
    """Lets everything that is ready go on."""
    for _ in range(count):
        await asyncio.sleep(0)


# Remembering


async def test_equal_arguments_are_asked_once():
    stage = Stage()
    wrapped = cached(stage)
    assert [await wrapped(Query("a")), await wrapped(Query(" a ")), await wrapped(Query("b"))] == [
        1,
        1,
        2,
    ]
    assert (wrapped.hits, wrapped.misses, len(wrapped)) == (1, 2, 2)


async def test_another_scope_is_another_question():
    wrapped = cached(Stage())
    scopes = [None, Eq("tenant", "a"), Eq("tenant", "b"), Eq("team", "a")]
    asked = [Query("a", scope=scope) for scope in scopes]
    asked += [Query("a", filter=scope) for scope in scopes[1:]]
    assert [await wrapped(query) for query in asked] == [1, 2, 3, 4, 5, 6, 7]


async def test_the_least_recently_used_answer_goes_first():
    wrapped = cached(Stage(), size=2)
    for text in ("a", "b", "a", "c"):
        await wrapped(Query(text))
    assert len(wrapped) == 2
    assert [await wrapped(Query(text)) for text in ("a", "c", "b")] == [1, 3, 4]


async def test_an_answer_is_good_for_its_time():
    now = [0.0]
    wrapped = cached(Stage(), ttl=10, clock=lambda: now[0])
    answers = []
    for now[0] in (0.0, 9.9, 10.0, 15.0, 20.0):
        answers.append(await wrapped(Query("a")))
    assert answers == [1, 1, 2, 2, 3]


async def test_what_has_no_key_is_asked_each_time():
    wrapped = cached(Stage())
    assert [await wrapped(object()), await wrapped(object()), len(wrapped)] == [1, 2, 0]


async def test_an_answer_of_none_is_an_answer():
    calls = []

    def transformer(query):
        calls.append(query)

    wrapped = cached(transformer)
    assert [await wrapped(Query("a")), await wrapped(Query("a"))] == [None, None]
    assert len(calls) == 1


async def test_nobody_can_change_what_is_remembered():
    wrapped = cached(lambda query: [query])
    first = await wrapped(Query("a"))
    first.clear()
    assert await wrapped(Query("a")) == [Query("a")]


async def test_an_error_is_not_remembered():
    answers = [LookupError("once"), 2]

    async def stage(query):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    wrapped = cached(stage)
    with pytest.raises(LookupError):
        await wrapped(Query("a"))
    assert await wrapped(Query("a")) == 2


async def test_forgetting_is_possible():
    wrapped = cached(Stage())
    await wrapped(Query("a"))
    wrapped.clear()
    assert await wrapped(Query("a")) == 2


@pytest.mark.parametrize(
    "options", [{"size": 0}, {"size": 1.5}, {"size": True}, {"ttl": 0}, {"ttl": float("nan")}]
)
def test_a_setting_out_of_range_is_refused(options):
    with pytest.raises(ragchat.InvalidSetting):
        cached(Stage(), **options)


def test_what_is_no_stage_is_refused():
    with pytest.raises(ragchat.InvalidSetting, match="callable"):
        cached(ragchat.quickstart())


# Together


async def test_equal_calls_at_the_same_time_are_one():
    stage = Held()
    wrapped = cached(stage)
    tasks = [asyncio.create_task(wrapped(Query("a"))) for _ in range(5)]
    await stage.entered.wait()
    await turns()
    stage.go.set()
    rows = await asyncio.gather(*tasks)
    assert rows == [["a", 1]] * 5
    assert len({id(row) for row in rows}) == 5
    assert (stage.calls, wrapped.misses, wrapped.hits) == (1, 1, 4)


@pytest.mark.parametrize("leader", [True, False])
async def test_who_gives_up_does_not_take_the_others_along(leader):
    stage = Held()
    wrapped = cached(stage)
    tasks = [asyncio.create_task(wrapped(Query("a"))) for _ in range(3)]
    await stage.entered.wait()
    await turns()
    gone = tasks.pop(0 if leader else 1)
    gone.cancel()
    await turns()
    assert gone.cancelled()
    stage.go.set()
    assert await asyncio.gather(*tasks) == [["a", 1]] * 2


async def test_when_nobody_waits_any_more_the_work_is_cancelled_and_awaited():
    stage = Held()
    wrapped = cached(stage)
    tasks = [asyncio.create_task(wrapped(Query("a"))) for _ in range(3)]
    await stage.entered.wait()
    await turns()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert stage.ended == ["cancelled"]
    assert asyncio.all_tasks() == {asyncio.current_task()}
    stage.go.set()
    assert await wrapped(Query("a")) == ["a", 2]


async def test_who_comes_while_the_work_is_being_cancelled_begins_anew():
    started, may_end = asyncio.Event(), asyncio.Event()
    calls = []

    async def stage(query):
        calls.append(query)
        if len(calls) > 1:
            return "second"
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await may_end.wait()

    wrapped = cached(stage)
    first = asyncio.create_task(wrapped(Query("a")))
    await started.wait()
    first.cancel()
    await turns()
    assert await wrapped(Query("a")) == "second"
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_failure_reaches_all_who_waited_for_it():
    entered, go = asyncio.Event(), asyncio.Event()

    async def stage(query):
        entered.set()
        await go.wait()
        raise LookupError

    wrapped = cached(stage)
    tasks = [asyncio.create_task(wrapped(Query("a"))) for _ in range(3)]
    await entered.wait()
    await turns()
    go.set()
    errors = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(error) for error in errors] == [LookupError] * 3
    assert len(wrapped) == 0


async def test_the_deadline_of_one_is_not_that_of_the_others():
    entered = asyncio.Event()
    calls = []

    async def stage(query):
        calls.append(query)
        entered.set()
        if len(calls) == 1:
            await asyncio.Event().wait()
        return "in time"

    wrapped = cached(stage)

    async def hurried():
        run = Run(
            Policy(transform=StagePolicy("raise", timeout=0.3))
        )  # the second is to join meanwhile
        with running(run):
            return await run.stage("transform", lambda: inner(Query("a")))

    async def inner(query):
        return await wrapped(query)

    first = asyncio.create_task(hurried())
    await entered.wait()
    second = asyncio.create_task(wrapped(Query("a")))
    await turns()
    with pytest.raises(ragchat.StageTimeout):
        await first
    assert len(calls) == 1
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert await wrapped(Query("a")) == "in time"


async def test_nor_does_the_time_of_one_decide_what_the_others_wait_for():
    """A server asks for longer than the stage has left in which the call began."""
    waits = []

    async def sleep(seconds):
        waits.append(seconds)

    async def work():
        if not waits:
            error = ConnectionError()
            error.status_code, error.response = 429, SimpleNamespace(headers={"retry-after": "15"})
            raise error
        return "done"

    wrapped = cached(lambda query: retried(work, Retries(sleep=sleep)))
    run = Run(Policy(timeout=10))
    with running(run):
        assert await run.stage("transform", lambda: wrapped(Query("a"))) == "done"
    assert waits == [15]


async def test_an_error_of_the_leaders_own_deadline_makes_the_others_try_themselves():
    entered, go = asyncio.Event(), asyncio.Event()
    calls = []

    async def stage(query):
        calls.append(query)
        if len(calls) > 1:
            return "in time"
        entered.set()
        await go.wait()
        raise ragchat.DeadlineExceeded("keyword", 1.0)

    wrapped = cached(stage)
    first, second = (asyncio.create_task(wrapped(Query("a"))) for _ in range(2))
    await entered.wait()
    await turns()
    go.set()
    with pytest.raises(ragchat.DeadlineExceeded):
        await first
    assert await second == "in time"


def test_one_cache_serves_several_loops():
    stage = Stage()
    wrapped = cached(stage)
    assert [asyncio.run(wrapped(Query("a"))) for _ in range(3)] == [1, 1, 1]


# What was left out


async def test_an_answer_with_something_left_out_is_told_to_all_and_not_remembered():
    entered, go = asyncio.Event(), asyncio.Event()

    async def better(query):
        entered.set()
        await go.wait()
        raise ConnectionError

    async def worse(query):
        return [query]

    wrapped = cached(ragchat.fallback(better, worse))
    runs = [Run(Policy()) for _ in range(3)]

    async def ask(run):
        with running(run):
            return await wrapped(Query("a"))

    tasks = [asyncio.create_task(ask(run)) for run in runs]
    await entered.wait()
    await turns()
    go.set()
    assert await asyncio.gather(*tasks) == [[Query("a")]] * 3
    assert [run.record.degraded for run in runs] == [[Degradation("better", "ConnectionError")]] * 3
    assert len(wrapped) == 0


async def test_what_another_stage_left_out_is_nothing_to_this_one():
    wrapped = cached(Stage())
    run = Run(Policy())
    run.record.degrade("transform", "LookupError")
    with running(run):
        await wrapped(Query("a"))
    assert len(wrapped) == 1


async def test_a_trace_says_what_came_from_the_cache():
    model = ScriptedChatModel(['["tea leaves"]', "unused"])
    small = ragchat.ChatModel(model.create, model="small")
    index = ragchat.quickstart()
    await index.ingest(Document("tea", "Tea is grown in the hills."))
    expander = cached(ragchat.MultiQueryExpander(small, n=1))
    preparer = ragchat.Preparer(index.retriever(expander=expander))
    request = {"model": "m", "messages": [{"role": "user", "content": "tea"}]}
    first, second = [(await preparer.prepare(request)).retrieval for _ in range(2)]
    assert [call.operation for call in first.trace.calls] == ["chat", "embeddings"]
    assert [call.operation for call in second.trace.calls] == ["embeddings"]
    assert second.trace.notes == ("MultiQueryExpander from the cache",)
    assert first.candidates == second.candidates
    assert len(model.calls) == 1


async def test_a_transform_is_remembered_by_its_conversation_and_its_model():
    said = [{"role": "user", "content": "tea?"}, {"role": "assistant", "content": "Hills."}]
    model = ScriptedChatModel(["one", "two", "three"])

    def transformer(name):
        small = ragchat.ChatModel(model.create, model=name)
        return cached(ragchat.CompressionTransformer(small))

    first, other = transformer("a"), transformer("b")
    history = [ragchat.ConversationQuery(Query("and rice?"), said[:count]) for count in (2, 1, 2)]
    assert [(await first(h)).text for h in history] == ["one", "two", "one"]
    assert (await other(history[0])).text == "three"


async def test_a_reranker_is_remembered_by_its_question_and_candidates():
    stage = Stage()

    async def scorer(query, candidates):
        await stage(query)
        return [0.5] * len(candidates)

    wrapped = cached(scorer)
    index = ragchat.quickstart()
    await index.ingest(Document("a", "tea"), Document("b", "tea too"))
    await index.search("tea", rerank=wrapped)
    await index.search("tea", rerank=wrapped)
    await index.search("leaves", rerank=wrapped)
    await index.ingest(Document("c", "tea three"))
    await index.search("tea", rerank=wrapped)
    assert [query.text for (query,) in stage.calls] == ["tea", "leaves", "tea"]


def test_what_a_stage_declares_shows_through():
    index = ragchat.quickstart()
    wrapped = cached(index.retriever(top_k=3))
    assert (wrapped.lanes, wrapped.top_k, wrapped.data_source) == (True, 3, "default")
    assert not hasattr(cached(Stage()), "lanes")
    assert wrapped.unwrap().source is index


# Searches


async def test_a_search_is_remembered_until_the_index_changes():
    index = ragchat.quickstart()
    await index.ingest(Document("a", "tea"))
    retriever = cached(index.retriever())
    first = await retriever(Query("tea"))
    again = await retriever(Query("tea"))
    assert (retriever.hits, again.trace.calls, again.trace.notes) == (
        1,
        (),
        ("search from the cache",),
    )
    await index.ingest(Document("b", "tea too"))
    assert len(await retriever(Query("tea"))) == len(first) + 1
    assert len(retriever) == 1
    await index.remove("a")
    assert [c.passage.document_id for c in await retriever(Query("tea"))] == ["b"]
    await index.reset()
    assert len(await retriever(Query("tea"))) == 0


async def test_a_search_during_which_the_index_changes_is_not_remembered():
    index = ragchat.quickstart()
    await index.ingest(Document("a", "tea"))

    async def scorer(query, candidates):
        await index.ingest(Document("b", "tea too"))
        return [1.0] * len(candidates)

    retriever = cached(index.retriever(rerank=scorer))
    await retriever(Query("tea"))
    assert len(retriever) == 0


async def test_a_degraded_search_is_not_remembered():
    down = [True]

    class Embedder(ragchat.HashingEmbedder):
        async def embed(self, texts, kind="query"):
            if down[0] and kind == "query":
                raise ConnectionError
            return await super().embed(texts, kind)

    index = ragchat.HybridIndex(embedder=Embedder(16))
    await index.ingest(Document("a", "tea"))
    retriever = cached(index.retriever(policy=Policy()))
    assert [d.stage for d in (await retriever(Query("tea"))).degraded] == ["vector"]
    down[0] = False
    assert (await retriever(Query("tea"))).degraded == ()


def test_a_retriever_that_cannot_tell_of_changes_needs_a_time():
    async def theirs(query):
        return []

    pipeline = ragchat.RetrievalPipeline(theirs)
    with pytest.raises(ragchat.InvalidSetting, match="ttl"):
        cached(pipeline)
    cached(pipeline, ttl=60)


async def test_a_pipeline_over_a_cached_retriever_still_tells_of_changes():
    index = ragchat.quickstart()
    outer = cached(ragchat.RetrievalPipeline(cached(index.retriever())))
    await index.ingest(Document("a", "tea"))
    assert len(await outer(Query("tea"))) == 1
    await index.ingest(Document("b", "tea too"))
    assert len(await outer(Query("tea"))) == 2


@pytest.mark.parametrize("joined", [ragchat.fallback, lambda *parts: ragchat.federate(parts)])
async def test_several_retrievers_tell_of_a_change_in_any_of_them(joined):
    first, second = ragchat.quickstart(), ragchat.quickstart()
    await first.ingest(Document("a", "tea"))
    await second.ingest(Document("b", "tea too"))
    remembering = cached(joined(first.retriever(), second.retriever()))
    once = await remembering(Query("tea"))
    assert await remembering(Query("tea")) == once
    assert (remembering.hits, remembering.misses) == (1, 1)
    await first.ingest(Document("c", "more tea"))
    assert len(await remembering(Query("tea"))) == len(once) + 1
    await second.ingest(Document("d", "still more tea"))
    await remembering(Query("tea"))
    assert (remembering.hits, remembering.misses) == (1, 3)


@pytest.mark.parametrize("joined", [ragchat.fallback, lambda *parts: ragchat.federate(parts)])
def test_several_retrievers_of_which_one_cannot_tell_need_a_time(joined):
    async def theirs(query):
        return []

    retriever = joined(ragchat.quickstart().retriever(), theirs)
    with pytest.raises(ragchat.InvalidSetting, match="ttl"):
        cached(retriever)
    cached(retriever, ttl=60)


WORDS = ["tea", "rice", "hills", "plains"]
TENANTS = ["a", "b"]
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)
scopes = st.sampled_from([None, Eq("tenant", "a"), Eq("tenant", "b")])
writes = st.tuples(
    st.just("write"), st.sampled_from(["1", "2", "3"]), texts, st.sampled_from(TENANTS)
)
removals = st.tuples(st.just("remove"), st.sampled_from(["1", "2", "3"]))
searches = st.tuples(
    st.just("search"), st.sampled_from(WORDS), scopes, scopes, st.sampled_from([1, 5])
)


@given(st.lists(writes | removals | searches | searches, max_size=25))
@settings(max_examples=40)
async def test_a_cached_index_answers_as_an_uncached_one(steps):
    """Whatever is written and asked, in whatever scope."""
    index = ragchat.in_memory(16)
    plain = index.retriever()
    remembering = cached(index.retriever(), size=4)
    for kind, *step in steps:
        if kind == "write":
            id_, text, tenant = step
            await index.ingest(Document(id_, text, metadata={"tenant": tenant}))
        elif kind == "remove":
            await index.remove(step[0])
        else:
            text, filter_, scope, top_k = step
            query = Query(text, filter=filter_, scope=scope, top_k=top_k)
            for _ in range(2):
                assert await remembering(query) == await plain(query)
    assert len(remembering) <= 4


WRITER = """
import asyncio, sys, ragchat
async def main():
    async with ragchat.open_index(sys.argv[1], embedder=None) as index:
        await index.ingest(ragchat.Document("b", "tea too"))
asyncio.run(main())
"""


async def test_a_change_by_another_process_is_noticed(tmp_path, child_env):
    path = str(tmp_path / "kb.sqlite")
    async with ragchat.open_index(path, embedder=None) as index:
        await index.ingest(Document("a", "tea"))
        retriever = cached(index.retriever())
        assert [len(await retriever(Query("tea"))) for _ in range(2)] == [1, 1]
        assert retriever.hits == 1
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", WRITER, path, env=child_env, stderr=subprocess.PIPE
        )
        _, said = await process.communicate()
        assert process.returncode == 0, said
        assert len(await retriever(Query("tea"))) == 2
