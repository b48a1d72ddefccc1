"""The graph beside the embedded store's file: derived, never needed, never in anybody's way."""

from __future__ import annotations

import logging
import os
import random
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ragchat_retrieval.engine import Graph, Hnsw, graph, read_arrays, write_arrays
from ragchat_retrieval.errors import InvalidSetting, MissingExtra
from ragchat_retrieval.filters import Eq, Filter
from ragchat_retrieval.ports import Identity
from ragchat_retrieval.stores.sqlite import SQLiteStore, graphs
from ragchat_retrieval.testing.store_suite_kit import ALL
from ragchat_retrieval.values import Document, Passage, Revision

if TYPE_CHECKING:
    from collections.abc import Callable

    from ragchat_retrieval.ports import Hit

DIMENSION = 24
OPTIONS = Hnsw(connectivity=8, expansion_add=32, expansion_search=64, exact_up_to=0)
GOOD = 0.8
"""Threads that build a small graph together now and then leave a passage out of reach. The graph
of other vectors finds hardly anything."""

IDENTITY = Identity(analyzer="plain", model="m", dimension=DIMENSION)


def unit(count: int, seed: int = 0):
    rows = np.random.default_rng(seed).normal(size=(count, DIMENSION)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def some(count: int, *, prefix: str = "d", seed: int = 0) -> list[Revision]:
    given = []
    for n, vector in enumerate(unit(count, seed)):
        document = Document(f"{prefix}{n}", f"text {n}", metadata={"n": n % 2})
        passage = Passage(document.text, document_id=document.id, metadata=document.metadata)
        given.append(
            Revision(
                document=document, passages=(passage,), vectors=vector[None], terms=[{"text": 1}]
            )
        )
    return given


def opened(path: Path, *, read_only: bool = False, options: Hnsw = OPTIONS) -> SQLiteStore:
    return SQLiteStore(path, read_only=read_only, vectors=options)


async def put(store: SQLiteStore, *given: Revision) -> None:
    await store.replace(given, identity=IDENTITY, scope=ALL)


async def nearest(store: SQLiteStore, limit: int = 10) -> list[list[Hit]]:
    return [
        [*await store.search_vector(query, limit, filter=chosen, scope=ALL)]
        for query in unit(5, 77)
        for chosen in (ALL, Filter(Eq("n", 1)))
    ]


async def exactly(path: Path, limit: int = 10) -> list[list[Hit]]:
    store = SQLiteStore(path, read_only=True)
    found = await nearest(store, limit)
    await store.aclose()
    return found


def recall(found: list[list[Hit]], exact: list[list[Hit]]) -> float:
    """What share of the exact answers is there; every answer is as long and scored as exactly."""
    shares = []
    for some_hits, best in zip(found, exact, strict=True):
        assert len(some_hits) == len(best)
        best_scores = {hit.passage_id: hit.score for hit in best}
        common = [hit for hit in some_hits if hit.passage_id in best_scores]
        assert all(best_scores[hit.passage_id] == hit.score for hit in common)
        shares.append(len(common) / len(best))
    return float(np.mean(shares))


def graph_of(path: Path) -> Path:
    (file,) = Path(f"{path}.index").glob("*.hnsw")
    return file


def listed(path: Path, pattern: str = "*") -> list[Path]:
    return sorted(Path(f"{path}.index").glob(pattern))


def bar(path: Path) -> None:
    """Puts something in the way of the folder of derived files."""
    shutil.rmtree(f"{path}.index")
    Path(f"{path}.index").write_text("in the way")


def killed_while_saving(file: Path) -> int:
    """Saves over a file in a process that is killed just before the rename; returns its code."""
    pid = os.fork()
    if pid == 0:  # pragma: no cover - this process is killed
        os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        write_arrays(file, {"graph": [np.zeros(9)]}, stamp={})
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


async def written(path: Path, count: int = 300) -> None:
    store = opened(path)
    await put(store, *some(count))
    await store.aclose()


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Has a graph asked however small it is; lists how large it was, question by question."""
    monkeypatch.setattr(graph, "_COMPARED", float("inf"))
    monkeypatch.setattr(graphs, "_FEW", 20)
    sizes: list[int] = []
    real = Graph._nearest

    def counting(self: Graph, vector, count: int):
        sizes.append(len(self))
        return real(self, vector, count)

    monkeypatch.setattr(Graph, "_nearest", counting)
    return sizes


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lists the graphs that were built and extended."""
    events: list[str] = []
    built, extended = Graph.built.__func__, Graph.extended

    def building(cls, *args):
        events.append("built")
        return built(cls, *args)

    def extending(self, *args):
        events.append("extended")
        return extended(self, *args)

    monkeypatch.setattr(Graph, "built", classmethod(building))
    monkeypatch.setattr(Graph, "extended", extending)
    return events


async def test_closing_leaves_a_graph_that_the_next_process_uses(
    tmp_path: Path, asked: list[int], made: list[str]
) -> None:
    """What was written is in the graph once the store is closed; opening it builds nothing."""
    path = tmp_path / "kb.sqlite"
    await written(path)
    assert made == ["built"]
    for read_only in (True, False):
        store = opened(path, read_only=read_only)
        assert recall(await nearest(store), await exactly(path)) >= GOOD
        await store.aclose()
    assert made == ["built"]
    assert set(asked) == {300}


async def test_until_there_is_a_graph_answers_are_exact(
    tmp_path: Path, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits while a graph is made, and afterwards it is asked."""
    path = tmp_path / "kb.sqlite"
    await written(path)
    graph_of(path).unlink()
    store = opened(path)
    assert await nearest(store, 1) == await exactly(path, 1)
    store._nearest.settle()
    before = len(asked)
    await nearest(store)
    assert len(asked) > before
    await store.aclose()
    assert graph_of(path).exists()


async def test_a_graph_that_is_behind_is_extended(
    tmp_path: Path, asked: list[int], made: list[str]
) -> None:
    """What came since, by any process, is found at once, and joins the graph when it is much."""
    path = tmp_path / "kb.sqlite"
    await written(path)
    reader = opened(path, read_only=True)
    await nearest(reader)
    other = SQLiteStore(path)  # one that knows nothing of graphs
    await put(other, *some(15, prefix="few", seed=1))
    await other.delete([f"d{n}" for n in range(20)], scope=ALL)
    assert recall(await nearest(reader), await exactly(path)) >= GOOD
    assert made == ["built"]
    await put(other, *some(200, prefix="many", seed=2), *some(20, seed=3))
    await other.aclose()
    assert recall(await nearest(reader), await exactly(path)) >= GOOD
    await reader.aclose()
    writer = opened(path)
    await nearest(writer)
    await writer.aclose()
    assert made[-1] == "extended"
    asked.clear()
    again = opened(path, read_only=True)
    assert recall(await nearest(again), await exactly(path)) >= GOOD
    await again.aclose()
    assert set(asked) == {300 + 15 + 220}


async def test_a_graph_of_mostly_removed_passages_is_built_anew(
    tmp_path: Path, made: list[str], asked: list[int]
) -> None:
    path = tmp_path / "kb.sqlite"
    await written(path)
    store = opened(path)
    await store.delete([f"d{n}" for n in range(200)], scope=ALL)
    assert recall(await nearest(store), await exactly(path)) >= GOOD
    await store.aclose()
    assert made == ["built", "built"]
    asked.clear()
    again = opened(path)
    assert recall(await nearest(again), await exactly(path)) >= GOOD
    await again.aclose()
    assert set(asked) == {100}


async def test_a_stamp_is_renewed_before_the_log_forgets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: list[str]
) -> None:
    """Many small writes do not make a graph worthless that holds nearly everything."""
    monkeypatch.setattr(graphs, "_LAG", 5)
    path = tmp_path / "kb.sqlite"
    await written(path)
    for turn in range(4):
        store = opened(path)
        for n in range(3):
            await put(store, *some(1, prefix=f"{turn}-{n}-"))
        await store.aclose()
    assert made == ["built", "extended", "extended"]


DAMAGES: dict[str, Callable[[Path], object]] = {
    "removed": lambda file: file.unlink(),
    "emptied": lambda file: file.write_bytes(b""),
    "cut in half": lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
    "cut by a byte": lambda file: file.write_bytes(file.read_bytes()[:-1]),
    "overwritten": lambda file: file.write_bytes(b"\xff" * file.stat().st_size),
    "zeroed": lambda file: file.write_bytes(bytes(file.stat().st_size)),
    "a folder": lambda file: (file.unlink(), file.mkdir()),
    "another uuid": lambda file: restamped(file, uuid="0" * 32),
    "a later revision": lambda file: restamped(file, revision=99),
    "an earlier revision": lambda file: restamped(file, revision=0),
    "another history": lambda file: restamped(file, stamp=12345),
    "another dimension": lambda file: restamped(file, dimension=DIMENSION + 1),
    "another connectivity": lambda file: restamped(file, connectivity=9),
    "another size": lambda file: restamped(file, size=299),
    "another format": lambda file: restamped(file, format=0),
    "no stamp": lambda file: write_arrays(file, graph_in(file), stamp={}),
    "no graph": lambda file: write_arrays(
        file, {"graph": [np.zeros(500, np.uint8)]}, stamp=read_arrays(file)[1]
    ),
}


def graph_in(file: Path):
    return {"graph": [read_arrays(file)[0]["graph"].copy()]}


def restamped(file: Path, **changes: object) -> None:
    write_arrays(file, graph_in(file), stamp={**read_arrays(file)[1], **changes})


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("read_only", [True, False], ids=["reading", "writing"])
async def test_a_damaged_graph_is_not_used_and_built_anew(
    tmp_path: Path, damage: str, made: list[str], asked: list[int], *, read_only: bool
) -> None:
    """Answers are exact until a new one is there, and only who may write saves it."""
    path = tmp_path / "kb.sqlite"
    await written(path)
    file = graph_of(path)
    DAMAGES[damage](file)
    store = opened(path, read_only=read_only)
    assert (await nearest(store, 1))[0] == (await exactly(path, 1))[0]
    store._nearest.settle()
    assert made == ["built", "built"]
    assert recall(await nearest(store), await exactly(path)) >= GOOD
    assert asked
    await store.aclose()
    again = opened(path, read_only=True)
    await nearest(again)
    await again.aclose()
    expected = 3 if read_only or damage == "a folder" else 2
    assert made.count("built") == expected


async def test_flipped_bytes_are_noticed(tmp_path: Path) -> None:
    """A single wrong byte anywhere keeps a graph from being used: the library would trust it."""
    path = tmp_path / "kb.sqlite"
    await written(path, 60)
    file = graph_of(path)
    whole = file.read_bytes()
    chance = random.Random(7)  # noqa: S311 - chooses positions
    for _ in range(30):
        position = chance.randrange(len(whole))
        wrong = bytearray(whole)
        wrong[position] ^= 1 << chance.randrange(8)
        file.write_bytes(wrong)
        store = opened(path, read_only=True)
        assert recall(await nearest(store), await exactly(path)) >= GOOD
        await store.aclose()


async def test_a_restored_backup_does_not_take_a_later_graph(
    tmp_path: Path, made: list[str]
) -> None:
    """A file set back and written anew has used the same keys for other passages."""
    path, backup = tmp_path / "kb.sqlite", tmp_path / "backup"
    await written(path)
    shutil.copy(path, backup)
    store = opened(path)
    await put(store, *some(100, prefix="future", seed=5))
    await store.aclose()
    kept = graph_of(path).read_bytes()
    shutil.copy(backup, path)
    shutil.rmtree(f"{path}.index")
    store = opened(path)
    await put(store, *some(100, prefix="otherwise", seed=6))
    await store.aclose()
    graph_of(path).write_bytes(kept)
    made.clear()
    reader = opened(path, read_only=True)
    assert await nearest(reader, 1) == await exactly(path, 1)
    reader._nearest.settle()
    assert made == ["built"]
    await reader.aclose()


async def test_a_folder_that_cannot_be_written_costs_the_saving_only(
    tmp_path: Path, asked: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """The graph is made in memory, and the log says so."""
    path = tmp_path / "kb.sqlite"
    await written(path)
    bar(path)
    store = opened(path)
    await nearest(store)
    with caplog.at_level(logging.WARNING, "ragchat"):
        store._nearest.settle()
    assert "not saved" in caplog.text
    asked.clear()
    assert recall(await nearest(store), await exactly(path)) >= GOOD
    assert asked
    await store.aclose()


async def test_reading_only_creates_no_file(tmp_path: Path, asked: list[int]) -> None:
    path = tmp_path / "kb.sqlite"
    await written(path)
    graph_of(path).unlink()
    before = listed(path)
    store = opened(path, read_only=True)
    await nearest(store)
    store._nearest.settle()
    await nearest(store)
    await store.aclose()
    assert asked
    assert listed(path) == before


async def test_small_corpora_have_no_graph(
    tmp_path: Path, asked: list[int], made: list[str]
) -> None:
    """Up to the number that the options name, all vectors are compared."""
    path = tmp_path / "kb.sqlite"
    for size, expected in ((50, []), (51, ["built"])):
        store = opened(path, options=Hnsw(exact_up_to=50))
        await put(store, *some(size))
        await store.aclose()
        assert made == expected
    assert asked == []


async def test_a_corpus_in_memory_has_a_graph_in_memory(asked: list[int]) -> None:
    store = SQLiteStore(":memory:", vectors=OPTIONS)
    await put(store, *some(200))
    await nearest(store)
    store._nearest.settle()
    asked.clear()
    await nearest(store)
    assert set(asked) == {200}
    await store.aclose()


async def test_swapped_reset_and_repaired_corpora(tmp_path: Path, asked: list[int]) -> None:
    """A graph goes with its corpus, and goes away with it."""
    path = tmp_path / "kb.sqlite"
    store = opened(path)
    await put(store, *some(200))
    await put(store.corpus("next"), *some(100, prefix="n", seed=4))
    await store.aclose()
    store = opened(path)
    for handle in (store, store.corpus("next")):
        await nearest(handle)
    asked.clear()
    await store.swap_corpus("next")
    found = await nearest(store)
    assert {hit.passage_id[:1] for hits in found for hit in hits} != set()
    assert recall(found, await exactly(path)) >= GOOD
    assert set(asked) == {100}
    assert len(listed(path, "*.hnsw")) == 2
    await store.reset()
    assert len(listed(path, "*.hnsw")) == 1
    assert await nearest(store) == [[]] * 10
    await store.corpus("next").repair()
    await nearest(store.corpus("next"))
    await store.aclose()
    assert len(listed(path, "*.hnsw")) == 1
    assert len(listed(path, "*.arrays")) == 1


async def test_a_process_killed_while_a_graph_is_saved_harms_nothing(
    tmp_path: Path, asked: list[int]
) -> None:
    """What is left behind is a draft; the old graph is whole, and repair sweeps."""
    path = tmp_path / "kb.sqlite"
    await written(path)
    whole = graph_of(path).read_bytes()
    assert killed_while_saving(graph_of(path)) == -signal.SIGKILL
    assert graph_of(path).read_bytes() == whole
    assert len(listed(path, "*.tmp")) == 1
    store = opened(path)
    assert recall(await nearest(store), await exactly(path)) >= GOOD
    assert set(asked) == {300}
    await store.repair()
    await store.aclose()
    assert listed(path, "*.tmp") == []


async def test_vectors_in_eight_bits_are_searched_exactly(tmp_path: Path) -> None:
    """Over the writes of this and another process, with filters, to the last bit."""
    path = tmp_path / "kb.sqlite"
    store = SQLiteStore(path, vectors="int8")
    await put(store, *some(300))
    assert await nearest(store) == await exactly(path)
    other = SQLiteStore(path)
    await put(other, *some(50, prefix="more", seed=1))
    await other.delete([f"d{n}" for n in range(120)], scope=ALL)
    await other.aclose()
    assert await nearest(store) == await exactly(path)
    await store.aclose()
    store = SQLiteStore(path, read_only=True, vectors="int8")
    assert await nearest(store) == await exactly(path)
    given = some(300)[200]
    kept = await store.vectors([given.passages[0].id], scope=ALL)
    assert np.array_equal(kept[given.passages[0].id], given.vectors[0])
    await store.aclose()


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"ragchat-toolkit\[hnsw\]") as caught:
        SQLiteStore("kb.sqlite", vectors="hnsw")
    assert caught.value.extra == "hnsw"


@pytest.mark.parametrize(
    ("path", "vectors"), [("kb.sqlite", "int4"), ("kb.sqlite", None), (":memory:", "int8")]
)
def test_a_way_that_cannot_work_is_refused(path: str, vectors: object) -> None:
    with pytest.raises(InvalidSetting, match="vectors"):
        SQLiteStore(path, vectors=vectors)
