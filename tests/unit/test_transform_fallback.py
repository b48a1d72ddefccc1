"""Retrieval stays conversation-aware when a transform's model is slow, down or talks nonsense."""

from __future__ import annotations

import asyncio

import pytest

from ragchat import ChatModel, Preparer, fallback
from ragchat.conversation import ConversationQuery
from ragchat.testing import ScriptedChatModel
from ragchat.transforms import (
    CompressionTransformer,
    HistoryExpansionTransformer,
    RewriteTransformer,
    chain,
)
from ragchat_retrieval.errors import InvalidSetting, StageTimeout
from ragchat_retrieval.policy import Policy, Run, StagePolicy, running
from ragchat_retrieval.values import Query

HISTORY = (
    {"role": "user", "content": "Which pumps are there?"},
    {"role": "assistant", "content": "A red one and a blue one."},
)
TURN = ConversationQuery(Query("and the blue one?"), HISTORY)
MESSAGES = [*HISTORY, {"role": "user", "content": "and the blue one?"}]
EXPANDED = HistoryExpansionTransformer().expanded(TURN)


async def never(_):
    await asyncio.Event().wait()


FAILING = {
    "down": (ConnectionError("a secret prompt"), "ConnectionError"),
    "nonsense": ('{"qwery": ["?"]}', "MissingModelOutput"),
    "blank": ({"content": " "}, "EmptyModelOutput"),
    "cut off": ({"content": "what is the", "finish_reason": "length"}, "TruncatedModelOutput"),
    "refusing": ({"content": None, "refusal": "no"}, "RefusedModelOutput"),
    "slow": (never, "StageTimeout"),
}

WAITED = {"slow": 0.01}
"""Seconds, where it is to be too long; elsewhere it must not be, on the slowest machine."""


def compress(reply):
    return CompressionTransformer(ChatModel(ScriptedChatModel(reply).create, model="small"))


class Recorder:
    def __init__(self):
        self.queries = []

    async def __call__(self, query):
        self.queries.append(query)
        return []


@pytest.mark.parametrize("name", FAILING)
async def test_a_preparer_searches_with_history_expansion_where_its_transform_is_skipped(name):
    reply, error = FAILING[name]
    retriever = Recorder()
    preparer = Preparer(
        retriever,
        query_transformer=compress(reply),
        policy=Policy(transform=StagePolicy("skip", WAITED.get(name, 60))),
    )
    prepared = await preparer.prepare(messages=MESSAGES)
    assert retriever.queries == [EXPANDED]
    assert EXPANDED.context
    (degradation,) = prepared.retrieval.degraded
    assert degradation.stage == "transform"
    assert degradation.reason.startswith(error)
    assert degradation.reason.endswith("; history expansion instead")
    assert "secret" not in degradation.reason


@pytest.mark.parametrize("name", FAILING)
async def test_a_fallback_of_transformers_tells_which_one_it_left_out(name):
    reply, error = FAILING[name]
    transformer = fallback(
        compress(reply), HistoryExpansionTransformer(), timeout=WAITED.get(name, 60)
    )
    run = Run(Policy.strict())
    with running(run):
        assert await transformer(TURN) == EXPANDED
    (degradation,) = run.record.degraded
    assert degradation.stage == "CompressionTransformer"
    assert degradation.reason.startswith(error)


async def test_a_fallback_takes_the_first_that_succeeds_and_asks_no_further():
    asked = []
    transformer = fallback(compress("What does the blue pump cost?"), asked.append)
    assert (await transformer(TURN)).text == "What does the blue pump cost?"
    assert asked == []


async def test_a_fallback_keeps_the_decision_to_retrieve_nothing():
    transformer = fallback(lambda _: None, HistoryExpansionTransformer())
    assert await transformer(TURN) is None


async def test_a_fallback_is_a_step_of_a_chain_like_any_other():
    rewriting = ScriptedChatModel("price of the blue pump")
    steps = chain(
        fallback(compress(ConnectionError()), HistoryExpansionTransformer()),
        RewriteTransformer(ChatModel(rewriting.create, model="small"), "vector store"),
    )
    query = await steps(TURN)
    assert query.text == "price of the blue pump"
    assert query.context == EXPANDED.context


async def test_the_last_of_a_fallback_has_no_limit_of_its_own():
    async def patient(conversation):
        for _ in range(10):
            await asyncio.sleep(0)  # lets the loop cancel it, if it were to
        return conversation.query

    transformer = fallback(never, patient, timeout=1e-9)
    assert await transformer(TURN) == TURN.query


async def test_without_a_limit_a_slow_first_one_uses_up_the_stage():
    transformer = fallback(compress(never), HistoryExpansionTransformer())
    run = Run(Policy(transform=StagePolicy("raise", 0.01)))
    with pytest.raises(StageTimeout):
        await run.stage("transform", lambda: transformer(TURN))


@pytest.mark.parametrize("timeout", [0, -1.0, float("nan")])
def test_a_limit_that_leaves_no_time_is_refused(timeout):
    with pytest.raises(InvalidSetting):
        fallback(never, never, timeout=timeout)
