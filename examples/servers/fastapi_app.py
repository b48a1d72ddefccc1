r"""A route for the Vercel AI SDK's `useChat`, and one for any client of the OpenAI API.

    pip install ragchat-toolkit fastapi uvicorn
    uvicorn --app-dir examples/servers fastapi_app:app
    curl -N http://127.0.0.1:8000/v1/chat/completions -H "content-type: application/json" \
        -d '{"model": "any", "messages": [{"role": "user", "content": "How much leave?"}]}'

It answers from one document, in memory; yours come with `open_index` and `ingest_directory`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from openai import AsyncOpenAI, OpenAIError

import ragchat
from ragchat.wire import ChunkEncoder, Encoder, UIMessageEncoder, encoded, turn

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
preparer = ragchat.Preparer(index.retriever(top_k=5))


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
    await index.ingest(DOCUMENT)
    async with client:
        yield


app = FastAPI(lifespan=lifespan)


def streamed(messages: list[dict[str, Any]], encoder: Encoder) -> StreamingResponse:
    events = turn(preparer, client.chat.completions.create, model="gpt-5", messages=messages)
    return StreamingResponse(encoded(events, encoder), headers=dict(encoder.headers))


@app.post("/api/chat")
async def chat(body: dict[str, Any]) -> StreamingResponse:
    """Takes UI messages: a message's text is in its parts."""
    messages = [
        {"role": message["role"], "content": "".join(p.get("text", "") for p in message["parts"])}
        for message in body["messages"]
    ]
    return streamed(messages, UIMessageEncoder())


@app.post("/v1/chat/completions")
async def completions(body: dict[str, Any]) -> StreamingResponse:
    return streamed(body["messages"], ChunkEncoder(body["model"]))
