"""Which tokens a chat model counts in: the exact counter of a model, found without a network."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ragchat_retrieval.tokens import DEFAULT_ENCODING, can_count, count_tokens

if TYPE_CHECKING:
    from collections.abc import Callable

_VENDORS = frozenset({"azure", "openai"})
"""Who serves OpenAI's models under their own names, as gateways write it: ``openai/gpt-5``."""


@dataclass(frozen=True, slots=True)
class TokenCounting:
    """How the tokens of one model's prompts are counted."""

    count: Callable[[str], int] = field(compare=False)
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


def _encoding_of(model: str) -> str | None:
    from tiktoken import encoding_name_for_model  # noqa: PLC0415 - not on import of ragchat

    *gateway, name = model.split("/")
    if gateway and gateway[-1] not in _VENDORS:
        return None
    try:
        return encoding_name_for_model(name)
    except KeyError:
        return None
