"""The command line, as a person or a script uses it."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ragchat.cli.app import app
from ragchat.cli.running import shown
from ragchat.testing import Failure, Interrupted, LoopbackOpenAI, Reply

CORPUS = Path(__file__).parents[2] / "ragchat" / "demo" / "corpus"
COMMANDS = [
    "ingest",
    "search",
    "ask",
    "chat",
    "serve",
    "keys",
    "stats",
    "embed",
    "migrate",
    "remove",
    "reset",
    "demo",
    "eval",
    "mcp",
]


class Shell:
    """Runs ``ragchat`` in a folder: in this process, or in one of its own."""

    def __init__(self, folder, env):
        self.folder = folder
        self.env = env

    def __call__(self, *arguments, stdin="", **env):
        with contextlib.chdir(self.folder):
            done = CliRunner().invoke(
                app, arguments, input=stdin, env={**self.env, **env}, prog_name="ragchat"
            )
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)

    def process(self, *arguments, **env):
        """Runs a command as the console script does."""
        return subprocess.run(
            [sys.executable, "-m", "ragchat.cli", *arguments],
            cwd=self.folder,
            env={**self.env, **env},
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=120,
            check=False,
        )

    def json(self, *arguments, **env):
        """Returns the one JSON document that a command prints."""
        done = self(*arguments, "--json", **env)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def base_env(child_env):
    return {**child_env, "RAGCHAT_EMBEDDING_PROVIDER": "hashing", "PYTHONIOENCODING": "utf-8"}


@pytest.fixture
def shell(tmp_path, base_env):
    """A shell in an empty folder."""
    return Shell(tmp_path, base_env)


@pytest.fixture(scope="module")
def filled(tmp_path_factory, base_env):
    """A shell in a folder whose index holds the demo's texts; tests only read it."""
    shell = Shell(tmp_path_factory.mktemp("filled"), base_env)
    done = shell("ingest", str(CORPUS))
    assert done.returncode == 0, done.stderr
    return shell


