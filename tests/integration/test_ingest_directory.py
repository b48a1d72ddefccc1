"""A folder becomes documents of an index, and the index follows the folder."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import PurePosixPath

import pytest

from ragchat_retrieval.chunking import (
    ParagraphSplitter,
    SemanticSplitter,
    TextSplitter,
    WholeText,
)
from ragchat_retrieval.embedders import HashingEmbedder
from ragchat_retrieval.errors import (
    DocumentNotUTF8,
    EmbeddingError,
    InvalidSetting,
    ScopeViolation,
)
from ragchat_retrieval.filters import Eq, Filter
from ragchat_retrieval.index import HybridIndex
from ragchat_retrieval.ingest import Duplicates, ingest_directory
from ragchat_retrieval.ingest.files import TEXT_SUFFIXES
from ragchat_retrieval.stores.sqlite import SQLiteStore
from ragchat_retrieval.values import Document


@pytest.fixture
def index():
    return HybridIndex(splitter=TextSplitter(64, 8))


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "docs"
    write(
        root,
        {
            "leave.md": "# Leave policy\n\nEmployees get 25 days.\n\n## Carry over\n\nFive days.\n",
            "guide/tea.txt": "Heat the kettle.\n\nPour the water.",
            "guide/deep/b.rst": "Title\n=====\n\nBody.",
        },
    )
    return root


def write(root, files):
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content, "utf-8")


def lines(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


async def ids(index, **options):
    return list(await index.document_ids(**options))


async def document(index, document_id):
    return await index.store.document(document_id, scope=Filter())


async def passages(index, document_id):
    return await index.store.neighbours(document_id, 0, 1000, scope=Filter())


# What becomes of files


async def test_every_text_file_is_a_document_named_by_root_and_path(index, folder):
    report = await ingest_directory(index, folder)
    assert await ids(index) == ["docs/guide/deep/b.rst", "docs/guide/tea.txt", "docs/leave.md"]
    assert (report.documents, report.skipped, report.deleted, report.errors) == (3, 0, 0, ())
    assert report.passages == 4


async def test_title_and_source_are_what_a_person_would_say(index, folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    await ingest_directory(index, "docs")
    leave = await document(index, "docs/leave.md")
    tea = await document(index, "docs/guide/tea.txt")
    assert (leave.title, leave.source) == ("Leave policy", os.path.join("docs", "leave.md"))  # noqa: PTH118 - a plain string
    assert tea.title == "tea.txt"


async def test_markdown_is_split_along_headings_and_the_rest_as_the_index_does(index, folder):
    await ingest_directory(index, folder)
    found = await passages(index, "docs/leave.md")
    assert [(p.headings, p.text) for p in found] == [
        (("Leave policy",), "Employees get 25 days."),
        (("Leave policy", "Carry over"), "Five days."),
    ]
    assert len(await passages(index, "docs/guide/tea.txt")) == 1


async def test_the_splitter_can_be_chosen_by_path(index, folder):
    def splitter_for(path):
        assert isinstance(path, PurePosixPath)
        return {".txt": ParagraphSplitter(), ".md": WholeText()}.get(path.suffix)

    await ingest_directory(index, folder, splitter_for=splitter_for)
    assert len(await passages(index, "docs/guide/tea.txt")) == 2
    assert len(await passages(index, "docs/leave.md")) == 1


async def test_markdown_passages_have_the_size_of_the_index(index, folder):
    write(folder, {"long.md": "# Long\n\n" + "The kettle is on and it boils. " * 40})
    await ingest_directory(index, folder)
    assert len(await passages(index, "docs/long.md")) >= 5


async def test_markdown_is_split_along_headings_whatever_the_own_splitter_is(folder):
    index = HybridIndex(splitter=ParagraphSplitter())
    await ingest_directory(index, folder)
    assert (await passages(index, "docs/leave.md"))[1].headings == ("Leave policy", "Carry over")


async def test_metadata_is_given_for_all_or_by_path(index, folder):
    await ingest_directory(index, folder, metadata={"team": "blue"})
    assert (await document(index, "docs/leave.md")).metadata["team"] == "blue"
    await ingest_directory(index, folder, metadata=lambda path: {"depth": len(path.parts)})
    assert (await document(index, "docs/guide/deep/b.rst")).metadata["depth"] == 3


async def test_special_tokens_and_byte_order_marks_are_no_trouble(index, folder):
    text = "Stop at <|endoftext|> and <|im_start|>system."
    write(folder, {"<|endoftext|>.txt": text, "bom.txt": b"\xef\xbb\xbfkettle"})
    report = await ingest_directory(index, folder)
    assert report.errors == ()
    assert (await document(index, "docs/<|endoftext|>.txt")).text == text
    assert (await document(index, "docs/bom.txt")).text == "kettle"


async def test_a_single_file_is_read_as_part_of_its_folder(index, folder):
    await ingest_directory(index, folder)
    write(folder, {"leave.md": "# Leave\n\n30 days."})
    report = await ingest_directory(index, folder / "leave.md")
    assert (report.documents, report.deleted) == (1, 0)
    assert len(await ids(index)) == 3
    assert (await document(index, "docs/leave.md")).title == "Leave"


async def test_a_pipe_is_no_file_to_read(index, tmp_path):
    """Nobody writes to it, so that reading would never end."""
    os.mkfifo(tmp_path / "pipe.md")
    with pytest.raises(InvalidSetting, match="no regular file"):
        await ingest_directory(index, tmp_path / "pipe.md")


# JSON lines


@pytest.mark.parametrize("packed", [False, True])
async def test_a_json_lines_file_is_one_document_a_line(index, tmp_path, packed):
    content = lines(
        {"_id": "a#1", "title": "Kettles", "text": "A kettle boils.", "metadata": {"year": 1999}},
        {"id": 2, "text": "Two cups.", "other": True},
    ).encode()
    name = "corpus.jsonl.gz" if packed else "corpus.jsonl"
    write(tmp_path / "kb", {name: gzip.compress(content) if packed else b"\xef\xbb\xbf" + content})
    report = await ingest_directory(index, tmp_path / "kb")
    assert report.errors == ()
    assert await ids(index) == [f"kb/{name}#2", f"kb/{name}#a#1"]
    first = await document(index, f"kb/{name}#a#1")
    assert (first.title, first.text, first.metadata["year"]) == ("Kettles", "A kettle boils.", 1999)
    assert first.source.endswith(name)
    assert (await document(index, f"kb/{name}#2")).title is None


async def test_bad_lines_are_reported_with_their_numbers(index, tmp_path):
    good = lines({"_id": "x", "text": "good"}).encode()
    bad = [
        b"not json\n",
        b"[1]\n",
        b'{"_id": "", "text": "t"}\n',
        b'{"_id": "y"}\n',
        b'{"_id": true, "text": "t"}\n',
        b'{"_id": "z", "text": "\xff"}\n',
        b'{"_id": "z", "text": "t", "metadata": []}\n',
        b'{"_id": "z", "text": "t", "metadata": {"bad key": 1}}\n',
        b'{"_id": "z", "text": "o\\u0000er"}\n',
        b'{"_id": "z", "text": "\\ud800"}\n',
        b'{"_id": "z", "text": "' + b"x" * 3000 + b'"}\n',
        b"[" * 900 + b"\n",
    ]
    write(tmp_path / "kb", {"c.jsonl": b"\n" + b"".join(bad) + good})
    report = await ingest_directory(index, tmp_path / "kb", max_bytes=1000)
    assert await ids(index) == ["kb/c.jsonl#x"]
    assert [error.error for error in report.errors] == [
        *["InvalidDocument"] * 5,
        "DocumentNotUTF8",
        "InvalidDocument",
        "InvalidMetadata",
        "InvalidText",
        "InvalidText",
        "DocumentTooLarge",
        "InvalidDocument",
    ]
    assert "line 2" in report.errors[0].message
    assert all(error.id.endswith("c.jsonl") for error in report.errors)


async def test_many_bad_lines_are_summed_up(index, tmp_path):
    write(tmp_path / "kb", {"c.jsonl": "oops\n" * 1000})
    report = await ingest_directory(index, tmp_path / "kb")
    assert len(report.errors) == 21
    assert "980 more" in report.errors[-1].message


async def test_a_cut_archive_keeps_what_was_read_and_removes_nothing(index, tmp_path):
    content = lines(
        *({"_id": str(n), "text": f"text {n} {os.urandom(20).hex()}"} for n in range(999))
    )
    packed = gzip.compress(content.encode())
    write(tmp_path / "kb", {"c.jsonl.gz": packed})
    await ingest_directory(index, tmp_path / "kb")
    write(tmp_path / "kb", {"c.jsonl.gz": packed[: len(packed) // 2]})
    report = await ingest_directory(index, tmp_path / "kb")
    assert len(report.errors) == 1
    assert report.deleted == 0
    assert len(await ids(index)) == 999


# Which files are read


async def test_hidden_and_binary_files_are_left_out(index, folder):
    write(
        folder,
        {
            ".secret.md": "x",
            ".git/config.txt": "x",
            "logo.png": b"\x89PNG",
            "LICENSE": "free",
            "tea.TXT": "y",
        },
    )
    await ingest_directory(index, folder)
    assert len(await ids(index)) == 4
    assert "docs/tea.TXT" in await ids(index)
    assert ".png" not in TEXT_SUFFIXES


async def test_globs_choose_files_whatever_their_suffix(index, folder):
    write(folder, {"LICENSE": "free"})
    await ingest_directory(index, folder, glob=["LICENSE", "guide/**"], exclude="deep/")
    assert await ids(index) == ["docs/LICENSE", "docs/guide/tea.txt"]
    await ingest_directory(index, folder, glob="*.md")
    assert await ids(index) == ["docs/leave.md"]


@pytest.mark.parametrize("setting", ["glob", "exclude"])
async def test_a_malformed_pattern_is_refused(index, folder, setting):
    with pytest.raises(InvalidSetting) as caught:
        await ingest_directory(index, folder, **{setting: "!"})
    assert caught.value.name == setting


async def test_gitignore_files_are_honoured_at_every_level(index, folder):
    write(
        folder.parent,
        {
            ".git/HEAD": "x",
            ".gitignore": "*.log\n/docs/guide/top.txt\n",
            "docs/.gitignore": "deep/\n!\n*.tmp.md\n[z-a]\n",
            "docs/guide/.gitignore": "!keep.log\n",
            "docs/guide/keep.log": "kept",
            "docs/guide/top.txt": "x",
            "docs/run.log": "x",
            "docs/a.tmp.md": "x",
        },
    )
    await ingest_directory(index, folder)
    assert await ids(index) == ["docs/guide/keep.log", "docs/guide/tea.txt", "docs/leave.md"]
    report = await ingest_directory(index, folder, follow_gitignore=False)
    assert report.documents == 4
    assert "docs/guide/deep/b.rst" in await ids(index)


async def test_a_folder_that_is_ignored_itself_is_read_when_named(index, folder):
    write(folder.parent, {".git/HEAD": "x", ".gitignore": "docs/\n"})
    await ingest_directory(index, folder)
    assert len(await ids(index)) == 3


async def test_links_are_followed_inside_the_root_only(index, folder):
    write(folder.parent, {"outside.txt": "secret", "away/secret.txt": "secret"})
    (folder / "out.txt").symlink_to(folder.parent / "outside.txt")
    (folder / "away").symlink_to(folder.parent / "away")
    (folder / "loop").symlink_to(folder)
    (folder / "self.txt").symlink_to(folder / "self.txt")
    (folder / "nowhere.txt").symlink_to(folder / "missing.txt")
    (folder / "in.txt").symlink_to(folder / "guide" / "tea.txt")
    report = await ingest_directory(index, folder)
    assert report.errors == ()
    assert await ids(index) == [
        "docs/guide/deep/b.rst",
        "docs/guide/tea.txt",
        "docs/in.txt",
        "docs/leave.md",
    ]


async def test_more_files_than_allowed_are_refused_before_anything_is_read(index, folder):
    with pytest.raises(InvalidSetting) as caught:
        await ingest_directory(index, folder, max_files=2)
    assert caught.value.name == "max_files"
    assert await ids(index) == []


# Bad files


async def test_bad_files_are_reported_and_the_rest_is_read(index, folder):
    write(
        folder,
        {
            "a.txt": b"\xff\xfe binary",
            "b.txt": "o\x00er",
            "c.txt": "x" * 200,
            "d.txt": "",
        },
    )
    report = await ingest_directory(index, folder, max_bytes=199)
    assert [(os.path.basename(e.id), e.error) for e in report.errors] == [  # noqa: PTH119 - a plain string
        ("a.txt", "DocumentNotUTF8"),
        ("b.txt", "InvalidText"),
        ("c.txt", "DocumentTooLarge"),
    ]
    assert len(await ids(index)) == 3


class Refusing(HashingEmbedder):
    """Gives no usable vector for texts of a kind."""

    async def embed(self, texts, kind="query"):
        rows = await super().embed(texts, kind)
        rows[["bad" in text for text in texts]] = float("nan")
        return rows


@pytest.mark.parametrize("by", ["passages", "sentences", "duplicates"])
async def test_a_file_that_the_embedder_cannot_take_is_a_bad_one(tmp_path, by):
    """Its earlier revision stays, as that of any file that could not be read."""
    files = {f"{n:02}.md": f"# Title\n\ngood {n}\n\n" * (70 if n == 3 else 1) for n in range(9)}
    write(tmp_path, files)
    refusing = Refusing(64)
    index = HybridIndex(embedder=refusing if by == "passages" else HashingEmbedder(64))
    semantic, cosine = SemanticSplitter(refusing), Duplicates(cosine=0.999, embedder=refusing)
    options = {
        "root": "docs",
        "splitter_for": (lambda _: semantic) if by == "sentences" else None,
        "duplicates": cosine if by == "duplicates" else None,
    }
    await ingest_directory(index, tmp_path, **options)
    write(tmp_path, {"04.md": "A bad one.", "05.md": "A bad one, too.", "06.md": "New."})
    report = await ingest_directory(index, tmp_path, **options)
    assert [(error.id, error.error) for error in report.errors] == [
        ("docs/04.md", "EmbeddingError"),
        ("docs/05.md", "EmbeddingError"),
    ]
    assert all("bad one" not in error.message for error in report.errors)
    assert report.documents == 1
    assert len(await ids(index)) == 9
    assert "good 4" in (await document(index, "docs/04.md")).text
    with pytest.raises(EmbeddingError, match=r"docs/04\.md"):
        await ingest_directory(index, tmp_path, on_error="raise", **options)


async def test_an_embedder_that_names_no_text_stops_the_run(folder):
    class Down(HashingEmbedder):
        async def embed(self, texts, kind="query"):
            raise EmbeddingError("busy", model=self.model, status=503, retryable=True)

    with pytest.raises(EmbeddingError, match="busy"):
        await ingest_directory(HybridIndex(embedder=Down(64)), folder)


async def test_the_first_bad_file_stops_the_run_if_asked(index, folder):
    write(folder, {"a.txt": b"\xff"})
    with pytest.raises(DocumentNotUTF8):
        await ingest_directory(index, folder, on_error="raise")


async def test_a_missing_path_is_named(index, tmp_path):
    with pytest.raises(InvalidSetting, match="nowhere"):
        await ingest_directory(index, tmp_path / "nowhere")


# The index follows the folder


async def test_unchanged_files_are_skipped_and_changed_ones_replaced(index, folder):
    await ingest_directory(index, folder)
    revision = await index.store.revision()
    report = await ingest_directory(index, folder)
    assert (report.documents, report.skipped, report.deleted) == (0, 3, 0)
    assert await index.store.revision() == revision
    write(folder, {"leave.md": "# Leave policy\n\nEmployees get 30 days.\n"})
    report = await ingest_directory(index, folder)
    assert (report.documents, report.skipped) == (1, 2)
    assert [p.text for p in await passages(index, "docs/leave.md")] == ["Employees get 30 days."]
    assert not await index.search("25 carry over")


async def test_vanished_files_and_lines_are_removed(index, folder):
    records = [{"_id": name, "text": name} for name in ("x", "y")]
    write(folder, {"c.jsonl": lines(*records)})
    await index.ingest(Document("docs/mine", "written by hand"), Document("other", "kept"))
    await ingest_directory(index, folder)
    (folder / "leave.md").unlink()
    write(folder, {"c.jsonl": lines(*records[1:])})
    report = await ingest_directory(index, folder)
    assert report.deleted == 2
    assert await ids(index) == [
        "docs/c.jsonl#y",
        "docs/guide/deep/b.rst",
        "docs/guide/tea.txt",
        "docs/mine",
        "other",
    ]


async def test_a_file_that_became_empty_loses_its_document(index, folder):
    await ingest_directory(index, folder)
    write(folder, {"leave.md": "\n"})
    report = await ingest_directory(index, folder)
    assert report.deleted == 1
    assert "docs/leave.md" not in await ids(index)


async def test_a_file_that_cannot_be_read_any_more_keeps_its_document(index, folder):
    await ingest_directory(index, folder)
    write(folder, {"leave.md": b"\xff"})
    report = await ingest_directory(index, folder)
    assert (report.deleted, len(report.errors)) == (0, 1)
    assert "docs/leave.md" in await ids(index)


async def test_nothing_is_removed_if_the_walk_was_incomplete(index, folder, monkeypatch):
    await ingest_directory(index, folder)
    scandir = os.scandir

    def failing(path):
        if os.fspath(path).rstrip("/").endswith("guide"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", failing)
    report = await ingest_directory(index, folder)
    assert (report.skipped, report.deleted) == (1, 0)
    assert [error.error for error in report.errors] == ["PermissionError"]
    assert len(await ids(index)) == 3
    with pytest.raises(PermissionError):
        await ingest_directory(index, folder, on_error="raise")


@pytest.mark.parametrize("options", [{}, {"glob": "*.pdf"}, {"exclude": "*"}], ids=str)
async def test_a_folder_with_nothing_to_read_any_more_loses_no_document(index, folder, options):
    """It looks the same where a disk is not mounted or a pattern has a typing error."""
    await ingest_directory(index, folder)
    if not options:
        shutil.rmtree(folder)
        folder.mkdir()
    report = await ingest_directory(index, folder, **options)
    assert (report.deleted, [e.id for e in report.errors]) == (0, [str(folder)])
    assert "stays as it is (3)" in report.errors[0].message
    assert len(await ids(index)) == 3
    with pytest.raises(InvalidSetting, match="emptied"):
        await ingest_directory(index, folder, on_error="raise", **options)


async def test_a_folder_that_was_emptied_on_purpose_loses_its_documents(index, folder):
    await index.ingest(Document("docs/mine", "written by hand"))
    await ingest_directory(index, folder)
    shutil.rmtree(folder)
    folder.mkdir()
    report = await ingest_directory(index, folder, emptied=True)
    assert (report.deleted, report.errors) == (3, ())
    assert await ids(index) == ["docs/mine"]
    assert (await ingest_directory(index, folder)).errors == ()


async def test_vanished_files_can_be_kept(index, folder):
    await ingest_directory(index, folder)
    (folder / "leave.md").unlink()
    report = await ingest_directory(index, folder, remove_vanished=False)
    assert report.deleted == 0
    assert len(await ids(index)) == 3


async def test_a_run_that_was_stopped_goes_on_where_it_was(folder):
    """Every batch is written at once, and what is there is not done again."""

    class Stopping(HybridIndex):
        calls = 0

        async def ingest(self, *documents, **options):
            self.calls += 1
            if self.calls == 3:
                raise KeyboardInterrupt
            return await super().ingest(*documents, **options)

    index = Stopping()
    with pytest.raises(KeyboardInterrupt):
        await ingest_directory(index, folder, batch=1)
    assert len(await ids(index)) == 2
    report = await ingest_directory(index, folder, batch=1)
    assert (report.documents, report.skipped) == (1, 2)
    assert len(await ids(index)) == 3


KILLED = """
import asyncio, os, signal, sys

