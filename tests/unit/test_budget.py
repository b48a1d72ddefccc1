"""Token budgets: what is packed, and that no counter can be tricked past the limit."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat.augment import AugmentContext, ContextualAugmenter
from ragchat.errors import ContextBudgetExceeded, InvalidContextBudget
from ragchat.evidence import Evidence, encode
from ragchat_retrieval.policy import Policy, Run, running
from ragchat_retrieval.tokens import count_tokens
from ragchat_retrieval.values import Candidate, Passage

if TYPE_CHECKING:
    from collections.abc import Callable

CONTEXT = AugmentContext()


def candidates(*texts: str, title: str | None = None) -> list[Candidate]:
    return [Candidate(Passage(t, id=f"p{n}", title=title), 1.0) for n, t in enumerate(texts)]


def evidence_of(text: str) -> str:
    start = text.index("<evidence>")
    return text[start : text.index("</evidence>") + len("</evidence>")]


def words(text: str) -> int:
    return len(text.split())


def erratic(text: str) -> int:
    """Neither additive nor monotone."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[0]


def joined_costs_more(text: str) -> int:
    return len(text) + text.count("},\n{")


def letters(text: str) -> int:
    return len(set(text))


def pairs(text: str) -> int:
    """Superadditive: every two words cost something together."""
    return words(text) ** 2 // 8


def root(text: str) -> int:
    """Subadditive: the more there is, the less the next costs."""
    return math.isqrt(100 * len(text))


def by_the_dozen(text: str) -> int:
    """Rounds up, so that a character may cost nothing or twelve."""
    return -(-len(text) // 12) * 12


COUNTERS = [len, words, joined_costs_more, letters, pairs, root, by_the_dozen, count_tokens]


@pytest.mark.parametrize("encoding", ["json", "fenced"])
@pytest.mark.parametrize("order", ["relevance", "edges"])
@pytest.mark.parametrize("counter", [*COUNTERS, erratic])
@given(
    texts=st.lists(st.text(min_size=1).filter(str.strip), min_size=1, max_size=6),
    limit=st.integers(1, 250),
)
def test_the_finished_block_measured_as_one_string_is_never_over_the_limit(
    encoding, order, counter: Callable[[str], int], texts: list[str], limit: int
):
    augmenter = ContextualAugmenter(
        max_context_tokens=limit, count_tokens=counter, encoding=encoding, order=order
    )
    given_ = candidates(*texts)
    try:
        made = augmenter.augment("q?", given_, CONTEXT)
    except ContextBudgetExceeded as error:
        assert error.limit == limit  # noqa: PT017 - either outcome is right
        return
    numbered = [Evidence(n, p, p.text) for n, p in made.citations.items()]
    if order == "edges":
        numbered = numbered[::2] + numbered[1::2][::-1]
    block = encode(numbered, encoding)
    assert block in made.text
    assert made.tokens == counter(block) <= limit
    kept = [p.id for p in made.citations.values()]
    assert kept == [c.passage.id for c in given_ if c.passage.id in kept]


@pytest.mark.parametrize("counter", [len, words, joined_costs_more, count_tokens])
def test_at_the_exact_size_both_fit_and_at_one_less_only_one_does(counter):
    both = candidates("one two three", "four five six", title="A long title of many words " * 4)
    block = evidence_of(ContextualAugmenter().augment("q", both, CONTEXT).text)
    exact = counter(block)
    for limit, expected in ((exact, 2), (exact - 1, 1)):
        augmenter = ContextualAugmenter(max_context_tokens=limit, count_tokens=counter)
        made = augmenter.augment("q", both, CONTEXT)
        assert len(made.citations) == expected
        assert counter(evidence_of(made.text)) <= limit


def test_a_candidate_that_does_not_fit_is_skipped_and_numbers_close_up():
    given_ = candidates("small a", "large " * 200, "small b", "small c")
    augmenter = ContextualAugmenter(max_context_tokens=250, count_tokens=len)
    made = augmenter.augment("q", given_, CONTEXT)
    assert {n: p.text for n, p in made.citations.items()} == {
        1: "small a",
        2: "small b",
        3: "small c",
    }


def test_only_whole_candidates_are_presented():
    given_ = candidates("word " * 50)
    augmenter = ContextualAugmenter(
        max_context_tokens=60, count_tokens=len, allow_empty_context=True
    )
    with pytest.raises(ContextBudgetExceeded) as caught:
        augmenter.augment("q", given_, CONTEXT)
    assert caught.value.limit == 60
    assert caught.value.smallest > 250


async def async_count(text: str) -> int:
    return len(text)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_context_tokens": -1},
        {"max_context_tokens": 1.5},
        {"max_context_tokens": True},
        {"max_context_tokens": 10, "count_tokens": None},
        {"max_context_tokens": 10, "count_tokens": "gpt-5"},
        {"max_context_tokens": 10, "count_tokens": async_count},
    ],
)
def test_a_limit_or_counter_that_cannot_work_is_refused_at_construction(settings):
    with pytest.raises(InvalidContextBudget):
        ContextualAugmenter(**settings)


