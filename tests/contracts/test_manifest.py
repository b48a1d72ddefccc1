"""The revision manifest keeps revisions whole on an engine that can do one thing at a time.

The engine of these tests keeps everything in dictionaries. Each operation lets other tasks run, and
it can be made to fail at any of them, once and for all, as if its process had been killed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ragchat_retrieval.errors import StoreUnavailable
from ragchat_retrieval.lexical import K1, B, idf
from ragchat_retrieval.stores import manifest
from ragchat_retrieval.stores.manifest import Entry, Gone, Mark, Row, State
from ragchat_retrieval.stores.manifest_store import ManifestStore
from ragchat_retrieval.stores.shadow import (
    AnyOf,
    Both,
    Compare,
    Either,
    Neither,
    shadow,
)
from ragchat_retrieval.testing.store_suite import DurableStoreContract
from ragchat_retrieval.testing.store_suite_kit import (
    ALL,
    IDENTITY,
    KEYWORD_ONLY,
    by_vector,
    by_words,
    contents,
    put,
    revision,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.stores.shadow import Clause

    Reopen = Callable[[ManifestStore], Awaitable[ManifestStore]]


class Killed(BaseException):
    """The process is no more."""


@dataclass
class Disk:
    """What outlives a process."""

    states: dict[str, State] = field(default_factory=dict)
    marks: dict[tuple[str, int, str], Mark] = field(default_factory=dict)
    rows: dict[tuple[Any, ...], dict[tuple[str, int], Row]] = field(default_factory=dict)
    entries: dict[tuple[Any, ...], dict[str, Entry]] = field(default_factory=dict)


def fields(item: Row | Entry) -> dict[str, Any]:
    """Returns the fields of a row or entry by the names that clauses use."""
    if isinstance(item, Entry):
        found = {"did": item.document.id, "rev": item.stamp, **shadow(item.document)}
    else:
        assert item.passage is not None
        found = {"pid": item.passage_id, "did": item.document_id, "rev": item.stamp}
        found |= {"ord": item.ordinal, **shadow(item.passage)}
    return found


def holds(clause: Clause, values: Mapping[str, Any]) -> bool:
    """Says whether fields match a clause."""
    match clause:
        case AnyOf(name, wanted):
            found = _value(values, name)
            return bool({*wanted} & {*(found if isinstance(found, list) else [found])})
        case Compare(name, op, number):
            found = _value(values, name)
            tests = {"gt": "__gt__", "gte": "__ge__", "lt": "__lt__", "lte": "__le__"}
            return found is not None and getattr(float(found), tests[op])(float(number))
        case Both(clauses):
            return all(holds(inner, values) for inner in clauses)
        case Either(clauses):
            return any(holds(inner, values) for inner in clauses)
        case Neither(inner):
            return not holds(inner, values)


def _value(values: Any, name: str) -> Any:
    for part in name.split("."):
        values = values.get(part) if isinstance(values, dict) else None
    return values


class OneAtATime:
    """An engine over a `Disk`."""

    def __init__(self, disk: Disk, *, lives: int = 2**31) -> None:
        self.disk = disk
        self.lives = lives
        """After so many changes it is killed."""

        self.changes = 0
        self.marked = False
        self.staged = asyncio.Event()
        """Set when rows are written and the marks are about to be looked at."""

        self.going = asyncio.Event()
        """Unset to stop a write at that point."""

        self.going.set()

    async def _read(self) -> None:
        await asyncio.sleep(0)

    async def _change(self) -> None:
        await asyncio.sleep(0)
        if self.changes == self.lives:
            raise Killed
        self.changes += 1

    def _rows(self, state: State) -> dict[tuple[str, int], Row]:
        try:
            return self.disk.rows[state.corpus, state.generation, state.dimension]
        except KeyError:
            raise Gone from None

    def _entries(self, state: State) -> dict[str, Entry]:
        try:
            return self.disk.entries[state.corpus, state.generation]
        except KeyError:
            raise Gone from None

    async def states(self) -> list[State]:
        await self._read()
        return [State.from_json(state.to_json()) for state in self.disk.states.values()]

    async def state(self, corpus: str) -> State | None:
        await self._read()
        found = self.disk.states.get(corpus)
        return None if found is None else State.from_json(found.to_json())

    async def put_state(self, state: State) -> None:
        await self._change()
        self.disk.states[state.corpus] = state

    async def marks(self, corpus: str) -> list[Mark]:
        if not self.going.is_set() and self.marked:
            self.staged.set()
            await self.going.wait()
        await self._read()
        return [Mark.from_json(m.to_json()) for m in self.disk.marks.values() if m.corpus == corpus]

    async def put_mark(self, mark: Mark) -> None:
        await self._change()
        self.marked = True
        self.disk.marks[mark.corpus, mark.stamp, mark.writer] = mark

    async def drop_mark(self, mark: Mark) -> None:
        await self._change()
        self.disk.marks.pop((mark.corpus, mark.stamp, mark.writer), None)

    async def create(self, state: State) -> None:
        await self._change()
        self.disk.rows.setdefault((state.corpus, state.generation, state.dimension), {})
        self.disk.entries.setdefault((state.corpus, state.generation), {})

    async def discard(self, state: State, *, rows_only: bool = False) -> None:
        await self._change()
        self.disk.rows.pop((state.corpus, state.generation, state.dimension), None)
        if not rows_only:
            self.disk.entries.pop((state.corpus, state.generation), None)

    async def put_rows(self, state: State, rows: Sequence[Row]) -> None:
        for at in range(0, len(rows), 500 if len(rows) > 500 else 1):
            await self._change()
            some = rows[at : at + 500] if len(rows) > 500 else rows[at : at + 1]
            copies = [replace(row, terms=dict(row.terms)) for row in some]
            self._rows(state).update({(row.passage_id, row.stamp): row for row in copies})

    async def drop_rows(self, state: State, clause: Clause) -> None:
        rows = self._rows(state)
        for key in [key for key, row in rows.items() if holds(clause, fields(row))]:
            if len(rows) < 500:
                await self._change()
            rows.pop(key, None)

    async def rows(self, state: State, clause: Clause, **_: bool) -> list[Row]:
        await self._read()
        found = [row for row in self._rows(state).values() if holds(clause, fields(row))]
        await self._read()
        return [
            replace(row, vector=None if row.vector is None else row.vector.copy()) for row in found
        ]

    async def put_entries(self, state: State, entries: Sequence[Entry]) -> None:
        for entry in entries:
            await self._change()
            self._entries(state)[entry.document.id] = entry

    async def drop_entries(self, state: State, document_ids: Collection[str]) -> None:
        for document_id in document_ids:
            await self._change()
            self._entries(state).pop(document_id, None)

    async def entries(
        self, state: State, document_ids: Collection[str] | None, clause: Clause, *, text: bool
    ) -> list[Entry]:
        await self._read()
        stored = self._entries(state)
        wanted = stored if document_ids is None else [i for i in document_ids if i in stored]
        return [
            Entry.read(e.labels(), e.stamp, e.document.text if text else "")
            for e in (stored[i] for i in wanted)
            if holds(clause, fields(e))
        ]

    async def stamps(self, state: State, document_ids: Collection[str]) -> dict[str, int]:
        await self._read()
        stored = self._entries(state)
        return {i: stored[i].stamp for i in document_ids if i in stored}

    async def by_words(
        self, state: State, terms: Mapping[str, float], limit: int, clause: Clause, **_: bool
    ) -> list[Row]:
        found = [row for row in await self.words_of(state, terms, clause) if row.score > 0]
        return _best(found, limit)

    async def words_of(self, state: State, terms: Mapping[str, float], clause: Clause) -> list[Row]:
        mean = max(1e-9, state.sums.length / max(1, state.sums.passages))
        holding = await self.holding(state, terms)
        weights = {
            term: terms[term] * idf(max(state.sums.passages, held), held)
            for term, held in holding.items()
            if held
        }

        def score(row: Row) -> float:
            norm = K1 * (1 - B + B * row.length / mean)
            held = ((weight, row.terms.get(term, 0)) for term, weight in weights.items())
            return sum(weight * count / (count + norm) for weight, count in held if count)

        found = await self.rows(state, clause)
        return [replace(row, score=score(row)) for row in found]

    async def holding(self, state: State, terms: Collection[str]) -> dict[str, int]:
        await self._read()
        every = [row.terms for row in self._rows(state).values()]
        return {term: sum(term in held for held in every) for term in terms}

    async def by_vector(
        self,
        state: State,
        vector: NDArray[np.float32],
        limit: int,
        clause: Clause,
        **_: bool,
    ) -> list[Row]:
        found = [
            replace(row, score=float(row.vector.astype(np.float64) @ vector))
            for row in await self.rows(state, clause)
            if row.vector is not None
        ]
        return _best(found, limit)

    async def aclose(self) -> None:
        pass


def _best(rows: list[Row], limit: int) -> list[Row]:
    return sorted(rows, key=lambda row: (-row.score, row.passage_id))[:limit]


class TestManifest(DurableStoreContract):
    """The whole contract, between other tasks at every operation."""

    @pytest.fixture
    def disk(self) -> Disk:
        return Disk()

    @pytest.fixture
    def store(self, disk: Disk) -> ManifestStore:
        return ManifestStore(OneAtATime(disk), corpus="default")

    @pytest.fixture
    def reopen(self, disk: Disk) -> Reopen:
        async def again(store: ManifestStore) -> ManifestStore:
            await store.aclose()
            return ManifestStore(OneAtATime(disk), corpus=store.corpus_name)

        return again


def opened(disk: Disk, *, lives: int = 2**31) -> ManifestStore:
    return ManifestStore(OneAtATime(disk, lives=lives), corpus="default")


def counted(disk: Disk) -> int:
    return sum(map(len, disk.rows.values()))


async def killed_at_every_point(
    write: Callable[[ManifestStore], Awaitable[object]],
    check: Callable[[Disk], Awaitable[None]],
    before: Callable[[ManifestStore], Awaitable[object]],
) -> int:
    """Repeats a write, killed after each number of changes until it gets through."""
    for lives in range(1000):
        disk = Disk()
        await before(opened(disk))
        store = opened(disk, lives=lives)
        try:
            await write(store)
        except Killed:
            await check(disk)
        else:
            return lives
    raise AssertionError("never got through")


OLD = [
    revision("a", "shared old one", "shared old two", fingerprint="old"),
    revision("b", "shared old three", fingerprint="old"),
    revision("gone", "shared old four", fingerprint="old"),
]
NEW = [
    revision("a", "shared new one", "shared new", "shared new three", fingerprint="new"),
    revision("b", "shared new four", fingerprint="new"),
    revision("gone"),
]


async def texts(store: ManifestStore, document_id: str) -> list[str]:
    return [p.text for p in await store.neighbours(document_id, 0, 99, scope=ALL)]


async def test_a_killed_write_leaves_each_document_whole() -> None:
    """Wherever a write was cut off, each document is the old or the new one in every answer."""

    async def check(disk: Disk) -> None:
        store = opened(disk)
        prints = await store.hashes(scope=ALL)
        expected: list[str] = []
        for old, new in zip(OLD, NEW, strict=True):
            name = old.document.id
            current = new if prints.get(name) in {"new", None} else old
            assert name == "gone" or name in prints
            assert await texts(store, name) == [p.text for p in current.passages]
            assert (await store.document(name, scope=ALL)) == (
                current.document if current.passages else None
            )
            expected += [p.id for p in current.passages]
        assert await store.ids(scope=ALL) == sorted(expected)
        assert {h.passage_id for h in await by_words(store, "shared", 50)} == set(expected)
        assert {h.passage_id for h in await by_vector(store, IDENTITY_VECTOR, 50)} == set(expected)

    points = await killed_at_every_point(
        lambda store: put(store, *NEW), check, lambda store: put(store, *OLD)
    )
    assert points > 10


IDENTITY_VECTOR = np.eye(IDENTITY.dimension or 1, dtype=np.float32)[0]


@pytest.mark.parametrize("by", ["next write", "repair"])
async def test_what_a_killed_write_left_is_swept(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the lease the next write sweeps, and `repair` at once: no row or mark is left over."""
    if by == "next write":
        monkeypatch.setattr(manifest, "LEASE", -1.0)

    async def check(disk: Disk) -> None:
        store = opened(disk)
        if by == "repair":
            await store.repair()
            before = await contents(store)
        else:
            before = await contents(store)
            await put(store, revision("other", "unrelated"))
            await store.delete(["other"], scope=ALL)
        after = await contents(store)
        ignored = {"revision": 0, "count": 0}
        assert after | ignored == before | ignored
        ids = await store.ids(scope=ALL)
        assert counted(disk) == len(ids)
        assert not disk.marks
        assert await store.count(scope=ALL) == (
            len(await store.document_ids(scope=ALL)),
            len(ids),
            len(await store.vectors(ids, scope=ALL)),
        )
        await put(store, *NEW)
        assert await store.document_ids(scope=ALL) == ["a", "b"]

    await killed_at_every_point(
        lambda store: put(store, *NEW), check, lambda store: put(store, *OLD)
    )


