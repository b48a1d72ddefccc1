"""Embeddings from OpenAI, or from any server with an OpenAI-compatible ``/embeddings``."""

from __future__ import annotations

import base64
import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from ragchat_retrieval.embedders.checks import checked_rows
from ragchat_retrieval.embedders.remote import Sending, ServedEmbedder, in_order, typed_errors
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.recording import current_call
from ragchat_retrieval.retry import DEFAULT, NEVER, Retries, retried
from ragchat_retrieval.served import PerLoop
from ragchat_retrieval.tokens import count_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from openai import AsyncOpenAI

# Dimension by model, and the window they share: platform.openai.com/docs/guides/embeddings.
_DIMENSIONS = {
    "text-embedding-3-large": 3072,
    "text-embedding-3-small": 1536,
    "text-embedding-ada-002": 1536,
}
_WINDOW = 8191


class OpenAIEmbedder(ServedEmbedder):
    """Asks a server through the openai SDK's async client.

    Vectors are matched by the reply's ``index``. A request that fails for a moment is tried again
    (`ragchat_retrieval.retry`), unless the client is the caller's, which then keeps its own rule.

    The dimension of OpenAI's own models is known. That of others is told by `dimension`, or learned
    by the first call or by `prepare`; until then it is 0.

    Args:
        model: The model's name.
        url: The server's base URL, such as ``http://127.0.0.1:8000/v1``; None is OpenAI, or what
            ``OPENAI_BASE_URL`` says.
        api_key: The key. Without a URL it defaults to ``OPENAI_API_KEY``; a server named by `url`
            is never sent that one.
        client: An ``AsyncOpenAI`` or ``AsyncAzureOpenAI`` of the caller's, instead of the two.
        dimension: Length of the vectors, checked and never sent.
        sending: Batches, concurrency, timeout, prefixes, window. OpenAI's models have a window of
            8191 tokens unless it tells another.
        retries: Replaces the rule for tries.
        **params: Sent with every request as they are. ``dimensions=256`` asks for shorter vectors.

    Raises:
        InvalidSetting: A blank model, a client beside URL or key, or a dimension less than 1.
    """

    provider = "openai"
    """Whose API it speaks, in the words of OpenTelemetry."""

    def __init__(
        self,
        model: str,
        *,
        url: str | None = None,
        api_key: str | None = None,
        client: AsyncOpenAI | None = None,
        dimension: int | None = None,
        sending: Sending | None = None,
        retries: Retries | None = None,
        **params: Any,
    ) -> None:
        if client is not None and (url is not None or api_key is not None):
            raise InvalidSetting("client", "cannot be combined with url or api_key")
        super().__init__(
            model,
            dimension=dimension,
            sending=sending or Sending(max_tokens=_WINDOW if model in _DIMENSIONS else None),
            # The SDK asks for it unasked too, but then makes lists of numbers of the bytes.
            params={"encoding_format": "base64", **params},
            usual_dimension=_DIMENSIONS.get(model, 0),
        )
        self._url = url
        self._api_key = api_key
        self._client = client
        self._retries = retries or (DEFAULT if client is None else NEVER)
        self._built: PerLoop[AsyncOpenAI] = PerLoop(self._build)

    @property
    def max_tokens(self) -> int | None:
        """Tokens a text at most; None if that is not known."""
        return self._sending.max_tokens

    def count_tokens(self, text: str) -> int:
        """Returns the tokens of a text as OpenAI's embedding models count them (cl100k_base)."""
        return count_tokens(text, "cl100k_base")

    async def aclose(self) -> None:
        """Closes the running loop's connections; an injected client stays open."""
        if (client := self._built.pop()) is not None:
            await client.close()

    async def _ask(self, texts: Sequence[str]) -> NDArray[np.float32]:
        async def create() -> Any:  # noqa: ANN401 - checked below
            client = self._client or self._built.get()
            return await client.embeddings.create(
                model=self._model, input=list(texts), **self._params
            )

        with typed_errors(self._model):
            reply = await retried(create, self._retries)
            found = in_order(getattr(reply, "data", None), count=len(texts), model=self._model)
            rows = [_decoded(embedding) for embedding in found]
        if (call := current_call()) is not None:
            call.add(input_tokens=getattr(getattr(reply, "usage", None), "prompt_tokens", None))
        return checked_rows(rows, count=len(texts), dimension=self._dimension, model=self._model)

    def _build(self) -> AsyncOpenAI:
        sdk = import_module("openai")
        key = self._api_key
        if key is None and self._url is not None:
            key = "none"  # the SDK would send OPENAI_API_KEY to whatever server this is
        if key is None and not os.environ.get("OPENAI_API_KEY"):
            raise InvalidSetting("api_key", "give one, or set OPENAI_API_KEY")
        client: AsyncOpenAI = sdk.AsyncOpenAI(
            api_key=key, base_url=self._url, max_retries=0, timeout=self._sending.timeout
        )
        return client


def _decoded(embedding: object) -> object:
    """Returns the numbers of an embedding that came as base64; any other is left for the checks."""
    if not isinstance(embedding, str):
        return embedding
    return np.frombuffer(base64.b64decode(embedding), "<f4")