def failed(done, code, *words):
    """Asserts that a command failed with one clear line and no traceback."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr
    if code == 1:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ragchat: ")]
        assert len(lines) == 1


# Help and misuse


def names_of(text):
    """Returns the names of options in a help, and of variables that it speaks of."""
    return set(re.findall(r"(?<!\w)--[a-z-]+|RAGCHAT_[A-Z_]+", text))


@pytest.mark.parametrize("command", [[], *[[name] for name in COMMANDS]], ids=str)
def test_help_fits_a_narrow_terminal_without_unicode_and_cuts_nothing(shell, command):
    done = shell.process(*command, "--help", PYTHONIOENCODING="ascii", COLUMNS="52", TERM="dumb")
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert max(map(len, done.stdout.splitlines())) <= 52
    wide = shell.process(*command, "--help", COLUMNS="200").stdout
    assert names_of(done.stdout) == names_of(wide)
    # An argument that may be repeated has three dots behind its bracket.
    assert re.findall(r"\S*[^\]}]\.\.\.", done.stdout) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_what_an_option_takes_and_no_type_of_one_that_takes_nothing(shell, command):
    lines = shell.process(command, "--help", COLUMNS="100").stdout.splitlines()
    types = re.compile(r"<(bool|str|int|float)")
    assert [line for line in lines if "--" in line and types.search(line)] == [
        line for line in lines if "--help" in line
    ]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_breaks_its_sentences_nowhere_but_at_the_edge(shell, command):
    lines = shell.process(command, "--help", COLUMNS="250").stdout.splitlines()
    prose = [line.strip() for line in lines if line.startswith(" ") and line.strip()]
    assert len(prose) >= 2
    assert [line for line in prose[1:] if not line.endswith(".")] == []


def test_without_a_command_it_shows_its_help(shell):
    done = shell()
    assert all(name in done.stdout + done.stderr for name in COMMANDS)


def test_the_version_is_that_of_the_distribution(shell):
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", shell.process("--version").stdout)


@pytest.mark.parametrize(
    "arguments",
    [
        ["frobnicate"],
        ["search"],
        ["search", "q", "--top-k", "0"],
        ["search", "q", "--keyword-weight", "2"],
        ["search", "q", "--filter", "nosign"],
        ["search", "q", "--filter", "no key=1"],
        ["search", "q", "--filter", '{"a": [1]}'],
        ["search", "q", "--filter", "{"],
        ["ask", "  "],
        ["search", ""],
        ["ingest"],
        ["ingest", ".", "--meta", "nosign"],
        ["ingest", ".", "--meta", "no key=1"],
        ["ingest", ".", "--meta", "title=Tea"],
        ["remove"],
        ["remove", "a", "--source", "b"],
        ["reset"],
    ],
    ids=" ".join,
)
def test_misuse_is_exit_code_2_before_anything_is_touched(shell, arguments):
    failed(shell(*arguments), 2)
    assert list(shell.folder.iterdir()) == []


@pytest.mark.parametrize("value", ["nosign", "no key=1", "{"])
@pytest.mark.parametrize("command", [["mcp"], ["keys", "add", "bob"]], ids=" ".join)
def test_what_is_wrong_with_a_scope_is_told_of_that_option(shell, command, value):
    done = shell(*command, "--scope", value)
    failed(done, 2, "--scope")
    assert "--filter" not in done.stderr


@pytest.mark.parametrize("content", ["{", "{}", '["a"]', '[{"content": "no role"}]'])
def test_a_history_that_is_no_list_of_messages_is_misuse(filled, tmp_path, content):
    history = tmp_path / "history.json"
    history.write_text(content, "utf-8")
    failed(filled("ask", "q", "--history", str(history)), 2, "--history")


# Errors of the place


@pytest.mark.parametrize(
    "arguments", [["search", "q"], ["ask", "q"], ["stats"], ["embed"], ["remove", "x"]], ids=str
)
def test_a_missing_index_is_named_with_the_way_to_make_one(shell, arguments):
    failed(shell(*arguments), 1, "ragchat.sqlite", "ragchat ingest")
    assert list(shell.folder.iterdir()) == []


def test_an_error_is_a_json_document_too(shell):
    done = shell("stats", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"]["type"] == "CommandFailed"


def test_a_file_that_is_no_index_is_refused(shell):
    (shell.folder / "note.md").write_text("# Hello\n", "utf-8")
    failed(shell("search", "q", "--index", "note.md"), 1, "note.md")


@pytest.mark.parametrize("command", [["search", "q"], ["ingest", "note.md"], ["stats"]], ids=str)
@pytest.mark.parametrize("index", [".", "nowhere/x.sqlite"])
def test_a_place_where_no_index_can_be_is_named(shell, command, index):
    (shell.folder / "note.md").write_text("# Hello\n", "utf-8")
    failed(shell(*command, "--index", index), 1, "folder" if index == "." else "nowhere")


def test_a_missing_path_to_ingest_is_named(shell):
    done = shell("ingest", "nowhere")
    assert done.returncode in {1, 2}
    failed(done, done.returncode, "nowhere")


def test_another_embedder_than_the_stored_one_is_named(filled):
    """A hashed index is not searched with another model's vectors."""
    done = filled("embed", RAGCHAT_EMBEDDING_PROVIDER="local")
    failed(done, 1, "identity")


# Ingest and stats


def test_ingesting_again_skips_what_is_unchanged(shell):
    first = shell.json("ingest", str(CORPUS))
    again = shell.json("ingest", str(CORPUS))
    count = len(list(CORPUS.rglob("*.md")))
    assert (first["documents"], first["skipped"], first["errors"]) == (count, 0, [])
    assert (again["documents"], again["skipped"]) == (0, count)


def test_a_bad_file_is_reported_and_the_others_are_ingested(shell):
    folder = shell.folder / "notes"
    folder.mkdir()
    (folder / "good.md").write_text("# Leave\n\nEmployees get 25 days.\n", "utf-8")
    (folder / "bad.md").write_bytes(b"\xff\xfe broken")
    told = shell("ingest", "notes", "--json")
    assert told.returncode == 1
    report = json.loads(told.stdout)
    assert report["documents"] == 1
    assert [error["id"].rpartition("/")[2] for error in report["errors"]] == ["bad.md"]
    done = shell("ingest", "notes")
    assert (done.returncode, done.stderr.count("bad.md")) == (1, 1)
    assert done.stdout == "0 documents read into 0 passages, 1 unchanged, 1 not readable\n"


