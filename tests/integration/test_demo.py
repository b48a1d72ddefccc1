"""The demo answers right, from the right passages, and is quick the second time."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ragchat.demo import CORPUS, QUESTIONS, content, default_index, pages
from ragchat.testing import LoopbackOpenAI

LANES = {"local": "both lanes", "none": "keywords only"}


def play(tmp_path, child_env, *arguments, **env):
    """Runs the demo in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "ragchat.cli", "demo", "--index", "demo.sqlite", *arguments],
        cwd=tmp_path,
        env={**child_env, "PYTHONIOENCODING": "utf-8", **env},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module", params=LANES, ids=LANES.get)
def played(request, tmp_path_factory, child_env):
    """The demo's JSON, played with both lanes and with keywords only, and its folder."""
    folder = tmp_path_factory.mktemp(request.param)
    env = {"RAGCHAT_EMBEDDING_PROVIDER": request.param}
    done = play(folder, child_env, "--json", **env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), folder, env


def test_every_turn_is_answered_from_the_right_passage_first(played):
    """The follow-ups only make sense with the history, and so would their search."""
    expected = [
        ("bikes.md", "Bikes for families", r"the Lark.*and the Heron"),
        ("prices.md", "What does a bike that carries children cost?", r"38 euros with the Heron"),
        ("prices.md", "Longer hires", r"190 euros for the Heron"),
    ]
    for turn, (source, heading, fact) in zip(played[0]["turns"], expected, strict=True):
        best = turn["candidates"][0]
        assert best["source"].endswith(source)
        assert heading in best["headings"]
        assert re.search(fact, " ".join(turn["answer"].split())), turn["answer"]


def test_every_answer_cites_and_its_first_source_resolves_to_the_fact(played):
    for turn in played[0]["turns"]:
        number = int(re.search(r"\[(\d+)\]", turn["answer"])[1])
        source = next(s for s in turn["sources"] if s["number"] == number)
        text = (CORPUS.parent / "corpus").joinpath(*source["source"].split("/")[-2:])
        lines = text.read_text("utf-8").splitlines()
        first, last = source["lines"]["start"], source["lines"]["end"]
        assert source["text"].strip() in "\n".join(lines[first - 1 : last])


def test_a_follow_up_alone_would_find_something_else(played):
    """Else the demo would show nothing."""
    for turn in played[0]["turns"][1:]:
        assert turn["queries"][0]["context"]
        best = turn["candidates"][0]
        assert turn["without_conversation"]["id"] != best["id"]


def test_the_project_s_own_pages_are_in_the_index(played):
    texts = len(list(CORPUS.rglob("*.md")))
    assert played[0]["documents"] == texts + len(list(pages().rglob("*.md")))


def test_the_second_run_reads_nothing_again(played, child_env):
    said, folder, env = played
    again = json.loads(play(folder, child_env, "--json", **env).stdout)
    assert again["unchanged"] == said["documents"] == again["documents"]
    assert again["turns"] == said["turns"]


def test_with_another_embedder_the_demo_s_index_is_made_anew(tmp_path, child_env):
    for provider, vectors in (("none", False), ("hashing", True), ("none", False)):
        done = play(tmp_path, child_env, "--json", RAGCHAT_EMBEDDING_PROVIDER=provider)
        assert done.returncode == 0, done.stderr
        assert bool(json.loads(done.stdout)["vectors"]) is vectors


@pytest.mark.parametrize("columns", [40, 60, 100])
def test_it_shows_every_step_and_fits_the_terminal(played, child_env, columns):
    _, folder, env = played
    done = play(folder, child_env, COLUMNS=str(columns), **env)
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= columns
    shown = " ".join(done.stdout.split())
    for question in QUESTIONS:
        assert question in shown
    for label in ("Query", "Ranking", "Evidence", "Answer", "keyword", "vector", "tokens", "[1]"):
        assert label in shown
    assert "No chat model is configured" in shown
    assert re.search(r"demo/harbour-wheels/prices\.md, lines \d+–\d+", shown)
    assert str(CORPUS) not in "".join(done.stdout.split())


def test_without_unicode_it_still_plays(played, child_env):
    _, folder, env = played
    done = play(folder, child_env, COLUMNS="60", **{**env, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()


def test_a_chat_model_answers_where_one_is_named(played, child_env):
    _, folder, env = played
    with LoopbackOpenAI(default="The Heron [1].") as server:
        env = {**env, "OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "k"}
        said = json.loads(play(folder, child_env, "--json", "--model", "m", **env).stdout)
        roles = [message["role"] for message in server.requests[-1].json["messages"]]
    assert [turn["answer"] for turn in said["turns"]] == ["The Heron [1]."] * 3
    assert roles == ["user", "assistant", "user", "assistant", "user"]


@pytest.mark.parametrize(
    ("platform", "variable", "end"),
    [
        ("linux", "XDG_CACHE_HOME", ("ragchat", "demo.sqlite")),
        ("darwin", "HOME", ("Library", "Caches", "ragchat", "demo.sqlite")),
        ("win32", "LOCALAPPDATA", ("ragchat", "demo.sqlite")),
    ],
)
def test_by_default_the_index_lies_in_the_user_s_cache_folder(
    monkeypatch, tmp_path, platform, variable, end
):
    monkeypatch.setattr(content.sys, "platform", platform)
    monkeypatch.setenv(variable, str(tmp_path))
    assert default_index() == tmp_path.joinpath(*end)


def test_the_corpus_is_text_of_its_own_with_facts_to_ask_for():
    files = sorted(CORPUS.rglob("*.md"))
    assert 6 <= len(files) <= 12
    for file in files:
        assert file.read_text("utf-8").startswith("# ")
    assert Path(content.__file__).parent == CORPUS.parent
