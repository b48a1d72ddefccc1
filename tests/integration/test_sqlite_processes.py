"""The embedded store under several processes, and under processes that are killed."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ragchat_retrieval.stores.sqlite import SQLiteStore
from ragchat_retrieval.testing.store_suite_concurrency import PARTS, version, versions_of
from ragchat_retrieval.testing.store_suite_kit import (
    ALL,
    axis,
    by_vector,
    by_words,
    contents,
    put,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

PAIR = ("left", "right")


class Nursery:
    """A process that forks the processes of `sqlite_child`."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("sqlite_child.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self.hear() == {"ready": True}

    def start(self, *commands: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(commands) + "\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the nursery died"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


@pytest.fixture(scope="module")
def nursery(child_env: dict[str, str]) -> Iterator[Nursery]:
    running = Nursery(child_env)
    yield running
    running.close()


def saved(path: Path) -> list[Path]:
    return sorted(Path(f"{path}.index").iterdir())


def write_pairs(path: Path, first: int, count: int, **at: Any) -> dict[str, Any]:
    return {"command": "write_pairs", "path": str(path), "first": first, "count": count, "at": at}


def outcome(
    nursery: Nursery,
    *,
    kill_after: int | None = None,
    idle: int = 0,
    begun: list[int] | None = None,
) -> tuple[set[int], dict[str, Any]]:
    """Listens to one child until its end; kills it after so many lines and idle turns.

    Returns:
        Which revisions it committed by its own words, and how it ended.
    """
    committed: set[int] = set()
    pid, heard = 0, 0
    while "ended" not in (answer := nursery.hear()):
        pid = answer.get("pid", pid)
        committed |= {answer["done"]} if "done" in answer else set()
        if begun is not None and "begin" in answer:
            begun.append(answer["begin"])
        heard += 1
        if heard == kill_after:
            for _ in range(idle):  # it is further inside a write by then, nobody knows where
                pass
            os.kill(pid, signal.SIGKILL)
    return committed, answer


async def check_whole(path: Path, committed: set[int], started: int) -> int:
    """Checks that a file holds one whole revision of the pair, and none older than committed."""
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
    store = SQLiteStore(path)
    hits = await by_words(store, "shared", 100)
    numbers = {int(n) for name in PAIR for n in versions_of(hits, name)}
    assert len(hits) == PARTS * len(PAIR)
    assert len(numbers) == 1
    (number,) = numbers
    assert max(committed, default=started) <= number <= max(committed, default=started) + 1
    assert len(await by_vector(store, axis(0), 100)) == len(hits)
    assert await store.count(scope=ALL) == (len(PAIR), len(hits), len(hits))
    for name in PAIR:
        expected = version(name, number)
        assert await store.document(name, scope=ALL) == expected.document
        found = await store.neighbours(name, 0, 100, scope=ALL)
        assert tuple(found) == expected.passages
    before = await contents(store)
    await store.aclose()
    again = SQLiteStore(path)
    assert await contents(again) == before
    assert await by_words(again, "shared", 100) == hits
    await again.aclose()
    return number


async def prepared(path: Path) -> None:
    store = SQLiteStore(path)
    await put(store, *(version(name, 0) for name in PAIR))
    await store.aclose()


async def test_killed_before_any_statement_of_a_write(nursery: Nursery, tmp_path: Path) -> None:
    """A process killed anywhere inside a write leaves the old revision whole; after it, the new."""
    path = tmp_path / "kb.sqlite"
    await prepared(path)
    number = survived = statement = 0
    while survived < 5:  # a few statements beyond the commit, where the arrays are saved
        statement += 1
        nursery.start(write_pairs(path, number + 1, 1, statement=statement))
        committed, ended = outcome(nursery)
        assert ended["signal"] == signal.SIGKILL
        number = await check_whole(path, committed, number)
        survived += len(committed)
    assert statement > 2 * PARTS * len(PAIR)
    assert number >= survived


async def test_killed_at_random_moments(nursery: Nursery, tmp_path: Path) -> None:
    """Killed from outside during 200 writes, no committed revision is lost and none is half."""
    path = tmp_path / "kb.sqlite"
    await prepared(path)
    number = inside = 0
    begun: list[int] = []
    chance = random.Random(4041)  # noqa: S311 - chooses moments
    while len(begun) < 200:
        nursery.start(write_pairs(path, number + 1, 40))
        committed, ended = outcome(
            nursery,
            kill_after=chance.randrange(2, 12),
            idle=chance.randrange(100_000),
            begun=begun,
        )
        assert ended["signal"] == signal.SIGKILL
        inside += begun[-1:] != [max(committed, default=0)]
        number = await check_whole(path, committed, number)
    assert inside > 10
    assert number > 100


async def test_killed_anywhere_in_a_swap(nursery: Nursery, tmp_path: Path) -> None:
    """A process killed inside a swap leaves both corpora as before or both as after."""
    path = tmp_path / "kb.sqlite"
    names = ["default", "other"]
    store = SQLiteStore(path)
    for number, name in enumerate(names):
        await put(store.corpus(name), version("left", number))
    swaps = statement = 0
    while swaps < 3:
        statement += 1
        nursery.start(
            {"command": "swap", "path": str(path), "other": "other", "statement": statement}
        )
        committed, _ = outcome(nursery)
        connection = sqlite3.connect(path)
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()
        hits = [await by_words(store.corpus(name), "shared", 100) for name in names]
        seen = [set(versions_of(found, "left")) for found in hits]
        swapped = (seen == [{"1"}, {"0"}]) ^ bool(swaps % 2)
        assert seen in ([{"0"}, {"1"}], [{"1"}, {"0"}])
        assert swapped or not committed
        swaps += swapped
    assert statement > 5
    await store.aclose()


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
async def test_killed_while_the_arrays_are_saved(
    nursery: Nursery, tmp_path: Path, *, before: bool
) -> None:
    """A process killed around the rename of saved arrays harms nothing; leftovers can be swept."""
    path = tmp_path / "kb.sqlite"
    nursery.start(write_pairs(path, 1, 2, os="replace", before=before))
    committed, ended = outcome(nursery)
    assert ended["signal"] == signal.SIGKILL
    assert committed == {1, 2}
    await check_whole(path, committed, 0)
    store = SQLiteStore(path)
    await store.repair()
    await store.aclose()
    assert len(saved(path)) == 1
    await check_whole(path, committed, 0)


@pytest.mark.parametrize("vectors", ["float32", "int8", "hnsw"])
async def test_two_processes_write_and_search_one_file(
    nursery: Nursery, tmp_path: Path, vectors: str
) -> None:
    """No lock error, no lost write, no torn read; a long reader in a third process is in no way."""
    path = tmp_path / "kb.sqlite"
    store = SQLiteStore(path)
    await put(store, version("first", 0))
    reader = sqlite3.connect(path)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM documents").fetchone() == (1,)
    names, writers, writes = ("a", "b"), 5, 8
    nursery.start(
        *(
            {
                "command": "write_and_search",
                "path": str(path),
                "name": name,
                "writers": writers,
                "writes": writes,
                "reads": 20,
                "vectors": vectors,
            }
            for name in names
        )
    )
    ended: list[int] = []
    finished: set[str] = set()
    while len(ended) < len(names):
        answer = nursery.hear()
        ended += [answer["code"]] if "ended" in answer else []
        finished |= {answer["finished"]} if "finished" in answer else set()
        hits = await by_words(store, "shared", 1000)
        for document in {hit.passage_id.split(":")[0] for hit in hits}:
            assert len(versions_of(hits, document)) == PARTS
    assert ended == [0, 0]
    assert finished == set(names)
    assert reader.execute("SELECT count(*) FROM documents").fetchone() == (1,)
    reader.rollback()
    reader.close()
    documents = len(names) * writers + 1
    assert await store.count(scope=ALL) == (documents, documents * PARTS, documents * PARTS)
    assert await store.revision() == 1 + len(names) * writers * writes
    hits = await by_words(store, "shared", 1000)
    for name in names:
        for task in range(writers):
            assert versions_of(hits, f"{name}{task}") == [str(writes)] * PARTS
    await store.aclose()
    again = SQLiteStore(path)
    assert await by_words(again, "shared", 1000) == hits
    await again.aclose()


async def test_a_store_may_be_used_on_both_sides_of_a_fork(
    nursery: Nursery, tmp_path: Path
) -> None:
    """A store that was used before a fork works in parent and child, and closing harms neither."""
    path = tmp_path / "kb.sqlite"
    nursery.start({"command": "use_over_a_fork", "path": str(path)})
    told = []
    while "ended" not in (answer := nursery.hear()):
        told.append(answer)
    assert answer["code"] == 0
    assert told[1:] == [{"seen": ["1"]}, {"seen": ["2"]}, {"seen": ["3"]}, {"closed": True}]
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


async def test_what_another_process_writes_is_seen(nursery: Nursery, tmp_path: Path) -> None:
    """An open store finds, at once and without being reopened, what another process committed."""
    path = tmp_path / "kb.sqlite"
    await prepared(path)
    store, reader = SQLiteStore(path), SQLiteStore(path, read_only=True)
    for opened in (store, reader):
        assert len(await by_words(opened, "version0", 100)) == PARTS * len(PAIR)
    nursery.start(write_pairs(path, 1, 5))
    assert outcome(nursery)[0] == {1, 2, 3, 4, 5}
    for opened in (store, reader):
        assert len(await by_words(opened, "version5", 100)) == PARTS * len(PAIR)
        assert await by_words(opened, "version0", 100) == []
        assert len(await by_words(opened, "shared", 100)) == PARTS * len(PAIR)
    await put(store, version("left", 9))
    assert len(await by_words(reader, "version9", 100)) == PARTS
    await store.aclose()
    await reader.aclose()
