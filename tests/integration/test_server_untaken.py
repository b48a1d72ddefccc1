"""A streamed answer that its client does not take."""

from __future__ import annotations

import asyncio

import pytest

from ragchat.server.app import create_app
from ragchat.server.settings import ServerSettings
from ragchat.server.streaming import EventStream
from ragchat_retrieval.opening import in_memory

FORM = (
    b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\ntext\r\n--x--\r\n'
)


async def never(_):
    await asyncio.Event().wait()


async def pieces():
    yield b""


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
    heads = []

    async def send(message):
        heads.append(message)
        await never(message)

    await app(scope, receive, send)
    assert heads[0]["status"] == 200
    assert not list(tmp_path.iterdir())