async def test_a_write_under_way_elsewhere_is_not_swept() -> None:
    """Before its lease is over, another process's mark protects its rows; then it may go on."""
    disk = Disk()
    await put(opened(disk), *OLD)
    engine = OneAtATime(disk)
    engine.going.clear()
    slow = ManifestStore(engine, corpus="default")
    writing = asyncio.create_task(put(slow, NEW[0]))
    await engine.staged.wait()
    await put(opened(disk), revision("c", "shared new"))
    engine.going.set()
    await writing
    assert await texts(opened(disk), "a") == [p.text for p in NEW[0].passages]
    assert (await opened(disk).count(scope=ALL)).documents == len("abgc")


def _all_rows(disk: Disk) -> list[Row]:
    return [row for rows in disk.rows.values() for row in rows.values()]


async def test_a_write_that_was_swept_elsewhere_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A writer that stopped for longer than its lease changes nothing, and may try again."""
    disk = Disk()
    await put(opened(disk), *OLD)
    engine = OneAtATime(disk)
    engine.going.clear()
    slow = ManifestStore(engine, corpus="default")
    writing = asyncio.create_task(put(slow, NEW[0]))
    await engine.staged.wait()
    await opened(disk).repair()
    engine.going.set()
    with pytest.raises(StoreUnavailable) as caught:
        await writing
    assert caught.value.retryable
    assert await texts(opened(disk), "a") == [p.text for p in OLD[0].passages]
    monkeypatch.setattr(manifest, "LEASE", 1e-9)  # renewed before each document
    await put(slow, *NEW)
    assert await texts(opened(disk), "a") == [p.text for p in NEW[0].passages]


async def test_a_killed_delete_is_whole() -> None:
    """A document whose removal was cut off is there or not, with all its passages."""

    async def check(disk: Disk) -> None:
        store = opened(disk)
        there = "a" in await store.document_ids(scope=ALL)
        assert len(await texts(store, "a")) == (2 if there else 0)

    await killed_at_every_point(
        lambda store: store.delete(["a", "b"], scope=ALL), check, lambda store: put(store, *OLD)
    )


async def test_a_killed_move_to_vectors_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A keyword-only corpus that is taking a model keeps its passages wherever that is cut off."""
    monkeypatch.setattr(manifest, "LEASE", -1.0)

    async def check(disk: Disk) -> None:
        store = opened(disk)
        assert len(await texts(store, "a")) == 1
        await put(store, revision("b", "shared with vector"))
        assert await store.identity() == IDENTITY
        assert len(await by_words(store, "shared", 9)) == 2
        assert await store.count(scope=ALL) == (2, 2, 1)

    await killed_at_every_point(
        lambda store: put(store, revision("b", "shared with vector")),
        check,
        lambda store: put(store, revision("a", "shared", embedded=False), identity=KEYWORD_ONLY),
    )


async def test_a_reader_that_met_old_rows_searches_again() -> None:
    """Rows that another process leaves behind take no place in an answer, whatever the limit."""
    disk = Disk()
    await put(opened(disk), *(revision(f"d{n}", "word filler") for n in range(5)))
    state = disk.states["default"]
    engine = OneAtATime(disk)
    left = [
        replace(row, stamp=row.stamp - 1, passage_id=f"{row.passage_id}-{n}")
        for row in _all_rows(disk)
        for n in range(9)
    ]
    await engine.put_rows(state, left)
    store = opened(disk)
    assert len(await by_words(store, "word", 5)) == 5
    assert len(await by_vector(store, IDENTITY_VECTOR, 4)) == 4
    assert len(await store.ids(scope=ALL)) == 5
    await store.repair()
    assert counted(disk) == 5
