"""``ragchat eval``, as a person or a build uses it."""

from __future__ import annotations

import contextlib
import json

import pytest
from typer.testing import CliRunner

from ragchat.cli.app import app
from ragchat.testing import LoopbackOpenAI
from ragchat_retrieval.embedders import HashingEmbedder

PLANTS = ["apple", "banana", "cherry", "damson", "elder", "fig", "grape", "hazel", "iris", "plum"]


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def folder(tmp_path):
    """A collection of ten documents, each asked for by its own words."""
    documents = [
        {"_id": f"d{n}", "title": plant, "text": f"{plant} grows in garden {n}"}
        for n, plant in enumerate(PLANTS)
    ]
    asked = [
        {"_id": f"q{n}", "text": f"where does {plant} grow", "kind": "odd" if n % 2 else "even"}
        for n, plant in enumerate(PLANTS)
    ]
    home = tmp_path / "plants"
    home.mkdir()
    (home / "corpus.jsonl").write_text(lines(documents), "utf-8")
    (home / "queries.jsonl").write_text(lines([*asked, {"_id": "q99", "text": "x"}]), "utf-8")
    qrels = "".join(f"q{n}\td{n}\t1\n" for n in range(10))
    (home / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + qrels, "utf-8")
    return home


@pytest.fixture
def shell(tmp_path, child_env):
    def run(*arguments, **env):
        settings = {**child_env, "RAGCHAT_EMBEDDING_PROVIDER": "hashing", **env}
        with contextlib.chdir(tmp_path):
            done = CliRunner().invoke(app, list(map(str, arguments)), env=settings)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done

    return run


def test_a_folder_s_corpus_is_indexed_for_the_run_and_measured_by_stage(shell, folder, tmp_path):
    done = shell("eval", folder, COLUMNS="120")
    assert done.exit_code == 0, done.stderr
    assert "plants · 10 questions · 10 documents" in done.stdout
    for name in ("keyword", "vector", "fused", "RRF", "not completed", "ndcg@10", "recall@100"):
        assert name in done.stdout
    assert "1 queries without a relevant document" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["plants"]


def test_a_narrow_terminal_gets_lines_and_no_line_is_too_long(shell, folder):
    done = shell("eval", folder, "--tune", "--segment", "kind", COLUMNS="40")
    assert done.exit_code == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 40
    assert "  ndcg@10 1.000" in done.stdout


def test_the_table_fits_an_ordinary_terminal(shell, folder):
    done = shell("eval", folder, COLUMNS="80")
    assert any("ranking" in line and "recall@100" in line for line in done.stdout.splitlines())


def test_json_is_one_document_with_every_collection(shell, folder):
    done = shell("eval", folder, folder, "--json", "--segment", "kind", "--metric", "mrr@5")
    record = json.loads(done.stdout)
    assert record["passed"] is True
    assert [c["collection"] for c in record["collections"]] == ["plants", "plants"]
    first = record["collections"][0]
    assert first["asked"]["question"]["rankings"]["fused"] == {"mrr@5": 1.0}
    assert list(first["segments"]) == ["even", "odd"]
    assert first["settings"]["embedder"].startswith("hashing")


def test_a_gate_that_fails_is_exit_code_1_and_one_that_holds_is_0(shell, folder):
    held = shell("eval", folder, "--gate", "ndcg@10>=0.9", "--gate", "keyword:mrr>0.5")
    assert (held.exit_code, "passed" in held.stdout) == (0, True)
    failed = shell("eval", folder, "--gate", "ndcg@10>=0.9", "--gate", "precision@10>=0.5")
    assert (failed.exit_code, "failed" in failed.stdout) == (1, True)
    told = shell("eval", folder, "--json", "--gate", "precision@10>=0.5")
    assert (told.exit_code, json.loads(told.stdout)["passed"]) == (1, False)


def test_the_report_is_a_page_of_its_own_even_if_a_gate_fails(shell, folder, tmp_path):
    done = shell("eval", folder, "--html", "out.html", "--gate", "mrr<0.5", "--tune")
    assert done.exit_code == 1
    page = (tmp_path / "out.html").read_text("utf-8")
    assert page.startswith("<!doctype html>")
    assert page.count("<svg") >= 4


def test_tuning_tells_what_the_choice_is_worth_on_held_out_questions(shell, folder):
    done = shell("eval", folder, "--tune", COLUMNS="120")
    assert "on 5 held-out questions" in done.stdout
    assert "keep the default" in done.stdout
    record = json.loads(shell("eval", folder, "--tune", "--keyword-weight", "0.5", "--json").stdout)
    assert record["collections"][0]["tuning"]["default"]["keyword"] == 0.5


