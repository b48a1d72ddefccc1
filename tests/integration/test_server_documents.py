"""Documents, searches, keys and limits of the server."""

from __future__ import annotations

import asyncio
import json
import logging
from functools import partial
from urllib.parse import quote

import httpx2
import pytest

import ragchat
from ragchat.extractive import extractive_answer
from ragchat.server import Key, KeyFile, KeyRing, ServerSettings, create_app, new_key
from ragchat.server.keys import save_keys
from ragchat.testing import Gate, Held
from ragchat_retrieval.errors import InvalidSetting

ODD = [
    "plain",
    "a/b/c.md",
    "/leading",
    "trailing/",
    "a//b",
    "space and + plus",
    "q?x=1&y#z",
    "100%25",
    "../up",
    "Größe/日本語/🙂",
    "e\u0301",
    "tab\there",
    "line\nfeed",
    "end\n",
    "v1/documents/again",
]


@pytest.fixture
def index():
    return ragchat.in_memory()


@pytest.fixture
async def served(serve, index):
    """A server without keys and without a model."""
    return await serve(index)


def ring(*given):
    """Returns the secrets of new keys, and the ring that knows them."""
    made = [new_key(f"key {n}", **options) for n, options in enumerate(given)]
    return [secret for secret, _ in made], KeyRing(key for _, key in made)


def bearer(secret):
    return {"authorization": f"Bearer {secret}"}


@pytest.mark.parametrize("document_id", ODD)
async def test_a_document_comes_back_under_the_id_it_was_given(served, document_id):
    """Slashes, signs and scripts of any kind; written anew it replaces itself."""
    path = f"/v1/documents/{quote(document_id, safe='')}"
    body = {"text": "Some text.", "title": "T", "source": "s", "metadata": {"n": 1}}
    first = await served.http.put(path, json=body)
    again = await served.http.put(path, json={**body, "text": "Other text."})
    assert (first.status_code, again.status_code) == (201, 200)
    got = (await served.http.get(path)).json()
    assert got == {"id": document_id, "object": "document", "length": 11, **body} | {
        "text": "Other text."
    }
    listed = (await served.http.get("/v1/documents")).json()
    assert [entry["id"] for entry in listed["data"]] == [document_id]
    assert (await served.http.delete(path)).json()["deleted"] is True
    assert (await served.http.get(path)).status_code == 404
    assert (await served.http.delete(path)).status_code == 404


@pytest.mark.parametrize("path", ["%FF", "%20", "a%00b", "x" * 1100])
async def test_an_id_that_no_store_keeps_is_refused(served, path):
    answer = await served.http.put(f"/v1/documents/{path}", json={"text": "x"})
    assert answer.status_code == 400


async def test_a_part_of_a_document_comes_with_what_stands_beside_it(served, index):
    """Offsets are code points, as in a passage's span."""
    await index.ingest(ragchat.Document("d", "🙂 before PART after"))
    asked = {"start": 9, "end": 13, "around": 4}
    part = (await served.http.get("/v1/documents/d", params=asked)).json()
    assert (part["before"], part["text"], part["after"]) == ("ore ", "PART", " aft")
    past = (await served.http.get("/v1/documents/d", params={"start": 900, "end": 901})).json()
    assert (past["start"], past["end"], past["text"]) == (19, 19, "")
    assert (await served.http.get("/v1/documents/d?start=3&end=2")).status_code == 400


async def test_ids_are_listed_page_by_page(served, index):
    await index.ingest(*(ragchat.Document(f"d{n}", f"text {n}") for n in range(5)))
    seen, after = [], ""
    while True:
        page = (await served.http.get("/v1/documents", params={"limit": 2, "after": after})).json()
        seen += [entry["id"] for entry in page["data"]]
        if not page["has_more"]:
            break
        after = seen[-1]
    assert seen == [f"d{n}" for n in range(5)]


