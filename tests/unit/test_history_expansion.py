"""Conversation context for retrieval without a model."""

from __future__ import annotations

import math
import threading
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat.conversation import ConversationQuery
from ragchat.testing import tool_call
from ragchat.transforms import HistoryExpansionTransformer
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.filters import Eq, Filter
from ragchat_retrieval.lexical import Analyzer
from ragchat_retrieval.values import ContextText, Query

expand = HistoryExpansionTransformer()


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


async def context(question, *history):
    return list((await expand(ConversationQuery(Query(question), history))).context)


def approx(texts):
    return [(c.text, pytest.approx(c.lexical), pytest.approx(c.semantic), c.damp) for c in texts]


@pytest.mark.parametrize(
    "history",
    [(), ({"role": "system", "content": "s"},), (user(" "), assistant(None)), (user([]),)],
)
async def test_without_earlier_words_the_query_stays_as_it_is(history):
    query = Query("q", filter=Filter(Eq("a", 1)))
    assert await expand(ConversationQuery(query, history)) is query


async def test_what_the_answer_took_up_of_the_question_before_weighs_most():
    found = await context(
        "how much?", user("Can I hire a bike here?"), assistant("You can hire bikes in town.")
    )
    assert approx(found) == [
        ("Can I hire a bike here?", 0.1, 0, False),
        ("hire bike", 0.3, 0, False),
        ("how much? hire bike", 0, 0.3, False),
        ("You can hire bikes in town.", 0, 0.6, True),
    ]


async def test_the_numbers_of_citations_are_no_words_of_an_answer():
    """Every answer has them, and none of them means the number that a user spoke of."""
    found = await context(
        "is parking included?",
        user("I need 2 rooms for 10 nights"),
        assistant("A room is 90 euros [1, 2]. Of 10 nights one is free【10】."),
    )
    assert [c.text for c in found] == [
        "I need 2 rooms for 10 nights",
        "rooms 10 nights",
        "is parking included? rooms 10 nights",
        "A room is 90 euros. Of 10 nights one is free.",
    ]
    only, *_ = await context("is parking included?", user("rooms?"), assistant("[1]"))
    assert only.text == "rooms?"


@pytest.mark.parametrize("answers", [(), (assistant("Ten a day."),)])
async def test_where_nothing_was_taken_up_the_last_user_turn_is_what_it_is_about(answers):
    found = await context("how much?", user("boats"), user("hire of bikes"), *answers)
    assert approx(found[:4]) == [
        ("boats", 0.05, 0, False),
        ("hire of bikes", 0.05, 0, False),
        ("hire bikes", 0.3, 0, False),
        ("how much? hire bikes", 0, 0.3, False),
    ]
    assert len(found) == 4 + len(answers)


async def test_user_turns_share_their_lexical_weight_and_the_last_answer_alone_counts():
    history = [user(f"turn {n}") for n in range(5)]
    found = await context("how much?", *history, assistant("one"), assistant("turn"))
    assert approx(found) == [
        *((f"turn {n}", 0.02, 0.0, False) for n in range(5)),
        ("turn", 0.3, 0.0, False),
        ("how much? turn", 0.0, 0.3, False),
        ("turn", 0.0, 0.6, True),
    ]


async def test_a_shared_word_counts_once_and_not_if_the_question_has_it():
    found = await context(
        "which bike?", user("bike prices"), user("price of bikes"), assistant("Bike prices differ.")
    )
    assert approx(found)[2] == ("prices", 0.3, 0, False)


async def test_in_scripts_without_spaces_shared_runs_of_characters_are_words():
    found = await context("いくら？", user("赤いバルブの価格"), assistant("バルブは価格が高い。"))
    assert approx(found)[1] == ("バルブ 価格", 0.3, 0, False)
    assert approx(found)[2] == ("いくら？ バルブ 価格", 0, 0.3, False)


@pytest.mark.parametrize(
    ("terms", "gain"), [(0, 1), (3, 1), (4, 0.7), (5, 0.7), (6, 0.4), (8, 0.4), (9, 0.2), (20, 0.2)]
)
async def test_the_longer_the_question_the_less_its_vector_leans_on_history(terms, gain):
    names = [
        "bike", "helmet", "price", "bridge", "museum", "garden", "ticket", "river", "castle",
        "market", "school", "winter", "engine", "paper", "yellow", "island", "camera", "doctor",
        "valley", "copper",
    ]  # fmt: skip
    question = "what is the " + " and ".join(names[:terms] * 2)
    found = await context(question, user("uu"), assistant("aa"))
    assert approx(found)[-2:] == [
        (f"{question.strip()} uu", 0, 0.3 * gain, False),
        ("aa", 0, 0.6 * gain, True),
    ]


