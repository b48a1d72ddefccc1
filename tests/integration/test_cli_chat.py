"""``ragchat chat``, through pipes and in a real terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ragchat.testing import Failure, Gate, Held, LoopbackOpenAI

CORPUS = Path(__file__).parents[2] / "ragchat" / "demo" / "corpus"
COMMAND = [sys.executable, "-m", "ragchat.cli"]
GRINDER = "Which coffee grinder is the quietest?"
LIBRARY = "How many books can I borrow from the library?"


@pytest.fixture(scope="module")
def place(tmp_path_factory, child_env):
    """A folder whose index holds the demo's texts, and the environment of its commands."""
    folder = tmp_path_factory.mktemp("chat")
    env = {**child_env, "RAGCHAT_EMBEDDING_PROVIDER": "hashing", "PYTHONIOENCODING": "utf-8"}
    ingest = [*COMMAND, "ingest", str(CORPUS)]
    subprocess.run(ingest, cwd=folder, env=env, check=True, capture_output=True, timeout=120)
    return folder, env


@pytest.fixture
def piped(place):
    """Runs a conversation through pipes."""

    def run(stdin, *arguments, **env):
        return subprocess.run(
            [*COMMAND, "chat", *arguments],
            cwd=place[0],
            env={**place[1], **env},
            input=stdin if isinstance(stdin, bytes) else stdin.encode(),
            capture_output=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture
def model():
    """A chat model on loopback that cites the first source, and the settings that lead to it."""
    with LoopbackOpenAI(default=first_source) as server:
        env = {
            "RAGCHAT_MODEL": "m",
            "OPENAI_API_KEY": "loopback",
            "OPENAI_BASE_URL": server.base_url,
        }
        yield server, env


def first_source(request):
    number = re.search(r'"citation": ?(\d+)', request.json["messages"][-1]["content"])[1]
    return f"Like this [{number}]."


def numbers(text):
    """Returns what each footnote's number stands for."""
    return dict(re.findall(r"^\[(\d+)\] .*\n    (\S+)", text, re.MULTILINE))


def test_lines_of_a_pipe_are_questions_of_one_conversation(piped, model):
    """Earlier turns go along, blank lines do not count, and numbers stay with their sources."""
    server, env = model
    done = piped(f"{GRINDER}\n\n{LIBRARY}\n{GRINDER}\n/quit\nnot asked\n", **env)
    assert (done.returncode, done.stderr.decode()) == (0, "")
    roles = [[m["role"] for m in request.json["messages"]] for request in server.requests]
    turn = ["user", "assistant"]
    assert roles == [["user"], [*turn, "user"], [*turn, *turn, "user"]]
    assert server.requests[1].json["messages"][0]["content"] == GRINDER
    answers = re.findall(r"Like this \[(\d+)\]\.", done.stdout.decode())
    assert len(answers) == 3
    assert answers[0] == answers[2] != answers[1]
    assert set(numbers(done.stdout.decode())) == set(answers)


@pytest.mark.parametrize(
    ("reply", "note"),
    [("It is loud.", "cites none of its sources"), ("It is [77].", "cites [77]: no such source")],
)
def test_an_answer_without_a_source_of_its_own_says_so(piped, reply, note):
    with LoopbackOpenAI(default=reply) as server:
        env = {"RAGCHAT_MODEL": "m", "OPENAI_API_KEY": "k", "OPENAI_BASE_URL": server.base_url}
        done = piped(f"{GRINDER}\n", **env)
    assert done.returncode == 0
    assert note in done.stderr.decode()


def test_without_a_model_answers_are_sentences_of_the_documents(piped):
    """It says so once."""
    done = piped(f"{GRINDER}\n/new\n{LIBRARY}\n")
    assert done.returncode == 0
    assert done.stderr.decode().count("no chat model is configured") == 1
    assert len(re.findall(r"^\[1\] .*\n    \S", done.stdout.decode(), re.MULTILINE)) == 2


def test_a_conversation_with_an_empty_corpus_says_so_at_its_beginning(piped):
    done = piped(f"{GRINDER}\n{LIBRARY}\n", "--corpus", "other")
    assert done.returncode == 0
    assert done.stderr.decode().count("corpus 'other' is empty") == 1
    assert "is empty" not in piped(f"{GRINDER}\n").stderr.decode()


def test_json_gives_one_line_an_answer(piped):
    done = piped(f"{GRINDER}\n/sources\n/new\n{LIBRARY}\n", "--json")
    rows = [json.loads(line) for line in done.stdout.decode().splitlines()]
    assert [row["question"] for row in rows] == [GRINDER, LIBRARY]
    for row in rows:
        for source in row["sources"]:
            assert f"[{source['number']}]" in row["answer"]
    assert all(row["sources"] for row in rows)


def test_json_is_one_line_to_readers_that_know_more_line_breaks_too(piped):
    """Python's `str.splitlines` breaks lines at separators that JSON may hold as they are."""
    question = "Which coffee\u2028grinder\x85is the quietest?"
    done = piped(f"{question}\n", "--json")
    (row,) = (json.loads(line) for line in done.stdout.decode().splitlines())
    assert row["question"] == question


def test_json_gives_one_line_a_failure_too(piped, model):
    server, env = model
    server.script(Failure(400, "no"))
    done = piped(f"{GRINDER}\n{LIBRARY}\n", "--json", **env)
    first, second = (json.loads(line) for line in done.stdout.decode().splitlines())
    assert first["error"]["type"] == "BadRequestError"
    assert second["question"] == LIBRARY


def test_commands_tell_of_the_last_answer(piped):
    done = piped(f"/sources\n{GRINDER}\n/sources\n/trace\n/history\n/nonsense\n/help\n")
    out, said = done.stdout.decode(), done.stderr.decode()
    assert done.returncode == 0
    assert "nothing has been asked yet" in said
    assert "there is no command /nonsense" in said
    assert f"query: {GRINDER}" in out
    lines = out.splitlines()
    (retrieve,) = (n for n, line in enumerate(lines) if line.startswith("├── retrieve  "))
    assert lines[retrieve + 1].startswith("│   ")  # as `ask --trace` shows it
    assert any(line.startswith("├── augment  ") for line in lines[retrieve:])
    assert f"> {GRINDER}" in out
    assert "/quit" in out


def test_a_new_conversation_forgets_the_old_one(piped, model):
    server, env = model
    piped(f"{GRINDER}\n/new\n{LIBRARY}\n", **env)
    assert len(server.requests[1].json["messages"]) == 1


def test_a_failed_question_is_no_part_of_the_conversation(piped, model):
    """The next ones are asked all the same, and the exit code tells."""
    server, env = model
    server.script(Failure(400, "no"))
    done = piped(f"{GRINDER}\n{LIBRARY}\n", **env)
    assert done.returncode == 1
    assert "ragchat: chat model: HTTP 400" in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()
    assert len(server.requests[-1].json["messages"]) == 1
    assert "Like this" in done.stdout.decode()


def test_without_an_index_it_says_what_to_do(piped):
    done = piped("q\n", "--index", "nowhere.sqlite")
    assert done.returncode == 1
    assert "no index at nowhere.sqlite" in done.stderr.decode()


def test_a_narrow_terminal_without_unicode_is_enough(piped):
    """Bytes that are no text in its encoding are no crash either."""
    done = piped(
        GRINDER.encode() + b" \xff\n/trace\n", PYTHONIOENCODING="ascii", COLUMNS="40", TERM="dumb"
    )
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert b"\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 40


class Terminal:
    """A conversation in a terminal of its own."""

    def __init__(self, folder, env):
        self.shown = ""
        master, slave = pty.openpty()
        self.master = master
        self.process = subprocess.Popen(
            [*COMMAND, "chat"],
            cwd=folder,
            env={**env, "TERM": "dumb"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            preexec_fn=lambda: _take_terminal(slave),  # noqa: PLW1509 - Ctrl-C comes from its driver
        )
        os.close(slave)

    def expect(self, pattern):
        """Reads until the pattern was shown, and forgets what came before it."""
        until = time.monotonic() + 90
        while (met := re.search(pattern, self.shown)) is None:
            ready, _, _ = select.select([self.master], [], [], max(0, until - time.monotonic()))
            assert ready, self.shown
            self.shown += os.read(self.master, 4096).decode()
        self.shown = self.shown[met.end() :]

    def type(self, text):
        os.write(self.master, text.encode())

    def interrupt_prompt(self):
        """Types Ctrl-C when the prompt waits for a key.

        It is shown an instant before, and what comes in between, readline hears with the next key.
        """
        state = Path(f"/proc/{self.process.pid}/stat")
        while state.exists() and state.read_text("utf-8").rpartition(")")[2].split()[0] in "RD":
            os.sched_yield()
        self.type("\x03")

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(60)
        os.close(self.master)


def _take_terminal(slave):
    import fcntl
    import termios

    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def terminal(place):
    opened = []

    def begin(**env):
        opened.append(Terminal(place[0], {**place[1], **env}))
        return opened[-1]

    yield begin
    for each in opened:
        each.close()


def test_ctrl_c_stops_an_answer_and_twice_leaves(terminal, model):
    """What was stopped is no part of the conversation."""
    server, env = model
    server.script(Held("Slowly now, a very long answer follows.", Gate(), after=3))
    chat = terminal(**env)
    chat.expect("> ")
    chat.type(f"{GRINDER}\n")
    chat.expect("Slowly")
    chat.type("\x03")
    chat.expect("Ctrl-C again leaves")
    chat.expect("> ")
    chat.type(f"{LIBRARY}\n")
    chat.expect(r"Like this \[1\]\.")
    chat.expect("> ")
    assert len(server.requests[-1].json["messages"]) == 1
    chat.interrupt_prompt()
    chat.expect("\nCtrl-C again leaves")
    chat.expect("> ")
    chat.interrupt_prompt()
    chat.expect("\n")  # for the shell's own prompt
    assert chat.process.wait(60) == 0


def test_the_end_of_input_leaves_a_terminal(terminal):
    chat = terminal(NO_COLOR="1")
    chat.expect("no chat model is configured")
    chat.expect("> ")
    chat.type("\x04")
    assert chat.process.wait(60) == 0
