"""The search arrays beside the embedded store's file: convenient, never needed, never wrong."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ragchat_retrieval.errors import StoreUnavailable
from ragchat_retrieval.filters import Eq, Filter
from ragchat_retrieval.stores.sqlite import SQLiteStore, inserting, mirror, schema, writing
from ragchat_retrieval.testing.store_suite_kit import (
    ALL,
    axis,
    by_vector,
    by_words,
    contents,
    put,
    revision,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ragchat_retrieval.values import Revision

Answers = tuple[object, ...]


def folder_of(path: Path) -> Path:
    return Path(f"{path}.index")


def saved(path: Path) -> list[Path]:
    folder = folder_of(path)
    return sorted(folder.iterdir()) if folder.exists() else []


def files_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def some(number: int, *, prefix: str = "d") -> list[Revision]:
    return [
        revision(f"{prefix}{n}", f"shared word{n % 7} own{n}", "tail", metadata={"n": n % 3})
        for n in range(number)
    ]


async def answers(store: SQLiteStore) -> Answers:
    """Everything that comes from the arrays."""
    return (
        await by_words(store, "shared word3", 100),
        await by_words(store, "tail own5", 7),
        await by_vector(store, axis(2), 100),
        await by_vector(store, -axis(0), 5),
        await contents(store),
    )


async def answers_of(path: Path, *, read_only: bool = True) -> Answers:
    store = SQLiteStore(path, read_only=read_only)
    found = await answers(store)
    await store.aclose()
    return found


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lists how many passages were read from the file for the arrays, read by read."""
    counts: list[int] = []
    real = mirror.read_batch

    def counting(*args, **options):
        batch = real(*args, **options)
        counts.append(len(batch))
        return batch

    monkeypatch.setattr(mirror, "read_batch", counting)
    return counts


async def written(path: Path, number: int = 40) -> Answers:
    store = SQLiteStore(path)
    await put(store, *some(number))
    found = await answers(store)
    await store.aclose()
    return found


async def test_current_arrays_are_used_as_they_are(tmp_path: Path, counted: list[int]) -> None:
    """Opening a file whose arrays are current reads no passage for them."""
    path = tmp_path / "kb.sqlite"
    expected = await written(path)
    assert len(saved(path)) == 1
    assert await answers_of(path) == expected
    assert sum(counted) == 0


async def test_arrays_that_are_behind_are_extended(tmp_path: Path, counted: list[int]) -> None:
    """What was written after the arrays were saved comes from the change log alone."""
    path = tmp_path / "kb.sqlite"
    await written(path, 200)
    kept = folder_of(path).with_name("kept")
    shutil.copytree(folder_of(path), kept)
    store = SQLiteStore(path)
    await put(store, revision("d1", "replaced shared"), revision("new", "shared fresh"))
    await store.delete(["d2"], scope=ALL)
    expected = await answers(store)
    await store.aclose()
    shutil.rmtree(folder_of(path))
    shutil.copytree(kept, folder_of(path))
    counted.clear()
    assert await answers_of(path) == expected
    assert counted == [2]


@pytest.mark.parametrize("threads", ["there are", "the system gives none"])
async def test_what_another_thread_inverts_is_what_the_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: str
) -> None:
    """As of a large write: the first one, and one behind other passages."""

    class Refusing(ThreadPoolExecutor):
        def submit(self, *_args, **_kwargs):
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(inserting, "_MANY", 0)
    if threads != "there are":
        monkeypatch.setattr(inserting, "ThreadPoolExecutor", Refusing)
    path = tmp_path / "kb.sqlite"
    store = SQLiteStore(path)
    await put(store, *some(40))
    await put(store, *some(20, prefix="e"), revision("d3", "word3 replaced"))
    expected = await answers(store)
    await store.aclose()
    shutil.rmtree(folder_of(path))
    assert await answers_of(path) == expected


async def test_a_write_that_another_thread_fails_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_postings):
        raise MemoryError

    store = SQLiteStore(tmp_path / "kb.sqlite")
    await put(store, *some(20))
    expected = await answers(store)
    with monkeypatch.context() as patch:
        patch.setattr(inserting, "_MANY", 0)
        patch.setattr(inserting.Inverted, "of", fail)
        with pytest.raises(MemoryError):
            await put(store, *some(40))
        assert await answers(store) == expected
    await put(store, *some(40))
    assert len(await store.document_ids(scope=ALL)) == 40
    await store.aclose()


