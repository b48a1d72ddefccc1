"""``ragchat mcp`` as the official client sees it, over stdin and stdout of a child process."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client, MCPError, StdioServerParameters, stdio_client

import ragchat
from ragchat.mcp_server import PAGE, ResourceName, create_server
from ragchat_retrieval.values import Document

LEAVE = {
    "corpus": "default",
    "file_id": "hr/leave #1",
    "filename": "leave.md",
    "text": "You get 25 days of leave.",
}
SEARCH = {"corpus": "default", "query": "days of leave"}


@pytest.fixture
def child(tmp_path, child_env):
    """What runs ``ragchat mcp`` with arguments in an empty folder."""

    def parameters(*arguments):
        return StdioServerParameters(
            command=sys.executable,
            args=["-m", "ragchat.cli", "mcp", *arguments],
            env={**child_env, "RAGCHAT_EMBEDDING_PROVIDER": "none"},
            cwd=tmp_path,
        )

    return parameters


@pytest.fixture
def connected(child, tmp_path):
    """Connects the official client to a child; the child must have nothing to say on stderr."""

    @asynccontextmanager
    async def connect(*arguments, mode="auto"):
        with (tmp_path / "stderr").open("w+", encoding="utf-8") as errors:
            async with Client(stdio_client(child(*arguments), errlog=errors), mode=mode) as client:
                yield client
            errors.seek(0)
            assert errors.read() == ""

    return connect


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Writes documents into a corpus of the index that children open."""
    monkeypatch.setenv("RAGCHAT_EMBEDDING_PROVIDER", "none")

    async def write(corpus, *documents):
        path = tmp_path / "ragchat.sqlite"
        async with ragchat.open_index(str(path), corpus=corpus) as index:
            await index.ingest(*documents)

    return write


def said(result):
    """Returns the JSON that a tool answered."""
    return json.loads(result.content[0].text)


async def test_the_tools_are_those_of_rag_tools_with_their_schemas(connected):
    definitions = ragchat.RagTools(ragchat.in_memory(), corpora=["a", "b"]).definitions
    async with connected("--corpus", "a", "--corpus", "b") as client:
        offered = (await client.list_tools()).tools
    assert [(t.name, t.description, t.input_schema) for t in offered] == [
        (f["name"], f["description"], f["parameters"]) for f in (d["function"] for d in definitions)
    ]
    assert [tool.annotations.read_only_hint for tool in offered] == [False, True, False]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_what_is_stored_is_found_read_by_its_link_and_deleted(connected, mode):
    async with connected(mode=mode) as client:
        stored = said(await client.call_tool("rag_ingest", LEAVE))
        assert stored == {"file_id": "hr/leave #1", "status": "stored", "passages": 1}

        found = await client.call_tool("rag_search", SEARCH)
        evidence, link = found.content
        assert '"citation":1' in evidence.text
        assert LEAVE["text"] in evidence.text
        assert link.name == "[1] leave.md"
        assert link.uri.startswith("ragchat://default/hr%2Fleave%20%231#")

        (passage,) = (await client.read_resource(link.uri)).contents
        assert passage.text == LEAVE["text"]
        (resource,) = (await client.list_resources()).resources
        assert resource.uri == link.uri.partition("#")[0]
        (document,) = (await client.read_resource(resource.uri)).contents
        assert document.text == LEAVE["text"]

        gone = said(await client.call_tool("rag_delete", {"corpus": "default"}))
        assert gone == {"deleted": 1}
        with pytest.raises(MCPError, match="no such resource"):
            await client.read_resource(link.uri)


async def test_templates_say_how_resources_are_named(connected):
    async with connected() as client:
        templates = (await client.list_resource_templates()).resource_templates
    assert [template.uri_template for template in templates] == [
        "ragchat://{corpus}/{document}",
        "ragchat://{corpus}/{document}#{passage}",
    ]


async def test_a_read_only_server_neither_offers_nor_runs_what_writes(connected, written):
    await written("default", Document("a", LEAVE["text"]))
    async with connected("--read-only") as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["rag_search"]
        for name, arguments in (("rag_ingest", LEAVE), ("rag_delete", {"corpus": "default"})):
            with pytest.raises(MCPError, match=r"unknown tool; there are rag_search$"):
                await client.call_tool(name, arguments)
        found = await client.call_tool("rag_search", SEARCH)
        assert LEAVE["text"] in found.content[0].text
        assert len((await client.list_resources()).resources) == 1


async def test_a_scope_bounds_tools_and_resources(connected, written):
    mine = Document("mine", "Leave is 25 days.", metadata={"team": "a"})
    other = Document("other", "Leave is 40 days.", metadata={"team": "b"})
    await written("default", mine, other)
    async with connected("--scope", "team=b") as client:
        (theirs,) = (await client.call_tool("rag_search", SEARCH)).content[1:]
    async with connected("--scope", "team=a") as client:
        _, link = (await client.call_tool("rag_search", SEARCH)).content
        assert link.uri.startswith("ragchat://default/mine#")
        (listed,) = (await client.list_resources()).resources
        assert listed.name == "mine"
        for uri in ("ragchat://default/other", theirs.uri):
            with pytest.raises(MCPError, match="no such resource"):
                await client.read_resource(uri)
        assert said(await client.call_tool("rag_delete", {"corpus": "default"})) == {"deleted": 1}
        await client.call_tool("rag_ingest", LEAVE)
    async with connected("--scope", "team=b") as client:
        assert [r.name for r in (await client.list_resources()).resources] == ["other"]


