from __future__ import annotations

import asyncio
import copy
import gc
import json
import logging
import threading
import time
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ragchat import ChatModel, LLMReranker, MultiQueryExpander, QueryPlanner, quickstart
from ragchat.augment import Augmentation, ContextualAugmenter, IdentityAugmenter
from ragchat.citations import Citations
from ragchat.errors import (
    ContextBudgetExceeded,
    InvalidAugmentation,
    NoFinalUserMessage,
)
from ragchat.prepare import Preparer
from ragchat.testing import ScriptedChatModel, tool_call
from ragchat_retrieval.errors import (
    DeadlineExceeded,
    InvalidCandidates,
    InvalidFilter,
    InvalidQuery,
    InvalidSetting,
    ScopeViolation,
    StageTimeout,
)
from ragchat_retrieval.filters import Eq, Filter
from ragchat_retrieval.index import HybridIndex
from ragchat_retrieval.policy import Policy, StagePolicy, current_run
from ragchat_retrieval.rerank import Rerank
from ragchat_retrieval.trace import Degradation, StageEvent
from ragchat_retrieval.values import Candidate, Document, Passage, Query, SearchResult

if TYPE_CHECKING:
    from ragchat.conversation import ConversationQuery

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
HISTORY = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "weather?"},
    {"role": "assistant", "content": None, "tool_calls": [tool_call("weather")]},
    {"role": "tool", "tool_call_id": "call_1", "content": "12 C"},
    {"role": "assistant"},
]


def user(content: object) -> dict[str, object]:
    return {"role": "user", "content": content}


def found(*texts: str, **fields) -> list[Candidate]:
    return [
        Candidate(Passage(text, id=f"p{n}", **fields), 1 / n)
        for n, text in enumerate(texts, start=1)
    ]


class Recorder:
    """A retriever that records its queries and always finds the same."""

    def __init__(self, *texts: str, **fields):
        self.queries: list[Query] = []
        self.candidates = found(*(texts or ("evidence",)), **fields)

    async def __call__(self, query: Query) -> list[Candidate]:
        self.queries.append(query)
        return self.candidates


def content(prepared) -> object:
    return prepared.request["messages"][-1]["content"]


async def test_a_function_retriever_the_identity_augmenter_and_a_model_make_a_whole():
    model = ScriptedChatModel("AI infrastructure")
    preparer = Preparer(
        Recorder("Scope provides AI infrastructure."), augmenter=IdentityAugmenter()
    )
    prepared = await preparer.prepare(model="m", messages=[user("What is Scope?")])
    response = await prepared.call(model.create)
    assert response.choices[0].message.content == "AI infrastructure"
    assert len(prepared.retrieval.candidates) == 1
    assert model.calls == [{"model": "m", "messages": [user("What is Scope?")]}]


async def test_the_question_reaches_the_retriever_and_its_evidence_the_message():
    retriever = Recorder("The pump is red.", source="pump.md")
    prepared = await Preparer(retriever).prepare(messages=[*HISTORY, user("and the pump?")])
    assert retriever.queries[0].text == "and the pump?"
    assert "The pump is red." in content(prepared)
    assert content(prepared).endswith("and the pump?")
    assert prepared.question == "and the pump?"
    assert prepared.retrieval.citations.resolve("[1]").source == "pump.md"
    assert prepared.retrieval.queries == tuple(retriever.queries)
    assert prepared.retrieval.skipped is None
    assert prepared.request["messages"][:-1] == HISTORY


