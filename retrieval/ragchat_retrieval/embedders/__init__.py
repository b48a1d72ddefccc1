"""Embedders: hashing, local model, served models, cache, and what the environment names."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ragchat_retrieval.embedders.cached import CachedEmbedder
    from ragchat_retrieval.embedders.checks import embed_checked, known_dimension
    from ragchat_retrieval.embedders.environment import embedder_from_env
    from ragchat_retrieval.embedders.hashing import HashingEmbedder
    from ragchat_retrieval.embedders.local import LocalEmbedder
    from ragchat_retrieval.embedders.ollama import OllamaEmbedder
    from ragchat_retrieval.embedders.openai import OpenAIEmbedder
    from ragchat_retrieval.embedders.remote import Sending

__all__ = [
    "CachedEmbedder",
    "HashingEmbedder",
    "LocalEmbedder",
    "OllamaEmbedder",
    "OpenAIEmbedder",
    "Sending",
    "embed_checked",
    "embedder_from_env",
    "known_dimension",
]

_HOMES = {
    "CachedEmbedder": "cached",
    "HashingEmbedder": "hashing",
    "LocalEmbedder": "local",
    "OllamaEmbedder": "ollama",
    "OpenAIEmbedder": "openai",
    "Sending": "remote",
    "embed_checked": "checks",
    "embedder_from_env": "environment",
    "known_dimension": "checks",
}


if not TYPE_CHECKING:  # with it, a type checker would accept any name

    def __getattr__(name: str) -> object:
        """Imports a public name when it is first asked for."""
        if name not in _HOMES:
            problem = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(problem, name=name, obj=sys.modules[__name__])
        value: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """Lists the public names."""
    return sorted(__all__)
