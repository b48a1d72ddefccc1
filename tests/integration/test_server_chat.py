"""``POST /v1/chat/completions``, as the official client and raw sockets use it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import openai
import pytest

import ragchat
from ragchat.server import KeyFile, ServerSettings, new_key
from ragchat.server.keys import save_keys
from ragchat.testing import Failure, Gate, Held, Interrupted, Raw, Reply, Reset, tool_call
from ragchat_retrieval.errors import StoreUnavailable

LEAVE = ragchat.Document(
    "leave", "Employees get 25 days of paid leave a year.", source="https://example.com/leave"
)
ASKED = [{"role": "user", "content": "How many days of leave do I get?"}]
ANSWER = "You get 25 days [1]."
TOOLS = [{"type": "function", "function": {"name": "days", "parameters": {}}}]


@pytest.fixture
async def index():
    index = ragchat.in_memory()
    await index.ingest(LEAVE)
    return index


@pytest.fixture
async def served(serve, upstream, index):
    """A server in front of the loopback model."""
    return await serve(index, model="small", upstream=upstream)


async def test_a_whole_answer_has_the_providers_fields_and_annotations(served, upstream):
    reply = await served.openai.chat.completions.create(
        model="anything", messages=ASKED, temperature=0.5, extra_body={"top_k_vendor": 3}
    )
    assert reply.choices[0].message.content == ANSWER
    (annotation,) = reply.choices[0].message.annotations
    cited = annotation.url_citation
    assert ANSWER[cited.start_index : cited.end_index] == "[1]"
    assert cited.url == "https://example.com/leave"
    assert reply.usage.completion_tokens == 5
    told = reply.model_extra["ragchat"]
    assert [source["document_id"] for source in told["sources"]] == ["leave"]
    assert told["degraded"] == []
    assert told["timings"]["prepare"] > 0
    sent = upstream.requests[0].json
    assert (sent["model"], sent["temperature"], sent["top_k_vendor"]) == ("small", 0.5, 3)
    assert "ragchat" not in sent
    assert "25 days" in sent["messages"][0]["content"]


async def test_a_streamed_answer_is_that_of_the_call(served):
    """Chunks pass through; annotations are on the last chunk of the choice, usage stays."""
    stream = await served.openai.chat.completions.create(
        model="any", messages=ASKED, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert all(chunk.choices for chunk in chunks[:-1])
    assert "".join(c.choices[0].delta.content or "" for c in chunks[:-1]) == ANSWER
    (last,) = [chunk for chunk in chunks[:-1] if chunk.choices[0].finish_reason]
    (annotation,) = last.choices[0].delta.model_extra["annotations"]
    assert annotation["url_citation"]["start_index"] == ANSWER.index("[1]")
    assert last.model_extra["ragchat"]["sources"][0]["document_id"] == "leave"
    assert chunks[-1].usage.completion_tokens == 5


async def test_the_clients_own_stream_helper_folds_it(served):
    async with served.openai.chat.completions.stream(model="any", messages=ASKED) as stream:
        async for _ in stream:
            pass
        final = await stream.get_final_completion()
    assert final.choices[0].message.content == ANSWER


async def test_sources_come_first_for_requests_that_ask(served):
    """No other request sees a chunk without choices before its first token."""
    body = {"messages": ASKED, "stream": True, "ragchat": {"sources_event": True}}
    answer = await served.http.post("/v1/chat/completions", json=body)
    events = data_of(answer.text)
    first = json.loads(events[0])
    assert first["choices"] == []
    assert first["ragchat"]["sources"][0]["number"] == 1
    assert events[-1] == "[DONE]"


async def test_options_narrow_and_cut_the_retrieval(served, index):
    await index.ingest(
        ragchat.Document("old", "Leave was 20 days a year once.", metadata={"old": True})
    )
    body = {"messages": ASKED, "ragchat": {"filter": {"old": True}, "top_k": 1}}
    answer = (await served.http.post("/v1/chat/completions", json=body)).json()
    assert [source["document_id"] for source in answer["ragchat"]["sources"]] == ["old"]


async def test_chunks_are_passed_on_byte_for_byte(served, upstream):
    """Fields that nobody knows, spaces and the order of keys stay as they are."""
    odd = b'{"x_unknown":  1, "choices":[{"index":0,"delta":{"content":"hi"}}],"id":"\\u0041"}'
    body = b"data: " + odd + b"\r\n\r\n: comment\n\ndata: [DONE]\n\n"
    upstream.script(Raw(body, content_type="text/event-stream"))
    answer = await served.http.post(
        "/v1/chat/completions", json={"messages": ASKED, "stream": True}
    )
    assert answer.content == b"data: " + odd + b"\n\ndata: [DONE]\n\n"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
async def test_an_upstream_error_keeps_status_and_shape_and_is_tried_once(
    served, upstream, status, stream
):
    upstream.script(Failure(status, "scripted", code="odd", retry_after=7))
    answer = await served.http.post(
        "/v1/chat/completions", json={"messages": ASKED, "stream": stream}
    )
    assert answer.status_code == status
    assert answer.json()["error"]["message"] == "scripted"
    assert answer.json()["error"]["code"] == "odd"
    assert answer.headers["retry-after"] == "7"
    assert len(upstream.requests) == 1


async def test_the_upstreams_key_is_taken_out_of_what_it_says(served, upstream):
    upstream.script(Failure(401, "Incorrect API key provided: sk-upstream"))
    answer = await served.http.post("/v1/chat/completions", json={"messages": ASKED})
    assert answer.status_code == 401
    assert "sk-upstream" not in answer.text


@pytest.mark.parametrize("stream", [False, True])
async def test_a_server_that_is_not_there_is_a_bad_gateway(served, upstream, stream):
    upstream.script(Reset())
    answer = await served.http.post(
        "/v1/chat/completions", json={"messages": ASKED, "stream": stream}
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream")


async def test_an_error_after_the_beginning_is_an_event(served, upstream):
    upstream.script(Interrupted(ANSWER, "cut", after=2))
    answer = await served.http.post(
        "/v1/chat/completions", json={"messages": ASKED, "stream": True}
    )
    events = data_of(answer.text)
    assert answer.status_code == 200
    assert json.loads(events[-1])["error"]["code"] == "upstream"
    assert "[DONE]" not in events


async def test_the_official_client_raises_an_error_of_the_stream(served, upstream):
    upstream.script(Interrupted(ANSWER, "error", after=2))
    stream = await served.openai.chat.completions.create(model="m", messages=ASKED, stream=True)
    with pytest.raises(openai.APIError):
        async for _ in stream:
            pass


async def test_an_error_that_the_model_streams_ends_the_answer(served, upstream):
    """It is told as it came, without the server's key, and nothing looks whole behind it."""
    error = {"message": "overloaded, sk-upstream", "type": "server_error", "code": "odd"}
    upstream.script(Interrupted(ANSWER, "error", after=2, error=error))
    answer = await served.http.post(
        "/v1/chat/completions", json={"messages": ASKED, "stream": True}
    )
    *chunks, last = data_of(answer.text)
    assert json.loads(last) == {"error": {**error, "message": "overloaded, ***"}}
    assert not any("annotations" in chunk for chunk in chunks)