async def test_the_recipe_runs_its_stages_in_order():
    seen = []

    def gate(conversation: ConversationQuery) -> bool:
        seen.append(("gate", conversation.query.text))
        return True

    async def transform(conversation: ConversationQuery) -> Query:
        seen.append(("transform", [m["role"] for m in conversation.history]))
        return conversation.query.with_text("transformed")

    async def retrieve(query: Query) -> list[Candidate]:
        seen.append(("retrieve", query.text))
        return found("a")

    def augment(question, candidates, context):
        seen.append(("augment", question, len(candidates), context.model))
        return Augmentation("augmented", Citations(c.passage for c in candidates))

    preparer = Preparer(retrieve, augmenter=augment, query_transformer=transform, gate=gate)
    prepared = await preparer.prepare({"model": "m", "messages": [*HISTORY, user("q")]})
    assert seen == [
        ("gate", "q"),
        ("transform", ["system", "user", "assistant", "tool", "assistant"]),
        ("retrieve", "transformed"),
        ("augment", "q", 1, "m"),
    ]
    assert content(prepared) == "augmented"
    assert [t.stage for t in prepared.retrieval.trace.stages] == [
        "gate",
        "transform",
        "retrieve",
        "augment",
    ]
    assert prepared.retrieval.trace.of("retrieve")[0].counts == {"candidates": 1}
    assert prepared.retrieval.trace.of("augment")[0].counts == {"citations": 1}


async def test_the_callers_objects_are_never_touched_by_preparing_nor_by_stages():
    messages = [*copy.deepcopy(HISTORY), user([{"type": "text", "text": "q"}, IMAGE])]
    before = json.dumps(messages)

    def transform(conversation: ConversationQuery) -> Query:
        conversation.history[2]["tool_calls"].clear()
        return conversation.query

    prepared = await Preparer(Recorder(), query_transformer=transform).prepare(messages=messages)
    messages.append({"role": "assistant", "content": "later"})
    assert json.dumps(messages[:-1]) == before
    sent = prepared.request["messages"]
    assert json.dumps(sent[:-1]) == json.dumps(messages[:-2])
    assert sent[-1]["content"][1] == IMAGE


async def test_a_transformer_of_none_searches_with_the_last_turn_as_it_is():
    retriever = Recorder()
    await Preparer(retriever, query_transformer=None).prepare(messages=[*HISTORY, user(" q ")])
    assert retriever.queries == [Query("q")]


async def test_by_default_the_conversation_reaches_the_query_without_a_model():
    retriever = Recorder()
    await Preparer(retriever).prepare(messages=[user("pump prices"), user("and it?")])
    (query,) = retriever.queries
    assert query.text == "and it?"
    assert any("pump prices" in context.text for context in query.context)


# Not retrieving


@pytest.mark.parametrize("sync", [True, False])
async def test_a_gated_turn_goes_out_unchanged(sync):
    retriever = Recorder()

    async def later(conversation):
        return False

    messages = [*HISTORY, user([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])]
    gate = (lambda _: False) if sync else later
    prepared = await Preparer(retriever, gate=gate).prepare(messages=messages, model="m")
    assert prepared.retrieval.skipped == "gate"
    assert prepared.request == {"messages": messages, "model": "m"}
    assert (retriever.queries, len(prepared.retrieval.citations)) == ([], 0)


async def test_a_transformer_that_returns_none_retrieves_nothing_this_turn():
    retriever = Recorder()
    preparer = Preparer(retriever, query_transformer=lambda _: None)
    prepared = await preparer.prepare(messages=[user("thanks")])
    assert prepared.retrieval.skipped == "transform"
    assert content(prepared) == "thanks"
    assert retriever.queries == []


@pytest.mark.parametrize("given", [[IMAGE], [], None, "", " \n", [{"type": "text", "text": " "}]])
async def test_without_text_there_is_no_retrieval_and_only_the_identity_augmenter_accepts_it(given):
    retriever = Recorder()
    identity = Preparer(retriever, augmenter=IdentityAugmenter())
    prepared = await identity.prepare(messages=[user(given)])
    assert prepared.retrieval.skipped == "no text"
    assert prepared.request == {"messages": [user(given)]}
    with pytest.raises(InvalidAugmentation):
        await Preparer(retriever).prepare(messages=[user(given)])
    assert retriever.queries == []


async def test_the_last_message_must_be_from_the_user():
    with pytest.raises(NoFinalUserMessage):
        await Preparer(Recorder()).prepare(messages=[user("a"), {"role": "assistant"}])


# Message shapes


@pytest.mark.parametrize("image_first", [True, False])
async def test_the_one_text_part_beside_an_image_takes_the_evidence(image_first):
    parts = [{"type": "text", "text": "what part is this?"}, IMAGE]
    parts = parts[::-1] if image_first else parts
    prepared = await Preparer(Recorder("A valve.")).prepare(messages=[user(parts)])
    changed = content(prepared)
    position = 1 if image_first else 0
    assert changed[1 - position] == IMAGE
    assert "A valve." in changed[position]["text"]
    assert changed[position]["text"].endswith("what part is this?")


