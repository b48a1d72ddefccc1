"""Which tokens a chat model counts in: the exact counter of a model, found without a network."""

from __future__ import annotations

import functools
import inspect
import operator
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import SupportsIndex, TypeAlias

from ragchat.errors import InvalidContextBudget
from ragchat_retrieval.policy import current_run
from ragchat_retrieval.stages import is_async_callable
from ragchat_retrieval.tokens import DEFAULT_ENCODING, can_count, count_tokens, is_loaded

TokenCounter: TypeAlias = Callable[[str], int]
"""Counts the tokens of a text; sync."""

_NAMER = "tiktoken"
"""The package that tells encodings by the names of models."""

_VENDORS = frozenset({"azure", "openai"})
"""Who serves OpenAI's models under their own names, as gateways write it: ``openai/gpt-5``."""


@dataclass(frozen=True, slots=True)
class TokenCounting:
    """How the tokens of one model's prompts are counted."""

    count: TokenCounter = field(compare=False)
    """Returns the number of tokens of a text. Special tokens spelled out in it are text."""

    encoding: str
    """The encoding's name, such as ``o200k_base``."""

    estimated: bool = False
    """Whether the model may use another encoding: the counts are exact for `encoding` only."""


@functools.lru_cache(maxsize=256)
def counter_for(model: str | None) -> TokenCounting:
    """Returns the counter of a chat model.

    Args:
        model: The name that the request carries; a gateway's ``openai/`` or ``azure/`` in front is
            understood. None, and any name that tiktoken does not know, are counted in o200k_base,
            as an estimate; so is a model whose encoding cannot be counted on this machine.

    Raises:
        TokenizerUnavailable: Not even o200k_base can be counted here.
    """
    encoding = _encoding_of(model or "")
    estimated = encoding is None or not can_count(encoding)
    if encoding is None or estimated:
        encoding = DEFAULT_ENCODING
    count = functools.partial(count_tokens, encoding=encoding)
    count("")
    return TokenCounting(count, encoding, estimated)


def counter_of(model: str | None) -> ModelCounter:
    """Returns a counter that counts as `model` does, chosen at the first count."""
    return ModelCounter(model)


@dataclass(frozen=True, slots=True)
class ModelCounter:
    """Counts as `model` does; in which encoding that is, is found out by the first count.

    For a model without a known encoding the counts are o200k_base's, and the current run's trace
    says so.
    """

    model: str | None

    def __call__(self, text: str) -> int:
        """Returns the number of tokens. Raises as `counter_for`."""
        counting = counter_for(self.model)
        if counting.estimated and (run := current_run()) is not None:
            run.record.note(f"tokens estimated with {counting.encoding}")
        return counting.count(text)

    @property
    def loaded(self) -> bool:
        """Whether a count has nothing to load first; see `counts_at_once`."""
        if _NAMER not in sys.modules:
            return False
        return is_loaded(_encoding_of(self.model or "") or DEFAULT_ENCODING)


def counted(count: TokenCounter, text: str) -> int:
    """Counts a text with a counter that may be anyone's.

    Raises:
        InvalidContextBudget: It returned no integer of 0 or more.
    """
    return checked_count(count(text), "the token counter")


def checked_count(tokens: object, giver: str) -> int:
    """Returns what somebody's function gave as a count of tokens.

    Raises:
        InvalidContextBudget: It is no integer of 0 or more.
    """
    if type(tokens) is int and tokens >= 0:
        return tokens
    if inspect.iscoroutine(tokens):
        tokens.close()
    if not isinstance(tokens, SupportsIndex) or isinstance(tokens, bool):
        raise InvalidContextBudget(f"{giver} must return an integer")
    if operator.index(tokens) < 0:
        raise InvalidContextBudget(f"{giver} must return 0 or more")
    return operator.index(tokens)


def checked_counter(count: object) -> None:
    """Refuses what is neither a counter, ``"auto"`` nor None.

    Raises:
        InvalidContextBudget: It is async, or no function.
    """
    if is_async_callable(count):
        raise InvalidContextBudget("a token counter must not be async")
    if count not in ("auto", None) and not callable(count):
        raise InvalidContextBudget('count_tokens must be a function, "auto" or None')


@functools.lru_cache(maxsize=256)
def _encoding_of(model: str) -> str | None:
    from tiktoken import encoding_name_for_model  # noqa: PLC0415 - not on import of ragchat

    *gateway, name = model.split("/")
    if gateway and gateway[-1] not in _VENDORS:
        return None
    try:
        return encoding_name_for_model(name)
    except KeyError:
        return None