async def test_an_error_in_place_of_a_whole_answer_is_no_answer(served, upstream):
    """Some servers say 200 all the same, where a model fails on the way."""
    error = {"message": "overloaded, sk-upstream", "code": 502}
    upstream.script({"error": error})
    answer = await served.http.post("/v1/chat/completions", json={"messages": ASKED})
    assert answer.status_code == 502
    assert answer.json() == {"error": {**error, "message": "overloaded, ***"}}


@pytest.mark.parametrize(
    ("ending", "whole"),
    [
        ("", False),
        ("data: [DONE]\n\n", True),
        ('data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n', True),
    ],
)
async def test_a_stream_that_stops_before_its_end_is_no_answer(served, upstream, ending, whole):
    """Where a body has no length, a server that dies looks like one that is done."""
    begun = 'data: {"choices":[{"index":0,"delta":{"content":"You get"}}]}\n\n'
    upstream.script(Raw((begun + ending).encode(), content_type="text/event-stream"))
    answer = await served.http.post(
        "/v1/chat/completions", json={"messages": ASKED, "stream": True}
    )
    *_, last = data_of(answer.text)
    assert (last == "[DONE]") is whole
    assert whole or json.loads(last)["error"]["code"] == "upstream"


@pytest.mark.parametrize("how", ["cut", "reset", "error"])
async def test_a_turn_whose_model_breaks_off_says_whose_fault_it_is(served, upstream, caplog, how):
    """A reader of the page sees that the answer is not whole, and may ask again."""
    upstream.script(Interrupted(ANSWER, how, after=2))
    answer = await served.http.post("/v1/ragchat/answer", json={"messages": ASKED})
    last = json.loads(data_of(answer.text)[-1])
    assert (last["type"], last["code"], last["retryable"]) == ("error", "upstream", True)
    assert not caplog.records