def test_metadata_of_an_ingest_can_be_filtered_by(shell):
    """They are what the last ingest of the folder said: other ones, or none, take their place."""
    (shell.folder / "notes").mkdir()
    (shell.folder / "notes" / "tea.md").write_text("Tea is at four.", "utf-8")

    def found(*filters):
        given = [part for each in filters for part in ("--filter", each)]
        return len(shell.json("search", "tea", *given)["results"])

    said = ("--meta", "team=hr", "--meta", "year=2025", "--meta", 'code="7"')
    assert shell.json("ingest", "notes", *said)["documents"] == 1
    assert shell.json("ingest", "notes", *said)["skipped"] == 1
    assert found("team=hr", "year=2025", 'code="7"') == 1
    assert found("year=2024") == found("code=7") == 0
    assert shell.json("ingest", "notes", "--meta", "team=it")["documents"] == 1
    assert (found("team=it"), found("team=hr"), found("year=2025")) == (1, 0, 0)
    assert shell.json("ingest", "notes")["documents"] == 1
    assert found("team=it") == 0


def test_an_empty_folder_keeps_its_documents_until_it_is_said_to_be_emptied(shell):
    (shell.folder / "docs").mkdir()
    note = shell.folder / "docs" / "note.md"
    note.write_text("Tea.\n", "utf-8")
    assert shell("ingest", "docs").returncode == 0
    note.unlink()
    done = shell("ingest", "docs")
    assert (done.returncode, "no file to read" in done.stderr) == (1, True)
    done = shell("ingest", "docs", "--emptied")
    assert (done.returncode, "1 removed" in done.stdout) == (0, True)


def test_a_single_file_can_be_ingested(shell):
    (shell.folder / "leave.md").write_text("# Leave\n\nEmployees get 25 days.\n", "utf-8")
    assert shell.json("ingest", "leave.md")["documents"] == 1
    assert shell.json("search", "25 days")["results"][0]["source"].endswith("leave.md")


def test_documents_with_passages_that_the_embedder_cuts_are_named(shell):
    """Their titles, which stand above each passage, leave too little room in the model's window."""
    words = [f"word{n}" for n in range(100)]
    rows = [{"_id": i, "title": " ".join(words[40:]), "text": " ".join(words)} for i in "abcd"]
    (shell.folder / "kb.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    done = shell("ingest", "kb.jsonl", "--root", "notes", RAGCHAT_EMBEDDING_PROVIDER="local")
    assert done.returncode == 0
    assert (
        "do not see their end (notes/kb.jsonl#a, notes/kb.jsonl#b, notes/kb.jsonl#c, …)"
        in done.stderr
    )
    assert "word1" not in done.stderr


def test_one_thing_is_not_told_in_the_plural(shell):
    (shell.folder / "leave.md").write_text("# Leave\n\nEmployees get 25 days.\n", "utf-8")
    assert shell("ingest", "leave.md").stdout == "1 document read into 1 passage\n"


def test_documents_without_text_are_counted_and_not_lost_in_silence(shell):
    texts = ["Tea is grown in the hills.", "", " \n "]
    records = [json.dumps({"_id": str(n), "text": text}) for n, text in enumerate(texts)]
    (shell.folder / "notes.jsonl").write_text("\n".join(records), "utf-8")
    done = shell("ingest", "notes.jsonl")
    assert done.stdout == "1 document read into 1 passage, 2 without text\n"


def test_a_second_folder_of_the_same_name_gets_a_root_of_its_own(shell):
    for project, text in (("a", "Tea is green."), ("b", "Coffee is black.")):
        (shell.folder / project / "docs").mkdir(parents=True)
        (shell.folder / project / "docs" / "page.md").write_text(text, "utf-8")
    shell.json("ingest", "a/docs")
    refused = shell("ingest", "b/docs")
    assert refused.returncode == 1
    assert "choose another root" in refused.stderr
    assert shell.json("ingest", "b/docs", "--root", "b docs")["documents"] == 1
    assert shell.json("stats")["documents"] == 2
    (shell.folder / "a").rename(shell.folder / "c")
    assert shell.json("ingest", "c/docs", "--moved")["errors"] == []
    assert shell.json("stats")["documents"] == 2


def test_the_language_of_the_texts_is_named_when_an_index_is_new(shell):
    (shell.folder / "hafen.txt").write_text("Die Häuser am Hafen werden gestrichen.", "utf-8")
    env = {"RAGCHAT_EMBEDDING_PROVIDER": "none"}
    failed(shell("ingest", "hafen.txt", "--language", "klingon"), 2, "klingon", "german")
    shell.json("ingest", "hafen.txt", "--language", "german", **env)
    assert len(shell.json("search", "Haus", **env)["results"]) == 1
    assert shell.json("ingest", "hafen.txt", **env)["skipped"] == 1  # as it was written
    failed(shell("ingest", "hafen.txt", "--language", "none", **env), 1, "ragchat1:german")
    shell.json("ingest", "hafen.txt", "--language", "none", "-i", "b.sqlite", **env)
    assert shell.json("search", "Haus", "-i", "b.sqlite", **env)["results"] == []


def test_stats_tell_what_the_index_holds(filled):
    known = filled.json("stats")
    assert known["documents"] == len(list(CORPUS.rglob("*.md")))
    assert known["vectors"] == known["passages"] > known["documents"]
    assert known["vector_search"] == "float32"
    assert known["bytes"] >= (filled.folder / "ragchat.sqlite").stat().st_size
    shown = filled("stats").stdout
    assert str(known["passages"]) in shown
    assert known["embedding_model"] in shown


def test_stats_name_the_corpora_beside_the_one_that_was_asked_for(shell):
    shell("ingest", str(CORPUS), "--corpus", "one")
    assert "corpus        one\n" in shell("stats", "--corpus", "one").stdout
    assert "corpus        two (not among one)\n" in shell("stats", "--corpus", "two").stdout


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql://ann:p@s?s@host/db", "postgresql://ann:***@host/db"),
        ("qdrant://:secret@host:6333/a", "qdrant://:***@host:6333/a"),
        ("postgresql://h/db?user=a&sslpassword=b&password=c#d", None),
        ("postgresql://ann@host:5432/db", "postgresql://ann@host:5432/db"),
        ("team:kb@home.sqlite?vectors=int8", "team:kb@home.sqlite?vectors=int8"),
    ],
)
def test_a_password_in_the_url_of_an_index_is_not_shown(url, told):
    told = told or "postgresql://h/db?user=a&sslpassword=***&password=***#d"
    assert shown(url) == told


