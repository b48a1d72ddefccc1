"""Calling Chroma from any event loop, with its failures as our errors."""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING, Any, Final

from ragchat_retrieval.errors import StoreUnavailable
from ragchat_retrieval.stores.manifest import Gone

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME: Final = "chroma"


class Clients:
    """One client per event loop, because a client's connections belong to one.

    Args:
        options: For `chromadb.AsyncHttpClient`.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._clients: dict[asyncio.AbstractEventLoop, Any] = {}

    def forget(self) -> None:
        """Forgets the clients, which hold no connection that would have to be closed."""
        self._clients.clear()

    async def of_collection(self, name: str, method: str, **given: Any) -> Any:  # noqa: ANN401 - as the client's methods
        """Calls a method of a collection; the errors are those of `call`."""
        collection = await self.call("get_collection", name, embedding_function=None)
        return await _safely(getattr(collection, method), **given)

    async def call(self, method: str, *args: Any, **given: Any) -> Any:  # noqa: ANN401 - as above
        """Calls a method of the client.

        Raises:
            Gone: There is no such collection.
            StoreUnavailable: Chroma failed or was not reached; the message holds no content.
        """
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            chromadb = importlib.import_module("chromadb")
            settings = chromadb.Settings(anonymized_telemetry=False)
            options = {"settings": settings, **self._options}
            self._clients[loop] = await _safely(chromadb.AsyncHttpClient, **options)
        return await _safely(getattr(self._clients[loop], method), *args, **given)


async def _safely(call: Any, *args: Any, **given: Any) -> Any:  # noqa: ANN401 - as above
    """Calls, with Chroma's failures as ours, without their content."""
    errors = importlib.import_module("chromadb.errors")
    httpx = importlib.import_module("httpx")
    try:
        return await call(*args, **given)
    except errors.NotFoundError:
        raise Gone from None
    except (httpx.HTTPError, errors.ChromaError) as error:
        kind = type(error).__name__
        retryable = isinstance(error, httpx.HTTPError)
        raise StoreUnavailable(f"failed: {kind}", store=NAME, retryable=retryable) from None
    except ValueError as error:  # what the client makes of a refused connection
        if "connect" not in str(error).lower():
            raise
        raise StoreUnavailable("was not reached", store=NAME, retryable=True) from None