async def test_an_empty_stream_is_an_error_of_the_stream(served, upstream):
    """The server had accepted the request, so that the answer had begun."""
    upstream.script(Reply(chunks=()))
    answer = await served.http.post(
        "/v1/chat/completions", json={"messages": ASKED, "stream": True}
    )
    (event,) = data_of(answer.text)
    assert (answer.status_code, json.loads(event)["error"]["code"]) == (200, "empty_response")


async def test_rounds_of_tool_calls_keep_the_evidence_of_their_turn(served, upstream, index):
    upstream.script(Reply("", tool_calls=[tool_call("days")]), ANSWER)
    body = {"messages": ASKED, "tools": TOOLS}
    first = (await served.http.post("/v1/chat/completions", json=body)).json()
    await index.ingest(ragchat.Document("other", "Leave: how many days of leave do I get? 1."))
    call = first["choices"][0]["message"]
    rest = [call, {"role": "tool", "tool_call_id": "call_1", "content": "25"}]
    body["messages"] = [*ASKED, *rest]
    second = (await served.http.post("/v1/chat/completions", json=body)).json()
    one, two = (request.json["messages"] for request in upstream.requests)
    assert two[: len(one)] == one
    assert two[len(one) :] == rest
    assert second["ragchat"]["sources"] == first["ragchat"]["sources"]
    assert second["choices"][0]["message"]["annotations"]


@pytest.mark.parametrize(
    ("limit", "kept"),
    [
        ({}, True),
        ({"max_rounds": 1}, False),
        ({"max_round_bytes": 1}, False),
        ({"round_seconds": 1e-9}, False),
    ],
)
async def test_a_turn_beyond_the_limits_of_the_server_is_searched_anew(
    serve, upstream, index, limit, kept
):
    served = await serve(index, ServerSettings(model="m", **limit), upstream)

    async def sent(*messages):
        body = {"messages": messages, "tools": TOOLS}
        await served.http.post("/v1/chat/completions", json=body)
        return upstream.requests[-1].json["messages"][0]

    turn = await sent(*ASKED)
    await sent({"role": "user", "content": "Another question about leave?"})
    await index.ingest(ragchat.Document("other", "Leave: how many days of leave do I get? 1."))
    again = await sent(*ASKED, {"role": "assistant", "content": "Let me see."})
    assert (again == turn) == kept


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
async def test_a_round_has_no_evidence_of_a_document_that_is_gone_or_rewritten(
    served, upstream, method
):
    """It is searched anew, so that nothing is told that is not there any more."""
    body = {"messages": ASKED, "tools": TOOLS}
    await served.http.post("/v1/chat/completions", json=body)
    written = {"json": {"text": "Leave is 99 days."}} if method == "PUT" else {}
    assert (await served.http.request(method, "/v1/documents/leave", **written)).is_success
    body["messages"] = [*ASKED, {"role": "assistant", "content": "Let me see."}]
    await served.http.post("/v1/chat/completions", json=body)
    one, two = (json.dumps(request.json["messages"]) for request in upstream.requests)
    assert "25 days" in one
    assert "25 days" not in two
    assert ("99 days" in two) == (method == "PUT")