def test_stats_do_not_show_the_password_of_a_server(shell, postgres_url):
    url = f"{postgres_url}&password=hush"
    for told in (shell("stats", "-i", url), shell("stats", "-i", url, "--json")):
        assert told.returncode == 0
        assert "password=***" in told.stdout
        assert "hush" not in told.stdout + told.stderr


def test_without_an_embedder_search_is_by_keywords_and_stats_say_so(shell):
    env = {"RAGCHAT_EMBEDDING_PROVIDER": "none"}
    shell.json("ingest", str(CORPUS), **env)
    assert shell.json("search", "quietest grinder", **env)["results"]
    known = shell.json("stats", **env)
    assert known["vectors"] == 0
    assert "keyword search only" in " ".join(known["notes"])
    assert "RAGCHAT_EMBEDDING_PROVIDER is none" in shell("embed", **env).stderr
    assert shell.json("embed")["embedded"] == known["passages"]
    assert shell.json("stats")["vectors"] == known["passages"]


def test_an_index_is_named_by_option_or_by_environment(shell):
    shell.json("ingest", str(CORPUS), "--index", "a.sqlite")
    assert shell.json("stats", RAGCHAT_INDEX="a.sqlite")["documents"] == 9
    shell.json("ingest", str(CORPUS / "kitchen-bench"), "--index", "a.sqlite", "--corpus", "two")
    assert shell.json("stats", "-i", "a.sqlite", "--corpus", "two")["documents"] == 3


# Search


def test_search_prints_source_lines_and_text(filled):
    shown = filled("search", "how loud is the quietest grinder").stdout
    assert "kitchen-bench/grinders.md, lines" in shown
    assert "62 dB" in shown


def test_search_as_json_is_one_document_with_ranks_and_places(filled):
    found = filled.json("search", "how loud is the quietest grinder", "--top-k", "3")
    assert [result["rank"] for result in found["results"]] == [1, 2, 3]
    best = found["results"][0]
    assert "62 dB" in best["text"]
    assert best["lines"]["start"] <= best["lines"]["end"]
    text = next(CORPUS.rglob("grinders.md")).read_text("utf-8")
    assert text[best["span"]["start"] : best["span"]["end"]] == best["text"]
    assert "explain" not in best


@pytest.mark.parametrize("columns", ["40", "120"])
def test_explain_shows_both_lanes_of_every_candidate(filled, columns):
    done = filled("search", "quietest grinder", "--explain", COLUMNS=columns)
    assert "keyword" in done.stdout
    assert "vector" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= int(columns)
    best = filled.json("search", "quietest grinder", "--explain")["results"][0]["explain"]
    assert best["keyword"]["rank"] == 1
    total = best["keyword"]["contribution"] + best["vector"]["contribution"]
    assert best["fused_score"] == pytest.approx(total)


