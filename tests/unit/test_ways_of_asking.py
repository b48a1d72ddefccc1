"""Topics of conversations, asked with and without what was said before."""

from __future__ import annotations

import ragchat
from ragchat.evaluation import in_conversation, last_turn, rewritten, ways_of_asking
from ragchat_retrieval.evaluation import Topic

MESSAGES = (
    {"role": "user", "content": "Where do the Arizona Cardinals play?"},
    {"role": "assistant", "content": "In Glendale."},
    {"role": "user", "content": "and abroad?"},
)
SINGLE = Topic("s", ragchat.Query("where?"), {"d": 1}, messages=MESSAGES[:1])
TURN = Topic("t", ragchat.Query("and abroad?"), {"d": 1}, messages=MESSAGES)
REWRITTEN = Topic(
    "r",
    ragchat.Query("and abroad?", filter={"team": "a"}, top_k=3),
    {"d": 1},
    messages=MESSAGES,
    fields={"rewrite": "Do the Cardinals play abroad?"},
)


def test_questions_by_themselves_are_asked_in_one_way():
    assert list(ways_of_asking([SINGLE])) == ["question"]


def test_conversations_are_asked_as_a_preparer_does_and_as_the_last_turn():
    assert list(ways_of_asking([SINGLE, TURN])) == ["history expansion", "last turn"]


def test_a_rewrite_is_a_way_where_the_collection_has_one():
    assert list(ways_of_asking([TURN, REWRITTEN])) == ["history expansion", "last turn", "rewrite"]


async def test_the_history_reaches_the_query_as_context_inside_the_topic_s_bounds():
    query = await in_conversation()(REWRITTEN)
    expected = await ragchat.HistoryExpansionTransformer()(
        ragchat.ConversationQuery(REWRITTEN.query, MESSAGES[:-1])
    )
    assert query == expected
    assert query.context
    assert (query.filter, query.top_k) == (REWRITTEN.query.filter, 3)


async def test_another_transformer_may_be_measured_but_not_widen_the_topic_s_bounds():
    def transformer(conversation):
        assert conversation.history == MESSAGES[:-1]
        return ragchat.Query("mine")

    query = await in_conversation(transformer)(REWRITTEN)
    assert (query.text, query.filter, query.top_k) == ("mine", REWRITTEN.query.filter, 3)


def test_the_last_turn_and_the_rewrite_are_asked_as_they_stand():
    assert last_turn(REWRITTEN) is REWRITTEN.query
    assert rewritten(REWRITTEN).text == "Do the Cardinals play abroad?"
    assert rewritten(REWRITTEN).filter == REWRITTEN.query.filter
    assert rewritten(TURN) is TURN.query
