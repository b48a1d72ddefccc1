"""What the loopback server does with a request: behaviours, and the pure plan made from each.

A plan is a status, headers and a list of steps. The server only carries it out.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ragchat.testing.shapes import Reply

if TYPE_CHECKING:
    from collections.abc import Sequence

DONE = b"data: [DONE]\n\n"

Ending = Literal["cut", "reset", "error", "malformed", "no_done"]


class Gate:
    """Holds a response back until the test opens it. No thread waits and nothing sleeps."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = False
        self._reached = threading.Event()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def open(self) -> None:
        """Lets every held response go on, now and later."""
        with self._lock:
            self._open = True
            waiting, self._waiting = self._waiting, []
        for loop, event in waiting:
            loop.call_soon_threadsafe(event.set)

    def wait_reached(self, timeout: float = 10.0) -> bool:
        """Blocks until a response is held here, for at most `timeout` seconds; says whether."""
        return self._reached.wait(timeout)

    async def passed(self) -> None:
        """Waits until the gate is open; called by the server."""
        event = asyncio.Event()
        with self._lock:
            if not self._open:
                self._waiting.append((asyncio.get_running_loop(), event))
            else:
                event.set()
        self._reached.set()
        await event.wait()


@dataclass(frozen=True, slots=True)
class Failure:
    """An error status with an error body of the API's shape."""

    status: int
    message: str = "scripted failure"
    retry_after: str | float | None = field(default=None, kw_only=True)
    """Seconds or an HTTP date for the header ``Retry-After``."""

    code: str | None = field(default=None, kw_only=True)
    headers: Mapping[str, str] = field(default_factory=dict, kw_only=True)


@dataclass(frozen=True, slots=True)
class Reset:
    """The connection is reset before the first byte of a response."""


@dataclass(frozen=True, slots=True)
class Raw:
    """Exact bytes as the whole body."""

    body: bytes
    status: int = field(default=200, kw_only=True)
    content_type: str = field(default="application/json", kw_only=True)


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A streamed reply that goes wrong after some events; a whole one is cut in half.

    ``cut`` closes the connection without ending the body, ``reset`` resets it, ``error`` sends an
    error object in place of the next event, ``malformed`` sends broken JSON as the next event, and
    ``no_done`` sends all events and ends the body without ``[DONE]``.
    """

    reply: Reply | str
    how: Ending = "cut"
    after: int = field(default=1, kw_only=True)
    """Whole events sent before it goes wrong."""

    error: Mapping[str, Any] = field(
        default_factory=lambda: {"message": "scripted failure", "type": "server_error"},
        kw_only=True,
    )


@dataclass(frozen=True, slots=True)
class Held:
    """A reply that stops on its way until the gate opens."""

    reply: Reply | str
    gate: Gate
    after: int = field(default=0, kw_only=True)
    """Whole events sent first; the head of a streamed response is always sent first."""

    offset: int = field(default=0, kw_only=True)
    """Bytes of the next event, or of a whole body, sent first."""


Behaviour: TypeAlias = Reply | str | Mapping[str, Any] | Failure | Reset | Raw | Interrupted | Held
"""What one request gets; a string is a `Reply` and a mapping a JSON body."""

Step: TypeAlias = bytes | Gate | Literal["cut", "reset"]


@dataclass(frozen=True, slots=True)
class Plan:
    """One response: ``steps`` are parts of the body, gates, or the way the connection breaks."""

    status: int
    headers: Mapping[str, str]
    steps: Sequence[Step]


def plan(behaviour: Behaviour, params: Mapping[str, Any]) -> Plan:
    """Returns the plan of one response.

    Args:
        behaviour: What the script says.
        params: The request's parsed body.
    """
    match behaviour:
        case Failure():
            return _failure(behaviour)
        case Reset():
            return Plan(0, {}, ("reset",))
        case Raw(body, status=status, content_type=content_type):
            return Plan(status, {"content-type": content_type}, (body,))
        case Mapping():
            return Plan(200, {"content-type": "application/json"}, (_json(behaviour),))
        case Interrupted() | Held():
            reply = Reply(behaviour.reply) if isinstance(behaviour.reply, str) else behaviour.reply
        case str():
            reply = Reply(behaviour)
        case _:
            reply = behaviour
    if params.get("stream"):
        events = [_event(payload) for payload in reply.stream(params)]
        return Plan(200, {"content-type": "text/event-stream"}, _stream_steps(events, behaviour))
    body = _json(reply.completion(params))
    return Plan(200, {"content-type": "application/json"}, _body_steps(body, behaviour))


def _failure(failure: Failure) -> Plan:
    headers = {"content-type": "application/json", **failure.headers}
    if failure.retry_after is not None:
        headers["retry-after"] = str(failure.retry_after)
    error = {
        "message": failure.message,
        "type": "scripted_error",
        "param": None,
        "code": failure.code,
    }
    return Plan(failure.status, headers, (_json({"error": error}),))


def _stream_steps(events: list[bytes], behaviour: Behaviour) -> list[Step]:
    if isinstance(behaviour, Held):
        held = b"".join([*events[behaviour.after :], DONE])
        cut = behaviour.offset
        steps: list[Step] = [*events[: behaviour.after]]
        return [*steps, *filter(None, [held[:cut]]), behaviour.gate, held[cut:]]
    if not isinstance(behaviour, Interrupted):
        return [*events, DONE]
    sent: list[Step] = [*events[: behaviour.after]]
    match behaviour.how:
        case "cut" | "reset":
            return [*sent, behaviour.how]
        case "error":
            return [*sent, _event({"error": dict(behaviour.error)}), DONE]
        case "malformed":
            return [*sent, b'data: {"id": "chatcmpl-scripted", "choices": [\n\n', DONE]
        case _:
            return [*events]


def _body_steps(body: bytes, behaviour: Behaviour) -> list[Step]:
    if isinstance(behaviour, Held):
        return [*filter(None, [body[: behaviour.offset]]), behaviour.gate, body[behaviour.offset :]]
    if not isinstance(behaviour, Interrupted) or behaviour.how == "no_done":
        return [body]
    half = body[: len(body) // 2]
    match behaviour.how:
        case "cut" | "reset":
            return [half, behaviour.how]
        case "error":
            return [_json({"error": dict(behaviour.error)})]
        case _:
            return [half]


def _event(payload: Mapping[str, Any]) -> bytes:
    return b"data: " + _json(payload) + b"\n\n"


def _json(payload: Mapping[str, Any]) -> bytes:
    return json.dumps(payload, ensure_ascii=False).encode("utf-8", "surrogatepass")
