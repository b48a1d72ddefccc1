"""Asking a server over HTTP: a client for each event loop, bounded replies, failures in words.

What a server said never gets into an error of ours: a reply may repeat a text or a key.
"""

from __future__ import annotations

import asyncio
import json
import weakref
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar
from urllib.parse import urlsplit

from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.retry import is_transient, status_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from urllib.parse import SplitResult

    import httpx2

Client = TypeVar("Client")

MAX_REPLY = 64 * 1024 * 1024
"""Bytes of a reply that are read at most, 64 MiB."""

_OK = 200


class PerLoop(Generic[Client]):
    """One client for each event loop: a connection cannot be shared between loops.

    Args:
        build: Makes a client; called on the loop that asks for one.
    """

    def __init__(self, build: Callable[[], Client]) -> None:
        self._build = build
        self._clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Client] = (
            weakref.WeakKeyDictionary()
        )

    def get(self) -> Client:
        """Returns the running loop's client."""
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._clients[loop] = self._build()
        return self._clients[loop]

    def pop(self) -> Client | None:
        """Returns and forgets the running loop's client, if there is one."""
        return self._clients.pop(asyncio.get_running_loop(), None)


class BadStatus(Exception):
    """Carries a response that is no success to the rule for retries."""

    def __init__(self, response: httpx2.Response) -> None:
        super().__init__(f"status {response.status_code}")
        self.response = response


class UnusableReply(Exception):
    """A reply that is too large or no JSON; trying again would not help."""


class Failure(NamedTuple):
    """A failed request in our own words."""

    problem: str
    status: int | None
    """The HTTP status, where there was one."""

    transient: bool
    """Whether the same request may succeed soon."""


def failure(error: Exception) -> Failure:
    """Returns what is told of a failed request: its status or its class, never its words."""
    status, transient = status_of(error), is_transient(error)
    if isinstance(error, UnusableReply):
        problem = str(error)
    elif status is not None:
        problem = f"the server answered {status}"
    elif transient:
        problem = f"the server gave no answer ({type(error).__name__})"
    else:
        problem = f"the request failed ({type(error).__name__})"
    return Failure(problem, status, transient)


def http_client(timeout: float) -> httpx2.AsyncClient:
    """Returns a client that follows no redirects.

    Args:
        timeout: Seconds for one try.
    """
    client: httpx2.AsyncClient = import_module("httpx2").AsyncClient(timeout=timeout)
    return client


async def post_json(
    client: httpx2.AsyncClient,
    url: str,
    body: Mapping[str, Any],
    *,
    headers: Mapping[str, str] | None = None,
    limit: int = MAX_REPLY,
) -> object:
    """Posts a JSON body once and returns the JSON reply.

    Args:
        client: The running loop's client.
        url: Where to.
        body: What to send; without lone surrogates.
        headers: Sent beside those of JSON.
        limit: Bytes of the reply at most.

    Raises:
        BadStatus: The status is not 200.
        UnusableReply: The reply is larger than `limit` or no JSON.
        Exception: The client's own, if no answer came.
    """
    async with client.stream("POST", url, json=body, headers=headers) as response:
        if response.status_code != _OK:
            raise BadStatus(response)
        content = bytearray()
        async for piece in response.aiter_bytes():
            content += piece
            if len(content) > limit:
                raise UnusableReply("the reply is too large")
    try:
        reply: object = json.loads(content)
    except (ValueError, RecursionError):
        raise UnusableReply("the reply is no JSON") from None
    return reply


def server_parts(url: str, form: str) -> SplitResult:
    """Returns the parts of a URL that holds a scheme, and perhaps host, port and path; no more.

    Args:
        url: The URL.
        form: What it must look like, for the error: the URL itself may hold a key or a password.

    Raises:
        InvalidSetting: It holds something else, or cannot be read.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise InvalidSetting("url", f"must be {form}") from None
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise InvalidSetting("url", f"must be {form}")
    return parts


def http_parts(url: str, name: str = "url") -> SplitResult:
    """Returns the parts of an http(s) URL.

    Args:
        url: The URL; white space around it does not count.
        name: The setting it was given by.

    Raises:
        InvalidSetting: It is no such URL.
    """
    try:
        parts = urlsplit(url.strip())
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise InvalidSetting(name, "must begin with http:// or https://")
    return parts
