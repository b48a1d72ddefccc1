"""Token counts are exact, offline, and total on any text."""

from __future__ import annotations

import hashlib
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragchat_retrieval import tokens
from ragchat_retrieval.errors import InvalidSetting, TokenizerUnavailable
from ragchat_retrieval.tokens import (
    can_count,
    count_many,
    count_tokens,
    counts_at_once,
    is_loaded,
    repair,
    truncate,
    within,
)

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=200)


@pytest.fixture
def fresh_counters():
    tokens._counter.cache_clear()
    yield
    tokens._counter.cache_clear()


@pytest.fixture
def no_toktok(monkeypatch, fresh_counters, tmp_path):
    monkeypatch.setitem(sys.modules, "toktok", None)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    return tmp_path


# The figures of OpenAI's cookbook, "How to count tokens with tiktoken".
@pytest.mark.parametrize(
    ("text", "cl100k", "o200k"),
    [
        ("", 0, 0),
        ("tiktoken is great!", 6, 6),
        ("antidisestablishmentarianism", 6, 6),
        ("2 + 2 = 4", 7, 7),
        ("お誕生日おめでとう", 9, 8),
    ],
)
def test_counts_equal_published_ones(text, cl100k, o200k):
    assert count_tokens(text, "cl100k_base") == cl100k
    assert count_tokens(text, "o200k_base") == o200k
    assert count_tokens(text) == o200k


def test_every_ascii_letter_alone_is_one_token():
    assert count_many([chr(c) for c in range(33, 127)]) == [1] * 94


@pytest.mark.parametrize("text", ["<|endoftext|>", "<|im_start|>system", "a <|fim_prefix|> b"])
@pytest.mark.parametrize("encoding", ["cl100k_base", "o200k_base", "o200k_harmony"])
def test_a_spelled_out_special_token_is_ordinary_text(text, encoding):
    assert count_tokens(text, encoding) > 1
    assert truncate(text, 100, encoding) == text


def test_lone_surrogates_count_as_replacement_characters():
    assert count_tokens("a\ud800b") == count_tokens("a\ufffdb")
    assert count_many(["x", "\udc00"]) == [1, count_tokens("\ufffd")]


def test_surrogate_pairs_are_joined():
    assert repair("\ud83e\udde0") == "🧠"
    assert count_tokens("\ud83e\udde0") == count_tokens("🧠")


@given(ANY_TEXT)
@settings(max_examples=100, deadline=None)
def test_a_count_lies_between_one_and_the_number_of_bytes(text):
    size = len(repair(text).encode())
    assert count_tokens(text) <= size
    assert (count_tokens(text) >= 1) == bool(text)


@given(st.lists(ANY_TEXT, max_size=5))
@settings(max_examples=50, deadline=None)
def test_counting_many_is_counting_each(texts):
    assert count_many(texts) == [count_tokens(text) for text in texts]


@given(ANY_TEXT, st.integers(0, 40))
@settings(max_examples=100, deadline=None)
def test_a_truncated_text_is_a_prefix_within_the_limit(text, limit):
    prefix = truncate(text, limit)
    assert repair(text).startswith(prefix)
    assert count_tokens(prefix) <= limit
    if count_tokens(text) <= limit:
        assert prefix == repair(text)


def test_truncation_never_cuts_a_character():
    assert count_tokens("🧠") > 1
    assert truncate("🧠", 1) == ""
    assert truncate("a🧠", 2) == "a"


def test_a_negative_limit_is_refused():
    with pytest.raises(InvalidSetting) as caught:
        truncate("x", -1)
    assert caught.value.name == "limit"


def test_an_unknown_encoding_is_refused():
    with pytest.raises(InvalidSetting):
        count_tokens("x", "base64")
    assert not can_count("base64")


@pytest.mark.parametrize("encoding", ["o200k_base", "cl100k_base", "p50k_base", "gpt2"])
def test_without_any_tokenizer_a_typed_error_says_so_and_nothing_is_downloaded(no_toktok, encoding):
    with pytest.raises(TokenizerUnavailable) as caught:
        count_tokens("x", encoding)
    assert caught.value.encoding == encoding
    assert not can_count(encoding)


def test_a_damaged_vocabulary_file_counts_as_absent_and_stays(no_toktok):
    address = b"https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"
    path = no_toktok / hashlib.sha1(address, usedforsecurity=False).hexdigest()
    path.write_bytes(b"garbage")
    with pytest.raises(TokenizerUnavailable):
        count_tokens("x")
    assert path.read_bytes() == b"garbage"


def test_a_disabled_cache_of_tiktoken_counts_as_absent(no_toktok, monkeypatch):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    assert not can_count("o200k_base")


def test_tiktoken_counts_where_its_own_file_is_present(no_toktok, monkeypatch):
    import tiktoken

    encoding = tiktoken.Encoding(
        "bytes",
        pat_str=r"\w+|\W",
        mergeable_ranks={bytes([b]): b for b in range(256)} | {b"ab": 256},
        special_tokens={"<|endoftext|>": 257},
    )
    content = b"a vocabulary"
    address = b"https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"
    path = no_toktok / hashlib.sha1(address, usedforsecurity=False).hexdigest()
    path.write_bytes(content)
    monkeypatch.setitem(tokens._FILES, "o200k_base", hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(tiktoken, "get_encoding", {"o200k_base": encoding}.__getitem__)

    assert count_many(["ab", "abc", "\ud800", "<|endoftext|>"]) == [1, 2, 3, 13]
    assert truncate("abü", 2) == "ab"
    assert truncate("abü", 3) == "abü"


@given(st.text(max_size=60), st.integers(0, 80))
def test_a_text_is_within_a_limit_exactly_if_its_count_is(text, limit):
    assert within(text, limit) == (count_tokens(text) <= limit)
    assert within(text, limit, len) == (len(text) <= limit)


def test_only_short_texts_and_counters_that_are_ready_are_counted_at_once():
    count_tokens("loads")
    assert is_loaded()
    assert counts_at_once(count_tokens, 1000)
    assert not counts_at_once(count_tokens, 10**6)
    assert not counts_at_once(len, 1)
