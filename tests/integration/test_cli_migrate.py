"""``ragchat migrate``, as a person or a script uses it."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from ragchat.cli import migrate as command
from ragchat.cli.app import app
from ragchat_retrieval.embedders import HashingEmbedder
from ragchat_retrieval.opening import open_index
from ragchat_retrieval.values import Document

if TYPE_CHECKING:
    from pathlib import Path

HASHING = {"RAGCHAT_EMBEDDING_PROVIDER": "hashing"}
NONE = {"RAGCHAT_EMBEDDING_PROVIDER": "none"}
TEXTS = {"tea": "Tea is grown in the hills.", "rice": "Rice is grown in water."}


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """A folder with an index of two documents, whose model is none of the environment's."""
    async with open_index(tmp_path / "kb.sqlite", embedder=HashingEmbedder(64)) as index:
        await index.ingest(*(Document(name, text) for name, text in TEXTS.items()))
    return tmp_path


def ragchat(folder: Path, *arguments: str, **env: str):
    with contextlib.chdir(folder):
        return CliRunner().invoke(app, arguments, env={**HASHING, **env}, prog_name="ragchat")


def test_an_index_is_copied_embedded_and_verified(folder: Path) -> None:
    """Another embedder in the environment embeds anew; a second run finds all there."""
    done = ragchat(folder, "migrate", "kb.sqlite", "new.sqlite")
    assert done.exit_code == 0, done.stderr
    assert done.stdout == "copied 2 documents with 2 passages, 2 embedded, verified\n"
    again = ragchat(folder, "migrate", "kb.sqlite", "new.sqlite")
    assert again.stdout == "copied 0 documents with 0 passages, 2 there already, verified\n"
    found = ragchat(folder, "search", "tea", "--index", "new.sqlite", "--json")
    assert json.loads(found.stdout)["results"][0]["document_id"] == "tea"


def test_vectors_are_kept_when_asked_or_without_an_embedder(folder: Path) -> None:
    for new, options, env in (("a", ["--keep-vectors"], HASHING), ("b", [], NONE)):
        done = ragchat(folder, "migrate", "kb.sqlite", new, *options, "--json", **env)
        assert done.exit_code == 0, done.stderr
        report = json.loads(done.stdout)
        assert (report["kept_vectors"], report["embedded"], report["verified"]) == (2, 0, True)
        assert not report["swapped"]


def test_a_corpus_is_embedded_beside_and_takes_the_name(folder: Path) -> None:
    done = ragchat(folder, "migrate", "kb.sqlite", "kb.sqlite", "--to", "next", "--swap")
    assert done.exit_code == 0, done.stderr
    assert "corpus 'default' is the new one, 'next' the former one" in done.stdout
    found = ragchat(folder, "search", "tea", "--index", "kb.sqlite", "--json")
    assert found.exit_code == 0, found.stderr
    former = ragchat(folder, "search", "tea", "--index", "kb.sqlite", "--corpus", "next")
    assert former.exit_code == 1
    assert "hashing" in former.stderr


def test_what_is_written_just_before_the_swap_is_caught_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write between the copy and the swap makes the copy go on, and is not lost."""
    from ragchat_retrieval import migration

    swap, late = migration.swap_indexes, []

    async def swap_late(live, built, *, expected):
        if not late:
            late.append(True)
            async with open_index("kb.sqlite", embedder=HashingEmbedder(64)) as writer:
                await writer.ingest(Document("late", "Written late."))
                await writer.remove("rice")
        await swap(live, built, expected=expected)

    monkeypatch.setattr(migration, "swap_indexes", swap_late)
    done = ragchat(folder, "migrate", "kb.sqlite", "kb.sqlite", "--to", "next", "--swap", "--json")
    assert done.exit_code == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["documents"], report["removed"], report["swapped"]) == (3, 1, True)
    assert report["verified"]
    found = ragchat(folder, "search", "late", "--index", "kb.sqlite", "--json")
    assert json.loads(found.stdout)["results"][0]["document_id"] == "late"


def test_a_corpus_that_is_always_written_is_not_swapped(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ragchat_retrieval import migration

    swap = migration.swap_indexes

    async def swap_late(live, built, *, expected):
        await swap(live, built, expected=expected - 1)

    monkeypatch.setattr(migration, "swap_indexes", swap_late)
    monkeypatch.setattr(command, "_TRIES", 2)
    done = ragchat(folder, "migrate", "kb.sqlite", "kb.sqlite", "--to", "next", "--swap")
    assert done.exit_code == 1
    assert "was written meanwhile" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nothing.sqlite", "new.sqlite"], 1, "no index at nothing.sqlite"),
        (["kb.sqlite", "kb.sqlite"], 2, "one index"),
        (["kb.sqlite", "new.sqlite", "--swap"], 2, "one store"),
        (["kb.sqlite", "nowhere/new.sqlite"], 1, "no folder nowhere"),
    ],
)
def test_misuse_is_told_in_one_line(
    folder: Path, arguments: list[str], code: int, words: str
) -> None:
    done = ragchat(folder, "migrate", *arguments)
    assert done.exit_code == code
    assert words in " ".join(done.stderr.split())


def test_documents_of_something_else_are_not_removed_unasked(folder: Path) -> None:
    """The wrong way round it refuses, and names the option that would do it."""
    copy = ("migrate", "kb.sqlite", "new.sqlite", "--keep-vectors")
    assert ragchat(folder, *copy).exit_code == 0
    assert ragchat(folder, "remove", "rice", "--index", "new.sqlite").exit_code == 0
    back = ("migrate", "new.sqlite", "kb.sqlite", "--keep-vectors")
    refused = ragchat(folder, *back)
    assert refused.exit_code == 1
    told = "documents that the old one has not (1); prune=True (--prune) removes them"
    assert told in " ".join(refused.stderr.split())
    pruned = ragchat(folder, *back, "--prune", "--json")
    assert json.loads(pruned.stdout)["removed"] == 1
    quick = ragchat(folder, *copy, "--no-verify")
    assert quick.stdout.endswith("not verified\n")
