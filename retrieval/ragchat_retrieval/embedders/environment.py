"""The embedder that the environment names.

    RAGCHAT_EMBEDDING_PROVIDER   local | openai | ollama | hashing | none
    RAGCHAT_EMBEDDING_URL        a server; its kind is read from the address if no provider is named
    RAGCHAT_EMBEDDING_MODEL      the model
    RAGCHAT_EMBEDDING_API_KEY    the key of an OpenAI-compatible server

With nothing set, it is the local model if its extra is installed, else none: keyword search works
fully without. No other variable sends a text anywhere: ``OPENAI_API_KEY`` alone does nothing.
"""

from __future__ import annotations

import functools
import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ragchat_retrieval.embedders.hashing import HashingEmbedder
from ragchat_retrieval.embedders.local import LocalEmbedder, is_installed
from ragchat_retrieval.embedders.ollama import DEFAULT_URL, OllamaEmbedder
from ragchat_retrieval.embedders.openai import OpenAIEmbedder
from ragchat_retrieval.errors import InvalidSetting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ragchat_retrieval.ports import Embedder

_log = logging.getLogger("ragchat")

_PROVIDER = "RAGCHAT_EMBEDDING_PROVIDER"
_URL = "RAGCHAT_EMBEDDING_URL"
_MODEL = "RAGCHAT_EMBEDDING_MODEL"
_KEY = "RAGCHAT_EMBEDDING_API_KEY"

_OLLAMA_PORT = 11434
_OPENAI_MODEL = "text-embedding-3-small"

REMEDY = (
    'no embedding model: keyword search only; pip install "ragchat-toolkit[local]" for a model '
    f"that runs here, or set {_URL} and {_MODEL}"
)
"""What to say to somebody who searches without an embedding model."""


@dataclass(frozen=True, slots=True)
class _Settings:
    provider: str
    url: str
    model: str
    key: str
    environ: Mapping[str, str]

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> _Settings:
        provider, url, model, key = (
            environ.get(name, "").strip() for name in (_PROVIDER, _URL, _MODEL, _KEY)
        )
        return cls(provider.lower(), url, model, key, environ)

    def refuse(self, *names: str) -> None:
        """Raises if one of these is set: a setting that has no effect is a mistake."""
        given = {_URL: self.url, _MODEL: self.model, _KEY: self.key}
        for name in names:
            if given[name]:
                label = f"{_PROVIDER}={self.provider}" if self.provider else "no provider or URL"
                raise InvalidSetting(name, f"has no effect with {label}")


def embedder_from_env(environ: Mapping[str, str] | None = None) -> Embedder | None:
    """Returns the embedder that the environment names, or None for keyword-only search.

    Nothing is loaded and no server is asked. With nothing set and no local model, one log line a
    process says so and names the remedy.

    Args:
        environ: The variables; None is the process's own.

    Raises:
        InvalidSetting: A provider that is none, a setting that is missing, or one without effect.
        MissingExtra: The local model is asked for by name and its extra is not installed.
    """
    settings = _Settings.read(os.environ if environ is None else environ)
    provider = settings.provider or (detect_provider(settings.url) if settings.url else "")
    if not provider:
        return _default(settings)
    if provider not in _PROVIDERS:
        raise InvalidSetting(_PROVIDER, f"must be one of {', '.join(sorted(_PROVIDERS))}")
    return _PROVIDERS[provider](settings)


def detect_provider(url: str) -> str:
    """Returns ``ollama`` for Ollama's port or an ``/api`` path, else ``openai``. Pure.

    Raises:
        InvalidSetting: The URL is not http(s).
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise InvalidSetting(_URL, "must begin with http:// or https://")
    path = parts.path.strip("/")
    if path == "v1" or path.startswith("v1/"):
        return "openai"  # Ollama's port serves that API as well
    return "ollama" if port == _OLLAMA_PORT or path in {"api", "api/embed"} else "openai"


def _default(settings: _Settings) -> Embedder | None:
    settings.refuse(_MODEL, _KEY)
    if is_installed():
        return LocalEmbedder()
    _say_once()
    return None


@functools.cache
def _say_once() -> None:
    _log.warning(REMEDY)


def _local(settings: _Settings) -> Embedder:
    settings.refuse(_URL, _KEY)
    embedder = LocalEmbedder()
    if settings.model not in {"", embedder.model}:
        raise InvalidSetting(_MODEL, f"the local model is {embedder.model}")
    return embedder


def _hashing(settings: _Settings) -> Embedder:
    settings.refuse(_URL, _KEY)
    if not settings.model:
        return HashingEmbedder()
    dimension = settings.model.removeprefix("hashing-")
    if not dimension.isdecimal():
        raise InvalidSetting(_MODEL, "must be like hashing-256")
    return HashingEmbedder(int(dimension))


def _none(settings: _Settings) -> None:
    settings.refuse(_URL, _MODEL, _KEY)


def _ollama(settings: _Settings) -> Embedder:
    settings.refuse(_KEY)
    if not settings.model:
        raise InvalidSetting(_MODEL, "must name the model")
    return OllamaEmbedder(settings.model, url=settings.url or DEFAULT_URL)


def _openai(settings: _Settings) -> Embedder:
    if settings.url:
        if not settings.model:
            raise InvalidSetting(_MODEL, "must name the model")
        return OpenAIEmbedder(settings.model, url=settings.url, api_key=settings.key or None)
    # Named as the provider without a URL, OpenAI is what its own variables say, as a pair: its key
    # goes to its URL.
    url = settings.environ.get("OPENAI_BASE_URL", "").strip() or "https://api.openai.com/v1"
    key = settings.key or settings.environ.get("OPENAI_API_KEY", "").strip()
    if not key:
        raise InvalidSetting(_KEY, "must hold the key, or OPENAI_API_KEY")
    return OpenAIEmbedder(settings.model or _OPENAI_MODEL, url=url, api_key=key)


_PROVIDERS: dict[str, Callable[[_Settings], Embedder | None]] = {
    "hashing": _hashing,
    "local": _local,
    "none": _none,
    "ollama": _ollama,
    "openai": _openai,
}