@pytest.mark.parametrize("given", ["{sign}", '{{"source": "{place}"}}', "{listed}"])
def test_a_filter_narrows_the_search(filled, given):
    place = filled.json("search", "late return of a bike")["results"][0]["source"]
    listed = json.dumps([{"key": "source", "op": "in", "value": [place]}])
    text = given.format(sign=f"source={place}", place=place, listed=listed)
    found = filled.json("search", "price", "--filter", text)
    assert {result["source"] for result in found["results"]} == {place}


def test_nothing_found_is_no_failure(filled):
    done = filled("search", "price", "--filter", "source=nowhere")
    assert (done.returncode, done.stdout) == (0, "")
    assert "nothing found" in done.stderr


def test_an_empty_corpus_is_told_from_a_search_that_finds_nothing(filled):
    done = filled("search", "price", "--corpus", "other")
    assert (done.returncode, done.stdout) == (0, "")
    assert "corpus 'other' is empty" in done.stderr


def test_an_answer_from_an_empty_corpus_says_that_it_is_empty(filled):
    """As where its name is mistyped: the documents would have had to say anything."""
    assert "corpus 'other' is empty" in filled("ask", "price", "--corpus", "other").stderr
    assert "is empty" not in filled("ask", "price", "--filter", "source=nowhere").stderr


def test_the_place_of_a_record_names_the_record(shell):
    """Its lines are lines of the record's text, not of the file."""
    record = {"_id": "tea#1", "text": "Tea is grown in the hills."}
    (shell.folder / "notes.jsonl").write_text("\n" * 6 + json.dumps(record), "utf-8")
    shell.json("ingest", "notes.jsonl")
    assert "notes.jsonl#tea#1, line 1" in shell("search", "tea").stdout
    assert "notes.jsonl#tea#1, line 1" in shell("ask", "Where is tea grown?").stdout


def test_what_documents_say_is_neither_markup_nor_a_command_to_the_terminal(shell):
    evil = "# Notes\n\nThe code [bold]word[/bold] is \x1b[31mred\x1b]0;owned\x07 \x9b2J :smile:\n"
    (shell.folder / "evil.md").write_text(evil, "utf-8")
    shell.json("ingest", "evil.md")
    shown = shell("search", "code word", "--full").stdout
    assert "[bold]word[/bold]" in shown
    assert ":smile:" in shown
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown)


def test_names_are_shown_in_the_order_in_which_they_are_written(shell):
    """Characters that turn the direction of what follows would make one file look like another."""
    name = "report \u202etxt.exe\u202c\u2066.md"
    (shell.folder / name).write_text("# Tea\u202e\n\nTea is at four.", "utf-8")
    (shell.folder / "bad\u202e.md").write_bytes(b"\xff")
    read = shell("ingest", ".")
    found = shell("search", "tea", "--explain")
    for done in (read, found):
        assert not re.search("[\u202a-\u202e\u2066-\u2069]", done.stdout + done.stderr)
    assert "report txt.exe.md" in found.stdout
    assert shell.json("search", "tea")["results"][0]["source"] == name


def test_a_terminal_without_unicode_gets_replacements_not_a_crash(shell):
    (shell.folder / "tea.md").write_text("# 喝茶\n\n我喜欢喝茶。 Grüße!\n", "utf-8")
    shell.json("ingest", "tea.md")
    for arguments in (["search", "喝茶"], ["search", "喝茶", "--explain"], ["ask", "喝茶"]):
        done = shell.process(*arguments, PYTHONIOENCODING="ascii", LC_ALL="C", COLUMNS="40")
        assert done.returncode == 0, done.stderr
        assert done.stdout.isascii()
    long = f"# Tides\n\n{'The tide comes in at noon. ' * 20}"
    (shell.folder / "long.md").write_text(long, "utf-8")
    shell.json("ingest", "long.md")
    cut = shell.process("search", "tide", "-k", "1", PYTHONIOENCODING="ascii", LC_ALL="C").stdout
    assert "?" not in cut
    assert cut.rstrip().endswith(" ~")
    found = json.loads(shell.process("search", "喝茶", "--json", PYTHONIOENCODING="ascii").stdout)
    assert "我喜欢喝茶" in found["results"][0]["text"]


def test_a_reader_that_goes_away_is_no_traceback(filled):
    command = f"{sys.executable} -m ragchat.cli search bike --full --top-k 20 | head -n 1"
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=filled.folder,
        env=filled.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.count("\n") == 1
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