async def test_two_text_parts_are_ambiguous_before_any_model_or_retriever_is_called():
    retriever, model = Recorder(), ScriptedChatModel([])
    parts = [{"type": "text", "text": "a"}, IMAGE, {"type": "text", "text": "b"}]

    async def transform(conversation):
        await model.create(messages=[])
        return conversation.query

    preparer = Preparer(retriever, query_transformer=transform)
    with pytest.raises(InvalidAugmentation):
        await preparer.prepare(messages=[user(parts)])
    assert (model.calls, retriever.queries) == ([], [])
    kept = await replace(preparer, augmenter=IdentityAugmenter(), query_transformer=None).prepare(
        messages=[user(parts)]
    )
    assert content(kept) == parts
    assert retriever.queries[0].text == "a\nb"


async def test_a_custom_augmenter_cannot_lose_evidence_between_two_text_parts():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    preparer = Preparer(Recorder(), augmenter=lambda *_: Augmentation("new"))
    with pytest.raises(InvalidAugmentation):
        await preparer.prepare(messages=[user(parts)])
    same = Preparer(Recorder(), augmenter=lambda question, *_: Augmentation(question))
    assert content(await same.prepare(messages=[user(parts)])) == parts


@pytest.mark.parametrize(
    "made", [None, "text", Augmentation(" "), Augmentation(3), Augmentation("a", {})]
)
async def test_what_an_augmenter_returns_is_checked(made):
    with pytest.raises(InvalidAugmentation):
        await Preparer(Recorder(), augmenter=lambda *_: made).prepare(messages=[user("q")])


# Bounds


async def test_no_stage_can_widen_the_callers_bounds():
    retriever = Recorder(metadata={"owner": "u7"})
    preparer = Preparer(
        retriever, query_transformer=lambda c: Query("stripped", top_k=99)
    ).with_options(scope=Eq("owner", "u7"), filter={"owner": "u7"}, top_k=3)
    await preparer.prepare(messages=[user("q")])
    (query,) = retriever.queries
    assert (query.text, query.top_k) == ("stripped", 3)
    assert query.scope == query.filter == Filter(Eq("owner", "u7"))


@pytest.mark.parametrize("bound", ["scope", "filter"])
async def test_a_passage_outside_filter_or_scope_is_an_error_and_never_shown(bound):
    retriever = Recorder("secret", metadata={"owner": "u8"})
    preparer = Preparer(retriever).with_options(**{bound: {"owner": "u7"}})
    with pytest.raises(ScopeViolation) as caught:
        await preparer.prepare(messages=[user("q")])
    assert caught.value.passage_id == "p1"
    assert "secret" not in str(caught.value)


async def test_options_make_a_copy_whose_scope_can_only_narrow():
    base = Preparer(Recorder(), scope={"tenant": "a"}, filter={"x": 1}, top_k=2)
    narrowed = base.with_options(scope={"team": "b"}, filter=[{"key": "y", "op": "gt", "value": 2}])
    assert narrowed.scope == Filter(Eq("tenant", "a"), Eq("team", "b"))
    assert narrowed.filter == Filter.of([{"key": "y", "op": "gt", "value": 2}])
    assert (narrowed.top_k, narrowed.policy) == (2, base.policy)
    assert base.scope == Filter(Eq("tenant", "a"))
    assert narrowed.with_options(filter=None, top_k=None, deadline=None) == replace(
        narrowed, filter=Filter(), top_k=None, policy=Policy(deadline=None)
    )
    with pytest.raises(InvalidFilter):
        base.with_options(scope="everything")
    with pytest.raises(InvalidSetting):
        base.with_options(deadline=0)
    with pytest.raises(AttributeError):
        base.top_k = 3


@pytest.mark.parametrize(("top_k", "expected"), [(None, 3), (2, 2), (0, 0), (-1, 0)])
async def test_top_k_cuts_what_a_retriever_returns(top_k, expected):
    preparer = Preparer(Recorder("a", "b", "c")).with_options(top_k=top_k)
    prepared = await preparer.prepare(messages=[user("q")])
    assert len(prepared.retrieval.candidates) == expected