def test_an_index_of_one_s_own_is_measured_by_questions_of_one_s_own(shell, folder, tmp_path):
    (folder / "corpus.jsonl").unlink()
    texts = tmp_path / "texts"
    texts.mkdir()
    for n, plant in enumerate(PLANTS):
        (texts / f"{plant}.md").write_text(f"{plant} grows in garden {n}", "utf-8")
    qrels = "".join(f"q{n}\ttexts/{plant}.md\t1\n" for n, plant in enumerate(PLANTS))
    (folder / "qrels.tsv").write_text("header\n" + qrels + "q0\tgone.md\t1\n", "utf-8")
    missing = shell("eval", folder)
    assert (missing.exit_code, "no index" in missing.stderr) == (1, True)
    assert shell("ingest", texts, "--index", "mine.sqlite").exit_code == 0
    for arguments, env in (
        (("--index", "mine.sqlite"), {}),
        ((), {"RAGCHAT_INDEX": "mine.sqlite"}),
    ):
        done = shell("eval", folder, "--json", "--gate", "mrr>=0.9", *arguments, **env)
        assert done.exit_code == 0, done.stdout
        (record,) = json.loads(done.stdout)["collections"]
        assert record["settings"]["store"] == "sqlite"
        assert "1 of 11 relevant documents are not in the index" in record["notes"]


def test_conversations_are_asked_in_every_way_they_allow_for(shell, folder):
    rows = [
        {
            "_id": f"q{n}",
            "messages": [
                {"role": "user", "content": f"tell me of {plant}"},
                {"role": "assistant", "content": "It is a plant."},
                {"role": "user", "content": "where does it grow"},
            ],
            "text": "where does it grow",
            "rewrite": f"where does {plant} grow",
        }
        for n, plant in enumerate(PLANTS)
    ]
    (folder / "queries.jsonl").write_text(lines(rows), "utf-8")
    record = json.loads(shell("eval", folder, "--json", "--segment", "turn").stdout)
    (collection,) = record["collections"]
    values = {way: e["rankings"]["fused"]["mrr@10"] for way, e in collection["asked"].items()}
    assert list(values) == ["history expansion", "last turn", "rewrite"]
    assert values["last turn"] < values["history expansion"] <= values["rewrite"] == 1.0
    assert list(collection["segments"]) == ["later"]
    assert "history expansion minus it" in shell("eval", folder, COLUMNS="120").stdout


def test_embeddings_are_kept_between_runs_where_asked(shell, folder, tmp_path):
    first = shell("eval", folder, "--cache", "vectors.sqlite", "--json")
    assert (tmp_path / "vectors.sqlite").exists()
    assert shell("eval", folder, "--cache", "vectors.sqlite", "--json").stdout == first.stdout


@pytest.mark.parametrize(
    "options", [(), ("--cache", "vectors.sqlite"), ("--gate", "nowhere:mrr>=1")]
)
def test_the_connections_of_the_embedder_are_closed_at_the_end(shell, folder, monkeypatch, options):
    """So they are where embeddings are kept, and where there is nothing to show."""
    closed = []

    async def aclose(self):
        closed.append(self.model)

    monkeypatch.setattr(HashingEmbedder, "aclose", aclose, raising=False)
    shell("eval", folder, *options)
    assert closed == [HashingEmbedder().model]


def test_other_files_and_fewer_questions_may_be_named(shell, folder):
    (folder / "qrels.tsv").rename(folder / "qrels-dev.tsv")
    (folder / "corpus.jsonl").rename(folder / "corpus.en.jsonl")
    names = ("--qrels", "qrels-dev", "--documents", "corpus.en", "--queries", "queries")
    done = shell("eval", folder, *names, "--limit", "3")
    assert "plants · 3 questions · 10 documents" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--metric", "map@10"], "--metric"),
        (["--gate", "ndcg@10"], "--gate"),
        (["--top-k", "0"], "--top-k"),
        (["--limit", "0"], "--limit"),
    ],
)
def test_misuse_is_exit_code_2(shell, folder, arguments, words):
    done = shell("eval", folder, *arguments)
    assert (done.exit_code, words in done.stderr) == (2, True)


def test_a_folder_that_is_none_is_misuse_and_a_bad_collection_fails_with_its_line(shell, folder):
    assert shell("eval", "nowhere").exit_code == 2
    (folder / "queries.jsonl").write_text("{", "utf-8")
    done = shell("eval", folder)
    assert (done.exit_code, "queries.jsonl, line 1" in done.stderr) == (1, True)


