"""``ragchat serve`` and ``ragchat keys``, as processes and as a person use them."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys

import httpx2
import pytest
from typer.testing import CliRunner

from ragchat.cli.app import app
from ragchat.cli.serve import is_local
from ragchat.testing import LoopbackOpenAI

ANYWHERE = "0.0.0.0"  # noqa: S104 - it is refused


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """Runs commands in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, arguments, prog_name="ragchat")


@pytest.fixture
def started(tmp_path, child_env):
    """Starts ``ragchat serve`` in a process; gives it and its address."""
    running = []

    def start(*arguments, program=("-m", "ragchat.cli"), **settings):
        command = [sys.executable, *program, "serve", "--port", "0", *arguments]
        env = {**child_env, "RAGCHAT_EMBEDDING_PROVIDER": "none", **settings}
        process = subprocess.Popen(
            command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True, encoding="utf-8"
        )
        running.append(process)
        line = process.stderr.readline()
        found = re.search(r"listening on (\S+);", line)
        assert found, line + process.stderr.read()
        return process, found[1]

    yield start
    for process in running:
        process.kill()
        process.wait(30)
        process.stderr.close()


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_a_signal_and_ends_in_order(started, sent):
    process, url = started()
    assert httpx2.get(f"{url}/readyz").json() == {"status": "ready"}
    document = {"text": "Tea is at four."}
    put = httpx2.put(f"{url}/v1/documents/a", json=document, timeout=30)  # a model is loaded first
    assert put.status_code == 201
    process.send_signal(sent)
    assert process.wait(30) == 0
    rest = process.stderr.read()
    assert "Traceback" not in rest
    assert "documents/a" not in rest


STUCK = """
import signal, sys, threading
from ragchat.cli import main
from ragchat_retrieval.ingest.reading import FileReader

def documents(self, file):
    print("reading", file=sys.stderr, flush=True)
    threading.Event().wait()

FileReader.documents = documents
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
main()
"""
"""The command line, with a file that takes for ever to be read."""


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_whatever_is_being_read(started, tmp_path, second):
    """A thread that reads a file of minutes cannot be stopped, and holds up nobody."""
    (tmp_path / "tmp").mkdir()
    process, url = started(program=("-c", STUCK), TMPDIR=str(tmp_path / "tmp"))
    host, port = url.removeprefix("http://").split(":")
    body = (
        b'--b\r\ncontent-disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
        b"Tea is at four.\r\n--b--\r\n"
    )
    head = (
        f"POST /v1/documents HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(body)}\r\n"
        "content-type: multipart/form-data; boundary=b\r\n\r\n"
    )
    with socket.create_connection((host, int(port))) as upload:
        upload.sendall(head.encode() + body)
        while process.stderr.readline() != "reading\n":
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        while _listens(host, int(port)):  # until the first signal has arrived
            assert process.poll() is None
        process.send_signal(second)
        assert process.wait(20) == 0
    assert "Traceback" not in process.stderr.read()
    assert not list((tmp_path / "tmp").iterdir())


def _listens(host, port):
    try:
        socket.create_connection((host, port)).close()
    except ConnectionError:
        return False
    return True