@pytest.mark.parametrize(
    ("declared", "expected"),
    [({}, "lexical"), ({"semantic": True}, "semantic"), ({"lanes": True}, "q")],
)
async def test_a_foreign_retriever_gets_the_text_of_its_lane(declared, expected):
    retriever = Recorder()
    for name, value in declared.items():
        setattr(retriever, name, value)
    preparer = Preparer(
        retriever,
        query_transformer=lambda c: replace(c.query, lexical="lexical", semantic="semantic"),
    )
    await preparer.prepare(messages=[user("q")])
    assert retriever.queries[0].text == expected


@pytest.mark.parametrize(
    "result", [None, "text", 3, [Passage("a")], [found("a")[0], None], iter(())]
)
async def test_what_a_retriever_returns_is_checked(result):
    with pytest.raises(InvalidCandidates):
        await Preparer(lambda _: result).prepare(messages=[user("q")])


async def test_a_search_result_keeps_its_queries_and_degradations():
    result = SearchResult(
        tuple(found("a")),
        queries=(Query("q"), Query("variant")),
        degraded=(Degradation("vector", "down"),),
    )
    prepared = await Preparer(lambda _: result).prepare(messages=[user("q")])
    assert prepared.retrieval.queries == result.queries
    assert prepared.retrieval.degraded == result.degraded


# Failing well


def failing(*_args):
    raise OSError("a secret prompt")


async def test_an_enhancement_that_fails_is_skipped_visibly(caplog):
    retriever = Recorder()
    preparer = Preparer(retriever, query_transformer=failing, gate=failing)
    with caplog.at_level(logging.WARNING, "ragchat"):
        prepared = await preparer.prepare(messages=[user("q")])
    assert retriever.queries == [Query("q")]
    assert prepared.retrieval.degraded == (
        Degradation("gate", "OSError"),
        Degradation("transform", "OSError"),
    )
    assert len(caplog.records) == 2
    assert "secret" not in caplog.text


@pytest.mark.parametrize("stage", ["gate", "query_transformer"])
async def test_under_a_strict_policy_every_failure_raises_as_it_is(stage):
    preparer = Preparer(Recorder(), policy=Policy.strict(), **{stage: failing})
    with pytest.raises(OSError, match="secret"):
        await preparer.prepare(messages=[user("q")])


async def test_a_transformer_that_returns_no_query_counts_as_failed():
    prepared = await Preparer(Recorder(), query_transformer=lambda _: "text").prepare(
        messages=[user("q")]
    )
    assert [d.stage for d in prepared.retrieval.degraded] == ["transform"]
    with pytest.raises(InvalidQuery):
        await Preparer(
            Recorder(), query_transformer=lambda _: "text", policy=Policy.strict()
        ).prepare(messages=[user("q")])


@pytest.mark.parametrize("answer", [None, "no", 0, 1, [], Query("q")])
async def test_a_gate_that_returns_neither_true_nor_false_counts_as_failed(answer):
    """A forgotten return must not switch retrieval off unseen."""
    retriever = Recorder()
    preparer = Preparer(retriever, gate=lambda conversation: answer)
    prepared = await preparer.prepare(messages=[user("q")])
    assert len(retriever.queries) == 1
    assert [d.stage for d in prepared.retrieval.degraded] == ["gate"]
    with pytest.raises(InvalidSetting, match="gate"):
        await replace(preparer, policy=Policy.strict()).prepare(messages=[user("q")])


async def test_a_gate_may_answer_as_numpy_does():
    preparer = Preparer(Recorder(), gate=lambda conversation: np.bool_(0))
    assert (await preparer.prepare(messages=[user("q")])).retrieval.skipped == "gate"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retriever", None),
        ("augmenter", "json"),
        ("query_transformer", Query("q")),
        ("gate", True),
        ("on_stage", "print"),
        ("top_k", "3"),
        ("top_k", True),
        ("policy", 10),
        ("budget", 8_000),
        ("ledger", {}),
    ],
)
def test_a_stage_or_option_of_the_wrong_kind_is_refused_at_construction(name, value):
    with pytest.raises(InvalidSetting, match=name):
        Preparer(**{"retriever": Recorder(), name: value})


