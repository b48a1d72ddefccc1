"""What stands in front of every route: who may come in, how much, and what ends the work."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect

from ragchat.server.errors import Problem, problem_of
from ragchat.server.limits import Incoming
from ragchat_retrieval.tasks import ended

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from ragchat.server.service import Service

_LOCKED = ("/v1", "/metrics")
"""Paths that need a key, with everything below them."""

_HEADERS: Mapping[str, str] = {
    "cache-control": "no-cache",  # keep it, and ask each time whether it still holds
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
}


class Guard:
    """ASGI middleware: checks key and limits, and stops the work when its client leaves.

    The work runs in a task of its own. A client may leave while evidence is sought, before the
    first token or in a long silence: the task is cancelled then, and whatever it holds is closed.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send)
        # The server underneath may have refused the body already, with an answer of its own: it
        # closes the connection in the loop's next step, and takes no second answer before.
        await asyncio.sleep(0)
        try:
            await self._serve(scope, receive, answer)
        except ClientDisconnect:  # in the middle of its body: nobody is there to be told
            self._service.metrics.left.inc()
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
            upstream = self._service.upstream
            problem = problem_of(error, key="" if upstream is None else upstream.key)
            if not answer.status:
                await send_problem(answer, problem)
        finally:
            answer.release()
            self._count(scope, answer)

    async def _serve(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        service, headers = self._service, Headers(scope=scope)
        self._check_origin(headers)
        path = _routed(scope["path"], scope.get("root_path", ""))
        locked = any(path == each or path.startswith(f"{each}/") for each in _LOCKED)
        if locked:
            tenant = service.tenant(headers.get("authorization", ""))
            service.rates.take(tenant.name)
            scope["ragchat.tenant"] = tenant
            answer.release = service.slots.take(tenant.name)
        settings = service.settings
        upload = headers.get("content-type", "").lower().startswith("multipart/")
        most = settings.max_upload_bytes if upload else settings.max_body_bytes
        declared = headers.get("content-length")
        incoming = Incoming(receive, most, settings.body_timeout, declared=declared)
        await self._watched(scope, incoming, answer)

    async def _watched(self, scope: Scope, incoming: Incoming, answer: _Answer) -> None:
        work = asyncio.ensure_future(self._app(scope, incoming, answer))
        gone = asyncio.create_task(incoming.gone.wait())
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if work.done() and not work.cancelled():
                work.result()
            else:
                self._service.metrics.left.inc()
        finally:
            try:
                await ended(work)
            finally:
                await ended(gone)
                await incoming.aclose()

    def _check_origin(self, headers: Headers) -> None:
        """Refuses what a page of another site sends with the reader's own browser."""
        settings = self._service.settings
        host = headers.get("host", "")
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        if settings.hosts and name.lower() not in settings.hosts:
            raise Problem(403, "this host name is not served here", code="host_not_allowed")
        origin = headers.get("origin")
        if origin is None or origin in settings.cors:
            return
        if headers.get("sec-fetch-site") == "same-origin":  # a proxy may name us otherwise
            return
        if origin.partition("://")[2] != host:  # the scheme is a proxy's matter
            raise Problem(403, "this origin is not allowed", code="origin_not_allowed")

    def _count(self, scope: Scope, answer: _Answer) -> None:
        metrics = self._service.metrics
        route = getattr(scope.get("route"), "path", "other")
        metrics.requests.labels(route, _method(scope), str(answer.status or "none")).inc()
        if answer.status:
            metrics.seconds.labels(route).observe(answer.seconds)


class _Answer:
    """ASGI's ``send``, with the headers that every answer has."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._began = time.perf_counter()
        self.status = 0
        """0 until it began."""

        self.seconds = 0.0
        self.release: Callable[[], None] = _nothing
        """Gives the request's slot back; called before the last piece, so that whoever has the
        whole answer can ask again."""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.seconds = time.perf_counter() - self._began
            headers = MutableHeaders(raw=message.setdefault("headers", []))
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            message["headers"] = headers.raw
        elif not message.get("more_body", False):
            self.release()
        await self._send(message)


async def send_problem(send: Send, problem: Problem) -> None:
    """Answers with an error."""
    body = json.dumps(problem.body).encode()
    headers = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        **problem.headers,
    }
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


def _routed(path: str, root: str) -> str:
    """Returns the path that the routes see: below the root, which ends where a part ends."""
    rest = path.removeprefix(root)
    return rest if rest.startswith("/") or not rest else path


def _nothing() -> None:
    pass


def _method(scope: Scope) -> str:
    known = {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"}
    return scope["method"] if scope["method"] in known else "other"
