"""Each model's prompts are counted in its own encoding, and an estimate says that it is one."""

from __future__ import annotations

import sys

import pytest

from ragchat.tokens import ModelCounter, TokenCounting, counter_for
from ragchat_retrieval import tokens
from ragchat_retrieval.errors import TokenizerUnavailable

JAPANESE = "お誕生日おめでとう"
"""9 tokens in cl100k_base, 8 in o200k_base (OpenAI's cookbook)."""


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    def forget():
        counter_for.cache_clear()
        tokens._counter.cache_clear()

    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    forget()
    yield
    forget()


@pytest.mark.parametrize(
    ("model", "encoding", "count"),
    [
        ("gpt-4", "cl100k_base", 9),
        ("gpt-3.5-turbo-0125", "cl100k_base", 9),
        ("azure/gpt-4-32k", "cl100k_base", 9),
        ("gpt-4o", "o200k_base", 8),
        ("gpt-5", "o200k_base", 8),
        ("gpt-5-mini", "o200k_base", 8),
        ("o3", "o200k_base", 8),
        ("ft:gpt-4o:acme::x", "o200k_base", 8),
        ("openai/gpt-4o-mini", "o200k_base", 8),
        ("openrouter/openai/gpt-5", "o200k_base", 8),
        ("gpt-oss-20b", "o200k_harmony", 8),
    ],
)
def test_a_known_model_is_counted_exactly_in_its_encoding(model, encoding, count):
    counting = counter_for(model)
    assert counting == TokenCounting(len, encoding, estimated=False)
    assert counting.count(JAPANESE) == count


@pytest.mark.parametrize(
    "model", ["claude-sonnet", "llama-3", "", None, "somebody/gpt-4-tune", "models/", "/"]
)
def test_an_unknown_model_is_estimated_in_o200k(model):
    counting = counter_for(model)
    assert (counting.encoding, counting.estimated) == ("o200k_base", True)
    assert counting.count(JAPANESE) == 8


def test_an_encoding_that_cannot_be_counted_here_is_estimated(fresh):
    counting = counter_for("text-davinci-003")
    assert (counting.encoding, counting.estimated) == ("o200k_base", True)


def test_spelled_out_special_tokens_are_text():
    assert counter_for("gpt-4").count("<|endoftext|>") > 1


def test_without_any_tokenizer_a_typed_error_comes_before_the_first_count(fresh, monkeypatch):
    monkeypatch.setitem(sys.modules, "toktok", None)
    with pytest.raises(TokenizerUnavailable):
        counter_for("gpt-5")


def test_a_counter_of_a_model_says_whether_its_vocabulary_is_loaded(fresh, monkeypatch):
    count = ModelCounter("gpt-4")
    monkeypatch.setattr(tokens, "_LOADED", set())
    assert not count.loaded
    assert count(JAPANESE) == 9
    assert count.loaded
    assert not ModelCounter("gpt-5").loaded