def test_a_command_that_is_interrupted_waits_for_no_file(child_env, tmp_path):
    (tmp_path / "tea.txt").write_text("Tea is at four.", "utf-8")
    with subprocess.Popen(
        [sys.executable, "-c", STUCK, "ingest", "tea.txt"],
        cwd=tmp_path,
        env={**child_env, "RAGCHAT_EMBEDDING_PROVIDER": "none"},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            while process.stderr.readline() != "reading\n":
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 130
        finally:
            process.kill()


def test_an_empty_corpus_is_served_and_said_to_be_empty(started, shell, tmp_path):
    """A name that was mistyped is an empty index, too."""
    (tmp_path / "tea.md").write_text("Tea is at four.", "utf-8")
    assert shell("ingest", "tea.md", "--index", "full.sqlite").exit_code == 0
    said = []
    for index in ("ful.sqlite", "full.sqlite"):
        process, url = started("--index", index)
        assert httpx2.get(f"{url}/readyz").json() == {"status": "ready"}
        process.send_signal(signal.SIGTERM)
        said.append(process.stderr.read())
    assert ["corpus 'default' is empty" in each for each in said] == [True, False]


def test_it_has_asked_its_index_before_it_is_asked(started, shell, tmp_path, monkeypatch):
    """What the first turn would wait for is loaded when the server says that it listens."""
    (tmp_path / "tea.md").write_text("Tea is at four.", "utf-8")
    with LoopbackOpenAI() as embedding:
        settings = {
            "RAGCHAT_EMBEDDING_PROVIDER": "openai",
            "RAGCHAT_EMBEDDING_URL": embedding.base_url,
            "RAGCHAT_EMBEDDING_MODEL": "any",
            "RAGCHAT_EMBEDDING_API_KEY": "any",
        }
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        assert shell("ingest", "tea.md").exit_code == 0
        before = len(embedding.requests)
        started(**settings)
        asked = [request.json["input"] for request in embedding.requests[before:]]
    assert asked == [["ready"]]


def test_an_embedder_that_is_down_keeps_no_server_from_starting(started, shell, tmp_path):
    """What fails then is told where somebody asks for it."""
    (tmp_path / "tea.md").write_text("Tea is at four.", "utf-8")
    assert shell("ingest", "tea.md").exit_code == 0
    nowhere = {
        "RAGCHAT_EMBEDDING_PROVIDER": "ollama",
        "RAGCHAT_EMBEDDING_URL": "http://127.0.0.1:9",
    }
    _, url = started(**nowhere, RAGCHAT_EMBEDDING_MODEL="any")
    assert httpx2.get(f"{url}/healthz").json() == {"status": "ok"}


def test_a_key_made_on_the_command_line_opens_its_corpus(started, shell):
    made = json.loads(shell("keys", "add", "alice", "--corpus", "legal", "--json").stdout)
    process, url = started("--keys", "ragchat-keys.json")
    head = {"authorization": f"Bearer {made['key']}"}
    assert httpx2.get(f"{url}/v1/documents").status_code == 401
    assert httpx2.get(f"{url}/v1/documents", headers=head).json()["data"] == []
    assert shell("keys", "remove", "alice").exit_code == 0
    assert httpx2.get(f"{url}/v1/documents", headers=head).status_code == 401
    assert process.poll() is None


def test_keys_are_listed_without_what_they_are(shell):
    assert "ragchat keys add" in shell("keys", "list").stderr
    secret = shell("keys", "add", "bob", "--scope", "team=eu").stdout.strip()
    assert secret.startswith("rc-")
    listed = shell("keys", "list")
    assert listed.stdout == "bob  corpus default  team=eu\n"
    known = json.loads(shell("keys", "list", "--json").stdout)["keys"]
    assert known == [{"name": "bob", "corpus": "default", "scope": {"team": "eu"}}]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("keys", "add", "bob"), 1),
        (("keys", "remove", "eve"), 1),
        (("keys", "add", "eve", "--scope", '[{"key": "n", "op": "gt", "value": 1}]'), 2),
        (("serve", "--host", ANYWHERE), 2),
        (("serve", "--host", "example.com"), 2),
        (("serve", "--keys", "none.json"), 1),
        (("serve", "--cors", "app.example"), 1),
        (("serve", "--model", "m"), 1),
    ],
)
def test_what_cannot_work_is_said_in_a_line(shell, arguments, code):
    """A name twice, a name that is not there, no equality, no keys beyond this machine."""
    shell("keys", "add", "bob")
    done = shell(*arguments)
    assert done.exit_code == code
    assert "Traceback" not in done.output


def test_a_port_that_is_taken_is_said_in_a_line(shell):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = shell("serve", "--port", str(taken.getsockname()[1]))
    assert done.exit_code == 1
    assert "in use" in done.stderr


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        (ANYWHERE, False),
        ("::", False),
        ("192.168.1.1", False),
        ("localhost.example", False),
    ],
)
def test_only_addresses_of_this_machine_need_no_keys(host, local):
    assert is_local(host) is local
