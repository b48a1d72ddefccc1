"""A memory store that compares vectors in eight bits and keeps float32 in a temporary file."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ragchat_retrieval.engine import Batch, Coded, Engine, places
from ragchat_retrieval.engine.matrix import BLOCK
from ragchat_retrieval.engine.places import TemporaryFile
from ragchat_retrieval.errors import InvalidSetting, StoreUnavailable
from ragchat_retrieval.filters import Eq, Filter
from ragchat_retrieval.index import HybridIndex
from ragchat_retrieval.stores.memory import MemoryStore
from ragchat_retrieval.values import Document, Passage, Revision

if TYPE_CHECKING:
    from collections.abc import Iterable

ALL = Filter()
DIMENSION = 24


def unit(count: int, dimension: int = DIMENSION, seed: int = 0):
    rows = np.random.default_rng(seed).normal(size=(count, dimension)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def batch(first: int, vectors) -> Batch:
    numbers = range(first, first + len(vectors))
    passages = [Passage("t", id=f"p{n}", document_id=f"d{n}") for n in numbers]
    return Batch.of_passages(numbers, passages, [{}] * len(passages), vectors=vectors)


def revisions(numbers: Iterable[int], vectors) -> list[Revision]:
    made = []
    for number, vector in zip(numbers, vectors, strict=True):
        meta = {"part": number % 40}
        passage = Passage(f"tea {number}", document_id=f"d{number}", metadata=meta)
        document = Document(f"d{number}", passage.text, metadata=meta)
        made.append(
            Revision(document=document, passages=(passage,), vectors=vector[np.newaxis].copy())
        )
    return made


async def test_answers_are_those_of_float32_to_the_last_bit() -> None:
    """Several batches, equal vectors, removed documents, narrow and wide filters, compaction."""
    stores = [MemoryStore(), MemoryStore(vectors="int8")]
    rows = unit(3000)
    rows[1500:1600] = rows[:100]
    for store in stores:
        index = HybridIndex(store)
        for low, high in [(0, 700), (700, 720), (720, 3000)]:
            await index.replace(*revisions(range(low, high), rows[low:high]))
        await store.delete([f"d{n}" for n in range(0, 3000, 9)], scope=ALL)
    for _ in range(2):
        for filter in (ALL, Filter(Eq("part", 3))):
            for limit in (1, 10, 100, 5000):
                asked = list(unit(3, seed=2))
                exact, found = [
                    await store.search_vectors(asked, limit, filter=filter, scope=ALL)
                    for store in stores
                ]
                assert found == exact
        ids = await stores[0].ids(scope=ALL)
        kept, mine = [await store.vectors(ids, scope=ALL) for store in stores]
        assert all(np.array_equal(kept[id_], mine[id_]) for id_ in ids)
        for store in stores:
            await store.repair()


async def test_every_corpus_of_the_store_is_kept_so_and_reset_changes_nothing() -> None:
    store = MemoryStore(vectors="int8")
    for handle in (store, store.corpus("other")):
        index = HybridIndex(handle)
        for _ in range(2):
            await index.replace(*revisions([1], unit(1)))
            corpus = handle._shared.corpora[handle.corpus_name]
            assert corpus.state.coded is not None
            assert corpus.state.snapshot.matrix.spilled
            await index.reset()


def test_a_quarter_of_the_memory_is_taken_also_after_compaction() -> None:
    """What is not in the file are codes, a scale and a bound for each vector."""
    engine = Engine(spilled=True)
    rows = unit(BLOCK + 100, 64)
    engine.apply(add=batch(1, rows[:100]))
    engine.apply(add=batch(101, rows[100:]))
    engine.apply(remove=np.arange(0, BLOCK + 100, 2))
    matrix = engine.snapshot.matrix
    assert len(matrix.files) == len(matrix.blocks)
    for file, block in zip(matrix.files, matrix.blocks, strict=True):
        assert not block.flags.writeable
        assert block.ctypes.data == file.rows.ctypes.data
    assert Coded(matrix).nbytes == len(matrix.rows) * (64 + 8)
    assert np.array_equal(matrix.take(np.arange(len(matrix.rows))), rows[1::2])


def test_an_earlier_state_stays_as_it_was() -> None:
    """Also where what follows it lies in the same file, and after a write that failed."""
    engine = Engine(spilled=True)
    rows = unit(300)
    first = engine.apply(add=batch(1, rows[:100])).matrix
    engine._matrix.appended(first, 50, rows[:50], None)  # by a write that failed then
    second = engine.apply(add=batch(101, rows[100:])).matrix
    assert np.array_equal(first.take(np.arange(100)), rows[:100])
    assert np.array_equal(second.take(np.arange(300)), rows)
    assert first.files == second.files


def test_vectors_are_read_alike_where_there_is_no_pread(monkeypatch) -> None:
    file = TemporaryFile(50, 4)
    rows = unit(50, 4)
    file.put(0, rows[:20])
    file.put(20, rows[20:])
    at = np.array([7, 3, 49, 7])
    assert np.array_equal(file.read(at), rows[at])
    monkeypatch.delattr(os, "pread", raising=False)
    assert np.array_equal(file.read(at), rows[at])


def appended_by_a_child(engine: Engine, rows) -> None:
    engine.apply(add=batch(1001, rows))
    matrix = engine.snapshot.matrix
    ours = np.array_equal(matrix.take(np.arange(60)), np.concatenate([unit(50), rows]))
    os._exit(0 if ours and len(matrix.files) == 2 else 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_does_not_write_into_its_parents_file() -> None:
    engine = Engine(spilled=True)
    engine.apply(add=batch(1, unit(50)))
    theirs = multiprocessing.get_context("fork").Process(
        target=appended_by_a_child, args=(engine, unit(10, seed=3))
    )
    theirs.start()
    engine.apply(add=batch(51, unit(10, seed=4)))
    theirs.join()
    assert theirs.exitcode == 0
    matrix = engine.snapshot.matrix
    assert len(matrix.files) == 1
    assert np.array_equal(matrix.take(np.arange(50, 60)), unit(10, seed=4))


def test_the_file_has_no_name_and_goes_away_with_its_vectors(tmp_path: Path) -> None:
    """In the folder that TMPDIR names nothing is seen, not even while the file is there."""
    script = """
