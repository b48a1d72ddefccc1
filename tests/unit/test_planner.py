"""`QueryPlanner`: one call instead of a gate, a rewrite and an expansion."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat import ChatModel, LLMReranker, Preparer, quickstart
from ragchat.conversation import ConversationQuery
from ragchat.errors import (
    EmptyModelOutput,
    FilteredModelOutput,
    MissingModelOutput,
    ModelReplyError,
    OverlongModelOutput,
    RefusedModelOutput,
    TruncatedModelOutput,
)
from ragchat.expansion import MultiQueryExpander
from ragchat.testing import ScriptedChatModel
from ragchat.transforms import QueryPlanner
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.filters import Eq, Filter
from ragchat_retrieval.values import ContextText, Document, Query

HISTORY = (
    {"role": "system", "content": "Answer as a pirate."},
    {"role": "user", "content": "Which pumps are there?"},
    {"role": "assistant", "content": "A red one and a blue one."},
)
QUESTION = "What does the blue pump cost?"
VARIANTS = ["price of the blue pump", "blue pump, cost"]
PLAN = {"retrieve": True, "query": QUESTION, "variants": VARIANTS}


def turn(text="and the blue one?", history=HISTORY, **options):
    return ConversationQuery(Query(text, **options), history)


def planner(reply, variants=3, **options):
    double = ScriptedChatModel([reply] * 2)
    model = ChatModel(double.create, model="small", **options)
    return double, QueryPlanner(model, variants)


async def plan(reply, variants=3):
    return await planner(reply, variants)[1](turn())


async def test_one_call_gives_the_question_and_its_wordings():
    double, transformer = planner(json.dumps(PLAN))
    query = await transformer(turn())
    assert (query.text, query.variants) == (QUESTION, tuple(VARIANTS))
    (call,) = double.calls
    assert set(call) == {"model", "messages"}
    assert "user: Which pumps are there?\nassistant: A red one and a blue one." in double.prompts[0]
    assert double.prompts[0].count("and the blue one?") == 1
    assert "pirate" not in double.prompts[0]


async def test_a_schema_is_sent_only_when_structured():
    double, transformer = planner(json.dumps(PLAN), structured=True)
    await transformer(turn())
    schema = double.calls[0]["response_format"]["json_schema"]
    assert schema["name"] == "plan"
    assert schema["schema"]["required"] == ["retrieve", "query", "variants"]


async def test_without_a_history_the_model_is_asked_as_well():
    double, transformer = planner(json.dumps(PLAN))
    assert (await transformer(turn(history=()))).variants == tuple(VARIANTS)
    assert "Conversation, between" not in double.prompts[0]
    assert (await transformer(Query("q"))).text == QUESTION


@pytest.mark.parametrize("no", [False, "false", "False", " no "])
async def test_a_clear_no_retrieves_nothing_this_turn(no):
    assert await plan(json.dumps({"retrieve": no, "query": "thanks"})) is None
    assert await plan(json.dumps({"retrieve": no})) is None


@pytest.mark.parametrize("unclear", [True, "yes", "true", None, 1, 0, "maybe", [], {}])
async def test_anything_but_a_clear_no_retrieves(unclear):
    assert (await plan(json.dumps({**PLAN, "retrieve": unclear}))).text == QUESTION
    assert (await plan(json.dumps({"query": QUESTION}))).text == QUESTION


@pytest.mark.parametrize(
    "reply",
    [
        f"Here is the plan:\n```json\n{json.dumps(PLAN, indent=2)}\n```\nI kept the colour.",
        f"<think>the blue one, then. {{}}</think>\n{json.dumps(PLAN)}",
        f"As the answer [1] says: {json.dumps(PLAN)} [2]",
        json.dumps([PLAN]),
        json.dumps({**PLAN, "query": f'Rewritten query: "{QUESTION}"'}),
        json.dumps({**PLAN, "variants": ["", " ", QUESTION.upper(), *VARIANTS, VARIANTS[0]]}),
        json.dumps({**PLAN, "variants": [{"query": text} for text in VARIANTS]}),
        f"retrieve: true\nquery: {QUESTION}\nvariants:\n1. {VARIANTS[0]}\n2. {VARIANTS[1]}",
        f"retrieve: true\nquery: {QUESTION}\nvariants: {json.dumps(VARIANTS)}",
        f"**Retrieve:** yes\n**Query:** {QUESTION}\n**Variants:**\n- " + "\n- ".join(VARIANTS),
    ],
)
async def test_a_plan_is_read_whatever_it_is_wrapped_in(reply):
    query = await plan(reply)
    assert (query.text, query.variants) == (QUESTION, tuple(VARIANTS))


@pytest.mark.parametrize(("most", "expected"), [(1, 1), (0, 0), (5, 2)])
async def test_there_are_at_most_as_many_variants_as_asked_for(most, expected):
    double, transformer = planner(json.dumps(PLAN), most)
    assert (await transformer(turn())).variants == tuple(VARIANTS[:expected])
    assert ("variants" in double.prompts[0]) == bool(most)


@pytest.mark.parametrize("variants", [None, "one", 3, {}, [1, None], []])
async def test_unusable_variants_are_none(variants):
    assert (await plan(json.dumps({**PLAN, "variants": variants}))).variants == ()


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        ("What does the blue pump cost?", MissingModelOutput),
        ("I am sorry, I cannot help with that.", MissingModelOutput),
        ('{"retrieve": true}', MissingModelOutput),
        ('{"retrieve": true, "query": 5}', MissingModelOutput),
        ('{"retrieve": true, "query": "the blue pu', MissingModelOutput),
        ('{\n"retrieve": true,\n"query": "the blue pu', MissingModelOutput),
        ('["the blue pump"]', MissingModelOutput),
        ("retrieve: yes", MissingModelOutput),
        ('{"retrieve": true, "query": " "}', EmptyModelOutput),
        ('{"query": "```\\n```"}', EmptyModelOutput),
        (json.dumps({"query": "the pump " * 1000}), OverlongModelOutput),
        (None, MissingModelOutput),
        ({"content": None, "finish_reason": "content_filter"}, FilteredModelOutput),
        ({"content": '{"query": "x"}', "finish_reason": "length"}, TruncatedModelOutput),
        ({"content": None, "refusal": "no"}, RefusedModelOutput),
    ],
)
async def test_a_reply_that_is_no_plan_is_a_typed_error(reply, error):
    with pytest.raises(error):
        await plan(reply)


async def test_a_wording_far_longer_than_the_question_is_left_out():
    said = {"query": "blue pump", "variants": ["azure pump", "the pump " * 1000, "pump price"]}
    query = await plan(json.dumps(said))
    assert query is not None
    assert query.variants == ("azure pump", "pump price")


@given(st.text() | st.dictionaries(st.sampled_from(["retrieve", "query", "variants"]), st.text()))
async def test_whatever_the_model_says_there_is_a_query_a_no_or_a_typed_error(said):
    reply = said if isinstance(said, str) else json.dumps(said)
    try:
        query = await plan({"content": reply})
    except ModelReplyError:
        return
    assert query is None or query.text.strip()


async def test_bounds_and_context_stay_and_texts_of_single_lanes_go():
    given_query = Query(
        "q",
        context=(ContextText("pumps", lexical=0.5),),
        lexical="old",
        semantic="old",
        variants=("old",),
        filter=Filter(Eq("owner", "u7")),
        top_k=3,
    )
    _, transformer = planner(json.dumps(PLAN))
    query = await transformer(ConversationQuery(given_query))
    assert (query.filter, query.top_k) == (given_query.filter, 3)
    assert query.context == given_query.context
    assert (query.lexical, query.semantic) == (None, None)
    assert query.variants == tuple(VARIANTS)


@pytest.mark.parametrize(
    "options", [{"variants": -1}, {"variants": 1.5}, {"max_history_tokens": 0}]
)
def test_bad_settings_are_refused(options):
    with pytest.raises(InvalidSetting):
        QueryPlanner(ChatModel(ScriptedChatModel().create, model="m"), **options)


# In a Preparer


class Waiting:
    """A model each of whose replies waits until the test lets all pending ones go."""

    def __init__(self, reply):
        self.double = ScriptedChatModel(self.answer)
        self.reply = reply
        self.pending = []
        self.arrived = asyncio.Event()

    async def answer(self, call):
        free = asyncio.Event()
        self.pending.append(free)
        self.arrived.set()
        await free.wait()
        return self.reply(call["messages"][0]["content"])

    async def rounds(self, work):
        """Returns how often `work` had to wait for a reply, and its result."""
        task = asyncio.ensure_future(work)
        waits = 0
        while True:
            arrival = asyncio.ensure_future(self.arrived.wait())
            await asyncio.wait({task, arrival}, return_when=asyncio.FIRST_COMPLETED)
            arrival.cancel()
            if task.done():
                return waits, task.result()
            waits += 1
            self.arrived.clear()
            pending, self.pending = self.pending, []
            for free in pending:
                free.set()


def replies(prompt):
    if '"retrieve"' in prompt:
        return json.dumps(PLAN)
    return json.dumps({"scores": [{"index": i, "score": 0.5} for i in range(2)]})


async def test_with_a_planner_a_turn_waits_for_two_replies_before_the_answer():
    index = quickstart()
    await index.ingest(
        Document("a", "The blue pump costs ten francs."), Document("b", "Pumps come in blue.")
    )
    waiting = Waiting(replies)
    model = ChatModel(waiting.double.create, model="small")
    preparer = Preparer(
        index.retriever(expander=MultiQueryExpander(model), rerank=LLMReranker(model)),
        query_transformer=QueryPlanner(model),
    )
    messages = [*HISTORY, {"role": "user", "content": "and the blue one?"}]
    waits, prepared = await waiting.rounds(preparer.prepare(messages=messages))
    assert waits == 2
    assert len(waiting.double.calls) == 2
    assert [query.text for query in prepared.retrieval.queries] == [QUESTION, *VARIANTS]
    assert prepared.retrieval.degraded == ()
    assert len(prepared.retrieval.candidates) == 2


async def test_a_plan_not_to_retrieve_skips_the_turn():
    asked = []
    _, transformer = planner('{"retrieve": false}')
    preparer = Preparer(asked.append, query_transformer=transformer)
    messages = [*HISTORY, {"role": "user", "content": "Say that in fewer words."}]
    prepared = await preparer.prepare(messages=messages)
    assert prepared.retrieval.skipped == "transform"
    assert prepared.request["messages"] == messages
    assert asked == []
