"""How questions to an embedded store are answered, by its file and by the arrays that follow it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from ragchat_retrieval.engine import Engine
from ragchat_retrieval.stores.engine_lanes import EngineLanes
from ragchat_retrieval.stores.questions import Nearby
from ragchat_retrieval.stores.sqlite import reading
from ragchat_retrieval.stores.sqlite.lanes import WouldWait
from ragchat_retrieval.stores.sqlite.nearest import Standing
from ragchat_retrieval.vectors import check_query_vector

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ragchat_retrieval.filters import Filter
    from ragchat_retrieval.ports import BothLanes
    from ragchat_retrieval.stores.engine_lanes import Read
    from ragchat_retrieval.stores.questions import BothSearch, Question, WordSearch
    from ragchat_retrieval.stores.sqlite.database import Database
    from ragchat_retrieval.stores.sqlite.mirror import Mirror
    from ragchat_retrieval.stores.sqlite.mirrors import Mirrors
    from ragchat_retrieval.stores.sqlite.nearest import Nearest
    from ragchat_retrieval.stores.sqlite.state import CorpusState
    from ragchat_retrieval.values import Passage

T = TypeVar("T")

_NOTHING = Engine().snapshot
"""What a corpus is that was never written."""


class FileLanes(EngineLanes):
    """The lanes over one corpus of a file."""

    _db: Database
    _mirrors: Mirrors
    _nearest: Nearest
    _corpus: str

    @property
    def vector_search(self) -> str:
        """``float32``, ``int8`` or ``hnsw``: how vectors are searched."""
        return self._nearest.name

    # --- parts ---

    async def _ask(
        self, question: Question[T], *, vectors: Sequence[NDArray[np.float32]] = ()
    ) -> T:
        """As `EngineLanes._ask`."""
        mirror = self._mirrors[self._corpus]
        latest = mirror.latest
        near: Nearby[T] | None = question if isinstance(question, Nearby) else None
        exact = near is None or self.vector_search == "float32"
        small = latest is not None and exact and question.is_small(latest)

        def at_once(connection: sqlite3.Connection) -> T:
            state = self._checked(connection, vectors)
            snapshot = _NOTHING if state is None else mirror.current(state)
            if snapshot is None:
                raise WouldWait
            return question.answer(snapshot)

        def work(connection: sqlite3.Connection) -> T:
            state = self._checked(connection, vectors)
            if state is None:
                return question.answer(_NOTHING)
            snapshot, point = mirror.at(connection, state)
            if near is None:
                return question.answer(snapshot)
            return self._nearest.answer(
                Standing(self._corpus, connection, state, snapshot, point), near
            )

        found = await self._db.read(work, at_once=at_once if small else None)
        self._save_growth(mirror)
        return found

    async def _ask_and_read(
        self, question: BothSearch | WordSearch, then: Callable[[list[BothLanes], Read], T]
    ) -> T:
        """As `EngineLanes._ask_and_read`."""
        mirror, loop = self._mirrors[self._corpus], asyncio.get_running_loop()

        def work(connection: sqlite3.Connection) -> T:
            state = self._checked(connection, question.vectors)
            if state is None:
                return then(question.answer(_NOTHING), lambda _: {})
            snapshot, point = mirror.at(connection, state)
            if not question.is_small(snapshot):
                question.offer(snapshot, loop)

            def read(passage_ids: Sequence[str]) -> dict[str, Passage]:
                scope = question.scope
                return reading.passages(connection, state.key, passage_ids, scope, near=snapshot)

            if not isinstance(question, Nearby):
                return then(question.answer(snapshot), read)
            at = Standing(self._corpus, connection, state, snapshot, point)
            return then(self._nearest.answer(at, question), read)

        found = await self._db.read(work)
        self._save_growth(mirror)
        return found

    async def _get(self, passage_ids: Sequence[str], scope: Filter) -> dict[str, Passage]:
        """As `EngineLanes._get`."""
        near = self._mirrors[self._corpus].latest
        return await self._of_corpus(
            lambda c, key: reading.passages(c, key, passage_ids, scope, near=near), {}
        )

    def _checked(
        self, connection: sqlite3.Connection, vectors: Sequence[NDArray[np.float32]]
    ) -> CorpusState | None:
        """Returns the state of the corpus, after a look at the vectors of a question to it."""
        state = reading.read_state(connection, self._corpus)
        for vector in vectors:
            identity = state.identity if state else None
            check_query_vector(vector, identity.dimension if identity else None)
        return state

    async def _of_corpus(self, work: Callable[[sqlite3.Connection, int], T], absent: T) -> T:
        """Runs `work` with the key of the corpus; `absent` if the corpus was never written."""

        def inside(connection: sqlite3.Connection) -> T:
            state = reading.read_state(connection, self._corpus)
            return absent if state is None else work(connection, state.key)

        return await self._db.read(inside)

    def _save_growth(self, mirror: Mirror) -> None:
        if mirror.asks_for_saving():
            self._db.later(mirror.save)
