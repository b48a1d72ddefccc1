"""Calling Qdrant from any event loop, with its failures as our errors."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any, Final

import grpc  # type: ignore[import-untyped]
from qdrant_client import AsyncQdrantClient
from qdrant_client.http.exceptions import ApiException, UnexpectedResponse

from ragchat_retrieval.errors import StoreUnavailable
from ragchat_retrieval.stores.loop_clients import LoopClients
from ragchat_retrieval.stores.manifest import Gone
from ragchat_retrieval.stores.qdrant.store import NAME

if TYPE_CHECKING:
    from collections.abc import Mapping

MEMORY: Final = ":memory:"

_NOT_FOUND = 404
_CONFLICT = 409
_SERVER = 500


class Clients:
    """The client of the event loop that calls.

    Args:
        url: Where Qdrant is, or ``:memory:``.
        given: A client of the caller's, used as it is and left open.
        options: For the clients made here.
    """

    def __init__(
        self, url: str | None, given: AsyncQdrantClient | None, options: Mapping[str, Any]
    ) -> None:
        self._url = url
        self._options = options
        self._one = AsyncQdrantClient(MEMORY) if url == MEMORY else given
        self._clients = LoopClients(self._made, AsyncQdrantClient.close)
        self._lock = threading.RLock()

    @property
    def is_local(self) -> bool:
        """Whether the client is its own engine, which has no payload indexes."""
        client = self._one
        return client is not None and "Local" in type(client._client).__name__  # noqa: SLF001 - nothing public tells

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - what the client's methods take and return
        """Calls a method of the client.

        Raises:
            Gone: There is no such collection.
            FileExistsError: There is such a collection already.
            StoreUnavailable: Qdrant failed or was not reached; the message holds no content.
        """
        client = self._one or await self._clients.get()
        try:
            if not self.is_local:
                return await getattr(client, method)(*args, **kwargs)
            with self._lock:  # it never waits, so that the lock is not held over a switch of tasks
                return await getattr(client, method)(*args, **kwargs)
        except (ApiException, grpc.RpcError) as error:
            raise _translated(error, method) from None
        except (AssertionError, json.JSONDecodeError):  # what the client makes of another's answer
            problem = f"{method} was not answered as Qdrant does"
            raise StoreUnavailable(problem, store=NAME, retryable=False) from None
        except ValueError as error:
            if self.is_local and str(error).endswith("not found"):
                raise Gone from None
            if self.is_local and str(error).endswith("already exists"):
                raise FileExistsError from None
            raise

    async def aclose(self) -> None:
        """Closes what was made here."""
        await self._clients.aclose()

    def _made(self) -> AsyncQdrantClient:
        return AsyncQdrantClient(url=self._url, check_compatibility=False, **self._options)


def _translated(error: Exception, method: str) -> Exception:
    """Returns what a failure of the server or of the way there is called here."""
    if isinstance(error, grpc.RpcError):
        code = getattr(error, "code", lambda: None)()
        name = getattr(code, "name", "UNKNOWN")
        missing, exists = name == "NOT_FOUND", name == "ALREADY_EXISTS"
        problem, retryable = f"{method} failed: {name}", True
    elif isinstance(error, UnexpectedResponse):
        status = error.status_code or 0
        missing = status == _NOT_FOUND and _is_qdrants(error.content)
        exists = status == _CONFLICT
        problem, retryable = f"{method} was answered with status {status}", status >= _SERVER
    else:
        missing = exists = False
        problem, retryable = "was not reached", True
    if missing:
        return Gone()
    if exists:
        return FileExistsError()
    return StoreUnavailable(problem, store=NAME, retryable=retryable)


def _is_qdrants(content: bytes) -> bool:
    """Says whether Qdrant itself sent an error, and not whatever else a URL may lead to."""
    try:
        said = json.loads(content)
    except ValueError:
        return False
    status = said.get("status") if isinstance(said, dict) else None
    return isinstance(status, dict) and "error" in status
