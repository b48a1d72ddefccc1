"""What all wire formats share: server-sent events, and driving an encoder."""

from __future__ import annotations

import json
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Protocol

from ragchat.forms import unbroken
from ragchat.wire.failures import failure_of, place_of
from ragchat.wire.pacing import iterated, paced
from ragchat.wire.rounds import Rounds

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Mapping

    from ragchat.wire.moments import Failure, WireEvent

_log = logging.getLogger("ragchat")

HEADERS: Mapping[str, str] = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
}
"""For every format here; the last keeps nginx from collecting the pieces."""

DONE = b"data: [DONE]\n\n"
"""How two of the formats end."""

HEARTBEAT = b": still working\n\n"
"""A comment, which every client skips."""

_SILENCE = 15.0
"""Seconds before a comment; proxies take a connection for dead after a minute or so."""


class Encoder(Protocol):
    """A wire format: a pure state machine that is fed events and returns pieces of a body."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the response."""
        ...

    def start(self) -> list[bytes]:
        """Returns what comes before the first event."""
        ...

    def feed(self, event: WireEvent) -> list[bytes]:
        """Takes the next event."""
        ...

    def finish(self) -> list[bytes]:
        """Ends a whole turn."""
        ...

    def fail(self, failure: Failure) -> list[bytes]:
        """Ends a turn that failed."""
        ...


async def encoded(events: AsyncIterable[WireEvent], encoder: Encoder) -> AsyncGenerator[bytes]:
    """Yields the body of a streamed response; an error becomes the format's own.

    The events are closed at the end, also when the client goes away. An error that is neither ours
    nor the chat model's is logged by its class and place, without being told to the client. While
    nothing happens for long, comments come, so that no proxy takes the connection for dead.

    Args:
        events: Those of `turn`, of ``prepared.events(…)``, or, where tools were called in between,
            of several of these one after the other: to the client they are one answer.
        encoder: The format; used once.
    """
    async with aclosing(written(paced(events, _SILENCE), encoder)) as pieces:
        async for piece in pieces:
            yield piece


async def written(
    events: AsyncIterable[WireEvent | None], encoder: Encoder
) -> AsyncGenerator[bytes]:
    """As `encoded`, for whoever watches for silence by himself.

    Args:
        events: As for `encoded`; None is a long silence.
        encoder: A new one.
    """
    for piece in encoder.start():
        yield piece
    rounds = Rounds()
    silent = [HEARTBEAT] if HEADERS["content-type"] in encoder.headers.values() else []

    def pieces_of(event: WireEvent) -> list[bytes]:
        return [piece for seen in rounds.feed(event) for piece in encoder.feed(seen)]

    async with aclosing(iterated(events)) as running:
        try:
            async for event in running:
                for piece in silent if event is None else pieces_of(event):
                    yield piece
        except Exception as error:  # noqa: BLE001 - the response has begun: it must say so itself
            failure = failure_of(error)
            if failure.code == "internal":
                _log.error("an answer failed while it streamed: %s", place_of(error))
            last = encoder.fail(failure)
        else:
            last = encoder.finish()
    for piece in last:
        yield piece


def server_sent(data: object, *, name: str = "") -> bytes:
    """Returns one server-sent event with JSON data.

    Args:
        data: What `json.dumps` takes.
        name: The event's name; none without it.
    """
    head = f"event: {name}\n".encode() if name else b""
    return b"%bdata: %b\n\n" % (head, json_bytes(data))


def json_bytes(data: object) -> bytes:
    """Returns compact JSON on one line of UTF-8; what UTF-8 cannot hold is escaped."""
    try:
        return unbroken(json.dumps(data, ensure_ascii=False, separators=(",", ":"))).encode()
    except UnicodeEncodeError:
        return json.dumps(data, separators=(",", ":")).encode()