@pytest.mark.parametrize("change", [{"scope": {"team": "b"}}, {"corpus": "other"}])
async def test_a_round_has_no_evidence_that_its_key_may_not_reach_any_more(
    serve, upstream, index, tmp_path, change
):
    """A key's corpus and scope may change in the midst of a turn."""
    secret, key = new_key("k", scope={"team": "a"})
    save_keys(tmp_path / "keys.json", [key])
    served = await serve(
        index, model="small", upstream=upstream, keys=KeyFile(tmp_path / "keys.json")
    )
    served.http.headers["authorization"] = f"Bearer {secret}"
    await served.http.put(
        "/v1/documents/a", json={"text": "How many days of leave: 31.", "metadata": {}}
    )
    body = {"messages": ASKED, "tools": TOOLS}
    first = (await served.http.post("/v1/chat/completions", json=body)).json()
    assert [source["document_id"] for source in first["ragchat"]["sources"]] == ["a"]
    save_keys(tmp_path / "keys.json", [replace(key, **change)])
    body["messages"] = [*ASKED, {"role": "assistant", "content": "Let me see."}]
    second = (await served.http.post("/v1/chat/completions", json=body)).json()
    assert second["ragchat"]["sources"] == []
    assert "31" not in json.dumps(upstream.requests[1].json)


async def test_a_round_leaves_out_the_history_that_its_turn_left_out(serve, upstream, index):
    """What did not fit the model's window fits no better with the results of tools."""
    budget = ragchat.RequestBudget(1000, 100, trim_history=True, count_tokens=len_of_words)
    served = await serve(
        index,
        model="small",
        upstream=upstream,
        make_preparer=lambda index: ragchat.Preparer(index.retriever(), budget=budget),
    )
    long = [{"role": "user", "content": "word " * 800}, {"role": "assistant", "content": "Yes."}]
    body = {"messages": [*long, *ASKED], "tools": TOOLS}
    rest = [{"role": "assistant", "content": "Let me see."}]
    await served.http.post("/v1/chat/completions", json=body)
    body["messages"] = [*body["messages"], *rest]
    await served.http.post("/v1/chat/completions", json=body)
    one, two = (request.json["messages"] for request in upstream.requests)
    assert len(one) == 1
    assert two == [*one, *rest]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_further_parameter_may_have_any_name(served, upstream, stream):
    """Also names that a function of ours has for itself."""
    further = {"self": 1, "stage": 2, "body": 3, "request": 4, "create": 5}
    body = {"messages": ASKED, "stream": stream, **further}
    answer = await served.http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200
    sent = upstream.requests[0].json
    assert {name: sent[name] for name in further} == further


async def test_a_round_that_is_not_known_is_prepared_up_to_its_user_message(served, upstream):
    rest = [{"role": "assistant", "content": "You get"}]
    await served.http.post("/v1/chat/completions", json={"messages": [*ASKED, *rest]})
    sent = upstream.requests[0].json["messages"]
    assert "25 days" in sent[0]["content"]
    assert sent[1:] == rest


async def test_without_a_model_sentences_of_the_documents_answer(serve, index):
    """The response's model says so; the official client sees nothing unusual."""
    served = await serve(index)
    assert [model.id async for model in served.openai.models.list()] == ["ragchat-extractive"]
    reply = await served.openai.chat.completions.create(model="gpt-5", messages=ASKED)
    assert reply.model == "ragchat-extractive"
    assert reply.choices[0].message.content == f"{LEAVE.text} [1]"
    assert reply.choices[0].message.annotations
    stream = await served.openai.chat.completions.create(model="gpt-5", messages=ASKED, stream=True)
    chunks = [chunk async for chunk in stream]
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == f"{LEAVE.text} [1]"
    assert {chunk.model for chunk in chunks} == {"ragchat-extractive"}