async def test_media_and_tool_calls_are_no_words():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    found = await context(
        "and this?",
        user([image, {"type": "text", "text": "what part"}]),
        {"role": "assistant", "content": None, "tool_calls": [tool_call("find")]},
        {"role": "tool", "tool_call_id": "call_1", "content": "PX-7"},
        user([image]),
    )
    assert approx(found) == [
        ("what part", 0.1, 0, False),
        ("part", 0.3, 0, False),
        ("and this? part", 0, 0.3, False),
    ]


async def test_context_that_is_there_already_stays_first():
    there = ContextText("there", lexical=1.0)
    query = Query("q", context=(there,), top_k=3)
    outcome = await expand(ConversationQuery(query, (user("u"),)))
    assert outcome.context[0] == there
    assert outcome.top_k == 3
    assert outcome.text == "q"


async def test_weights_can_be_chosen_and_a_zero_leaves_its_text_out():
    chosen = HistoryExpansionTransformer(
        lexical_user=0.0, lexical_shared=0.0, semantic_assistant=0.0, gains=((3, 0.5),)
    )
    history = (user("one"), user("two"), assistant("three"))
    outcome = await chosen(ConversationQuery(Query("q"), history))
    assert approx(outcome.context) == [("q two", 0.0, 0.15, False)]
    long = await chosen(ConversationQuery(Query("bike helmet price bridge"), history))
    assert long.context == ()


@pytest.mark.parametrize(
    "settings",
    [
        {"lexical_user": -0.1},
        {"semantic_shared": math.nan},
        {"semantic_assistant": math.inf},
        {"gains": ((3, -1.0),)},
        {"gains": ((5, 1.0), (3, 0.5))},
        {"lexical_shared": -1},
    ],
)
def test_bad_weights_are_refused(settings):
    with pytest.raises(InvalidSetting):
        HistoryExpansionTransformer(**settings)


def test_transformers_of_equal_weights_are_equal():
    assert HistoryExpansionTransformer() == expand
    assert hash(HistoryExpansionTransformer(gains=[[3, 1.0]])) is not None


WORDS = st.text("ab \n", max_size=8)


@given(WORDS, st.lists(st.builds(user, WORDS) | st.builds(assistant, WORDS), max_size=8))
async def test_weights_keep_their_sums_whatever_was_said(question, history):
    query = Query(question or "q") if question.strip() else Query("q")
    outcome = await expand(ConversationQuery(query, history))
    asked = [m["content"] for m in history if m["role"] == "user" and m["content"].strip()]
    answered = any(m["role"] == "assistant" and m["content"].strip() for m in history)
    turns, shared = outcome.context[: len(asked)], outcome.context[len(asked) :]
    assert sum(c.lexical for c in turns) == pytest.approx(0.1 if asked else 0)
    assert sum(c.lexical for c in shared) in {0, 0.3}
    worded = [False] * any(c.lexical for c in shared)
    assert [c.damp for c in shared if c.semantic] == worded + [True] * answered
    assert outcome.text == query.text
    known, said = set(query.text.split()), set(" ".join(asked).split())
    assert all(set(c.text.split()) <= said - known for c in shared if c.lexical)


class Recording(Analyzer):
    """Records in which threads it works."""

    __slots__ = ()
    threads: ClassVar[set[int]] = set()

    def terms(self, text: str) -> list[str]:
        self.threads.add(threading.get_ident())
        return super().terms(text)


@pytest.mark.parametrize("length", [100, 200_000])
async def test_a_long_conversation_is_read_beside_the_event_loop(length):
    here = {threading.get_ident()}
    said = "a word of many " * (length // 15)
    history = [{"role": "user", "content": said}, {"role": "assistant", "content": said}]
    conversation = ConversationQuery(Query("and then?"), history)
    Recording.threads.clear()
    await HistoryExpansionTransformer(analyzer=Recording())(conversation)
    assert (Recording.threads == here) is (length == 100)
