"""A small server of the page over real events, and how a test asks it something."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from pathlib import Path

from starlette.applications import Starlette
from starlette.responses import FileResponse, JSONResponse, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

import ragchat
from ragchat.testing import ScriptedChatModel
from ragchat.wire import EventEncoder, UIMessageEncoder, encoded, turn

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "ragchat/server/static"
COMPONENT = ROOT / "ragchat/wire/static"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'"
)

HANDBOOK = """\
# Working here

## Paid leave

Employees get 25 days of paid leave a year. Leave is asked for two weeks ahead, in the calendar \
of the team. In the first year it grows by two days a month.

## Carrying over

Up to five days of leave carry over to the next year. They must be taken by the end of March; days \
that are left in April are lost. A manager may extend this once, in writing, after a long illness.

## Sick leave

Call your team lead before nine. From the fourth day on, a doctor's note is needed. Days of \
illness during a holiday are given back.

## Hours

The office opens at seven and closes at eight. Nobody is expected to answer after six.
"""
TRAVEL = """\
# Travel

Trains are booked through the portal. A day of travel on a weekend is given back as a day of leave \
within a month.

| distance | by |
|---|---|
| up to 600 km | train |
| farther | train or plane |
"""
CONTRACT = "Part-time staff get leave in proportion to their days at work. <b>Rounded up</b>."
DOCUMENTS = [
    ragchat.Document("handbook.md", HANDBOOK, title="Handbook", source="handbook.md"),
    ragchat.Document(
        "travel", TRAVEL, title="Travel rules", source="https://example.org/rules/travel"
    ),
    ragchat.Document("contract.md", CONTRACT, title="<i>Part-time</i> contracts"),
]
QUESTIONS = [
    "How many days of paid leave are there?",
    "Can leave carry over to the next year?",
    "What happens when I am ill on holiday?",
]
ANSWER = """\
You get **25 days of paid leave** a year [1], and up to five of them carry over to the next year \
[2]. Half of the staff never use this rule [2].

| what | how long | source |
|---|---|---:|
| paid leave | 25 days | [1] |
| carried over | 5 days, until March | [2] |

To ask for leave:

1. Enter it in the team's calendar, two weeks ahead [1].
2. Wait for the answer; `calendar[1]` is no citation.
"""
HOSTILE = """\
<script>window.hacked = 1</script><img src=x onerror="window.hacked=2">

