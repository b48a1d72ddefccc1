"""A store works on the file it opened, and says so when that file is no longer there."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ragchat_retrieval.embedders import CachedEmbedder, HashingEmbedder
from ragchat_retrieval.errors import StoreUnavailable
from ragchat_retrieval.stores.sqlite import SQLiteStore
from ragchat_retrieval.testing.store_suite_kit import ALL, by_words, contents, put, revision

if TYPE_CHECKING:
    from collections.abc import Callable


def removed(path: Path) -> None:
    path.unlink()


def moved(path: Path) -> None:
    path.rename(path.with_name("elsewhere.sqlite"))


def replaced(path: Path) -> None:
    other = path.with_name("other.sqlite")
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    shutil.copy(path, other)
    other.replace(path)


@pytest.mark.parametrize("change", [removed, moved, replaced])
@pytest.mark.parametrize("read_only", [False, True])
async def test_a_file_that_went_away_is_an_error_and_not_a_lost_write(
    tmp_path: Path, change: Callable[[Path], None], *, read_only: bool
) -> None:
    """Nothing is written to, or read from, a file that the path no longer names."""
    path = tmp_path / "kb.sqlite"
    store = SQLiteStore(path)
    await put(store, revision("a", "one"))
    reader = SQLiteStore(path, read_only=read_only)
    assert len(await by_words(reader, "one")) == 1
    change(path)
    with pytest.raises(StoreUnavailable, match="while it was open"):
        await put(store, revision("b", "two"))
    for opened in (store, reader):
        with pytest.raises(StoreUnavailable, match="while it was open"):
            await by_words(opened, "one")
        await opened.aclose()
    again = SQLiteStore(path)
    assert await again.document_ids(scope=ALL) == (["a"] if change is replaced else [])
    await put(again, revision("c", "three"))
    await again.aclose()


async def test_a_copy_made_while_the_log_is_full_is_whole_or_older(tmp_path: Path) -> None:
    """A copied file, with or without its log and arrays, holds one state and searches that one."""
    path = tmp_path / "kb.sqlite"
    store = SQLiteStore(path)
    await put(store, revision("a", "one"))
    await store.repair()  # arrays are beside the file
    await put(store, revision("b", "two"))
    expected = await contents(store)
    for name, parts in {"bare": ("",), "logged": ("", "-wal")}.items():
        folder = tmp_path / name
        folder.mkdir()
        for part in parts:
            shutil.copy(f"{path}{part}", folder / f"kb.sqlite{part}")
        shutil.copytree(f"{path}.index", folder / "kb.sqlite.index")
        copied = SQLiteStore(folder / "kb.sqlite")
        seen = await contents(copied)
        found = {hit.passage_id for hit in await by_words(copied, "one two")}
        assert found == set(seen["ids"])
        if name == "logged":
            assert seen == expected
        await put(copied, revision("c", "three"))
        assert len(await by_words(copied, "three")) == 1
        await copied.aclose()
    await store.aclose()


IN_MEMORY = """
import asyncio, os, sys, warnings
warnings.simplefilter("ignore")
from ragchat_retrieval.errors import StoreUnavailable
from ragchat_retrieval.stores.sqlite import SQLiteStore
from ragchat_retrieval.testing.store_suite_kit import ALL, put, revision

store = SQLiteStore(":memory:")
asyncio.run(put(store, revision("a", "one")))
child = os.fork()
if not child:
    try:
        asyncio.run(store.document_ids(scope=ALL))
    except StoreUnavailable:
        os._exit(7)
    os._exit(1)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert asyncio.run(store.document_ids(scope=ALL)) == ["a"]
asyncio.run(store.aclose())
sys.exit(code)
"""


def test_a_database_in_memory_is_not_silently_empty_after_a_fork() -> None:
    """A child is told that the database stayed with its parent."""
    assert subprocess.run([sys.executable, "-c", IN_MEMORY], check=False).returncode == 7


async def test_a_second_cache_never_opens_the_file_behind_its_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing any other handle on an SQLite file would drop the locks of the whole process."""
    first = CachedEmbedder(HashingEmbedder(8), tmp_path / "cache")
    await first.embed(["a"])

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError

    for name in ("open", "read_bytes", "read_text"):
        monkeypatch.setattr(Path, name, refuse)
    second = CachedEmbedder(HashingEmbedder(8), tmp_path / "cache")
    await second.embed(["a", "b"])
    monkeypatch.undo()
    await first.aclose()
    await second.aclose()
