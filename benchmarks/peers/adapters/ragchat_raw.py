"""ragchat without the openai client: the classic path over functions on aiohttp and orjson."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import aiohttp
import numpy as np
import orjson
from adapters.ragchat_core import Core

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

HEADERS = {"content-type": "application/json", "authorization": "Bearer x"}


class Transport:
    """What the floor without the client sends and reads, as a ``create`` and an embedder."""

    model = "emb"

    def __init__(self, base_url: str, dimension: int) -> None:
        self.dimension = dimension
        self._url = base_url
        self._session: aiohttp.ClientSession | None = None

    async def create(self, **kwargs: Any) -> Any:  # noqa: ANN401 - a mapping, as the server sent it
        """Does the work of ``chat.completions.create``."""
        return await self._post("/chat/completions", kwargs)

    async def embed(self, texts: Sequence[str], kind: str = "query") -> list[NDArray[np.float32]]:
        """Embeds texts in one request."""
        del kind
        body = {"model": "emb", "input": list(texts), "encoding_format": "base64"}
        reply = await self._post("/embeddings", body)
        return [np.frombuffer(base64.b64decode(d["embedding"]), np.float32) for d in reply["data"]]

    async def aclose(self) -> None:
        """Closes the connections."""
        if self._session is not None:
            await self._session.close()

    async def _post(self, path: str, body: dict[str, Any]) -> Any:  # noqa: ANN401 - JSON
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        sent = orjson.dumps(body)
        async with self._session.post(self._url + path, data=sent, headers=HEADERS) as response:
            response.raise_for_status()
            return orjson.loads(await response.read())


class Adapter(Core):
    """The classic path."""

    name = "ragchat-raw"

    def connect(self, base_url: str) -> None:
        """Makes the transport and the preparer."""
        self.transport = Transport(base_url, self.dimension)
        self.assemble(self.transport.create, self.transport)

    async def aclose(self) -> None:
        """Closes the connections."""
        await self.transport.aclose()