def test_half_a_surrogate_pair_in_a_question_s_field_does_not_cost_the_figures(shell, folder):
    asked = json.loads((folder / "queries.jsonl").read_text("utf-8").splitlines()[0])
    (folder / "queries.jsonl").write_text(lines([{**asked, "kind": "\ud83c"}]), "utf-8")
    done = shell("eval", folder, "--segment", "kind", "--html", "out.html", "--json")
    assert done.exit_code == 0, done.stderr
    (collection,) = json.loads(done.stdout)["collections"]
    assert list(collection["segments"]) == ["\ud83c"]


@pytest.mark.parametrize("name", ["nowhere/out.html", "."])
def test_where_no_report_can_be_written_nothing_is_measured(shell, folder, name):
    done = shell("eval", folder, "--html", name)
    assert done.exit_code == 2
    assert "--html" in done.stderr
    assert not done.stdout


def test_a_gate_on_a_ranking_that_there_is_not_shows_before_the_tuning(shell, folder, monkeypatch):
    async def never(*_args, **_options):
        raise AssertionError

    monkeypatch.setattr("ragchat_retrieval.evaluation.tune", never)
    done = shell("eval", folder, "--tune", "--gate", "nowhere:mrr>=0.1")
    assert done.exit_code == 1
    assert "nowhere" in done.stderr


def test_a_gate_on_a_stage_that_did_not_run_is_an_error(shell, folder):
    done = shell("eval", folder, "--gate", "reranked:mrr>=0.1")
    assert (done.exit_code, "'reranked' is none of" in done.stderr) == (1, True)


def test_reranking_and_diversification_are_stages_and_are_tuned(shell, folder):
    def backwards(request):
        """Scores the candidates of a prompt so that the last comes first."""
        prompt = request.json["messages"][-1]["content"]
        count = prompt.count('"index":') - 1  # the form of the reply names it once
        scores = [{"index": n, "score": (n + 1) / 100} for n in range(count)]
        return json.dumps({"scores": scores})

    with LoopbackOpenAI(default=backwards) as server:
        env = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "k"}
        options = ("--rerank-model", "m", "--mmr", "1", "--per-document", "1", "--tune")
        done = shell("eval", folder, "--json", "--metric", "mrr@10", *options, **env)
    assert done.exit_code == 0, done.stderr
    (record,) = json.loads(done.stdout)["collections"]
    assert record["main"] == "diversified"
    rankings = record["asked"]["question"]["rankings"]
    assert rankings["reranked"]["mrr@10"] < rankings["fused"]["mrr@10"]
    assert record["settings"]["reranker"] == "m"
    assert record["tuning"]["default"]["rerank_weight"] == 1.0
    assert record["tuning"]["trials"][0]["scored"] <= 20


def test_extractive_answers_are_judged_by_what_they_cite(shell, folder):
    done = shell("eval", folder, "--answers", "extractive", COLUMNS="100")
    assert done.exit_code == 0, done.stderr
    assert "citation precision" in done.stdout
    assert "10 of 10 answers cite something; 0 invented numbers" in " ".join(done.stderr.split())
    record = json.loads(shell("eval", folder, "--answers", "extractive", "--json").stdout)
    citations = record["collections"][0]["citations"]
    assert citations["system"] == "extractive"
    assert citations["means"]["citation recall"] == 1.0
    assert 0 < citations["means"]["citation precision"] <= 1.0


def test_answers_made_elsewhere_are_read_from_a_file(shell, folder, tmp_path):
    rows = [
        {"_id": f"q{n}", "answer": f"It grows in garden {n} [1].", "citations": {"1": f"d{n % 9}"}}
        for n in range(10)
    ]
    (tmp_path / "mine.jsonl").write_text(lines([*rows, {"_id": "other", "answer": ""}]), "utf-8")
    record = json.loads(shell("eval", folder, "--answers", "mine.jsonl", "--json").stdout)
    citations = record["collections"][0]["citations"]
    assert citations["system"] == "mine.jsonl"
    assert citations["means"] == {
        "citation precision": 0.9,
        "citation recall": 0.9,
        "claims cited": 1.0,
    }
    gated = ("eval", folder, "--answers", "mine.jsonl", "--gate")
    assert shell(*gated, "citation recall>=0.9").exit_code == 0
    assert shell(*gated, "citation recall>0.9").exit_code == 1
    unanswered = shell("eval", folder, "--gate", "citation recall>0.9")
    assert (unanswered.exit_code, "--answers" in unanswered.stderr) == (2, True)
    (tmp_path / "few.jsonl").write_text(lines(rows[:3]), "utf-8")
    failed = shell("eval", folder, "--answers", "few.jsonl")
    assert (failed.exit_code, "7" in failed.stderr) == (1, True)
    assert shell("eval", folder, "--answers", "none.jsonl").exit_code == 1
