"""Calling OpenSearch from any event loop, with its failures as our errors."""

from __future__ import annotations

import asyncio
import contextlib
import io
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

from opensearchpy import AIOHttpConnection, AsyncOpenSearch, TransportError
from opensearchpy.exceptions import OpenSearchException
from opensearchpy.helpers import async_streaming_bulk

from ragchat_retrieval.errors import StoreUnavailable
from ragchat_retrieval.stores.loop_clients import LoopClients
from ragchat_retrieval.stores.manifest import Gone
from ragchat_retrieval.stores.opensearch.store import NAME

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

TIMEOUT = 30.0
"""Seconds for one request."""

CHUNK = 500
"""Documents of one bulk request."""

REQUEST = 8_000_000
"""Bytes of one bulk request; OpenSearch takes 100 MB."""

_LARGE = 2**20  # bytes, from which aiohttp warns
_TRIES = 4
_NOT_FOUND = 404
_TOO_MANY = 429
_SERVER = 500
_NO_INDEX: Final = "index_not_found_exception"
_EXISTS: Final = "resource_already_exists_exception"

_T = TypeVar("_T")


class Clients:
    """The client of the event loop that calls.

    Args:
        hosts: Where the nodes are.
        given: A client of the caller's, used as it is and left open.
        options: For the clients made here.
    """

    def __init__(
        self, hosts: Sequence[str], given: AsyncOpenSearch | None, options: Mapping[str, Any]
    ) -> None:
        self._hosts = [*hosts]
        self._given = given
        self._options = {"timeout": TIMEOUT, "connection_class": _Connection, **options}
        self._clients = LoopClients(self._made, _close)

    async def call(self, method: str, **given: Any) -> Any:  # noqa: ANN401 - what the client's methods return
        """Calls a method of the client, such as ``indices.create``.

        Raises:
            Gone: There is no such index.
            FileExistsError: There is such an index already.
            StoreUnavailable: OpenSearch failed or was not reached; the message holds no content.
        """
        client = self._given or await self._clients.get()
        try:
            return await attrgetter(method)(client)(**given)
        except OpenSearchException as error:
            raise _translated(error, method) from None

    async def bulk(self, index: str, actions: Iterable[Mapping[str, Any]]) -> None:
        """Writes documents; a request that the cluster is too busy for is sent again.

        Raises:
            Gone: There is no such index.
            StoreUnavailable: A document was not written, or the answer does not tell of it; those
                before it may be.
        """
        client = self._given or await self._clients.get()
        untold = 0

        def counted() -> Iterator[Mapping[str, Any]]:
            nonlocal untold
            for action in actions:
                untold += 1
                yield action

        answers = async_streaming_bulk(
            _Bulk(client),
            counted(),
            chunk_size=CHUNK,
            max_chunk_bytes=REQUEST,
            raise_on_error=False,
            max_retries=_TRIES - 1,
            initial_backoff=0.5,
            index=index,
            require_alias=True,  # else a write to an index that is gone would make one
        )
        try:
            async with contextlib.aclosing(answers):
                async for _, answer in answers:
                    untold -= 1
                    (item,) = answer.values()
                    if "error" in item:  # an unknown id is none, when documents are removed
                        raise refused("bulk", item)
        except OpenSearchException as error:
            raise _translated(error, "bulk") from None
        if untold:
            raise _foreign()

    async def aclose(self) -> None:
        """Closes what was made here."""
        await self._clients.aclose()

    def _made(self) -> AsyncOpenSearch:
        return AsyncOpenSearch(self._hosts, **self._options)


class _Bulk:
    """What the helper for bulk requests uses of a client, with answers that are checked.

    Args:
        client: Sends the requests.
    """

    def __init__(self, client: AsyncOpenSearch) -> None:
        self._client = client
        self.transport = client.transport

    async def bulk(self, *args: Any, **given: Any) -> Any:  # noqa: ANN401 - as the client's
        """Sends one request.

        Raises:
            StoreUnavailable: The answer does not tell of each document.
        """
        answer = await self._client.bulk(*args, **given)
        for item in part_of(answer, "items", list):
            if not (isinstance(item, dict) and all(isinstance(of, dict) for of in item.values())):
                raise _foreign()
        return answer


class _Connection(AIOHttpConnection):
    """Sends a large body piece by piece, as aiohttp wants, rather than at once."""

    async def perform_request(  # noqa: PLR0917 - the signature is the client's
        self,
        method: str,
        url: str,
        params: Mapping[str, Any] | None = None,
        body: Any = None,  # noqa: ANN401 - bytes, or what aiohttp takes in their place
        timeout: float | None = None,  # noqa: ASYNC109 - the signature is the client's
        ignore: Collection[int] = (),
        headers: Mapping[str, str] | None = None,
    ) -> Any:  # noqa: ANN401 - as the method it overrides
        if body is not None and len(body) > _LARGE and not self.http_compress:
            body = io.BytesIO(body)
        return await super().perform_request(method, url, params, body, timeout, ignore, headers)


async def _close(client: AsyncOpenSearch) -> None:
    pool = client.transport.connection_pool
    await client.close()
    for connection in getattr(pool, "orig_connections", ()):
        await connection.close()  # the client forgets those that failed
    await asyncio.sleep(0)  # connections are closed in the next turn of the loop


def part_of(answer: object, path: str, kind: type[_T]) -> _T:
    """Returns a part of an answer, such as ``hits.hits``.

    Raises:
        StoreUnavailable: It has no such part: another server is in OpenSearch's place.
    """
    for name in path.split("."):
        answer = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(answer, kind):
        raise _foreign()
    return answer


def refused(method: str, answer: Mapping[str, Any]) -> Exception:
    """Returns what a part of an answer that tells of an error is called here."""
    status, kind = answer.get("status"), answer["error"]["type"]
    return _named(method, status, kind)


def _foreign() -> StoreUnavailable:
    return StoreUnavailable("answered as no OpenSearch does", store=NAME)


def _translated(error: OpenSearchException, method: str) -> Exception:
    if isinstance(error, TransportError):
        return _named(method, error.status_code, str(error.error))
    return StoreUnavailable(f"{method} failed: {type(error).__name__}", store=NAME)


def _named(method: str, status: object, kind: str) -> Exception:
    if kind == _NO_INDEX:
        return Gone()
    if kind == _EXISTS:
        return FileExistsError()
    if not isinstance(status, int):  # the client's words for no answer
        return StoreUnavailable("was not reached", store=NAME, retryable=True)
    # What is not found is a snapshot: another can be made.
    retryable = status in {_NOT_FOUND, _TOO_MANY} or status >= _SERVER
    problem = f"{method} was answered with status {status}"
    return StoreUnavailable(problem, store=NAME, retryable=retryable)
