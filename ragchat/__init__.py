"""Retrieval in front of chat completion calls.

The everyday names of the chat layer and of the core, imported when they are first asked for.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

import ragchat_retrieval

if TYPE_CHECKING:
    from ragchat import errors, testing
    from ragchat.errors import (
        ChatError,
        ContextBudgetExceeded,
        EmptyExpansion,
        EmptyModelOutput,
        EmptyResponse,
        FilteredModelOutput,
        InvalidAugmentation,
        InvalidCitations,
        InvalidContextBudget,
        InvalidExpansion,
        InvalidPrompt,
        InvalidRequest,
        MissingModelOutput,
        ModelReplyError,
        NoFinalUserMessage,
        RefusedModelOutput,
        TruncatedModelOutput,
        UnknownCitation,
        UnsupportedMedia,
    )
    from ragchat_retrieval import *  # noqa: F403 - all of the core's public names
    from ragchat_retrieval.rerank import rerank

__all__ = [
    "ChatError",
    "ContextBudgetExceeded",
    "EmptyExpansion",
    "EmptyModelOutput",
    "EmptyResponse",
    "FilteredModelOutput",
    "InvalidAugmentation",
    "InvalidCitations",
    "InvalidContextBudget",
    "InvalidExpansion",
    "InvalidPrompt",
    "InvalidRequest",
    "MissingModelOutput",
    "ModelReplyError",
    "NoFinalUserMessage",
    "RefusedModelOutput",
    "TruncatedModelOutput",
    "UnknownCitation",
    "UnsupportedMedia",
    "errors",
    "rerank",
    "testing",
]
__all__ += ragchat_retrieval.__all__

_HOMES = {
    "ragchat.errors": (
        "ChatError",
        "ContextBudgetExceeded",
        "EmptyExpansion",
        "EmptyModelOutput",
        "EmptyResponse",
        "FilteredModelOutput",
        "InvalidAugmentation",
        "InvalidCitations",
        "InvalidContextBudget",
        "InvalidExpansion",
        "InvalidPrompt",
        "InvalidRequest",
        "MissingModelOutput",
        "ModelReplyError",
        "NoFinalUserMessage",
        "RefusedModelOutput",
        "TruncatedModelOutput",
        "UnknownCitation",
        "UnsupportedMedia",
    ),
    "ragchat_retrieval.rerank": ("rerank",),
}
_MODULES = frozenset({"errors", "testing"})
_HOME = {name: home for home, names in _HOMES.items() for name in names}
_HOME |= dict.fromkeys(ragchat_retrieval.__all__, "ragchat_retrieval")


if not TYPE_CHECKING:  # with it, a type checker would accept any name

    def __getattr__(name: str) -> object:
        """Imports a public name when it is first asked for."""
        if name in _MODULES:
            return import_module(f"{__name__}.{name}")
        if name not in _HOME:
            problem = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(problem, name=name, obj=sys.modules[__name__])
        value: object = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """Lists the public names."""
    return sorted(__all__)
