"""Reading through a revision manifest: only rows whose document is in their revision count."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from ragchat_retrieval.errors import StoreUnavailable
from ragchat_retrieval.filters import Filter
from ragchat_retrieval.ports import Hit
from ragchat_retrieval.stores.manifest import Entry, Gone, State
from ragchat_retrieval.stores.manifest_writing import IDS
from ragchat_retrieval.stores.shadow import AnyOf, both, plan_of
from ragchat_retrieval.text import is_storable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from ragchat_retrieval.stores.manifest import Row
    from ragchat_retrieval.stores.manifest_engine import Engine
    from ragchat_retrieval.stores.shadow import Clause

T = TypeVar("T")

ATTEMPTS = 8
"""How often a read is done again because documents changed under it."""

GROWTH = 3
"""Factor by which a lane asks for more when what it got does not count."""


class Lane(Protocol):
    """Asks the engine's lane for its best rows."""

    def __call__(
        self, state: State, *, n: int, clause: Clause, whole: bool
    ) -> Awaitable[list[Row]]:
        """Returns the best n rows of a lane, with their passages if `whole`."""
        ...


class Scores(Protocol):
    """Asks the engine for the scores of rows."""

    def __call__(self, state: State, *, clause: Clause) -> Awaitable[list[Row]]:
        """Returns rows with their scores."""
        ...


class ManifestReader:
    """Reads one corpus.

    Args:
        engine: Keeps rows, entries and states.
        corpus: The corpus to read.
        store: The store's name, for errors.
    """

    def __init__(self, engine: Engine, *, corpus: str, store: str) -> None:
        self._engine = engine
        self._corpus = corpus
        self._store = store

    async def state(self) -> State | None:
        """Returns the state of the corpus, if it holds anything."""
        state = await self._engine.state(self._corpus)
        return state if state is not None and state.written else None

    async def rows(
        self, clause: Clause, scope: Filter, *, passages: bool = False, vectors: bool = False
    ) -> list[Row]:
        """Returns the rows that match and that the scope shows, with what is asked for."""
        engine, plan = self._engine, plan_of(scope)
        whole = passages or not plan.exact

        async def read(state: State) -> list[Row]:
            asked = both(clause, plan.clause)
            return await engine.rows(state, asked, passages=whole, vectors=vectors)

        rows, _ = await self._current(read)
        return rows if plan.exact else [row for row in rows if _matches(row, scope)]

    async def given(
        self,
        passage_ids: Sequence[str],
        scope: Filter,
        *,
        passages: bool = False,
        vectors: bool = False,
        ask: Scores | None = None,
    ) -> list[Row]:
        """Returns the rows of given passages, in the order given, with the scores of `ask`."""
        wanted = [i for i in dict.fromkeys(passage_ids) if is_storable(i)]
        if ask is not None and scope and not plan_of(scope).exact:
            inside = await self.given(wanted, scope)  # the scope is checked on whole passages
            wanted, scope = [row.passage_id for row in inside], Filter()
        found: dict[str, Row] = {}
        for at in range(0, len(wanted), IDS):
            some = AnyOf("pid", tuple(wanted[at : at + IDS]))
            if ask is None:
                rows = await self.rows(some, scope, passages=passages, vectors=vectors)
            else:
                asked = both(some, plan_of(scope).clause)
                rows, _ = await self._current(partial(ask, clause=asked))
            found.update((row.passage_id, row) for row in rows)
        return [found[i] for i in wanted if i in found]

    async def entries(
        self, document_ids: Collection[str] | None, scope: Filter, *, text: bool = False
    ) -> list[Entry]:
        """Returns the entries of these documents, or of all, as far as the scope shows them."""
        engine, ids, clause = self._engine, _storable(document_ids), plan_of(scope).clause
        none: list[Entry] = []
        found = await self.answer(lambda state: engine.entries(state, ids, clause, text=text), none)
        return [entry for entry in found if scope.matches_document(entry.document)]

    async def answer(self, ask: Callable[[State], Awaitable[T]], absent: T) -> T:
        """Asks about the corpus as it is, again if it was reset or moved meanwhile."""
        for _ in range(ATTEMPTS):
            state = await self.state()
            if state is None:
                return absent
            try:
                return await ask(state)
            except Gone:
                continue
        raise StoreUnavailable("changes all the time", store=self._store, retryable=True)

    async def lane(self, ask: Lane, limit: int, bounds: Filter) -> list[Hit]:
        """Returns the best hits of a lane, which is asked for more as long as too few count."""
        plan = plan_of(bounds)
        n = limit
        while n > 0:
            kept, read = await self._current(
                partial(ask, n=n, clause=plan.clause, whole=not plan.exact)
            )
            if not plan.exact:
                kept = [row for row in kept if _matches(row, bounds)]
            if read < n or len(kept) >= limit:
                kept.sort(key=lambda row: (-row.score, row.passage_id))
                return [Hit(row.passage_id, row.score) for row in kept[:limit]]
            n *= GROWTH
        return []

    async def _current(
        self, read: Callable[[State], Awaitable[list[Row]]]
    ) -> tuple[list[Row], int]:
        """Reads rows, and drops those whose document is by now in another revision.

        If there were such, the read is done again: rows of the new revision may have been missed.
        The second answer stands unless an entry changed meanwhile.

        Returns:
            The rows that count, and how many were read.
        """
        engine = self._engine
        answer: tuple[list[Row], int] | None = None
        previous: dict[str, int] | None = None
        for _ in range(ATTEMPTS):
            state = await self.state()
            if state is None:
                return [], 0
            try:
                rows = await read(state)
                current = await engine.stamps(state, {row.document_id for row in rows})
            except Gone:
                continue
            kept = [row for row in rows if current.get(row.document_id) == row.stamp]
            answer = kept, len(rows)
            settled = all(stamp <= state.revision for stamp in current.values())
            if (settled and len(kept) == len(rows)) or current == previous:
                break
            previous = current
        if answer is None:
            raise StoreUnavailable("changes all the time", store=self._store, retryable=True)
        return answer


def _storable(ids: Collection[str] | None) -> list[str] | None:
    return None if ids is None else [i for i in dict.fromkeys(ids) if is_storable(i)]


def _matches(row: Row, bounds: Filter) -> bool:
    return row.passage is not None and bounds.matches_passage(row.passage)