async def test_no_corpus_but_those_of_the_command_line_can_be_named(connected, written):
    await written("secret", Document("a", LEAVE["text"]))
    async with connected() as client:
        result = await client.call_tool("rag_search", {**SEARCH, "corpus": "secret"})
        assert result.is_error
        assert said(result)["error"]["type"] == "InvalidArguments"
        assert (await client.list_resources()).resources == []
        with pytest.raises(MCPError, match="no such resource"):
            await client.read_resource("ragchat://secret/a")


async def test_a_passage_is_read_under_its_own_document_only(connected, written):
    await written("default", Document("a", LEAVE["text"]), Document("b", "Tea is at four."))
    async with connected() as client:
        _, link = (await client.call_tool("rag_search", SEARCH)).content
        with pytest.raises(MCPError, match="no such resource"):
            await client.read_resource(link.uri.replace("/a#", "/b#"))


async def test_a_listing_is_whole_in_bounded_pages(connected, written):
    first = [f"{n:03}" for n in range(PAGE + 1)]
    second = [f"{n:03}" for n in range(PAGE - 1)]
    await written("one", *(Document(each, f"Note {each}.") for each in first))
    await written("two", *(Document(each, f"Note {each}.") for each in second))
    seen, sizes, cursor = [], [], None
    async with connected("--corpus", "one", "--corpus", "two") as client:
        while not sizes or cursor:
            listed = await client.list_resources(cursor=cursor)
            seen += [resource.uri for resource in listed.resources]
            sizes.append(len(listed.resources))
            cursor = listed.next_cursor
        with pytest.raises(MCPError, match="cursor"):
            await client.list_resources(cursor="ragchat://secret/a")
    assert sizes == [PAGE, PAGE]
    assert seen == [
        *(f"ragchat://one/{each}" for each in first),
        *(f"ragchat://two/{each}" for each in second),
    ]


def test_stdout_carries_nothing_but_protocol(child, tmp_path):
    """Also where arguments, or lines, are none."""
    run = child()
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "0"},
    }
    calls = [
        ("initialize", hello),
        ("tools/call", {"name": "rag_search", "arguments": {"corpus": "default"}}),
        ("tools/call", {"name": "rag_search", "arguments": {**SEARCH, "hybrid_weight": 0.0}}),
    ]
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": n, "method": method, "params": params})
        for n, (method, params) in enumerate(calls)
    ]
    initialized = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"})
    lines[1:1] = [initialized, "no JSON"]
    process = subprocess.Popen(
        [run.command, *run.args],
        cwd=tmp_path,
        env=run.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    with process:
        process.stdin.write("\n".join(lines) + "\n")
        process.stdin.flush()
        answers = []
        while not {0, 1, 2} <= {answer.get("id") for answer in answers}:
            answers.append(json.loads(process.stdout.readline()))
        process.stdin.close()
        rest = process.stdout.read()
    assert process.returncode == 0
    assert rest == ""
    assert {answer["jsonrpc"] for answer in answers} == {"2.0"}
    (failed,) = [answer["result"] for answer in answers if answer.get("id") == 1]
    assert failed["isError"]


def test_a_client_that_is_gone_is_no_traceback(child, tmp_path):
    """Its end of the pipe is closed while an answer is on its way."""
    server = child()
    process = subprocess.Popen(
        [server.command, *server.args],
        cwd=tmp_path,
        env=server.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    client = {"name": "test", "version": "0"}
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
    messages = [{"method": "initialize", "params": hello}, {"method": "ping"}]
    first, second = (
        json.dumps({"jsonrpc": "2.0", "id": n, **message}).encode() + b"\n"
        for n, message in enumerate(messages)
    )
    with process:
        process.stdin.write(first)
        process.stdin.flush()
        process.stdout.readline()
        process.stdout.close()
        process.stdin.write(second)
        process.stdin.close()
        assert process.stderr.read() == b""
    assert process.returncode in (0, 1)


def test_without_its_extra_the_command_names_it(child, tmp_path):
    code = "import sys; sys.modules['mcp'] = None; from ragchat.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "mcp"],
        cwd=tmp_path,
        env=child().env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert 'pip install "ragchat-toolkit[mcp]"' in done.stderr
    assert done.stdout == ""
    assert not list(tmp_path.iterdir())


def test_a_server_for_any_corpus_is_refused():
    with pytest.raises(ragchat.InvalidSetting, match="must be named"):
        create_server(ragchat.RagTools(ragchat.in_memory()))


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)


@given(texts, texts, st.just("") | texts)
def test_a_uri_says_what_it_was_made_of(corpus, document, passage):
    name = ResourceName(corpus, document, passage)
    assert str(name).isascii()
    assert ResourceName.parse(str(name)) == name


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "ragchat://",
        "ragchat://a",
        "ragchat://a/",
        "ragchat:///b",
        "ragchat://a/b#",
        "file://a/b",
        "x ragchat://a/b",
        "ragchat://a/%ff",
        "ragchat://a/\ud800",
        "ragchat://a/b%00",
    ],
)
def test_what_is_no_uri_of_ours_names_nothing(uri):
    assert ResourceName.parse(uri) is None
