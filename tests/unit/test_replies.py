"""What helper models say: taking it out of responses and texts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragchat.errors import (
    EmptyModelOutput,
    FilteredModelOutput,
    MissingModelOutput,
    RefusedModelOutput,
    TruncatedModelOutput,
)
from ragchat.json_search import (
    _DECODER,
    _OBJECT,
    _OPENING,
    MAX_DEPTH,
    _first,
    _Reader,
    _searched,
    first_json,
    first_object,
)
from ragchat.replies import clean_text, lines, reply_text, strip_reasoning
from ragchat.testing import as_object


def response(content="hello", finish_reason="stop", **message):
    message = {"role": "assistant", "content": content, **message}
    return {"choices": [{"index": 0, "finish_reason": finish_reason, "message": message}]}


@pytest.mark.parametrize("wrap", [dict, as_object])
@pytest.mark.parametrize(
    ("reply", "error"),
    [
        ({}, MissingModelOutput),
        ({"choices": None}, MissingModelOutput),
        ({"choices": []}, MissingModelOutput),
        ({"choices": [{"finish_reason": "stop", "message": None}]}, MissingModelOutput),
        (response(None), MissingModelOutput),
        (response(""), EmptyModelOutput),
        (response(" \n\t"), EmptyModelOutput),
        (response("<think>long thoughts</think>\n"), EmptyModelOutput),
        (response("<think>cut thoughts"), EmptyModelOutput),
        (response("half a sen", "length"), TruncatedModelOutput),
        (response("", "length"), TruncatedModelOutput),
        (response(None, "content_filter"), FilteredModelOutput),
        (response("something", "content_filter"), FilteredModelOutput),
        (response(None, refusal="I will not."), RefusedModelOutput),
        (response("", "refusal"), RefusedModelOutput),
    ],
)
def test_each_unusable_reply_has_an_error_of_its_own(wrap, reply, error):
    with pytest.raises(error) as caught:
        reply_text(wrap(reply), model="m1")
    assert caught.value.model == "m1"
    assert "'m1'" in str(caught.value)
    assert "sentence" not in str(caught.value)


def test_no_response_at_all_is_missing_output():
    with pytest.raises(MissingModelOutput):
        reply_text(None)


def test_a_refusal_is_not_quoted_in_its_error():
    with pytest.raises(RefusedModelOutput) as caught:
        reply_text(response(None, refusal="secret words"))
    assert "secret" not in repr(caught.value)


@pytest.mark.parametrize("wrap", [dict, as_object])
def test_text_is_read_from_strings_and_from_parts(wrap):
    assert reply_text(wrap(response(" hello \n"))) == "hello"
    assert reply_text(wrap(response([{"type": "text", "text": "a"}, {"text": "b"}]))) == "ab"


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("<think>a\nb</think>\n\nanswer", "\n\nanswer"),
        ("<THINK>a</Think>answer", "answer"),
        ("x<thinking>a</thinking>y<reasoning>b</reasoning>z", "xyz"),
        ("<think>never ends", ""),
        ("  <think>never ends", ""),
        ("What does the <think> tag do?", "What does the <think> tag do?"),
        ("opened by the template\n</think>\nanswer", "\nanswer"),
        ("opened by the template</think>\nanswer", "\nanswer"),
        ("what is `</think>` for?", "what is `</think>` for?"),
        ("plain", "plain"),
    ],
)
def test_reasoning_is_left_out(text, rest):
    assert strip_reasoning(text) == rest


@pytest.mark.parametrize(
    "text",
    [
        "valve pressure PX-7",
        ' "valve pressure PX-7" ',
        "\u201cvalve pressure PX-7\u201d",
        "\u00abvalve pressure PX-7\u00bb",
        "`valve pressure PX-7`",
        "Rewritten query: valve pressure PX-7",
        "**Rewritten query:** valve pressure PX-7",
        "Here is the rewritten query:\n\nvalve pressure PX-7",
        "Sure! Here\u2019s your stand-alone question: \u201cvalve pressure PX-7\u201d",
        "Standalone question: 'valve pressure PX-7'",
        "Translation to English: valve pressure PX-7",
        "Query 1: valve pressure PX-7",
        "**Rephrased question #2:** valve pressure PX-7",
        "Wording 3: valve pressure PX-7",
        "Query\uff1a valve pressure PX-7",
        "```\nvalve pressure PX-7\n```",
        "```text\nvalve pressure PX-7\n```\nThis names the part.",
        "~~~\nvalve pressure PX-7",
        "```valve pressure PX-7```",
        "<think>It asks for a valve.</think>\nSearch query: ```\n'valve pressure PX-7'\n```",
        "<think>It asks for a valve.</think>\n```\nSearch query: 'valve pressure PX-7'\n```",
    ],
)
def test_fences_labels_and_quotes_around_the_answer_are_removed(text):
    assert clean_text(text) == "valve pressure PX-7"


@pytest.mark.parametrize(
    "text",
    [
        'what do "open" and "close" mean',
        "'a' or 'b'",
        "Error: disk full",
        "ERR-4041: what is it?",
        "it's",
        "3.5 mm jack",
        "C++ {x}",
        '"',
    ],
)
def test_what_belongs_to_the_answer_stays(text):
    assert clean_text(text) == text


@given(st.text(max_size=60))
def test_cleaning_never_adds_characters(text):
    assert clean_text(text) in text.strip()


@pytest.mark.parametrize(
    ("text", "items"),
    [
        (
            "first wording\n\n   \nsecond wording\r\n\r\nthird wording\n",
            ["first wording", "second wording", "third wording"],
        ),
        ("1. one\n2) two\n(3) three\n[4] four\n- five\n* six\n• seven", list("1234567")),
        ("Here are three:\n- one\n- two\nHope this helps!", list("12")),
        ("Here are two:\none\ntwo", list("12")),
        ("```\none\ntwo\n```", list("12")),
        ("\"one\"\n'two'", list("12")),
        ("one:", ["one:"]),
        ("3.5 mm jack\n3.x guide\n2024) report", ["3.5 mm jack", "3.x guide", "2024) report"]),
        ("1.\u7b2c\u4e00\n2.\u7b2c\u4e8c", ["\u7b2c\u4e00", "\u7b2c\u4e8c"]),
        ("1\u3001\u7b2c\u4e00\n2\uff09\u7b2c\u4e8c", ["\u7b2c\u4e00", "\u7b2c\u4e8c"]),
        ("Here they are:\n**1.** one\n**2)** two", list("12")),
        ("<think>1. no</think>\none", list("1")),
        ("\n \n", []),
    ],
)
def test_lists_are_read_line_by_line(text, items):
    names = dict(
        zip("1234567", ["one", "two", "three", "four", "five", "six", "seven"], strict=True)
    )
    assert lines(text) == [names.get(item, item) for item in items]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ('Sure:\n```json\n{"a": [1, 2]}\n```\nDocument 1, as it fits, is best.', {"a": [1, 2]}),
        ("[1] is first", [1]),
        ('["a", "b"] ["c"]', ["a", "b"]),
        ('{"a": "}]\\" {"}', {"a": '}]" {'}),
        ('{"a": 1,} then {"b": 2}', {"b": 2}),
        ("{'a': 1} [true, null, -0.5e-3]", [True, None, -0.0005]),
        ('{"broken": {"b": 2} x', {"b": 2}),
        ('{"cut": [1, 2], "more": ', [1, 2]),
        ('["unterminated [3] end', [3]),
        ('{"a": NaN} []', []),
        ("[01] [0]", [0]),
        ("none of these is relevant", None),
        ("", None),
        ("{", None),
        ("3", None),
        ('"text"', None),
    ],
)
def test_the_first_complete_json_value_is_found_and_never_repaired(text, value):
    assert first_json(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('As in [1]: {"a": 1} [2]', {"a": 1}),
        ('[{"a": 1}, {"b": 2}]', {"a": 1}),
        ('{"a": [{"b": 2}]}', {"a": [{"b": 2}]}),
        ('{"broken": [1, {"b": 2}, x} {"c": 3}', {"b": 2}),
        ('{"cut": [1, 2], "more": ', {}),
        ('{"cut": [1, 2], "more": x, {"d": 4}', {"d": 4}),
        ("[1, 2]", {}),
        ("[" * 100_000, {}),
        ("none", {}),
    ],
)
def test_the_first_object_is_found_behind_lists_and_inside_of_one(text, value):
    assert first_object(text) == value


def test_an_object_that_is_refused_matters_only_in_the_value_that_is_taken():
    def unique(pairs):
        if len(dict(pairs)) < len(pairs):
            raise ValueError("twice")
        return dict(pairs)

    assert first_json('[[1], {"a": 1, "a": 2}, and so on', pairs=unique) == [1]
    with pytest.raises(ValueError, match="twice"):
        first_json('[[1], {"a": 1, "a": 2}]', pairs=unique)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=12,
    ),
    st.text(alphabet=st.characters(exclude_characters="{[")),
    st.text(),
)
def test_any_json_value_is_found_whole_between_prose(value, before, after):
    value = [value]
    written = json.dumps(value, ensure_ascii=False, allow_nan=True).replace("Infinity", "1e999")
    assert first_json(f"{before}{written}{after}") == json.loads(written)


@settings(max_examples=100)
@given(st.text(alphabet='{}[],:"\\ \n1a', max_size=30))
def test_what_is_found_is_the_value_of_a_slow_reference(text):
    """The oracle tries every start with the standard decoder, in nesting order."""
    found = first_json(text)
    decoder = json.JSONDecoder()
    if found is not None:
        assert isinstance(found, dict | list)
    else:
        # Without quotes, no start can hide in a string, and the reference must agree exactly.
        plain = text.replace('"', "")
        for start in (i for i, c in enumerate(plain) if c in "{["):
            try:
                decoder.raw_decode(plain, start)
            except ValueError:
                continue
            assert first_json(plain) is not None


@settings(max_examples=300)
@given(
    st.lists(
        st.sampled_from(
            [
                *'{}[],:"\\ \n\x00',
                '"a"',
                "\\u00",
                "1",
                "-",
                "01",
                "2.5e3",
                "NaN",
                "-Infinity",
                "null",
            ]
        ),
        max_size=14,
    ).map("".join)
)
def test_the_quick_way_to_a_value_gives_what_the_thorough_one_does(text):
    for begins in (_OPENING, _OBJECT):
        thorough = _searched(text, begins)
        value = None if thorough is None else _DECODER.decode(thorough)
        assert _first(text, begins, _DECODER) == value


@pytest.mark.parametrize("piece", ['["', "[", '{"a":', "[1,", '["\\"', '[" ', "{[", '"[', "]["])
def test_no_input_takes_more_than_linear_work(piece, monkeypatch):
    taken = []
    take = _Reader.take
    monkeypatch.setattr(
        _Reader, "take", lambda self, token: taken.append(len(token[0])) or take(self, token)
    )
    text = piece * 2000
    first_json(text)
    first_object(text)
    assert sum(taken) <= 8 * len(text)


def test_nesting_and_numbers_without_end_do_no_harm():
    assert first_json("[" * MAX_DEPTH + "]" * MAX_DEPTH) is not None
    assert first_json("[" * 100_000) is None
    assert first_json("[" + "9" * 10_000 + "]") == [float("inf")]
