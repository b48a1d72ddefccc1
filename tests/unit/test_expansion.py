"""One question in several wordings."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat import ChatModel
from ragchat.errors import (
    EmptyExpansion,
    EmptyModelOutput,
    FilteredModelOutput,
    InvalidExpansion,
    MissingModelOutput,
    RefusedModelOutput,
    TruncatedModelOutput,
)
from ragchat.expansion import MultiQueryExpander
from ragchat.replies import wordings
from ragchat.testing import ScriptedChatModel
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.filters import Eq, Filter
from ragchat_retrieval.values import ContextText, Query


def expander(reply, *args, **options):
    double = ScriptedChatModel(reply)
    return MultiQueryExpander(ChatModel(double.create, model="m"), *args, **options), double


@pytest.mark.parametrize(
    "reply",
    [
        '{"queries": ["one", "two", "three"]}',
        '["one", "two", "three"]',
        '{"variants": [{"query": "one"}, {"query": "two"}, {"query": "three"}]}',
        'Of course:\n```json\n["one", " two ", "three"]\n```',
        "1. one\n2. two\n3. three",
        "- one\n- two\n- three\n",
        "one\n\n   \ntwo\r\n\r\nthree\n",
        'Here are three wordings:\n1) "one"\n2) "two"\n3) "three"\nGood luck!',
        "<think>[1]</think>one\ntwo\nthree",
        "[1] one\n[2] two\n[3] three",
    ],
)
async def test_json_is_read_first_and_lists_of_lines_too(reply):
    expand, _ = expander(reply)
    assert [query.text for query in await expand(Query("q"))] == ["one", "two", "three"]


async def test_blanks_duplicates_and_copies_of_the_original_do_not_count():
    reply = json.dumps(["", "  ", "The Q", "one", "ONE ", "the  q", "\ud800", "two", "three"])
    expand, _ = expander(reply)
    assert [query.text for query in await expand(Query("the q"))] == ["one", "two", "three"]


async def test_of_more_usable_variants_the_first_are_taken():
    expand, _ = expander("one\ntwo\nthree\nfour", 2)
    assert [query.text for query in await expand(Query("q"))] == ["one", "two"]


async def test_fewer_usable_variants_are_invalid_and_none_is_empty():
    with pytest.raises(InvalidExpansion) as caught:
        await expander("one\none\nq")[0](Query("q"))
    assert (caught.value.expected, caught.value.usable) == (3, 1)
    with pytest.raises(InvalidExpansion, match="2 usable"):
        await expander("one\ntwo\n" + "the pump " * 1000)[0](Query("q"))
    with pytest.raises(EmptyExpansion):
        await expander("q\nQ\n")[0](Query("q"))


@pytest.mark.parametrize(
    "reply",
    [
        "[]",
        "{}",
        '{"queries": []}',
        '```json\n{"queries": []}\n```',
        '{"queries": ["one", "two",]}',
        '{\n  "queries": [\n    "one",\n    "two",\n  ]\n}',
        'Here they are:\n["one",\n "two",\n]',
        '[\r\n"one",\r\n]',
        "{'queries': ['one']}",
        "null",
        "-\n*\n---",
    ],
)
@pytest.mark.parametrize("n", [1, 3])
async def test_pieces_of_json_and_of_lists_are_no_wordings(reply, n):
    """Blanks do not count, and a broken value is never repaired: none usable is its own error."""
    with pytest.raises(EmptyExpansion):
        await expander(reply, n)[0](Query("q"))


@pytest.mark.parametrize(
    "reply", ["[Errno 2] found\n[Errno 3] lost", "1. [Errno 2] found\n2. [Errno 3] lost"]
)
async def test_a_wording_may_begin_with_a_bracket(reply):
    wanted = await expander(reply, 2)[0](Query("q"))
    assert [query.text for query in wanted] == ["[Errno 2] found", "[Errno 3] lost"]


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (None, MissingModelOutput),
        ({"choices": []}, MissingModelOutput),
        ({"choices": [{"finish_reason": "stop", "message": None}]}, MissingModelOutput),
        ({"content": None, "finish_reason": "content_filter"}, FilteredModelOutput),
        ({"content": "", "finish_reason": "stop"}, EmptyModelOutput),
        ({"content": "one\ntwo\nthree", "finish_reason": "length"}, TruncatedModelOutput),
        ({"content": None, "refusal": "no"}, RefusedModelOutput),
    ],
)
async def test_an_unusable_reply_keeps_its_own_error(reply, error):
    expand, double = expander([reply])
    with pytest.raises(error):
        await expand(Query("q"))
    assert len(double.calls) == 1


async def test_the_original_comes_first_when_included():
    original = Query("q", lexical="l", semantic="s")
    expand, _ = expander("one\ntwo\nthree", include_original=True)
    expanded = await expand(original)
    assert expanded[0] is original
    assert [query.text for query in expanded[1:]] == ["one", "two", "three"]
    assert {(query.lexical, query.semantic) for query in expanded[1:]} == {(None, None)}


async def test_variants_keep_context_filter_scope_and_limit():
    mine, ours = Filter(Eq("a", 1)), Filter(Eq("b", 2))
    original = Query("q", context=(ContextText("c", lexical=1),), filter=mine, scope=ours, top_k=4)
    for query in await expander("one\ntwo\nthree")[0](original):
        assert (query.filter, query.scope, query.top_k) == (mine, ours, 4)
        assert query.context == original.context


async def test_zero_means_three_and_a_negative_count_is_refused():
    expand, double = expander("one\ntwo\nthree", 0)
    assert expand.n == 3
    await expand(Query("q"))
    assert "3 other wordings" in double.prompts[0]
    for wrong in (-1, 2.5):
        with pytest.raises(InvalidSetting):
            expander("", wrong)


async def test_the_question_is_in_the_prompt_once_and_as_data():
    expand, double = expander("one\ntwo\nthree")
    await expand(Query("what is {{ 6*7 }}?"))
    assert double.prompts[0].count("what is {{ 6*7 }}?") == 1
    assert set(double.calls[0]) == {"model", "messages"}


@pytest.mark.parametrize(
    "reply",
    [
        '[3] wordings: {"queries": ["one", "two"]}',
        '["one", "two"]',
        '{"n": 2, "q": ["one", "two"]}',
    ],
)
def test_a_list_is_found_behind_other_brackets(reply):
    assert wordings(reply) == ["one", "two"]


@given(st.text())
def test_any_reply_gives_a_list_of_texts(reply):
    assert all(isinstance(text, str) for text in wordings(reply))


@given(st.lists(st.text(min_size=1), min_size=1, max_size=5))
def test_a_json_list_comes_back_as_it_is(texts):
    assert wordings(json.dumps({"queries": texts})) == texts