import os, sys
import numpy as np
from ragchat_retrieval.engine.places import TemporaryFile
file = TemporaryFile(1000, 8)
file.put(0, np.ones((1000, 8), np.float32))
print(os.listdir(os.environ["TMPDIR"]), file.read(np.array([999])).sum())
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["[]", "8.0"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("there", [True, False])
def test_the_file_is_where_large_ones_belong(monkeypatch, tmp_path: Path, *, there: bool) -> None:
    """Without TMPDIR in the folder for large temporary files, or where Python puts its own."""
    monkeypatch.delenv("TMPDIR", raising=False)
    large = tmp_path / "large"
    monkeypatch.setattr(places, "_LARGE_TEMPORARY", large)
    if there:
        large.mkdir()
    asked = []
    real = tempfile.TemporaryFile
    monkeypatch.setattr(
        tempfile, "TemporaryFile", lambda **kw: asked.append(kw["dir"]) or real(**kw)
    )
    TemporaryFile(1, 1)
    assert asked == [str(large) if there else None]


async def test_a_write_without_room_fails_and_changes_nothing(monkeypatch) -> None:
    store = MemoryStore(vectors="int8")
    index = HybridIndex(store)
    await index.replace(*revisions(range(100), unit(100)))
    query = unit(1, seed=5)[0]
    before = await store.search_vector(query, 10, filter=ALL, scope=ALL)

    def full(self: TemporaryFile, first: int, rows: object) -> None:
        raise places._no_room(OSError(28, "No space left on device"))

    with monkeypatch.context() as patched:
        patched.setattr(TemporaryFile, "put", full)
        with pytest.raises(StoreUnavailable, match=r"TMPDIR") as caught:
            await index.replace(*revisions(range(100, 130), unit(30, seed=6)))
        assert caught.value.retryable
    assert await store.search_vector(query, 10, filter=ALL, scope=ALL) == before
    assert (await store.count(scope=ALL)).passages == 100
    await index.replace(*revisions(range(100, 130), unit(30, seed=6)))
    assert (await store.count(scope=ALL)).passages == 130


@pytest.mark.parametrize("problem", ["folder", "write"])
def test_a_file_that_cannot_be_made_or_written_is_a_typed_error(
    monkeypatch, tmp_path: Path, problem: str
) -> None:
    if problem == "folder":
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
        monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
        with pytest.raises(StoreUnavailable, match="could not be written"):
            TemporaryFile(2, 2)
    else:
        file = TemporaryFile(2, 2)
        file._file.close()
        with Path(os.devnull).open("rb", buffering=0) as readable:
            file._file = readable
            with pytest.raises(StoreUnavailable, match="could not be written"):
                file.put(0, np.zeros((2, 2), np.float32))


async def test_without_memory_for_codes_all_are_compared(monkeypatch) -> None:
    """The next write that finds room makes them again."""
    store = MemoryStore(vectors="int8")
    index = HybridIndex(store)
    rows = unit(60)
    with monkeypatch.context() as patched:
        patched.setattr(
            "ragchat_retrieval.engine.coded.quantize", lambda _: (_ for _ in ()).throw(MemoryError)
        )
        await index.replace(*revisions(range(50), rows[:50]))
    assert store._shared.corpora["default"].state.coded is None
    [hit] = await store.search_vector(rows[7], 1, filter=ALL, scope=ALL)
    assert hit.score == pytest.approx(1.0)
    await index.replace(*revisions(range(50, 60), rows[50:]))
    assert store._shared.corpora["default"].state.coded is not None


@pytest.mark.parametrize("word", ["int4", "", None, "hnsw"])
def test_another_way_of_keeping_vectors_is_refused(word):
    with pytest.raises(InvalidSetting, match="vectors"):
        MemoryStore(vectors=word)