class Leaving(ragchat.HashingEmbedder):
    """An embedder whose server may go away."""

    gone = False

    async def embed(self, texts, kind="passage"):
        if self.gone:
            raise ConnectionError
        return await super().embed(texts, kind)


@pytest.mark.parametrize("path", ["chat/completions", "ragchat/answer"])
@pytest.mark.parametrize("model", [None, "small"])
async def test_an_embedder_that_is_gone_costs_the_meaning_and_not_the_answer(
    serve, upstream, path, model
):
    index = ragchat.HybridIndex(embedder=Leaving(64))
    await index.ingest(LEAVE)
    index.embedder.gone = True
    served = await serve(index, model=model, upstream=upstream if model else None)
    body = {"messages": ASKED, **({"model": "any"} if path == "chat/completions" else {})}
    answer = await served.http.post(f"/v1/{path}", json=body)
    assert answer.status_code == 200
    assert "25 days" in answer.text
    assert "EmbeddingError" in answer.text
    names = [line[7:] for line in answer.text.splitlines() if line.startswith("event: ")]
    assert names[-2:] in ([], ["verification", "end"])


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"messages": []}, "invalid_value"),
        ({"messages": [{"role": "system", "content": "x"}]}, "no_final_user_message"),
        ({"messages": [*ASKED, {"role": "system", "content": "x"}]}, "no_final_user_message"),
        ({"messages": [{"role": "king", "content": "x"}]}, "invalid_value"),
        ({"messages": [{"role": "user", "content": []}]}, "invalid_augmentation"),
        ({"messages": ASKED, "ragchat": {"filter": {"a b": 1}}}, "invalid_filter_key"),
        ({"messages": ASKED, "ragchat": {"scope": {}}}, "invalid_value"),
        ({"messages": ASKED, "ragchat": {"top_k": 51}}, "invalid_value"),
    ],
)
async def test_a_request_that_cannot_be_prepared_is_refused_in_the_apis_shape(served, body, code):
    answer = await served.http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert (error["type"], error["code"]) == ("invalid_request_error", code)


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"{", b"[]", b'{"messages": NaN}', b"\xff", b"[" * 100_000),
        b'{"messages": [{"role": "user", "content": "x"}], "user": "\\ud800"}',
        b'{"messages": [{"role": "user", "content": "x"}], "user": "\xed\xa0\x80"}',
        '{"messages": [{"role": "user", "content": "x"}]}'.encode("utf-16"),
    ],
)
async def test_a_body_that_is_no_json_object_in_utf_8_is_refused(served, data):
    """Half a surrogate pair is none, neither escaped nor as bytes."""
    head = {"content-type": "application/json"}
    answer = await served.http.post("/v1/chat/completions", content=data, headers=head)
    assert answer.status_code == 400


async def test_evidence_that_no_budget_holds_is_the_apis_own_error(serve, upstream, index):
    served = await serve(index, ServerSettings(model="small", max_context_tokens=1), upstream)
    with pytest.raises(openai.BadRequestError) as caught:
        await served.openai.chat.completions.create(model="m", messages=ASKED)
    assert caught.value.code == "context_length_exceeded"


class Stuck:
    """A retriever that ends when it is told what it found, and says when it was cancelled."""

    def __init__(self):
        self.entered = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.found = asyncio.get_running_loop().create_future()

    async def __call__(self, query):
        self.entered.set()
        try:
            return await self.found
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_ends_the_search(serve, upstream, index, stream):
    stuck = Stuck()
    served = await serve(
        index, model="m", upstream=upstream, make_preparer=lambda _: ragchat.Preparer(stuck)
    )
    _, writer = await served.post("/v1/chat/completions", {"messages": ASKED, "stream": stream})
    await asyncio.wait_for(stuck.entered.wait(), 10)
    writer.transport.abort()
    await asyncio.wait_for(stuck.cancelled.wait(), 10)
    assert not upstream.requests


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("after", [0, 2])
async def test_a_client_that_leaves_ends_the_model_within_a_second(served, upstream, stream, after):
    """Before the first token, in the middle, and where the answer comes whole."""
    gate = Gate()
    upstream.script(Held(ANSWER, gate, after=after if stream else 0))
    reader, writer = await served.post(
        "/v1/chat/completions", {"messages": ASKED, "stream": stream}
    )
    assert await asyncio.to_thread(gate.wait_reached)
    if stream:
        await reader.readuntil(b"\r\n\r\n")
    writer.transport.abort()
    (request,) = upstream.requests
    assert await asyncio.to_thread(request.wait_ended, 1)
    assert request.disconnected