[a](javascript:window.hacked=3) [b](JaVaScRiPt:alert(1)) [c](data:text/html,<script>1</script>)
[d]( java
script:alert(1)) ![img](https://evil.example/x.png) <svg onload=window.hacked=4>

<javascript:window.hacked=5> [ok](https://example.org/) [m](mailto:a@example.org "t\\" onclick=x")

| <b>a</b> | `<i>` |
|---|---|
| <iframe src="javascript:window.hacked=6"> | [e](vbscript:x) |

```html" onload="window.hacked=7
<script>window.hacked = 8</script>
```

# <style>*{display:none}</style> heading [1]
"""


WHOLE = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def pieces(text: str, size: int) -> list:
    return [*(text[at : at + size] for at in range(0, len(text), size)), WHOLE]


class UpstreamError(Exception):
    """Stands for an SDK's error with an HTTP status."""

    status_code = 503


class Gate:
    """Is set by one thread, and waited for on the event loop of another."""

    def __init__(self) -> None:
        self._opened: Future[None] = Future()

    def set(self) -> None:
        if not self._opened.done():
            self._opened.set_result(None)

    async def wait(self) -> None:
        # Whoever stops waiting must not cancel it for the others.
        await asyncio.shield(asyncio.wrap_future(self._opened))


class Site:
    """Serves the page on this machine. Questions choose what the model does; see `_replied`."""

    def __init__(self, documents=tuple(DOCUMENTS), *, model: bool = True) -> None:
        self.documents = {document.id: document for document in documents}
        self.model = model
        self.gate = Gate()
        """Holds the answer to a question with "wait" in it back until it is set."""
        self.requests: list[list[dict]] = []
        self.failures = 0
        """How many of the next answers fail."""
        self.left = threading.Event()
        """Set when an answer that waited was stopped."""
        self.uploaded: dict[str, bytes] = {}

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/", self._page),
                Mount("/static/page", StaticFiles(directory=PAGE)),
                Mount("/static/component", StaticFiles(directory=COMPONENT)),
                Route("/v1/ragchat/info", self._info),
                Route("/v1/ragchat/answer", self._answer, methods=["POST"]),
                Route("/v1/documents", self._upload, methods=["POST"]),
                Route("/v1/documents/{id}", self._document),
                Route("/ui", self._ui, methods=["POST"]),
            ]
        )

    async def _page(self, request):
        return FileResponse(PAGE / "index.html", headers={"content-security-policy": POLICY})

    async def _info(self, request):
        return JSONResponse(
            {
                "model": "scripted" if self.model else "extractive",
                "documents": len(self.documents),
                "passages": 3 * len(self.documents),
                "extractive": not self.model,
                "examples": QUESTIONS if self.documents else [],
                "limits": {"upload_files": 8},
            }
        )

    async def _document(self, request):
        document = self.documents.get(request.path_params["id"])
        if document is None:
            return JSONResponse({"error": {"message": "no such document"}}, 404)
        start, end, around = (int(request.query_params[n]) for n in ("start", "end", "around"))
        return JSONResponse(
            {
                "before": document.text[max(0, start - around) : start],
                "text": document.text[start:end],
                "after": document.text[end : end + around],
            }
        )

    async def _upload(self, request):
        async with request.form() as form:
            name, body = form["file"].filename, await form["file"].read()
        if not name.endswith(".md"):
            return JSONResponse({"error": {"message": "this kind of file is not read here"}}, 415)
        self.uploaded[name] = body
        self.documents[name] = ragchat.Document(name, body.decode(), source=name)
        return JSONResponse({"id": name, "passages": 3})

    async def _answer(self, request):
        return await self._streamed((await request.json())["messages"], EventEncoder())

    async def _ui(self, request):
        body = await request.json()
        messages = [
            {"role": m["role"], "content": "".join(p.get("text", "") for p in m["parts"])}
            for m in body["messages"]
        ]
        return await self._streamed(messages, UIMessageEncoder(message_id="m1"))

    async def _streamed(self, messages, encoder):
        self.requests.append(messages)
        splitter = ragchat.HeadingSplitter(80)
        index = ragchat.HybridIndex(embedder=ragchat.HashingEmbedder(2048), splitter=splitter)
        await index.ingest(*self.documents.values())
        preparer = ragchat.Preparer(
            index.retriever(top_k=5, explain=True),
            augmenter=ragchat.ContextualAugmenter(max_context_tokens=600),
        )
        scripted = ScriptedChatModel([self._replied(messages[-1]["content"])])
        create = scripted.create if self.model else None
        events = turn(preparer, create, model="m", messages=messages)
        return StreamingResponse(encoded(events, encoder), headers=dict(encoder.headers))

    def _replied(self, question: str) -> list:
        if self.failures:
            self.failures -= 1
            return [UpstreamError("a secret of the server")]
        if "hostile" in question:
            return pieces(HOSTILE, 7)
        if "half" in question:
            return ["Half of an ans", UpstreamError("a secret of the server")]
        if "wait" in question:
            return ["The first words [1", self._wait, "] and the rest.", WHOLE]
        if "weather" in question:
            return [WEATHER]
        return pieces(ANSWER, 3)

    async def _wait(self) -> None:
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.left.set()
            raise


WEATHER = {
    "choices": [
        {
            "index": 0,
            "delta": {
                "reasoning_content": "It asks for the weather.",
                "content": "Let me look [1].",
                "tool_calls": [
                    {
                        "index": 0,
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "weather", "arguments": '{"city": "Lima"}'},
                    }
                ],
            },
            "finish_reason": "tool_calls",
        }
    ]
}


class Visit:
    """A page with what it asked for and what went wrong on it."""

    def __init__(self, page, url) -> None:
        self.page = page
        self.errors: list[str] = []
        self.foreign: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._said)
        page.on("request", lambda request: self._asked(request.url, url))

    def _said(self, message) -> None:
        # The browser reports statuses and lost connections by itself; the page tells of them.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.errors.append(message.text)

    def _asked(self, address: str, url: str) -> None:
        if not address.startswith((url, "blob:")):
            self.foreign.append(address)


def ask(page, question: str) -> None:
    """Types a question and sends it."""
    page.fill("#question", question)
    page.keyboard.press("Enter")


def answered(page, question: str):
    """Asks, waits for the end of the answer, and returns its element."""
    ask(page, question)
    page.wait_for_selector("#turns > li:last-child .actions:not([hidden])")
    return page.locator("ragchat-answer").last
