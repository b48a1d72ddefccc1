"""Writing through a revision manifest, one write at a time."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from ragchat_retrieval.errors import PassageIDConflict, ScopeViolation, StoreUnavailable
from ragchat_retrieval.stores import manifest
from ragchat_retrieval.stores.checks import agreed_identity, check_expected
from ragchat_retrieval.stores.manifest import Entry, Mark, State, Sums, changed, rows_of
from ragchat_retrieval.stores.shadow import (
    EVERYTHING,
    AnyOf,
    Compare,
    Either,
    Neither,
    both,
    plan_of,
)
from ragchat_retrieval.text import is_storable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from ragchat_retrieval.filters import Filter
    from ragchat_retrieval.ports import Identity
    from ragchat_retrieval.stores.manifest_engine import Engine
    from ragchat_retrieval.stores.shadow import Clause
    from ragchat_retrieval.values import Revision

IDS = 500
"""How many ids go into one question to the engine."""

ROWS = 500
"""How many rows make one write to the engine, at least."""

REVISIONS = 100
"""How many revisions are named in one removal; each takes three comparisons."""


class ManifestWriter:
    """Writes one corpus. Whoever calls sees to it that its writes come one after the other.

    Args:
        engine: Keeps rows, entries, marks and states.
        corpus: The corpus to write.
        writer: Tells this store object from others in marks.
        store: The store's name, for errors.
    """

    def __init__(self, engine: Engine, *, corpus: str, writer: str, store: str) -> None:
        self._engine = engine
        self._corpus = corpus
        self._writer = writer
        self._store = store

    async def replace(
        self,
        revisions: tuple[Revision, ...],
        identity: Identity,
        scope: Filter,
        expected: Mapping[str, str] | None,
    ) -> None:
        """Makes the revisions, which were checked, the only ones of their documents.

        Raises:
            IdentityMismatch: The corpus was written with something else.
            ScopeViolation: A stored document that would be replaced lies outside `scope`.
            DocumentChanged: A document is not the expected revision.
            PassageIDConflict: A document that is not replaced owns a passage id.
            StoreUnavailable: The engine failed, or another process swept this write.
        """
        engine = self._engine
        stored = await engine.state(self._corpus)
        live = stored if stored is not None and stored.written else None
        agreed = agreed_identity(
            None if live is None else live.identity, identity, revisions, store=self._store
        )
        ids = [revision.document.id for revision in revisions]
        old = [] if live is None else await self._entries(live, ids)
        for entry in old:
            if not scope.matches_document(entry.document):
                raise ScopeViolation(document_id=entry.document.id)
        if expected:
            await self._check_expected(live, expected)
        if live is not None:
            await self._check_owners(live, revisions)
            await self._sweep(live)
        state = await self._prepared(stored, agreed, revisions)
        written = [revision for revision in revisions if revision.passages]
        gone = {revision.document.id for revision in revisions if not revision.passages}
        mark = await self._begin(state, ids)
        for some in _together(written):
            mark = await self._renewed(mark)
            rows = [row for revision in some for row in rows_of(revision, mark.stamp)]
            await engine.put_rows(state, rows)
        await self._check_mark(mark)
        came = [Entry.of(revision, mark.stamp) for revision in written]
        await engine.put_entries(state, came)
        await engine.drop_entries(state, gone)
        await self._finish(mark, state, came, old)

    async def _check_expected(self, live: State | None, expected: Mapping[str, str]) -> None:
        ids = [i for i in expected if is_storable(i)]
        found = [] if live is None else await self._entries(live, ids)
        known = {entry.document.id: entry.fingerprint for entry in found}
        check_expected(expected, known, store=self._store)

    async def _check_owners(self, live: State, revisions: Sequence[Revision]) -> None:
        """Refuses passage ids that documents own which are not replaced.

        Raises:
            PassageIDConflict: There is one.
        """
        engine = self._engine
        ids = [passage.id for revision in revisions for passage in revision.passages]
        mine = {revision.document.id for revision in revisions}
        for at in range(0, len(ids), IDS):
            rows = await engine.rows(live, AnyOf("pid", tuple(ids[at : at + IDS])))
            rows = [row for row in rows if row.document_id not in mine]
            current = await engine.stamps(live, {row.document_id for row in rows})
            taken = [row.passage_id for row in rows if current.get(row.document_id) == row.stamp]
            if taken:
                raise PassageIDConflict(min(taken), store=self._store)

    async def _prepared(
        self, stored: State | None, agreed: Identity, revisions: Sequence[Revision]
    ) -> State:
        """Returns the state to write under; its places exist, and rows moved with the dimension."""
        engine = self._engine
        state = stored or State(corpus=self._corpus)
        if state.written and state.identity == agreed:
            return state
        after = replace(state, written=True, listed=True, identity=agreed)
        if not state.written:
            lengths = [sum(t.values()) for r in revisions for t in r.terms or ()]
            after = replace(after, typical=max(1.0, sum(lengths) / max(1, len(lengths))))
        moved = state.written and state.dimension != after.dimension
        if moved:
            await engine.discard(after, rows_only=True)  # of a move that was cut off
        await engine.create(after)
        if moved:
            rows = await engine.rows(state, EVERYTHING, passages=True, terms=True)
            await engine.put_rows(after, rows)
        await engine.put_state(after)
        if moved:
            await engine.discard(state, rows_only=True)
        return after

    async def _begin(self, state: State, ids: Sequence[str]) -> Mark:
        mark = Mark(
            corpus=self._corpus,
            stamp=state.next_revision(),
            writer=self._writer,
            renewed=time.time(),
            documents=tuple(ids),
        )
        await self._engine.put_mark(mark)
        return mark

    async def _renewed(self, mark: Mark) -> Mark:
        """Shows from time to time that the write is still under way."""
        now = time.time()
        if now < mark.renewed + manifest.LEASE / 4:
            return mark
        await self._check_mark(mark)
        mark = replace(mark, renewed=now)
        await self._engine.put_mark(mark)
        return mark

    async def _check_mark(self, mark: Mark) -> None:
        """Gives up a write whose rows another process has swept.

        Raises:
            StoreUnavailable: It has.
        """
        marks = await self._engine.marks(self._corpus)
        if all(other.stamp != mark.stamp for other in marks):
            raise StoreUnavailable(
                "took so long that it was swept", store=self._store, retryable=True
            )

    async def _finish(
        self, mark: Mark, state: State, came: Sequence[Entry], went: Sequence[Entry]
    ) -> None:
        engine = self._engine
        await self._drop(state, [(entry.document.id, entry.stamp) for entry in went])
        latest = await engine.state(self._corpus) or state  # another process may have written
        await engine.put_state(changed(latest, mark.stamp, came, went))
        await engine.drop_mark(mark)

    async def _drop(self, state: State, revisions: Collection[tuple[str, int]]) -> None:
        """Removes the rows of revisions, given by document and stamp."""
        clauses = [_revision_of(document_id, stamp) for document_id, stamp in revisions]
        for at in range(0, len(clauses), REVISIONS):
            await self._engine.drop_rows(state, Either(tuple(clauses[at : at + REVISIONS])))

    async def delete(self, document_ids: Collection[str] | None, scope: Filter) -> int:
        """Removes documents, or all, as far as the scope shows them; returns how many."""
        state = await self._live()
        if state is None:
            return 0
        ids = None if document_ids is None else [i for i in document_ids if is_storable(i)]
        clause = plan_of(scope).clause
        found = await self._engine.entries(state, ids, clause, text=False)
        found = [entry for entry in found if scope.matches_document(entry.document)]
        if not found:
            return 0
        await self._sweep(state)
        ids = [entry.document.id for entry in found]
        mark = await self._begin(state, ids)
        await self._engine.drop_entries(state, ids)
        await self._finish(mark, state, (), found)
        return len(found)

    async def forget(self, *, listed: bool) -> None:
        """Removes everything in the corpus; not listed, it is as if it had never been."""
        engine = self._engine
        state = await engine.state(self._corpus)
        if state is None:
            return
        stamp = state.next_revision()
        await engine.put_state(
            State(
                corpus=self._corpus,
                listed=listed and state.listed,
                revision=stamp,
                generation=stamp,
            )
        )
        await engine.discard(state)
        for mark in await engine.marks(self._corpus):
            await engine.drop_mark(mark)

    async def _sweep(self, state: State, *, every: bool = False) -> None:
        """Removes rows that writes left behind which nobody finishes any more."""
        engine = self._engine
        marks = await engine.marks(self._corpus)
        now, writer = time.time(), self._writer
        stale = [mark for mark in marks if every or mark.is_left_over(writer, now)]
        if not stale:
            return
        busy = {mark.stamp for mark in marks if mark not in stale}
        for mark in stale:
            current = await engine.stamps(state, mark.documents)
            for document_id in mark.documents:
                spared = busy | {current.get(document_id, 0)}
                await engine.drop_rows(
                    state,
                    both(
                        AnyOf("did", (document_id,)),
                        Compare("rev", "lte", mark.stamp),
                        *(Neither(_stamped(stamp)) for stamp in sorted(spared)),
                    ),
                )
        await self._recount(state)
        for mark in stale:
            await engine.drop_mark(mark)

    async def repair(self) -> None:
        """Removes every row that does not count, whoever wrote it, and counts anew."""
        engine = self._engine
        state = await self._live()
        if state is None:
            return
        await engine.create(state)
        await self._sweep(state, every=True)
        rows = await engine.rows(state, EVERYTHING)
        current = await engine.stamps(state, {row.document_id for row in rows})
        stale = {
            (row.document_id, row.stamp)
            for row in rows
            if current.get(row.document_id) != row.stamp
        }
        await self._drop(state, stale)
        await self._recount(state)

    async def _recount(self, state: State) -> None:
        engine = self._engine
        sums = Sums()
        for entry in await self._entries(state, None):
            sums = sums.plus(entry.sums)
        latest = await engine.state(self._corpus) or state
        if latest.sums != sums:
            await engine.put_state(replace(latest, sums=sums, revision=latest.next_revision()))

    async def _live(self) -> State | None:
        state = await self._engine.state(self._corpus)
        return state if state is not None and state.written else None

    async def _entries(self, state: State, ids: Collection[str] | None) -> list[Entry]:
        return await self._engine.entries(state, ids, EVERYTHING, text=False)


def _together(revisions: Iterable[Revision]) -> Iterator[list[Revision]]:
    """Groups revisions into writes of about `ROWS` rows."""
    group: list[Revision] = []
    size = 0
    for revision in revisions:
        group.append(revision)
        size += len(revision.passages)
        if size >= ROWS:
            yield group
            group, size = [], 0
    if group:
        yield group


def _stamped(stamp: int) -> Clause:
    return both(Compare("rev", "gte", stamp), Compare("rev", "lte", stamp))


def _revision_of(document_id: str, stamp: int) -> Clause:
    return both(AnyOf("did", (document_id,)), _stamped(stamp))