async def test_a_document_without_text_is_not_said_to_be_there(served, index):
    """There is nothing of it that could be found; in place of another it removes that."""
    for before in (False, True):
        if before:
            await index.ingest(ragchat.Document("a", "Some text."))
        answer = await served.http.put("/v1/documents/a", json={"text": " "})
        told = answer.json()
        assert (answer.status_code, told["created"], told["passages"]) == (200, False, 0)
        assert told["changed"] is before
        assert (await served.http.get("/v1/documents/a")).status_code == 404


async def test_a_search_is_that_of_the_index(served, index):
    await index.ingest(
        ragchat.Document("a", "Paid leave.", metadata={"team": "x"}),
        ragchat.Document("b", "Paid leave too.", metadata={"team": "y"}),
    )
    body = {"query": "leave", "filter": {"team": "y"}, "explain": True}
    answer = (await served.http.post("/v1/search", json=body)).json()
    (found,) = answer["data"]
    (expected,) = await index.search("leave", filter={"team": "y"})
    assert (found["id"], found["score"]) == (expected.passage.id, expected.score)
    assert found["explain"]["keyword"]["rank"] == 1
    narrowed = {"filter": body["filter"]}
    asked = {"messages": [{"role": "user", "content": "leave"}], "ragchat": narrowed}
    chat = (await served.http.post("/v1/chat/completions", json=asked)).json()
    (source,) = chat["ragchat"]["sources"]
    assert source["lines"] == found["lines"] == {"start": 1, "end": 1}
    assert source["span"] == found["span"] == {"start": 0, "end": 15}


async def test_uploaded_files_are_read_like_those_of_a_folder(served, index):
    """A path is kept as the id; reading the same again changes nothing; bad files are named."""
    files = [
        ("file", ("guide/a.md", b"# Title\n\nText of a.")),
        ("file", ("rows.jsonl", b'{"_id": "1", "text": "first"}\n{"_id": "2", "text": "second"}')),
        ("file", ("bad.txt", b"\xff\xfe")),
    ]
    report = (await served.http.post("/v1/documents", files=files)).json()
    assert (report["documents"], [error["id"] for error in report["errors"]]) == (
        3,
        ["uploads/bad.txt"],
    )
    ids = ["uploads/guide/a.md", "uploads/rows.jsonl#1", "uploads/rows.jsonl#2"]
    assert list(await index.document_ids()) == ids
    document = await index.store.document(ids[0], scope=ragchat.Filter())
    assert (document.title, document.source) == ("Title", "uploads/guide/a.md")
    again = (await served.http.post("/v1/documents", files=files[:2])).json()
    assert (again["documents"], again["skipped"], again["deleted"]) == (0, 3, 0)


async def test_an_upload_tells_its_progress_while_it_is_read(served):
    """The shares never fall; the report comes last."""
    files = [("file", (f"{n}.txt", b"text " * 50)) for n in range(20)]
    head = {"accept": "text/event-stream"}
    answer = await served.http.post("/v1/documents", files=files, headers=head)
    events = [block.split("\n") for block in answer.text.strip().split("\n\n")]
    shares = [json.loads(data[6:])["share"] for name, data in events if name == "event: progress"]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert events[-1][0] == "event: report"
    assert json.loads(events[-1][1][6:])["documents"] == 20