@pytest.mark.parametrize("arguments", [["search", "bike"], ["stats"], ["--help"], ["--version"]])
def test_a_reader_that_left_before_the_first_line_is_no_traceback(filled, arguments):
    unread, written = os.pipe()
    os.close(unread)
    with open(written, "wb") as nobody:  # noqa: PTH123 - a descriptor is no path
        done = subprocess.run(
            [sys.executable, "-m", "ragchat.cli", *arguments],
            cwd=filled.folder,
            env=filled.env,
            stdout=nobody,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="it is a device of Linux")
@pytest.mark.parametrize("buffered", ["", "1"])
@pytest.mark.parametrize(
    "arguments",
    [["search", "bike", "--json", "-k", "30"], ["stats", "--json"], ["stats"], ["--version"]],
)
def test_results_for_which_there_is_no_room_are_a_failure_in_one_line(filled, arguments, buffered):
    """Such as a file on a disk that is full, whenever it is written."""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "ragchat.cli", *arguments],
            cwd=filled.folder,
            env={**filled.env, "PYTHONUNBUFFERED": buffered},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    failed(done, 1, "No space left on device")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
@pytest.mark.parametrize("command", ["stats", "chat"])
def test_a_stream_that_is_closed_from_the_start_is_nothing_to_read_or_write(
    filled, command, closed
):
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m ragchat.cli {command} {closed}"],
        cwd=filled.folder,
        env=filled.env,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)


# Ask


def test_without_a_model_ask_answers_in_the_documents_own_words_and_says_so(filled):
    done = filled("ask", "How loud is the quietest grinder?")
    assert done.returncode == 0, done.stderr
    assert "62 dB" in done.stdout
    assert re.search(r"\[1\] Kitchen Bench.*grinders\.md, lines", done.stdout, re.DOTALL)
    assert "no chat model is configured" in " ".join(done.stderr.split())


def test_every_sentence_of_an_extractive_answer_is_cited_and_stands_in_its_source(filled):
    told = filled.json("ask", "What do I pay for a lost item?")
    assert told["extractive"] is True
    assert told["model"] is None
    by_number = {source["number"]: source for source in told["sources"]}
    parts = re.findall(r"(.+?) \[(\d+)\]", told["answer"])
    assert parts
    for sentence, number in parts:
        assert by_number[int(number)]["cited"]
        assert sentence.strip() in " ".join(by_number[int(number)]["text"].split())


def test_history_makes_sense_of_a_follow_up(filled):
    history = [
        {"role": "user", "content": "Which coffee grinder is the quietest?"},
        {"role": "assistant", "content": "The Marle Quiet, a coffee grinder with ceramic burrs."},
    ]
    (filled.folder / "history.json").write_text(json.dumps(history), "utf-8")
    told = filled.json("ask", "How much is it?", "--history", "history.json")
    assert told["queries"][0]["context"]
    assert "grinders.md" in told["sources"][0]["source"]
    by_stdin = filled("ask", "How much is it?", "--history", "-", stdin=json.dumps(history))
    assert by_stdin.returncode == 0, by_stdin.stderr


def test_with_a_model_the_answer_is_streamed_and_its_sources_follow(filled):
    with LoopbackOpenAI(default="It makes 62 dB [1], so they say [9].") as server:
        env = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "k", "RAGCHAT_MODEL": "m"}
        done = filled("ask", "How loud is the quietest grinder?", **env)
        (request,) = server.requests
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("It makes 62 dB [1], so they say [9].\n")
    assert "grinders.md" in done.stdout
    assert "[9]" in done.stderr
    assert request.json["stream"] is True
    assert request.json["model"] == "m"
    assert "62 dB" in request.json["messages"][-1]["content"]


def test_an_answer_that_cites_none_of_its_sources_says_so(filled):
    with LoopbackOpenAI(default="It makes 62 dB.") as server:
        env = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "k"}
        done = filled("ask", "How loud is the quietest grinder?", "--model", "m", **env)
    assert (done.returncode, done.stdout) == (0, "It makes 62 dB.\n")
    assert "cites none of its sources" in done.stderr


def test_with_a_model_json_holds_the_whole(filled):
    with LoopbackOpenAI(default="It makes 62 dB [1].") as server:
        env = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "k"}
        told = filled.json("ask", "How loud is the quietest grinder?", "--model", "m", **env)
    assert told["answer"] == "It makes 62 dB [1]."
    assert [source["cited"] for source in told["sources"]][:2] == [True, False]


