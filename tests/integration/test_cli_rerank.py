"""Commands use the rerank endpoint that the environment names, against a real server."""

from __future__ import annotations

import contextlib
import json

import pytest
from typer.testing import CliRunner

from ragchat.cli.app import app
from ragchat.testing import LoopbackOpenAI
from ragchat_retrieval.testing.rerank_server import Fault, RerankServer

TEXTS = {
    "often": "tea tea tea tea tea",
    "both": "tea grows here, and elsewhere there is also much other cold or hot fog on hills",
    "other": "coffee grows in the shade",
}
QUESTION = "tea on hills"


@pytest.fixture
def shell(tmp_path, child_env):
    """Runs commands in a folder with an index of three short texts."""

    def run(*arguments, **env):
        settings = {**child_env, "RAGCHAT_EMBEDDING_PROVIDER": "none", **env}
        with contextlib.chdir(tmp_path):
            done = CliRunner().invoke(app, list(map(str, arguments)), env=settings)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done

    folder = tmp_path / "texts"
    folder.mkdir()
    for name, text in TEXTS.items():
        (folder / f"{name}.txt").write_text(text, "utf-8")
    assert run("ingest", folder).exit_code == 0
    return run


@pytest.fixture
def server():
    with RerankServer() as server:
        yield server


@pytest.fixture
def env(server):
    """Settings under which the reranker is always asked, and alone decides."""
    return {
        "RAGCHAT_RERANK_URL": server.url,
        "RAGCHAT_RERANK_WEIGHT": "1",
        "RAGCHAT_RERANK_MARGIN": "none",
    }


def places(done):
    return [result["source"] for result in json.loads(done.stdout)["results"]]


def test_a_search_is_reranked_where_an_endpoint_is_configured(shell, server, env):
    plain = shell("search", "tea grows", "--json")
    assert server.requests == []
    reranked = json.loads(shell("search", QUESTION, "--json", "--explain", **env).stdout)
    best = reranked["results"][0]
    assert best["source"].endswith("both.txt")
    assert best["explain"]["rerank"]["score"] == best["score"] == 1.0
    assert len(server.requests) == 1
    off = shell("search", "tea grows", "--json", "--no-rerank", **env)
    assert places(off) == places(plain)
    assert len(server.requests) == 1


@pytest.mark.parametrize("columns", ["40", "70", "120"])
def test_explain_shows_what_the_reranker_did(shell, env, columns):
    done = shell("search", QUESTION, "--explain", COLUMNS=columns, **env)
    assert "rerank" in done.stdout
    assert "1.000" in done.stdout
    assert "rank before it" in done.stdout.replace("\n", " ")
    assert max(map(len, done.stdout.splitlines())) <= int(columns)
    plain = shell("search", QUESTION, "--explain", COLUMNS=columns)
    assert "rerank" not in plain.stdout.lower()


def test_explain_says_that_the_reranker_was_not_asked(shell, server, env):
    """Where the first passage is far ahead, the margin saves the question."""
    done = shell(
        "search", "shade", "--explain", **{**env, "RAGCHAT_RERANK_MARGIN": "0.2"}, COLUMNS="120"
    )
    assert done.exit_code == 0
    assert "Reranker: not asked" in done.stdout
    assert server.requests == []


def test_an_answer_rests_on_reranked_evidence(shell, server, env):
    record = json.loads(shell("ask", QUESTION, "--top-k", "1", "--json", **env).stdout)
    (source,) = record["sources"]
    assert source["source"].endswith("both.txt")
    assert len(server.requests) == 1
    plain = shell("ask", QUESTION, "--top-k", "1", "--json", "--no-rerank", **env)
    assert plain.exit_code == 0
    assert len(server.requests) == 1


def test_a_server_that_fails_fails_a_search_and_not_an_answer(shell, server, env):
    """A search says what is wrong; an answer goes without, and says so."""
    server.misbehave(*[Fault(status=400)] * 6)
    done = shell("search", QUESTION, **env)
    assert (done.exit_code, "400" in done.stderr) == (1, True)
    assert "Traceback" not in done.stderr
    answered = shell("ask", QUESTION, "--json", **env)
    assert answered.exit_code == 0
    assert [d["stage"] for d in json.loads(answered.stdout)["degraded"]] == ["rerank"]
    assert "rerank" in shell("ask", QUESTION, **env).stderr


@pytest.mark.parametrize("setting", ["WEIGHT=2", "MARGIN=much", "URL=ftp://h"])
@pytest.mark.parametrize("command", [["search", "tea"], ["ask", "tea"], ["eval", "texts"]], ids=str)
def test_a_setting_that_cannot_work_is_named(shell, tmp_path, env, command, setting):
    (tmp_path / "texts" / "queries.jsonl").write_text('{"_id": "q", "text": "tea"}\n', "utf-8")
    (tmp_path / "texts" / "qrels.tsv").write_text("q\td\tscore\nq\td\t1\n", "utf-8")
    name, _, value = f"RAGCHAT_RERANK_{setting}".partition("=")
    settings = {**env, name: value}
    done = shell(*command, **settings)
    assert (done.exit_code, name in done.stderr) == (1, True)
    if command[0] != "eval":
        assert shell(*command, "--no-rerank", **settings).exit_code == 0


def test_a_setting_without_a_url_is_named(shell):
    done = shell("search", "tea", RAGCHAT_RERANK_MODEL="m")
    assert (done.exit_code, "RAGCHAT_RERANK_MODEL" in done.stderr) == (1, True)


@pytest.fixture
def collection(tmp_path):
    """Questions about texts, with the texts."""
    folder = tmp_path / "questions"
    folder.mkdir()
    rows = {
        "corpus": [{"_id": name, "title": "", "text": text} for name, text in TEXTS.items()],
        "queries": [{"_id": "q", "text": QUESTION}],
    }
    for name, given in rows.items():
        lines = "".join(json.dumps(row) + "\n" for row in given)
        (folder / f"{name}.jsonl").write_text(lines, "utf-8")
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq\tboth\t1\n", "utf-8")
    return folder


def test_evaluation_measures_the_endpoint_as_a_stage(shell, collection, server, env):
    done = shell("eval", collection, "--json", "--metric", "mrr@10", **env)
    assert done.exit_code == 0, done.stderr
    (record,) = json.loads(done.stdout)["collections"]
    assert record["main"] == "reranked"
    assert record["asked"]["question"]["rankings"]["reranked"] == {"mrr@10": 1.0}
    assert server.url in record["settings"]["reranker"]
    off = shell("eval", collection, "--json", "--no-rerank", **env)
    (plain,) = json.loads(off.stdout)["collections"]
    assert (plain["main"], plain["settings"]["reranker"]) == ("fused", "none")
    assert len(server.requests) == 1


def test_a_chat_model_that_was_asked_for_goes_before_the_endpoint(shell, collection, server, env):
    scores = [{"index": n, "score": n / 2} for n in range(2)]
    with LoopbackOpenAI(default=json.dumps({"scores": scores})) as model:
        chat = {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "k"}
        done = shell("eval", collection, "--json", "--rerank-model", "m", **env, **chat)
    (record,) = json.loads(done.stdout)["collections"]
    assert record["settings"]["reranker"] == "m"
    assert server.requests == []
    both = shell("eval", collection, "--rerank-model", "m", "--no-rerank")
    assert (both.exit_code, "--rerank-model" in both.stderr) == (2, True)