Damage = "Callable[[Path], object]"
DAMAGES: dict[str, Callable[[Path], object]] = {
    "removed": lambda file: file.unlink(),
    "emptied": lambda file: file.write_bytes(b""),
    "cut in half": lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
    "cut by a byte": lambda file: file.write_bytes(file.read_bytes()[:-1]),
    "lengthened": lambda file: file.write_bytes(file.read_bytes() + b"\0"),
    "overwritten": lambda file: file.write_bytes(b"\xff" * file.stat().st_size),
    "zeroed": lambda file: file.write_bytes(bytes(file.stat().st_size)),
    "beginning destroyed": lambda file: file.write_bytes(b"\0" * 64 + file.read_bytes()[64:]),
    "end destroyed": lambda file: file.write_bytes(file.read_bytes()[:-64] + b"\0" * 64),
    "a folder": lambda file: (file.unlink(), file.mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("read_only", [True, False], ids=["reading", "writing"])
async def test_damaged_arrays_are_built_anew(
    tmp_path: Path, damage: str, *, read_only: bool
) -> None:
    """Whatever happened to the saved arrays, the answers are the same and nothing raises."""
    path = tmp_path / "kb.sqlite"
    expected = await written(path)
    (file,) = saved(path)
    DAMAGES[damage](file)
    assert await answers_of(path, read_only=read_only) == expected


async def test_flipped_bytes_are_noticed(tmp_path: Path) -> None:
    """A single wrong byte anywhere leads to the right answers all the same."""
    path = tmp_path / "kb.sqlite"
    expected = await written(path)
    (file,) = saved(path)
    whole = file.read_bytes()
    chance = random.Random(7)  # noqa: S311 - chooses positions
    for _ in range(40):
        position = chance.randrange(len(whole))
        wrong = bytearray(whole)
        wrong[position] ^= 1 << chance.randrange(8)
        file.write_bytes(wrong)
        assert await answers_of(path) == expected, position


async def test_arrays_of_another_file_are_not_taken(tmp_path: Path) -> None:
    """Arrays are used only for the very file and history that they were made from."""
    first, second = tmp_path / "a.sqlite", tmp_path / "b.sqlite"
    await written(first)
    store = SQLiteStore(second)
    await put(store, *some(9, prefix="other"))
    expected = await answers(store)
    await store.aclose()
    saved(second)[0].write_bytes(saved(first)[0].read_bytes())
    assert await answers_of(second) == expected


async def test_a_restored_backup_does_not_take_later_arrays(tmp_path: Path) -> None:
    """A file set back to an earlier state and written anew is not mixed up with its old future."""
    path, backup = tmp_path / "kb.sqlite", tmp_path / "backup"
    await written(path)
    shutil.copy(path, backup)
    store = SQLiteStore(path)
    await put(store, *some(60, prefix="future"))
    await store.aclose()
    shutil.copy(backup, path)
    arrays = saved(path)[0].read_bytes()
    store = SQLiteStore(path)
    await put(store, *some(5, prefix="otherwise"))
    await store.aclose()
    saved(path)[0].write_bytes(arrays)
    store = SQLiteStore(path, read_only=True)
    found = await answers(store)
    assert await by_words(store, "own55", 10) == []
    assert await store.count(scope=ALL) == (45, 90, 90)
    await store.aclose()
    saved(path)[0].unlink()
    assert await answers_of(path) == found


async def test_a_log_that_does_not_reach_back_means_building_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: list[int]
) -> None:
    """The change log is bounded; who is further behind reads the whole file once."""
    path = tmp_path / "kb.sqlite"
    await written(path)
    old = saved(path)[0].read_bytes()
    monkeypatch.setattr("ragchat_retrieval.stores.sqlite.writing.KEPT_CHANGES", 3)
    store = SQLiteStore(path)
    for n in range(6):
        await put(store, revision("d0", f"shared turn{n}"))
    expected = await answers(store)
    await store.aclose()
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM changes").fetchone() == (3,)
    connection.close()
    saved(path)[0].write_bytes(old)
    counted.clear()
    assert await answers_of(path) == expected
    assert sum(counted) == expected[-1]["count"].passages  # type: ignore[index]


async def test_the_change_log_is_bounded(tmp_path: Path) -> None:
    """However many writes there are, the log remembers a fixed number of them."""
    path = tmp_path / "kb.sqlite"
    store = SQLiteStore(path)
    for _ in range(schema.KEPT_CHANGES // 4):
        await put(store, revision("a", "x"), revision("b", "x"))
        await store.delete(["a"], scope=ALL)
    for _ in range(schema.KEPT_CHANGES // 2 + 5):
        await put(store, revision("b", "y"))
    await store.aclose()
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM changes").fetchone() == (schema.KEPT_CHANGES,)
    connection.close()


async def test_reading_only_writes_nothing(tmp_path: Path) -> None:
    """A store opened for reading leaves file and folder as they are."""
    path = tmp_path / "kb.sqlite"
    expected = await written(path)
    shutil.rmtree(folder_of(path))
    before = path.read_bytes()
    assert await answers_of(path) == expected
    assert not folder_of(path).exists()
    assert path.read_bytes() == before


async def test_a_database_in_memory_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``:memory:`` makes no file and no folder."""
    monkeypatch.chdir(tmp_path)
    store = SQLiteStore(":memory:")
    await put(store, *some(3))
    assert len(await by_words(store, "shared")) == len(range(3))
    await store.aclose()
    assert saved(tmp_path / ":memory:") == []
    assert files_in(tmp_path) == []


async def test_arrays_that_cannot_be_saved_are_no_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the folder cannot be made, the log says so and everything works."""
    path = tmp_path / "kb.sqlite"
    folder_of(path).write_text("in the way")
    expected = await written(path)
    assert "search arrays not saved" in caplog.text
    assert await answers_of(path) == expected


async def test_large_growth_is_saved_before_closing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After much writing the arrays are saved, so that a crash costs less."""
    path = tmp_path / "kb.sqlite"
    monkeypatch.setattr(mirror, "_GROWTH", 50)
    store = SQLiteStore(path)
    await put(store, *some(10))
    assert saved(path) == []
    await put(store, *some(40))
    await put(store, revision("small", "x"))  # stands behind the saving in the same queue
    assert len(saved(path)) == 1
    await store.aclose()


async def test_a_reader_saves_what_it_had_to_build(
    tmp_path: Path, counted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash the arrays are built once, not by every process that only searches."""
    path = tmp_path / "kb.sqlite"
    expected = await written(path)
    saved(path)[0].unlink()
    assert await answers_of(path, read_only=False) == expected
    assert len(saved(path)) == 1
    counted.clear()
    assert await answers_of(path, read_only=False) == expected
    assert counted == []
    saved(path)[0].unlink()
    monkeypatch.setattr(mirror, "_GROWTH", 50)
    save, done = mirror.Mirror.save, threading.Event()
    monkeypatch.setattr(mirror.Mirror, "save", lambda self: (save(self), done.set()))
    store = SQLiteStore(path)
    await by_words(store, "shared")
    assert await asyncio.to_thread(done.wait, 60)
    assert len(saved(path)) == 1
    await store.aclose()


async def test_drafts_of_killed_processes_are_swept(tmp_path: Path) -> None:
    """Half-written arrays go when they are old; a fresh one may still be somebody's."""
    path = tmp_path / "kb.sqlite"
    await written(path)
    old, fresh = (folder_of(path) / name for name in ("old.tmp", "fresh.tmp"))
    for draft in (old, fresh):
        draft.write_bytes(b"x")
    os.utime(old, (0, 0))
    await answers_of(path, read_only=False)
    assert fresh in saved(path)
    assert old not in saved(path)


async def test_small_writes_do_not_save_everything_again(tmp_path: Path) -> None:
    """A small write leaves large saved arrays alone; the log bridges the difference."""
    path = tmp_path / "kb.sqlite"
    await written(path, 200)
    before = saved(path)[0].stat().st_mtime_ns
    store = SQLiteStore(path)
    await put(store, revision("d0", "shared small change"))
    expected = await answers(store)
    await store.aclose()
    assert saved(path)[0].stat().st_mtime_ns == before
    assert await answers_of(path) == expected


async def test_a_reset_removes_the_arrays(tmp_path: Path) -> None:
    """What was saved of a corpus goes when the corpus is emptied or dropped."""
    path = tmp_path / "kb.sqlite"
    await written(path)
    store = SQLiteStore(path)
    await store.reset()
    assert saved(path) == []
    await put(store, *some(3))
    await put(store.corpus("other"), *some(4))
    await store.aclose()
    assert len(saved(path)) == len(["default", "other"])
    store = SQLiteStore(path, corpus="other")
    await store.drop_corpus()
    assert len(saved(path)) == 1
    await store.aclose()


async def test_a_write_stands_even_if_the_arrays_cannot_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What is committed is committed: the next reader builds the arrays anew."""
    path = tmp_path / "kb.sqlite"
    store = SQLiteStore(path)
    await put(store, *some(5))
    with monkeypatch.context() as patch:
        patch.setattr(mirror.Engine, "apply", lambda *_, **__: (_ for _ in ()).throw(MemoryError))
        await put(store, revision("late", "shared late"))
    assert "could not follow" in caplog.text
    assert len(await by_words(store, "late")) == 1
    assert len(await by_words(store, "shared", 100)) == len(some(5)) + 1
    await store.aclose()


async def test_counts_under_a_scope_are_of_one_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A count that a writer overtook is taken again."""
    store = SQLiteStore(tmp_path / "kb.sqlite")
    await put(store, *some(9))
    real = mirror.Mirror.snapshot
    overtaken = [True, True, False]

    def snapshot(self, connection, state):
        found, revision_ = real(self, connection, state)
        return found, revision_ + overtaken.pop(0)

    monkeypatch.setattr(mirror.Mirror, "snapshot", snapshot)
    assert await store.count(scope=Filter(Eq("n", 1))) == (3, 6, 6)
    assert overtaken == []
    await store.aclose()


async def test_repair_sweeps_and_builds_anew(tmp_path: Path) -> None:
    """Leftovers go, arrays of other corpora stay, and wrong counts are counted anew."""
    path = tmp_path / "kb.sqlite"
    expected = await written(path)
    store = SQLiteStore(path)
    await put(store.corpus("other"), *some(4))
    await store.aclose()
    others = [file.name for file in saved(path)]
    (folder_of(path) / "left.over.tmp").write_bytes(b"x")
    connection = sqlite3.connect(path)
    connection.execute("UPDATE corpora SET passages = passages + 5, documents = 0")
    connection.commit()
    connection.close()
    for name in others:
        (folder_of(path) / name).unlink()
    store = SQLiteStore(path)
    with pytest.raises(StoreUnavailable, match="repair"):
        await by_words(store, "shared")
    await store.repair()
    await store.corpus("other").repair()
    assert await answers(store) == expected
    await store.aclose()
    assert [file.name for file in saved(path)] == others


async def test_repair_forgets_words_that_occur_nowhere(tmp_path: Path) -> None:
    """Words of documents that went are swept, and ids given again mean nothing else to others."""
    path = tmp_path / "kb.sqlite"
    store, other = SQLiteStore(path), SQLiteStore(path)
    await put(store, *(revision(f"d{n}", f"kept{n} common") for n in range(5)))
    for n in range(30):
        await put(store, revision("changing", f"once{n} common"))
    before = await by_words(other, "common kept3 once29")
    connection = sqlite3.connect(path)
    count = "SELECT count(*) FROM terms"
    assert connection.execute(count).fetchone() == (36,)
    revisions = [await store.revision()]
    await store.repair()
    revisions.append(await store.revision())
    assert connection.execute(count).fetchone() == (7,)
    connection.close()
    for opened in (store, other):
        assert await by_words(opened, "common kept3 once29") == before
        assert await by_words(opened, "once28") == []
    await put(store, *(revision(f"new{n}", f"fresh{n}") for n in range(5)))
    for opened in (store, other, again := SQLiteStore(path)):
        (hit,) = await by_words(opened, "fresh4")
        assert hit.passage_id.startswith("new4")
        assert await by_words(opened, "once3") == []
    assert revisions[0] == revisions[1]
    for opened in (store, other, again):
        await opened.aclose()


async def test_after_a_swap_no_process_builds_its_arrays_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both corpora keep their arrays, however far apart their revisions were; writing goes on."""
    path = tmp_path / "kb.sqlite"
    store, other = SQLiteStore(path), SQLiteStore(path, corpus="other")
    monkeypatch.setattr(writing, "KEPT_CHANGES", 20)
    for number in range(50):
        await put(store, revision("a", f"one word{number % 7}"))
    await put(other, revision("b", "two"), revision("c", "two three"))
    assert len(await by_words(store, "one")) == 1
    assert len(await by_words(other, "two")) == 2
    await other.aclose()
    watching = SQLiteStore(path)
    assert len(await by_words(watching, "one")) == 1

    def build(*_: object) -> None:
        pytest.fail("built anew")

    monkeypatch.setattr(mirror.Mirror, "_build", build)
    await store.swap_corpus("other")
    for handle in (store, watching):
        assert len(await by_words(handle, "two")) == 2
        assert len(await by_words(handle.corpus("other"), "one")) == 1
    await put(store, revision("d", "two four"))
    for handle in (store, watching):
        assert len(await by_words(handle, "two")) == 3
    await store.aclose()
    await watching.aclose()
    again = SQLiteStore(path)
    assert len(await by_words(again, "two")) == 3
    assert len(await by_words(again.corpus("other"), "one")) == 1
    await again.aclose()


async def test_a_save_that_is_under_way_is_not_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Searches beside a save go on without queueing others; later growth is saved again."""
    monkeypatch.setattr(mirror, "_GROWTH", 10)
    save, began, go, saves = mirror.Mirror.save, threading.Event(), threading.Event(), []

    def slow(self: mirror.Mirror) -> None:
        saves.append(len(saves))
        began.set()
        assert go.wait(60)
        save(self)

    monkeypatch.setattr(mirror.Mirror, "save", slow)
    store = SQLiteStore(tmp_path / "kb.sqlite")
    await put(store, *(revision(f"a{n}", "shared") for n in range(30)))
    assert await asyncio.to_thread(began.wait, 60)
    for _ in range(5):
        await by_words(store, "shared")
    go.set()
    await put(store, *(revision(f"b{n}", "shared") for n in range(60)))
    await store._db.write(lambda _: None)  # behind whatever was queued
    assert len(saves) == 2
    monkeypatch.setattr(mirror.Mirror, "save", save)
    await store.aclose()
