"""Embeddings from an Ollama server, by its own API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ragchat_retrieval.embedders.checks import checked_rows
from ragchat_retrieval.embedders.remote import Sending, ServedEmbedder, typed_errors
from ragchat_retrieval.errors import EmbeddingError
from ragchat_retrieval.recording import current_call
from ragchat_retrieval.retry import DEFAULT, Retries, retried
from ragchat_retrieval.served import MAX_REPLY, PerLoop, http_client, http_parts, post_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    import httpx2
    import numpy as np
    from numpy.typing import NDArray

DEFAULT_URL = "http://127.0.0.1:11434"

_MAX_REPLY = MAX_REPLY


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

    provider = "ollama"
    """Whose API it speaks, in the words of OpenTelemetry."""

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
        self._clients: PerLoop[httpx2.AsyncClient] = PerLoop(
            lambda: http_client(self._sending.timeout)
        )

    async def aclose(self) -> None:
        """Closes the running loop's connections."""
        if (client := self._clients.pop()) is not None:
            await client.aclose()

    async def _ask(self, texts: Sequence[str]) -> NDArray[np.float32]:
        body = {**self._params, "model": self._model, "input": list(texts)}
        with typed_errors(self._model):
            reply = await retried(lambda: self._post(body), self._retries)
        told: dict[str, object] = reply if isinstance(reply, dict) else {}
        rows = told.get("embeddings")
        if not isinstance(rows, list):
            raise EmbeddingError("the reply has no list of vectors", model=self._model)
        if (call := current_call()) is not None:
            call.add(input_tokens=told.get("prompt_eval_count"))
        return checked_rows(rows, count=len(texts), dimension=self._dimension, model=self._model)

    async def _post(self, body: dict[str, Any]) -> object:
        return await post_json(self._clients.get(), self._endpoint, body, limit=_MAX_REPLY)


def embed_endpoint(url: str) -> str:
    """Returns the address of ``/api/embed`` on the server that `url` names.

    Raises:
        InvalidSetting: The URL is not http(s).
    """
    http_parts(url)
    base = url.strip().rstrip("/")
    return f"{base.removesuffix('/embed').removesuffix('/api')}/api/embed"