from ragchat_retrieval.index import HybridIndex
from ragchat_retrieval.ingest import Duplicates, ingest_directory
from ragchat_retrieval.stores.sqlite import SQLiteStore


class Dying(HybridIndex):
    batches = 0

    async def ingest(self, *documents, **options):
        self.batches += 1
        if self.batches == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return await super().ingest(*documents, **options)


asyncio.run(ingest_directory(Dying(SQLiteStore(sys.argv[1])), sys.argv[2], batch=10))
"""


async def test_after_kill_9_nothing_is_lost_and_nothing_doubled(tmp_path, child_env):
    root = tmp_path / "kb"
    write(root, {"c.jsonl": lines(*({"_id": f"{n:02}", "text": f"text {n}"} for n in range(55)))})
    path = tmp_path / "kb.sqlite"
    done = subprocess.run(  # noqa: ASYNC221 - nothing else runs here
        [sys.executable, "-c", KILLED, str(path), str(root)], env=child_env, check=False
    )
    assert done.returncode != 0
    async with HybridIndex(SQLiteStore(path)) as index:
        assert len(await ids(index)) == 30
        report = await ingest_directory(index, root, batch=10)
        assert (report.documents, report.skipped, report.deleted) == (25, 30, 0)
        assert await ids(index) == [f"kb/c.jsonl#{n:02}" for n in range(55)]
        assert (await index.store.count(scope=Filter())).passages == 55


# Roots and scopes


async def test_two_folders_of_one_name_are_refused_and_both_are_named(index, folder, tmp_path):
    other = tmp_path / "other" / "docs"
    write(other, {"x.md": "# X"})
    await ingest_directory(index, folder)
    with pytest.raises(InvalidSetting) as caught:
        await ingest_directory(index, other)
    assert caught.value.name == "root"
    assert str(other) in str(caught.value)
    assert str(folder / "guide") in str(caught.value)
    assert len(await ids(index)) == 3
    report = await ingest_directory(index, other, root="other docs")
    assert report.documents == 1
    assert len(await ids(index)) == 4


async def test_the_same_folder_by_another_way_is_the_same(index, folder, monkeypatch):
    await ingest_directory(index, folder)
    (folder.parent / "link").symlink_to(folder)
    report = await ingest_directory(index, folder.parent / "link", root="docs")
    assert (report.deleted, report.errors) == (0, ())
    monkeypatch.chdir(folder)
    await ingest_directory(index, ".")
    assert len(await ids(index)) == 3
    assert (await document(index, "docs/leave.md")).source == "leave.md"


async def test_a_copy_is_known_by_its_name_wherever_it_lies(index, folder, tmp_path):
    """Read again from another place it is the same; a folder that is no copy is another."""
    first = await ingest_directory(index, folder, root="docs", known_as="upload")
    copy = folder.rename(tmp_path / "elsewhere")
    again = await ingest_directory(index, copy, root="docs", known_as="upload")
    assert (again.documents, again.skipped) == (0, first.documents)
    document = await index.store.document("docs/guide/tea.txt", scope=Filter())
    assert document.source == "upload/guide/tea.txt"
    with pytest.raises(InvalidSetting, match="another folder"):
        await ingest_directory(index, copy, root="docs")


async def test_a_folder_that_moved_takes_its_documents_over(index, folder, tmp_path):
    await ingest_directory(index, folder)
    (folder / "leave.md").unlink()
    moved = folder.rename(tmp_path / "moved")
    report = await ingest_directory(index, moved, root="docs", moved=True)
    assert report.deleted == 1
    assert await ids(index) == ["docs/guide/deep/b.rst", "docs/guide/tea.txt"]
    assert (await ingest_directory(index, moved, root="docs")).skipped == 2


async def test_the_mark_of_a_folder_cannot_be_forged(index, tmp_path):
    write(
        tmp_path / "kb",
        {"c.jsonl": lines({"_id": "x", "text": "t", "metadata": {"ingest_root": "no"}})},
    )
    await ingest_directory(index, tmp_path / "kb", metadata={"ingest_root": "no"})
    assert (await document(index, "kb/c.jsonl#x")).metadata["ingest_root"] != "no"


@pytest.mark.parametrize("root", ["", " ", "a/b", "/"])
async def test_a_root_is_a_plain_name(index, folder, root):
    with pytest.raises(InvalidSetting) as caught:
        await ingest_directory(index, folder, root=root)
    assert caught.value.name == "root"


async def test_nothing_outside_the_scope_is_seen_or_removed(index, folder):
    await index.ingest(Document("docs/theirs", "x", metadata={"tenant": "b"}))
    await ingest_directory(index, folder, scope=Filter(Eq("tenant", "a")), metadata={"tenant": "a"})
    assert len(await ids(index)) == 4
    assert len(await ids(index, scope=Eq("tenant", "a"))) == 3
    with pytest.raises(ScopeViolation):
        await ingest_directory(index, folder, scope=Eq("tenant", "b"), metadata={"tenant": "c"})


# Progress


@pytest.mark.parametrize("batch", [1, 64])
async def test_progress_never_falls_and_ends_at_one(index, folder, batch):
    write(folder, {"c.jsonl": lines(*({"_id": str(n), "text": f"t {n}"} for n in range(150)))})
    heard = []
    await ingest_directory(index, folder, batch=batch, on_progress=heard.append)
    assert heard == sorted(heard)
    assert (heard[0], heard[-1], heard.count(1.0)) == (0.0, 1.0, 1)
    assert len(heard) > 4


async def test_an_empty_folder_is_done_at_once(index, tmp_path):
    (tmp_path / "empty").mkdir()
    heard = []
    report = await ingest_directory(index, tmp_path / "empty", on_progress=heard.append)
    assert (report.documents, heard) == (0, [0.0, 1.0])


@pytest.mark.parametrize(
    "settings", [{"max_bytes": 0}, {"max_files": 0}, {"batch": 0}, {"on_error": "ignore"}]
)
async def test_settings_that_cannot_work_are_refused(index, folder, settings):
    with pytest.raises(InvalidSetting) as caught:
        await ingest_directory(index, folder, **settings)
    assert caught.value.name == next(iter(settings))


if os.name == "posix":

    async def test_a_named_pipe_is_no_file(index, folder):
        os.mkfifo(folder / "pipe.txt")
        assert (await ingest_directory(index, folder)).documents == 3

    async def test_a_file_name_that_is_no_unicode_is_reported(index, folder):
        path = folder / os.fsdecode(b"\xff.txt")
        path.write_bytes(b"x")
        report = await ingest_directory(index, folder)
        assert [error.error for error in report.errors] == ["InvalidText"]
        assert report.errors[0].id.encode()


async def test_duplicates_of_files_are_reported_dropped_or_marked(index, folder):
    """A file that is dropped now and was read before counts as vanished."""
    write(folder, {"z/copy.txt": "heat the KETTLE\npour the water"})
    await ingest_directory(index, folder)
    report = await ingest_directory(index, folder, duplicates="report")
    assert [(d.id, d.of, d.kind) for d in report.duplicates] == [
        ("docs/z/copy.txt", "docs/guide/tea.txt", "text")
    ]
    assert (report.skipped, report.deleted) == (4, 0)
    report = await ingest_directory(index, folder, duplicates="drop")
    assert (report.skipped, report.deleted) == (3, 1)
    assert "docs/z/copy.txt" not in await ids(index)
    await ingest_directory(index, folder, duplicates="group")
    copy = await index.store.document("docs/z/copy.txt", scope=Filter())
    assert copy.metadata["duplicate_of"] == "docs/guide/tea.txt"
    (folder / "guide/tea.txt").unlink()
    report = await ingest_directory(index, folder, duplicates="drop")
    assert "docs/z/copy.txt" in await ids(index)