def test_verify_shows_for_each_sentence_what_supports_it(filled):
    with LoopbackOpenAI(default="It makes 62 dB [1]. It is free of rust [9]. It runs on gas.") as s:
        env = {"OPENAI_BASE_URL": s.base_url, "OPENAI_API_KEY": "k"}
        options = ["--verify", "--model", "m"]
        done = filled("ask", "How loud is the quietest grinder?", *options, **env)
        told = filled.json("ask", "How loud is the quietest grinder?", *options, **env)
    assert done.returncode == 0, done.stderr
    shown = " ".join(done.stdout.split())
    assert "It makes 62 dB. [1] " in shown
    assert "unknown It is free of rust." in shown
    assert shown.endswith("1 unknown, 1 uncited")
    checked = told["verification"]
    assert (checked["supported"], checked["unknown_citations"]) == (False, [9])
    first = checked["claims"][0]
    assert first["status"] in {"supported", "weak"}
    assert told["answer"][first["span"]["start"] : first["span"]["end"]] == "It makes 62 dB [1]."
    support = first["supports"][0]
    source = told["sources"][0]
    begin = source["span"]["start"]
    cited = source["text"][support["span"]["start"] - begin : support["span"]["end"] - begin]
    assert "62 dB" in cited
    assert [claim["status"] for claim in checked["claims"][1:]] == ["unknown", "uncited"]


def test_the_documents_own_sentences_support_themselves(filled):
    told = filled.json("ask", "What do I pay for a lost item?", "--verify")
    assert told["verification"]["claims"]
    levels = {claim["level"] for claim in told["verification"]["claims"]}
    assert levels == {"verbatim"}
    assert filled.json("ask", "What do I pay for a lost item?")["verification"] is None


def test_the_trace_is_a_tree_of_what_ran_also_when_it_is_piped(filled):
    done = filled("ask", "What do I pay for a lost item?", "--trace")
    assert "\x1b" not in done.stdout
    lines = done.stdout.split("\n\n")[-1].splitlines()
    names = [line.lstrip("│├└─ ").split("  ")[0] for line in lines]
    assert names[:2] == ["prepare", "transform"]
    assert {"retrieve", "keyword", "augment"} <= set(names)
    keyword = next(line for line in lines if "keyword" in line)
    assert keyword.startswith(("│   ├── ", "│   └── "))
    assert " ms" in keyword
    assert "prepare" not in filled("ask", "What do I pay for a lost item?").stdout


def test_the_trace_is_ascii_where_the_terminal_is(filled):
    question = "What do I pay for a lost item?"
    done = filled.process("ask", question, "--trace", PYTHONIOENCODING="ascii", LC_ALL="C")
    assert done.stdout.isascii()
    assert "+-- transform" in done.stdout


def test_the_trace_is_in_the_json_document_when_it_is_asked_for(filled):
    trace = filled.json("ask", "What do I pay for a lost item?", "--trace")["trace"]
    numbers = {stage["number"]: stage["stage"] for stage in trace["stages"]}
    inside = {(s["stage"], numbers.get(s["parent"])) for s in trace["stages"]}
    assert inside >= {("transform", None), ("retrieve", None), ("keyword", "retrieve")}
    assert trace["seconds"] > 0
    assert filled.json("ask", "What do I pay for a lost item?")["trace"] is None


def test_a_key_in_the_environment_alone_sends_nothing_anywhere(filled):
    with LoopbackOpenAI() as server:
        env = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "k"}
        assert filled.json("ask", "How loud is it?", **env)["extractive"] is True
        assert server.requests == ()


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (Failure(401, "Incorrect API key provided: sk-secret", code="invalid_api_key"), "HTTP 401"),
        (Failure(404, "no such model", code="model_not_found"), "model_not_found"),
        ("", "no text"),
    ],
)
def test_what_the_model_s_server_refuses_is_one_line_without_keys(filled, failure, words):
    with LoopbackOpenAI(default=failure) as server:
        env = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "sk-secret"}
        done = filled("ask", "How loud is it?", "--model", "m", **env)
    failed(done, 1, words)
    assert "sk-secret" not in done.stdout + done.stderr


