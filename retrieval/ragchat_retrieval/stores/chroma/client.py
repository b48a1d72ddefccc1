"""Calling Chroma from any event loop, with its failures as our errors."""

from __future__ import annotations

import asyncio
import functools
import importlib
import json
from typing import TYPE_CHECKING, Any, Final

from ragchat_retrieval.errors import StoreUnavailable
from ragchat_retrieval.stores.loop_clients import LoopClients
from ragchat_retrieval.stores.manifest import Gone

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME: Final = "chroma"

_TOO_MANY = 429
_SERVER = 500


class Clients:
    """The client of the event loop that calls.

    Args:
        options: For `chromadb.AsyncHttpClient`.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._clients = LoopClients(_Own, _Own.aclose)

    async def aclose(self) -> None:
        """Closes the connections of every loop that still runs."""
        await self._clients.aclose()

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
        own = await self._clients.get()
        client = await own.client(self._options)
        return await _safely(getattr(client, method), *args, **given)


class _Own:
    """The client of one loop, made when it is first asked for."""

    def __init__(self) -> None:
        self._client: Any = None
        self._making = asyncio.Lock()

    async def client(self, options: Mapping[str, Any]) -> Any:  # noqa: ANN401 - the client has no types here
        """Returns the client; the errors are those of `Clients.call`."""
        async with self._making:
            if self._client is None:
                self._client = await _safely(_made, options)
        return self._client

    async def aclose(self) -> None:
        """Closes its connections."""
        async with self._making:
            if self._client is not None:
                await self._client.aclose()


async def _made(options: Mapping[str, Any]) -> Any:  # noqa: ANN401 - the client has no types here
    """Does what `chromadb.AsyncHttpClient` does, with connections that are this client's alone."""
    settings = options.get("settings") or importlib.import_module("chromadb").Settings(
        anonymized_telemetry=False
    )
    settings = settings.model_copy() if hasattr(settings, "model_copy") else settings.copy()
    settings.chroma_api_impl = "chromadb.api.async_fastapi.AsyncFastAPI"
    settings.chroma_server_host = options["host"]
    settings.chroma_server_http_port = options["port"]
    settings.chroma_server_ssl_enabled = options["ssl"]
    settings.chroma_server_headers = options.get("headers")
    named = {name: options[name] for name in ("tenant", "database") if name in options}
    return await _client_class().create(settings=settings, **named)


@functools.cache
def _client_class() -> Any:  # noqa: ANN401 - as above
    base = importlib.import_module("chromadb.api.async_client").AsyncClient
    server = importlib.import_module("chromadb.api").AsyncServerAPI

    class OwnClient(base):  # type: ignore[misc, valid-type] # Any without the extra
        """A client that shares nothing and can be closed.

        Chroma keeps one pool of connections per loop for all its clients, which sends the headers
        of whoever came first, and has no way to close it.
        """

        def __init__(self, settings: Any) -> None:  # noqa: ANN401 - as above
            super().__init__(settings)
            self._connections = self._system.instance(server)
            self._connections._clients = {}  # noqa: SLF001 - in place of the class's

        async def _validate_tenant_database(self, tenant: str, database: str) -> None:
            """Asks over the same connections, rather than over those of another client."""
            await self._connections.get_tenant(name=tenant)
            await self._connections.get_database(name=database, tenant=tenant)

        async def aclose(self) -> None:
            await self._connections.__aexit__(None, None, None)

    return OwnClient


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
    except json.JSONDecodeError:
        raise StoreUnavailable("sent no JSON", store=NAME, retryable=False) from None
    except ValueError as error:  # what the client makes of a refused connection
        if "connect" not in str(error).lower():
            raise
        raise StoreUnavailable("was not reached", store=NAME, retryable=True) from None
    except Exception as error:
        if type(error) is not Exception:
            raise
        # What the client makes of an answer that is not Chroma's, such as a proxy's.
        status = getattr(getattr(error.__context__, "response", None), "status_code", 0)
        retryable = status == _TOO_MANY or status >= _SERVER
        problem = f"failed: status {status}"
        raise StoreUnavailable(problem, store=NAME, retryable=retryable) from None