def test_an_index_in_place_of_its_retriever_is_refused_with_how_to_make_one():
    with pytest.raises(InvalidSetting, match=r"retriever: must be callable, as index\.retriever"):
        Preparer(HybridIndex())


def test_a_listener_that_nobody_would_await_is_refused():
    async def listener(event: StageEvent) -> None: ...

    for make in (
        lambda: Preparer(Recorder(), on_stage=listener),
        lambda: Preparer(Recorder()).with_options(on_stage=listener),
    ):
        with pytest.raises(InvalidSetting, match="on_stage"):
            make()


async def test_evidence_fails_loudly():
    with pytest.raises(OSError, match="secret"):
        await Preparer(failing).prepare(messages=[user("q")])
    with pytest.raises(OSError, match="secret"):
        await Preparer(Recorder(), augmenter=failing).prepare(messages=[user("q")])
    small = ContextualAugmenter(max_context_tokens=1)
    with pytest.raises(ContextBudgetExceeded):
        await Preparer(Recorder(), augmenter=small).prepare(messages=[user("q")])


async def test_a_skipped_augmentation_sends_the_message_as_it_is_and_says_so():
    policy = Policy(augment=StagePolicy("skip"))
    prepared = await Preparer(Recorder(), augmenter=failing, policy=policy).prepare(
        messages=[user("q")]
    )
    assert content(prepared) == "q"
    assert len(prepared.retrieval.citations) == 0
    assert prepared.retrieval.degraded == (Degradation("augment", "OSError"),)


async def never(*_args, **_params):
    await asyncio.Event().wait()


async def test_a_transformer_that_hangs_is_skipped_after_its_timeout():
    policy = Policy(transform=StagePolicy("skip", 0.01))
    prepared = await Preparer(Recorder(), query_transformer=never, policy=policy).prepare(
        messages=[user("q")]
    )
    assert "StageTimeout" in prepared.retrieval.degraded[0].reason
    with pytest.raises(StageTimeout):
        await Preparer(
            Recorder(), query_transformer=never, policy=Policy.strict(timeout=0.01)
        ).prepare(messages=[user("q")])


async def test_a_retriever_that_hangs_meets_the_deadline_of_the_request():
    with pytest.raises(DeadlineExceeded) as caught:
        await Preparer(never).with_options(deadline=0.3).prepare(messages=[user("q")])
    assert (caught.value.stage, caught.value.deadline) == ("retrieve", 0.3)


@pytest.mark.parametrize("stage", ["gate", "query_transformer", "retriever", "augmenter"])
async def test_cancellation_is_honoured_inside_every_stage_and_never_swallowed(stage):
    reached = asyncio.Event()

    async def blocked(*_args):
        reached.set()
        await asyncio.Event().wait()

    preparer = replace(Preparer(Recorder()), **{stage: blocked})
    task = asyncio.create_task(preparer.prepare(messages=[user("q")]))
    async with asyncio.timeout(10):
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_model_that_hangs_in_every_stage_leaves_time_for_the_evidence(monkeypatch):
    """Three stages by a third of the deadline, as with the defaults, would be all of it."""
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)  # the clock of the event loop as well

    async def hang(**_params):
        nonlocal now
        while True:
            now += 0.01
            await asyncio.sleep(0)

    model = ChatModel(hang, model="small")
    async with quickstart() as index:
        await index.ingest(Document("tea", "Green tea is steamed."))
        retriever = index.retriever(
            top_k=1, expander=MultiQueryExpander(model), rerank=Rerank(LLMReranker(model))
        )
        preparer = Preparer(
            retriever,
            query_transformer=QueryPlanner(model),
            policy=Policy(deadline=3.0, timeout=1.0),
        )
        history = [user("Tell me of green tea"), {"role": "assistant", "content": "Gladly."}]
        prepared = await preparer.prepare(messages=[*history, user("how is it made?")])
    assert [passage.text for passage in prepared.retrieval.citations.values()] == [
        "Green tea is steamed."
    ]
    assert prepared.retrieval.queries[0].context
    assert [d.stage for d in prepared.retrieval.degraded] == ["transform", "expand", "rerank"]