async def test_a_document_that_the_embedder_refuses_is_the_clients_fault(serve):
    """To send it again, as clients do after a 503, would not help."""

    class Refusing(ragchat.HashingEmbedder):
        async def embed(self, texts, kind="query"):
            rows = await super().embed(texts, kind)
            rows[["bad" in text for text in texts]] = 0.0
            return rows

    served = await serve(ragchat.HybridIndex(embedder=Refusing(64)))
    answer = await served.http.put("/v1/documents/a", json={"text": "a bad one"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "embedding_error")
    assert "bad" not in answer.text
    files = [("file", ("a.txt", b"a bad one")), ("file", ("b.txt", b"a good one"))]
    report = (await served.http.post("/v1/documents", files=files)).json()
    assert (report["documents"], [e["id"] for e in report["errors"]]) == (1, ["uploads/a.txt"])


async def test_every_file_of_an_upload_is_read_or_named_with_the_reason(served, index):
    """A folder may hold what is none of our business; a file that is sent was meant."""
    names = ["a.txt", "b.exe", "no suffix", ".hidden.md", "folder/c.xlsx"]
    files = [("file", (name, b"some text")) for name in names]
    report = (await served.http.post("/v1/documents", files=files)).json()
    assert [error["id"] for error in report["errors"]] == [
        f"uploads/{name}" for name in sorted(names) if name != "a.txt"
    ]
    assert {error["message"] for error in report["errors"]} == {
        "this kind of file is not read here"
    }
    assert list(await index.document_ids()) == ["uploads/a.txt"]


async def test_a_file_whose_reader_is_not_installed_says_what_would_help(
    served, index, monkeypatch
):
    for module in ("ragchat_retrieval.chunking.formats", "ragchat_retrieval.ingest.suffixes"):
        monkeypatch.setattr(f"{module}.is_installed", lambda: False)
    monkeypatch.setattr("ragchat.server.uploads.is_installed", lambda: False)
    files = [("file", ("a.pdf", b"%PDF-1.4")), ("file", ("b.html", b"<p>Text.</p>"))]
    report = (await served.http.post("/v1/documents", files=files)).json()
    ((told, message),) = [(error["id"], error["message"]) for error in report["errors"]]
    assert told == "uploads/a.pdf"
    assert "ragchat-toolkit[documents]" in message
    assert list(await index.document_ids()) == ["uploads/b.html"]


async def test_a_name_may_hold_a_colon(served, index):
    """It is none of a drive, as in C:."""
    files = [("file", ("Interview: Anna 10:30.txt", b"text"))]
    assert (await served.http.post("/v1/documents", files=files)).json()["documents"] == 1
    assert list(await index.document_ids()) == ["uploads/Interview: Anna 10:30.txt"]
    for drive in ("C:/a.txt", "c:a.txt"):
        answer = await served.http.post("/v1/documents", files=[("file", (drive, b"text"))])
        assert answer.status_code == 400


@pytest.mark.parametrize("name", ["../x.txt", "/etc/x.txt", "a/../../x.txt", "a" * 300])
async def test_no_name_of_a_file_leads_out_of_its_upload(served, index, name):
    answer = await served.http.post("/v1/documents", files=[("file", (name, b"text"))])
    assert answer.status_code == 400
    assert not await index.document_ids()


@pytest.mark.parametrize("charset", ["unicode_escape", "punycode", "utf-7", "none"])
@pytest.mark.parametrize(("name", "root"), [("\\ud800a.txt", "r"), ("a.txt", "\\ud800")])
async def test_a_form_in_an_odd_charset_is_read_or_refused(served, index, charset, name, root):
    """Half a surrogate pair, which a charset may make of plain bytes, names nothing."""
    part = "--x\r\nContent-Disposition: form-data; name="
    form = f'{part}"file"; filename="{name}"\r\n\r\ntext\r\n{part}"root"\r\n\r\n{root}\r\n--x--\r\n'
    head = {"content-type": f"multipart/form-data; boundary=x; charset={charset}"}
    answer = await served.http.post("/v1/documents", content=form.encode(), headers=head)
    assert answer.status_code in (200, 400)
    assert len(await index.document_ids()) == (answer.status_code == 200)


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT"])
@pytest.mark.parametrize("path", ["search", "chat/completions", "ragchat/answer"])
async def test_a_path_names_its_methods_to_whoever_uses_another(served, method, path):
    """The page's files, which answer any other GET, do not hide it."""
    answer = await served.http.request(method, f"/v1/{path}")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize("path", ["/v1/responses", "/v1/embeddings", "/v1", "/nope"])
async def test_a_path_that_is_not_there_is_unknown_by_every_method(served, method, path):
    """A client of another part of the API learns that this server has none."""
    answer = await served.http.request(method, path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


async def test_two_files_of_one_name_are_refused(served, index):
    """Also where one is a folder of the other."""
    for names in (("a.txt", "a.txt"), ("a", "a/b.txt"), ("a/b.txt", "a")):
        files = [("file", (name, b"text")) for name in names]
        assert (await served.http.post("/v1/documents", files=files)).status_code == 400
    assert not await index.document_ids()


async def test_a_key_opens_its_own_corpus_and_nothing_else(serve, index):
    """Without a key, or with another, nothing is told; a corpus never sees the other's."""
    (one, two), keys = ring({"corpus": "one"}, {"corpus": "two"})
    served = await serve(index, keys=keys)
    put = await served.http.put("/v1/documents/d", json={"text": "Secret."}, headers=bearer(one))
    assert put.status_code == 201
    for head in ({}, bearer("rc-wrong"), {"authorization": one}, bearer("x" * 10_000)):
        refused = await served.http.get("/v1/documents/d", headers=head)
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
        assert refused.headers["www-authenticate"] == "Bearer"
    assert (await served.http.get("/v1/documents/d", headers=bearer(one))).status_code == 200
    for method in ("GET", "DELETE"):
        hidden = await served.http.request(method, "/v1/documents/d", headers=bearer(two))
        assert hidden.status_code == 404
    found = await served.http.post("/v1/search", json={"query": "Secret"}, headers=bearer(two))
    assert found.json()["data"] == []


async def test_a_scope_bounds_every_read_and_is_stamped_on_every_write(serve, index):
    """No field of a request widens it, and what lies outside is not there."""
    await index.ingest(ragchat.Document("y", "Leave of y.", metadata={"team": "y"}))
    (secret,), keys = ring({"scope": {"team": "x"}})
    served = await serve(index, keys=keys)
    call = {"headers": bearer(secret)}
    body = {"text": "Leave of x.", "metadata": {"team": "y", "n": 1}}
    assert (await served.http.put("/v1/documents/x", json=body, **call)).status_code == 201
    stored = (await served.http.get("/v1/documents/x", **call)).json()
    assert stored["metadata"] == {"team": "x", "n": 1}
    assert (await served.http.put("/v1/documents/y", json=body, **call)).status_code == 404
    assert (await served.http.get("/v1/documents/y", **call)).status_code == 404
    assert (await served.http.delete("/v1/documents/y", **call)).status_code == 404
    listed = (await served.http.get("/v1/documents", **call)).json()["data"]
    assert [entry["id"] for entry in listed] == ["x"]
    for bounds in (None, {"team": "y"}, [{"key": "team", "op": "exists", "value": True}]):
        asked = {"query": "leave", "filter": bounds}
        found = (await served.http.post("/v1/search", json=asked, **call)).json()["data"]
        assert {entry["document_id"] for entry in found} <= {"x"}
        chat = {
            "messages": [{"role": "user", "content": "leave"}],
            "ragchat": {"filter": bounds},
        }
        answer = (await served.http.post("/v1/chat/completions", json=chat, **call)).json()
        assert {source["document_id"] for source in answer["ragchat"]["sources"]} <= {"x"}
    rows = b'{"_id": "1", "text": "widened", "metadata": {"team": "y"}}'
    files = [("file", ("a.md", b"Leave."))]
    assert (await served.http.post("/v1/documents", files=files, **call)).status_code == 200
    widened = await served.http.post("/v1/documents", files=[("file", ("r.jsonl", rows))], **call)
    assert (widened.status_code, widened.json()["error"]["code"]) == (400, "outside_scope")
    assert list(await index.document_ids(scope={"team": "y"})) == ["y"]


async def test_a_key_that_is_removed_is_refused_from_the_next_request_on(serve, index, tmp_path):
    secret, key = new_key("a")
    path = tmp_path / "keys.json"
    save_keys(path, [key])
    assert secret not in path.read_text("utf-8")
    assert path.stat().st_mode & 0o077 == 0
    served = await serve(index, keys=KeyFile(path))
    assert (await served.http.get("/v1/models", headers=bearer(secret))).status_code == 200
    save_keys(path, [])
    assert (await served.http.get("/v1/models", headers=bearer(secret))).status_code == 401


@pytest.mark.parametrize(
    "text",
    ["", "{}", '{"version": 2, "keys": []}', '{"version": 1, "keys": [{"name": "x"}]}', "[1]"],
)
def test_a_file_that_holds_no_keys_is_refused(tmp_path, text):
    path = tmp_path / "keys.json"
    path.write_text(text, "utf-8")
    with pytest.raises(InvalidSetting):
        KeyFile(path)
    with pytest.raises(InvalidSetting):
        KeyFile(tmp_path / "none.json")


def test_a_key_has_a_name_and_a_corpus():
    with pytest.raises(InvalidSetting):
        new_key(" ")
    with pytest.raises(InvalidSetting):
        new_key("a", corpus="")
    assert "hash" not in repr(Key(name="a", hash="00" * 32))


async def test_a_body_beyond_its_limit_is_refused_whether_or_not_it_says_its_size(serve, index):
    served = await serve(index, ServerSettings(max_body_bytes=1000, max_upload_bytes=3000))
    said = await served.http.put("/v1/documents/d", json={"text": "x" * 2000})
    assert (said.status_code, said.json()["error"]["code"]) == (413, "body_too_large")

    async def pieces():
        yield b'{"text": "'
        for _ in range(20):
            yield b"x" * 100

    head = {"content-type": "application/json"}
    unsaid = await served.http.put("/v1/documents/d", content=pieces(), headers=head)
    assert unsaid.status_code == 413
    fits = await served.http.post("/v1/documents", files=[("file", ("a.txt", b"x" * 2000))])
    large = await served.http.post("/v1/documents", files=[("file", ("a.txt", b"x" * 4000))])
    assert (fits.status_code, large.status_code) == (200, 413)


async def test_a_body_that_does_not_come_is_given_up(serve, index):
    served = await serve(index, ServerSettings(body_timeout=0.05))
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(
        b"POST /v1/search HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        b"content-length: 100\r\n\r\n{"
    )
    assert b" 408 " in await reader.readline()
    writer.close()


@pytest.mark.parametrize("keys", [None, KeyRing()], ids=["open", "locked"])
async def test_a_broken_body_is_answered_once(serve, index, caplog, keys):
    """By the server underneath, which has done so before the application sees the request."""
    served = await serve(index, keys=keys)
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(
        b"POST /v1/search HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        b"transfer-encoding: chunked\r\n\r\nzz\r\n"
    )
    assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
    writer.close()
    assert (await served.http.get("/healthz")).status_code == 200
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("rest", [b"{", b"zz\r\n"], ids=["leaves", "breaks the framing"])
async def test_a_client_that_ends_in_the_middle_of_its_body_is_no_fault(served, caplog, rest):
    """It is counted as one that left, whether it closes the connection or is made to."""
    _, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(
        b"POST /v1/search HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        b"transfer-encoding: chunked\r\n\r\n5\r\n" + rest
    )
    await writer.drain()
    writer.close()
    async with asyncio.timeout(10):
        while "ragchat_clients_left_total 1.0" not in (await served.http.get("/metrics")).text:
            pass
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_more_messages_files_or_requests_than_allowed_are_refused(serve, index):
    settings = ServerSettings(max_messages=1, max_upload_files=1, requests_per_minute=3)
    served = await serve(index, settings)
    turn = {"role": "user", "content": "x"}
    chat = await served.http.post("/v1/chat/completions", json={"messages": [turn, turn]})
    assert (chat.status_code, chat.json()["error"]["code"]) == (400, "too_many_messages")
    files = [("file", ("a.txt", b"x")), ("file", ("b.txt", b"x"))]
    assert (await served.http.post("/v1/documents", files=files)).status_code == 400
    assert (await served.http.get("/v1/models")).status_code == 200
    many = await served.http.get("/v1/models")
    assert (many.status_code, many.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert int(many.headers["retry-after"]) >= 1
    assert (await served.http.get("/healthz")).status_code == 200


async def test_more_requests_at_the_same_time_than_allowed_are_refused(serve, index, upstream):
    """A slot is free again as soon as its answer is over."""
    served = await serve(index, ServerSettings(model="m", max_concurrent=1), upstream)
    await index.ingest(ragchat.Document("d", "Leave is 25 days."))
    gate = Gate()
    upstream.script(Held("25", gate))
    body = {"messages": [{"role": "user", "content": "leave"}]}
    running = asyncio.create_task(served.http.post("/v1/chat/completions", json=body))
    assert await asyncio.to_thread(gate.wait_reached)
    refused = await served.http.post("/v1/chat/completions", json=body)
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_requests")
    gate.open()
    assert (await running).status_code == 200
    assert (await served.http.post("/v1/chat/completions", json=body)).status_code == 200


async def test_more_requests_of_all_keys_than_the_server_bears_are_refused(serve, index, upstream):
    """Whose they are does not matter; one that was refused may come again."""
    (one, two), keys = ring({}, {})
    served = await serve(index, ServerSettings(model="m", max_running=1), upstream, keys=keys)
    gate = Gate()
    upstream.script(Held("25", gate))
    body = {"messages": [{"role": "user", "content": "leave"}]}
    chat = "/v1/chat/completions"
    running = asyncio.create_task(served.http.post(chat, json=body, headers=bearer(one)))
    assert await asyncio.to_thread(gate.wait_reached)
    refused = await served.http.post(chat, json=body, headers=bearer(two))
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "server_busy")
    assert refused.headers["retry-after"] == "1"
    gate.open()
    assert (await running).status_code == 200
    assert (await served.http.post(chat, json=body, headers=bearer(two))).status_code == 200


@pytest.mark.parametrize("root", ["/m", "/v1", "/metric", "/rag"])
async def test_no_root_of_the_application_unlocks_what_needs_a_key(index, root):
    """Also one with which a locked path begins, but in the middle of a part."""
    app = create_app(index, keys=KeyRing())
    transport = httpx2.ASGITransport(app, root_path=root)
    async with httpx2.AsyncClient(transport=transport, base_url="http://x") as http:
        for path in ("/metrics", "/v1/documents", f"{root}/metrics", f"{root}/v1/documents"):
            assert (await http.get(path)).status_code in (401, 404)
        assert (await http.get("/metrics")).status_code == 401


async def test_a_scope_may_name_the_source(serve, index):
    """It is a field of a document, which the document itself has to have, and no metadata."""
    (secret,), keys = ring({"corpus": "one", "scope": {"source": "a.md"}})
    served = await serve(index, keys=keys)
    mine, other = ({"text": "Some text.", "source": source} for source in ("a.md", "b.md"))
    put = partial(served.http.put, "/v1/documents/a", headers=bearer(secret))
    assert (await put(json=other)).status_code == 404
    assert (await put(json=mine)).status_code == 201
    assert (await served.http.get("/v1/documents/a", headers=bearer(secret))).is_success


async def test_pages_of_other_sites_reach_nothing_unless_they_are_named(serve, index):
    closed = await serve(index)
    other = {"origin": "https://evil.example"}
    assert (await closed.http.get("/v1/documents", headers=other)).status_code == 403
    assert (await closed.http.get("/v1/documents", headers={"origin": closed.url})).is_success
    opened = await serve(index, ServerSettings(cors=("https://app.example",)))
    named = {"origin": "https://app.example"}
    answer = await opened.http.get("/v1/documents", headers=named)
    assert answer.headers["access-control-allow-origin"] == "https://app.example"
    assert (await opened.http.get("/v1/documents", headers=other)).status_code == 403
    named_only = await serve(index, ServerSettings(hosts=("localhost",)))
    assert (await named_only.http.get("/v1/documents")).status_code == 403
    local = {"host": f"localhost:{named_only.port}"}
    assert (await named_only.http.get("/v1/documents", headers=local)).is_success


async def test_the_servers_own_page_is_known_behind_a_proxy_that_names_another_host(serve, index):
    """Browsers say whose page asks, in a header that no page can set."""
    served = await serve(index)
    body = {"query": "leave"}
    outside = {"origin": "https://kb.example", "host": "127.0.0.1:8080"}
    own = {**outside, "sec-fetch-site": "same-origin"}
    assert (await served.http.post("/v1/search", json=body, headers=own)).is_success
    for site in ("same-site", "cross-site", "none"):
        other = {**outside, "sec-fetch-site": site}
        assert (await served.http.post("/v1/search", json=body, headers=other)).status_code == 403


async def test_a_page_of_a_named_site_can_use_any_client(serve, index):
    """Clients send headers of their own, and read from the answer when to come again."""
    served = await serve(index, ServerSettings(cors=("https://app.example",)))
    asked = {
        "origin": "https://app.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type,x-stainless-retry-count",
    }
    preflight = await served.http.options("/v1/chat/completions", headers=asked)
    assert preflight.is_success
    assert "x-stainless-retry-count" in preflight.headers["access-control-allow-headers"]
    answer = await served.http.get("/v1/models", headers={"origin": "https://app.example"})
    assert "retry-after" in answer.headers["access-control-expose-headers"]


async def test_every_answer_has_the_headers_that_keep_a_browser_safe(served):
    for path in ("/healthz", "/v1/models", "/nope"):
        headers = (await served.http.get(path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in headers["content-security-policy"]


@pytest.mark.parametrize("path", ["", "static/page/app.js", "static/component/ragchat-answer.js"])
async def test_a_browser_asks_whether_the_page_is_still_the_same(served, path):
    """So that no file of an older version is left beside newer ones."""
    first = await served.http.get(f"/{path}")
    assert first.headers["cache-control"] == "no-cache"
    known = {"if-none-match": first.headers["etag"]}
    assert (await served.http.get(f"/{path}", headers=known)).status_code == 304


async def test_the_server_tells_what_it_is(served, index):
    await index.ingest(ragchat.Document("d", "# Who?\n\nSomebody.", title="People"))
    info = (await served.http.get("/v1/ragchat/info")).json()
    assert (info["model"], info["extractive"], info["documents"]) == ("ragchat-extractive", True, 1)
    assert info["examples"] == ["What is said about People?"]
    assert (await served.http.get("/readyz")).json() == {"status": "ready"}
    metrics = (await served.http.get("/metrics")).text
    line = 'ragchat_requests_total{method="GET",route="/v1/ragchat/info",status="200"} 1.0'
    assert line in metrics


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_a_monitor_may_ask_for_the_head_alone(served, path):
    """As many do by themselves, and ``wget --spider``."""
    answer = await served.http.head(path)
    assert (answer.status_code, answer.content) == (200, b"")


async def test_a_turn_streams_as_events_with_every_stage(served, index):
    await index.ingest(ragchat.Document("d", "Leave is 25 days a year."))
    body = {"messages": [{"role": "user", "content": "How many days of leave?"}]}
    answer = await served.http.post("/v1/ragchat/answer", json=body)
    names = [line[7:] for line in answer.text.splitlines() if line.startswith("event: ")]
    assert names[0] == "start"
    assert names.index("stage") < names.index("sources") < names.index("text")
    assert names[-1] == "end"


async def test_a_turn_without_a_model_is_answered_by_meaning_too(served, index, monkeypatch):
    """The sentences are chosen with the index's own embedder, as in a chat completion."""
    chosen = []

    async def choosing(question, evidence, **means):
        chosen.append(means)
        return await extractive_answer(question, evidence, **means)

    monkeypatch.setattr("ragchat.server.about.extractive_answer", choosing)
    await index.ingest(ragchat.Document("d", "Leave is 25 days a year."))
    body = {"messages": [{"role": "user", "content": "How many days of leave?"}]}
    answer = await served.http.post("/v1/ragchat/answer", json=body)
    assert "Leave is 25 days a year." in answer.text
    means = {"embedder": index.embedder, "analyzer": index.analyzer, "on_error": "skip"}
    assert chosen == [means]


async def test_a_closed_store_is_not_ready(serve, tmp_path):
    async with ragchat.open_index(tmp_path / "kb.sqlite", embedder=None) as index:
        served = await serve(index)
    for path in ("/readyz", "/v1/documents"):
        assert (await served.http.get(path)).status_code == 503