async def test_long_silence_is_filled_with_comments_that_clients_skip(serve, upstream, index):
    """Also where the model's server sends nothing yet, not even the head of its answer."""
    settings = ServerSettings(model="m", heartbeat=0.05)
    served = await serve(index, settings, upstream)
    gate = Gate()
    upstream.script(Held(ANSWER, gate, after=1))
    reader, writer = await served.post("/v1/chat/completions", {"messages": ASKED, "stream": True})
    await reader.readuntil(b": still working\n\n")
    await reader.readuntil(b": still working\n\n")
    gate.open()
    assert b'"finish_reason":"stop"' in await reader.readuntil(b"[DONE]")
    writer.close()


@pytest.fixture
async def stuck_stream(serve, upstream, index):
    """A stream whose search is stuck, and which has sent comments meanwhile."""
    stuck = Stuck()
    served = await serve(
        index,
        ServerSettings(model="m", heartbeat=0.05),
        upstream,
        make_preparer=lambda _: ragchat.Preparer(stuck),
    )
    reader, writer = await served.post("/v1/chat/completions", {"messages": ASKED, "stream": True})
    assert b" 200 " in await reader.readline()
    await reader.readuntil(b": still working\n\n")
    await reader.readuntil(b": still working\n\n")
    yield stuck, reader, writer
    writer.close()


async def test_a_slow_search_is_filled_with_comments_too(stuck_stream, upstream):
    stuck, reader, _ = stuck_stream
    assert not upstream.requests
    stuck.found.set_result([])
    assert b'"finish_reason":"stop"' in await reader.readuntil(b"[DONE]")


async def test_an_error_of_a_search_that_was_slow_is_an_event(stuck_stream):
    """The answer has begun, so that its status cannot say it any more."""
    stuck, reader, _ = stuck_stream
    stuck.found.set_exception(StoreUnavailable("the store is away"))
    rest = (await reader.readuntil(b"0\r\n\r\n")).decode()
    (event,) = data_of(rest)
    assert json.loads(event)["error"]["code"] == "store_unavailable"


async def test_a_client_that_leaves_a_slow_search_ends_it(stuck_stream, upstream):
    stuck, _, writer = stuck_stream
    writer.transport.abort()
    await asyncio.wait_for(stuck.cancelled.wait(), 10)
    assert not upstream.requests


async def test_an_error_of_a_search_in_time_keeps_its_status(serve, upstream, index):
    async def away(query):
        raise StoreUnavailable("the store is away")

    served = await serve(
        index, model="m", upstream=upstream, make_preparer=lambda _: ragchat.Preparer(away)
    )
    answer = await served.http.post(
        "/v1/chat/completions", json={"messages": ASKED, "stream": True}
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")


async def test_a_running_stream_is_finished_when_the_server_stops(serve, upstream, index):
    served = await serve(index, model="m", upstream=upstream)
    gate = Gate()
    upstream.script(Held(ANSWER, gate, after=2))
    stream = await served.openai.chat.completions.create(model="m", messages=ASKED, stream=True)
    first = await anext(stream)
    stopping = asyncio.create_task(served.stop())
    await served.closing()
    gate.open()
    rest = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in [first, *rest])
    assert text == ANSWER
    await stopping


def len_of_words(text):
    return len(text.split())


def data_of(body):
    """Returns the data of a body's events."""
    return [line.removeprefix("data: ") for line in body.splitlines() if line.startswith("data: ")]
