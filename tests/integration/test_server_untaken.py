"""A streamed answer that its client does not take."""

from __future__ import annotations

import asyncio

import pytest

from ragchat.server.app import create_app
from ragchat.server.settings import ServerSettings
from ragchat.server.streaming import EventStream
from ragchat_retrieval.embedders import HashingEmbedder
from ragchat_retrieval.index import HybridIndex
from ragchat_retrieval.opening import in_memory

FORM = (
    b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\ntext\r\n--x--\r\n'
)


async def never(_):
    await asyncio.Event().wait()


async def pieces():
    yield b""


def upload():
    """Returns the scope and the messages of a form with one file, answered by a stream."""
    messages = [{"type": "http.request", "body": FORM}]

    async def receive():
        return messages.pop() if messages else await never(None)

    headers = {
        b"host": b"localhost",
        b"accept": b"text/event-stream",
        b"content-type": b"multipart/form-data; boundary=x",
    }
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/documents",
        "raw_path": b"/v1/documents",
        "query_string": b"",
        "headers": list(headers.items()),
    }
    return scope, receive


async def test_what_the_pieces_were_to_close_is_closed_if_they_never_begin():
    closed = []

    async def close():
        closed.append(True)

    stream = EventStream(pieces(), heartbeat=5.0, stall=0.01, closing=close)
    with pytest.raises(asyncio.CancelledError):
        await stream({}, never, never)
    assert closed == [True]


async def test_an_upload_leaves_no_files_if_its_client_takes_no_answer(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    app = create_app(in_memory(), ServerSettings(stall_timeout=0.05))
    heads = []

    async def send(message):
        heads.append(message)
        await never(message)

    await app(*upload(), send)
    assert heads[0]["status"] == 200
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("steps", range(8))
async def test_an_upload_that_is_cancelled_again_and_again_writes_no_more(
    tmp_path, monkeypatch, steps
):
    """As anyio does, under which middleware of an application runs it."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    begun = asyncio.Event()

    class Stubborn(HashingEmbedder):
        async def embed(self, texts, kind="passage"):
            try:
                begun.set()
                await never(None)
            finally:
                for _ in range(20):
                    await asyncio.sleep(0)

    async def send(message):
        del message

    app = create_app(HybridIndex(embedder=Stubborn(64)))
    answering = asyncio.create_task(app(*upload(), send))
    await begun.wait()
    answering.cancel()
    for _ in range(steps):
        await asyncio.sleep(0)
    answering.cancel()
    await asyncio.wait([answering])
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
