"""The port under a revision manifest: what an engine without transactions has to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ragchat_retrieval.stores.manifest import Entry, Mark, Row, State
    from ragchat_retrieval.stores.shadow import Clause


class Engine(Protocol):
    """What a store over a manifest asks of an engine: single operations, each done when it returns.

    Where rows or entries are kept follows from a state's corpus, generation and dimension. Methods
    raise `Gone` where that place is missing, and `StoreUnavailable` when the engine fails.
    """

    async def states(self) -> Sequence[State]:
        """Returns the states of all corpora."""
        ...

    async def state(self, corpus: str) -> State | None:
        """Returns the state of a corpus."""
        ...

    async def put_state(self, state: State) -> None:
        """Overwrites the state of its corpus."""
        ...

    async def marks(self, corpus: str) -> Sequence[Mark]:
        """Returns the marks of a corpus."""
        ...

    async def put_mark(self, mark: Mark) -> None:
        """Sets a mark."""
        ...

    async def drop_mark(self, mark: Mark) -> None:
        """Removes a mark."""
        ...

    async def create(self, state: State) -> None:
        """Makes the places of rows and entries; those that exist stay as they are."""
        ...

    async def discard(self, state: State, *, rows_only: bool = False) -> None:
        """Removes the places of rows and entries, or of rows; missing ones are no error."""
        ...

    async def put_rows(self, state: State, rows: Sequence[Row]) -> None:
        """Writes rows; they are visible when this returns."""
        ...

    async def drop_rows(self, state: State, clause: Clause) -> None:
        """Removes the rows that match."""
        ...

    async def rows(
        self,
        state: State,
        clause: Clause,
        *,
        passages: bool = False,
        vectors: bool = False,
        terms: bool = False,
    ) -> list[Row]:
        """Returns the rows that match, in any order, with what is asked for."""
        ...

    async def put_entries(self, state: State, entries: Sequence[Entry]) -> None:
        """Overwrites entries, each in one operation."""
        ...

    async def drop_entries(self, state: State, document_ids: Collection[str]) -> None:
        """Removes entries, each in one operation."""
        ...

    async def entries(
        self, state: State, document_ids: Collection[str] | None, clause: Clause, *, text: bool
    ) -> list[Entry]:
        """Returns the entries of these documents, or of all, that match."""
        ...

    async def stamps(self, state: State, document_ids: Collection[str]) -> dict[str, int]:
        """Returns the current revisions of those of these documents that have an entry."""
        ...

    async def by_words(
        self,
        state: State,
        terms: Mapping[str, float],
        limit: int,
        clause: Clause,
        *,
        passages: bool,
    ) -> list[Row]:
        """Returns the best rows by words; fewer than `limit` only if there are no more."""
        ...

    async def words_of(self, state: State, terms: Mapping[str, float], clause: Clause) -> list[Row]:
        """Returns the rows that match with their scores by words, zero included."""
        ...

    async def holding(self, state: State, terms: Collection[str]) -> dict[str, int]:
        """Returns how many rows hold each term, zero included, whether the rows count or not."""
        ...

    async def by_vector(
        self,
        state: State,
        vector: NDArray[np.float32],
        limit: int,
        clause: Clause,
        *,
        passages: bool,
    ) -> list[Row]:
        """Returns the best rows by cosine; fewer than `limit` only if there are no more."""
        ...

    async def aclose(self) -> None:
        """Releases connections; closing twice is no error."""
        ...