@pytest.mark.parametrize("count", [-1, 1.0, None, True, "3", np.int64(-1), np.float64(1)])
def test_a_counter_must_return_a_count(count):
    augmenter = ContextualAugmenter(max_context_tokens=100, count_tokens=lambda _: count)
    with pytest.raises(InvalidContextBudget):
        augmenter.augment("q", candidates("a"), CONTEXT)


def test_a_counter_that_returns_a_coroutine_leaves_none_behind():
    augmenter = ContextualAugmenter(
        max_context_tokens=100, count_tokens=lambda text: async_count(text[:9])
    )
    with pytest.raises(InvalidContextBudget):
        augmenter.augment("q", candidates("a"), CONTEXT)


def test_a_counter_may_count_as_numpy_does():
    augmenter = ContextualAugmenter(max_context_tokens=100, count_tokens=lambda _: np.int64(7))
    assert augmenter.augment("q", candidates("a"), CONTEXT).tokens == 7


def test_a_negative_budget_of_the_request_is_refused():
    with pytest.raises(InvalidContextBudget):
        ContextualAugmenter().augment("q", candidates("a"), replace(CONTEXT, budget=-1))


def test_a_counter_may_return_zero():
    augmenter = ContextualAugmenter(max_context_tokens=1, count_tokens=lambda _: 0)
    assert augmenter.augment("q", candidates("a"), CONTEXT).tokens == 0


def test_the_requests_own_budget_holds_all_that_is_added_to_the_message():
    """Instructions and notice included, beside the limit of the evidence block."""
    given_ = candidates("small a", "small b")
    one = ContextualAugmenter().augment("q?", given_[:1], CONTEXT).text
    room = AugmentContext(budget=len(one) - len("q?"), count_tokens=len)
    made = ContextualAugmenter().augment("q?", given_, room)
    assert (made.text, made.tokens) == (one, len(evidence_of(one)))
    with pytest.raises(ContextBudgetExceeded) as caught:
        ContextualAugmenter().augment("q?", given_[:1], replace(room, budget=room.budget - 1))
    assert (caught.value.limit, caught.value.smallest) == (room.budget - 1, room.budget)


def test_the_smaller_of_the_requests_budget_and_the_blocks_limit_wins():
    given_ = candidates("small a", "small b")
    one = len(evidence_of(ContextualAugmenter().augment("q", given_[:1], CONTEXT).text))
    wide = AugmentContext(budget=10_000, count_tokens=len)
    narrow = ContextualAugmenter(max_context_tokens=one, count_tokens=len)
    assert len(narrow.augment("q", given_, wide).citations) == 1
    assert len(ContextualAugmenter().augment("q", given_, wide).citations) == 2
    for limit in (0, 10_000):
        with pytest.raises(ContextBudgetExceeded):
            ContextualAugmenter(max_context_tokens=limit, count_tokens=len).augment(
                "q", given_, AugmentContext(budget=0, count_tokens=len)
            )


def test_saying_that_nothing_was_found_needs_room_too():
    with pytest.raises(ContextBudgetExceeded) as caught:
        ContextualAugmenter().augment("q", [], AugmentContext(budget=5, count_tokens=len))
    assert caught.value.limit == 5 < caught.value.smallest


@pytest.mark.parametrize(
    ("model", "encoding", "estimated"),
    [
        ("gpt-4", "cl100k_base", False),
        ("gpt-5", "o200k_base", False),
        ("my-model", "o200k_base", True),
    ],
)
def test_auto_counts_as_the_requests_model_does_and_says_when_it_estimates(
    model, encoding, estimated
):
    given_ = candidates("喝茶 " * 40, "喝茶 " * 40)
    block = evidence_of(ContextualAugmenter().augment("q", given_, CONTEXT).text)
    run = Run(Policy())
    with running(run):
        augmenter = ContextualAugmenter(max_context_tokens=count_tokens(block, encoding))
        made = augmenter.augment("q", given_, AugmentContext(model=model))
    assert (len(made.citations), made.tokens) == (2, count_tokens(block, encoding))
    assert any("estimated" in note for note in run.record.trace().notes) is estimated


def test_nothing_is_counted_without_a_limit():
    def count(text: str) -> int:
        raise AssertionError

    made = ContextualAugmenter(count_tokens=count).augment("q", candidates("a"), CONTEXT)
    assert made.tokens is None
    assert (
        ContextualAugmenter(count_tokens=None).augment("q", candidates("a"), CONTEXT).tokens is None
    )


async def test_a_sync_counter_runs_beside_the_event_loop():
    """A counter that waits for the loop gets what it waits for."""
    import asyncio

    loop = asyncio.get_running_loop()

    async def tick() -> int:
        return 1

    def count(text: str) -> int:
        return asyncio.run_coroutine_threadsafe(tick(), loop).result(timeout=10)

    augmenter = ContextualAugmenter(max_context_tokens=5, count_tokens=count)
    assert len((await augmenter("q", candidates("a", "b"), CONTEXT)).citations) == 2


def test_spelled_special_tokens_are_counted_as_text():
    given_ = candidates("<|endoftext|> <|im_start|>system", title="<|endoftext|>")
    made = ContextualAugmenter(max_context_tokens=500).augment("<|im_start|>", given_, CONTEXT)
    assert made.tokens == count_tokens(evidence_of(made.text))
    assert made.citations[1].text == "<|endoftext|> <|im_start|>system"
