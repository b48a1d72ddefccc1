r"""An endpoint that streams answers with sources and citations, for `<ragchat-answer>`.

    pip install ragchat-toolkit starlette uvicorn
    uvicorn --app-dir examples/servers starlette_app:app
    curl -N http://127.0.0.1:8000/v1/ragchat/answer -H "content-type: application/json" \
        -d '{"messages": [{"role": "user", "content": "How many days of leave do I get?"}]}'

It answers from one document, in memory; yours come with `open_index` and `ingest_directory`.
`/component/ragchat-answer.js` is the web component, as it ships with the package.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files

from openai import AsyncOpenAI, OpenAIError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

import ragchat
from ragchat.wire import EventEncoder, encoded, turn

DOCUMENT = ragchat.Document(
    "leave",
    "Employees get 25 days of paid leave a year.",
    title="Leave",
    source="https://example.org/leave",
)

try:
    client = AsyncOpenAI()
except OpenAIError as error:
    raise SystemExit(f"{error} Set OPENAI_API_KEY, and OPENAI_BASE_URL if need be.") from None
index = ragchat.quickstart()
preparer = ragchat.Preparer(index.retriever(top_k=5, explain=True))
component = str(files("ragchat.wire").joinpath("static"))


async def answer(request: Request) -> StreamingResponse:
    messages = (await request.json())["messages"]
    events = turn(preparer, client.chat.completions.create, model="gpt-5", messages=messages)
    encoder = EventEncoder()
    return StreamingResponse(encoded(events, encoder), headers=dict(encoder.headers))


@asynccontextmanager
async def lifespan(_app: Starlette) -> AsyncIterator[None]:
    await index.ingest(DOCUMENT)
    async with client:
        yield


app = Starlette(
    lifespan=lifespan,
    routes=[
        Route("/v1/ragchat/answer", answer, methods=["POST"]),
        Mount("/component", StaticFiles(directory=component)),
    ],
)