async def test_the_retriever_shares_policy_deadline_and_record_of_the_preparation():
    async def retrieve(query):
        run = current_run()
        assert run.policy.deadline == 7
        run.record.note("seen")
        run.skip("vector", OSError())
        return found("a")

    preparer = Preparer(retrieve).with_options(deadline=7)
    prepared = await preparer.prepare(messages=[user("q")])
    assert prepared.retrieval.trace.notes == ("seen",)
    assert prepared.retrieval.degraded == (Degradation("vector", "OSError"),)
    assert current_run() is None


async def test_a_listener_hears_each_stage_start_and_end():
    events: list[StageEvent] = []
    await Preparer(Recorder()).with_options(on_stage=events.append).prepare(messages=[user("q")])
    assert [(e.stage, e.phase) for e in events] == [
        (stage, phase)
        for stage in ("transform", "retrieve", "augment")
        for phase in ("start", "end")
    ]


async def test_sync_stages_of_many_preparations_run_beside_the_event_loop():
    """Every sync stage waits in its thread for the loop, which can only answer if it is free."""
    loop = asyncio.get_running_loop()

    async def tick() -> None:
        await asyncio.sleep(0)

    def wait_for_the_loop() -> None:
        assert threading.current_thread() is not threading.main_thread()
        asyncio.run_coroutine_threadsafe(tick(), loop).result(timeout=30)

    def stage(result):
        def run(*args):
            wait_for_the_loop()
            return result(*args)

        return run

    preparer = Preparer(
        stage(lambda query: found("a")),
        gate=stage(lambda c: True),
        query_transformer=stage(lambda c: c.query),
        augmenter=ContextualAugmenter(max_context_tokens=999, count_tokens=stage(len)),
    )
    prepared = await asyncio.gather(*(preparer.prepare(messages=[user("q")]) for _ in range(20)))
    assert all(len(p.retrieval.citations) == 1 for p in prepared)


# What a prepared request is


async def test_a_prepared_request_never_retrieves_again_whatever_fails():
    retriever = Recorder()
    prepared = await Preparer(retriever).prepare(messages=[user("q")])
    error = OSError("upstream")
    model = ScriptedChatModel([error, "ok", error])
    with pytest.raises(OSError, match="upstream") as caught:
        await prepared.call(model.create)
    assert caught.value is error
    await prepared.call(model.create)
    with pytest.raises(OSError, match="upstream"):
        _ = [chunk async for chunk in prepared.stream(model.create)]
    assert (len(retriever.queries), len(model.calls)) == (1, 3)


async def test_tool_rounds_keep_their_evidence():
    prepared = await Preparer(Recorder("fact")).prepare(messages=[user("q")], model="m")
    rounds = [{"role": "assistant", "content": None, "tool_calls": [tool_call("f")]}]
    longer = prepared.with_messages(rounds)
    assert longer.request["messages"] == [*prepared.request["messages"], *rounds]
    assert longer.retrieval is prepared.retrieval
    assert len(prepared.request["messages"]) == 1


async def test_a_prepared_request_is_immutable():
    prepared = await Preparer(Recorder()).prepare(messages=[user("q")])
    prepared.request["messages"].clear()
    assert len(prepared.request["messages"]) == 1
    with pytest.raises(AttributeError):
        prepared.question = "other"


async def test_its_representation_shows_no_message():
    prepared = await Preparer(lambda _: []).prepare(
        messages=[{"role": "system", "content": "a secret"}, user("q")]
    )
    assert "secret" not in repr(prepared)


async def test_a_dropped_request_is_freed():
    """No registry keeps requests, called, streamed or not."""

    class Option:
        pass

    option = Option()
    prepared = await Preparer(Recorder()).prepare(messages=[user("q")], option=option)
    gone = weakref.ref(option)
    await prepared.call(lambda **kwargs: "ok")
    assert [chunk async for chunk in prepared.stream(lambda **kwargs: iter("ok"))] == ["o", "k"]
    del option, prepared
    gc.collect()
    assert gone() is None
