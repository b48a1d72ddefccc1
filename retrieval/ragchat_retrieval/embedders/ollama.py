"""Embeddings from an Ollama server, by its own API."""

from __future__ import annotations

import json
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ragchat_retrieval.embedders.checks import checked_rows
from ragchat_retrieval.embedders.remote import (
    PerLoop,
    Sending,
    ServedEmbedder,
    typed_errors,
)
from ragchat_retrieval.errors import EmbeddingError, InvalidSetting
from ragchat_retrieval.retry import DEFAULT, Retries, retried

if TYPE_CHECKING:
    from collections.abc import Sequence

    import httpx2
    import numpy as np
    from numpy.typing import NDArray

DEFAULT_URL = "http://127.0.0.1:11434"

_MAX_REPLY = 64 * 1024 * 1024
"""Bytes of a reply that are read at most, 64 MiB."""

_OK = 200


class OllamaEmbedder(ServedEmbedder):
    """Asks ``POST /api/embed`` of an Ollama server; no key.

    Ollama answers in the order of the texts and cuts a text to the model's window. A request that
    fails for a moment is tried again (`ragchat_retrieval.retry`).

    The dimension is told by `dimension`, or learned by the first call or by `prepare`; until then
    it is 0.

    Args:
        model: The model's name, such as ``nomic-embed-text``; it must have been pulled.
        url: The server, with or without ``/api``.
        dimension: Length of the vectors, checked and never sent.
        sending: Batches, concurrency, timeout, prefixes.
        retries: The rule for tries.
        **params: Sent with every request as they are: ``options``, ``keep_alive``, ``dimensions``.

    Raises:
        InvalidSetting: A blank model, a dimension less than 1, or a URL that is not http(s).
    """

    def __init__(
        self,
        model: str,
        *,
        url: str = DEFAULT_URL,
        dimension: int | None = None,
        sending: Sending | None = None,
        retries: Retries = DEFAULT,
        **params: Any,
    ) -> None:
        super().__init__(model, dimension=dimension, sending=sending or Sending(), params=params)
        self._endpoint = embed_endpoint(url)
        self._retries = retries
        self._clients: PerLoop[httpx2.AsyncClient] = PerLoop(self._build)

    async def aclose(self) -> None:
        """Closes the running loop's connections."""
        if (client := self._clients.pop()) is not None:
            await client.aclose()

    async def _ask(self, texts: Sequence[str]) -> NDArray[np.float32]:
        body = {**self._params, "model": self._model, "input": list(texts)}
        with typed_errors(self._model):
            reply = await retried(lambda: self._post(body), self._retries)
        rows = reply.get("embeddings") if isinstance(reply, dict) else None
        if not isinstance(rows, list):
            raise EmbeddingError("the reply has no list of vectors", model=self._model)
        return checked_rows(rows, count=len(texts), dimension=self._dimension, model=self._model)

    async def _post(self, body: dict[str, Any]) -> object:
        client = self._clients.get()
        async with client.stream("POST", self._endpoint, json=body) as response:
            if response.status_code != _OK:
                raise _BadStatus(response)
            content = bytearray()
            async for piece in response.aiter_bytes():
                content += piece
                if len(content) > _MAX_REPLY:
                    raise EmbeddingError("the reply is too large", model=self._model)
        try:
            reply: object = json.loads(content)
        except ValueError:
            raise EmbeddingError("the reply is no JSON", model=self._model) from None
        return reply

    def _build(self) -> httpx2.AsyncClient:
        http = import_module("httpx2")
        client: httpx2.AsyncClient = http.AsyncClient(timeout=self._sending.timeout)
        return client


class _BadStatus(Exception):
    """Carries a response that is no success to the rule for retries."""

    def __init__(self, response: httpx2.Response) -> None:
        super().__init__(f"status {response.status_code}")
        self.response = response


def embed_endpoint(url: str) -> str:
    """Returns the address of ``/api/embed`` on the server that `url` names.

    Raises:
        InvalidSetting: The URL is not http(s).
    """
    base = url.strip().rstrip("/")
    parts = urlsplit(base)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise InvalidSetting("url", "must begin with http:// or https://")
    return f"{base.removesuffix('/embed').removesuffix('/api')}/api/embed"