@pytest.mark.parametrize("how", ["cut", "reset", "error", "malformed"])
def test_an_answer_that_breaks_is_one_line_below_what_was_said(filled, how):
    with LoopbackOpenAI(default=Interrupted("It makes 62 dB [1].", how=how)) as server:
        env = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "k"}
        done = filled("ask", "How loud is it?", "--model", "m", **env)
    failed(done, 1, "chat model")
    assert done.stdout == "" or done.stdout.endswith("\n")


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply("It makes 62", finish_reason="length"), "length limit"),
        (Reply("It makes 62", finish_reason="content_filter"), "content filter"),
        (Reply(refusal="I will not say."), ""),
    ],
)
def test_an_answer_that_is_not_whole_says_so_and_a_refusal_is_shown(filled, reply, words):
    with LoopbackOpenAI(default=reply) as server:
        env = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "k"}
        done = filled("ask", "How loud is it?", "--model", "m", **env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == (reply.text or reply.refusal)
    assert words in done.stderr


def test_chunks_of_odd_shape_are_read_for_what_they_hold(filled):
    """Some providers write content as parts, and what a model thinks is no answer."""
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "loud?"}]}
    choices = [
        None,
        [],
        [{"index": 0, "delta": None}],
        [{"index": 1, "delta": {"content": "other"}}],
        [{"index": 0, "delta": {"content": [thought]}}],
        [{"index": 0, "delta": {"content": [{"type": "text", "text": "It makes "}]}}],
        [{"delta": {"content": "62 dB [1]."}}],
        [{"index": 0, "finish_reason": "stop"}],
    ]
    chunks = [*({"choices": each} for each in choices), {}]
    with LoopbackOpenAI(default=Reply(chunks=chunks)) as server:
        env = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "k"}
        done = filled("ask", "How loud is it?", "--model", "m", **env)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == "It makes 62 dB [1]."


@pytest.mark.parametrize("key", ["sk-\u00e9", "sk-a\nb"])
def test_a_key_that_no_header_can_carry_is_told_without_it(filled, key):
    done = filled("ask", "q", "--model", "m", OPENAI_API_KEY=key)
    failed(done, 1, "OPENAI_API_KEY")
    assert "sk-" not in done.stderr


def test_no_key_and_no_server_are_told_apart(filled):
    failed(filled("ask", "q", "--model", "m"), 1, "OPENAI_API_KEY")
    env = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    failed(filled("ask", "q", "--model", "m", **env), 1, "OPENAI_BASE_URL")


# Remove and reset


def test_documents_are_removed_by_id_or_source(shell):
    shell.json("ingest", str(CORPUS))
    found = shell.json("search", "late return of a bike")["results"][0]
    assert shell.json("remove", found["document_id"], "unknown")["removed"] == 1
    other = shell.json("search", "late items")["results"][0]["source"]
    assert shell.json("remove", "--source", other)["removed"] == 1
    assert shell.json("stats")["documents"] == 7


def test_reset_empties_the_corpus_so_that_another_embedder_can_write_it(shell):
    shell.json("ingest", str(CORPUS))
    assert shell.json("reset", "--yes", RAGCHAT_EMBEDDING_PROVIDER="none")["removed"] == 9
    assert shell.json("stats")["documents"] == 0
    shell.json("ingest", str(CORPUS), RAGCHAT_EMBEDDING_PROVIDER="none")


# Terminals


def on_a_terminal(shell, *arguments):
    """Runs a command on a pseudo-terminal and returns what it shows."""
    parent, child = pty.openpty()
    env = {**shell.env, "TERM": "xterm-256color", "COLUMNS": "80"}
    with subprocess.Popen(
        [sys.executable, "-m", "ragchat.cli", *arguments],
        cwd=shell.folder,
        env=env,
        stdin=child,
        stdout=child,
        stderr=child,
    ) as process:
        os.close(child)
        shown = b""
        while True:
            try:
                piece = os.read(parent, 65536)
            except OSError:  # the last writer has closed it
                break
            if not piece:
                break
            shown += piece
        process.wait(60)
    os.close(parent)
    assert process.returncode == 0, shown
    return shown.decode("utf-8", "replace")


def test_colour_and_progress_are_for_terminals_only(shell):
    shown = on_a_terminal(shell, "ingest", str(CORPUS))
    assert "\x1b[" in shown
    assert "━" in shown
    piped = shell.process("ingest", str(CORPUS))
    assert "\x1b" not in piped.stdout + piped.stderr
    assert "━" not in piped.stdout + piped.stderr
    assert "\x1b[" in on_a_terminal(shell, "search", "quietest grinder")
    json.loads(on_a_terminal(shell, "stats", "--json"))
