"""Chroma as the engine under a revision manifest.

One collection holds the states and marks of all corpora; each corpus has one of entries and one of
rows. Chroma wants a vector with each record: entries and records have one of length 1, rows without
a vector are kept beside the others.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from ragchat_retrieval.stores.chroma.records import (
    entry_fields,
    listed,
    read_entry,
    read_row,
    record_id,
    row_fields,
    where_of,
)
from ragchat_retrieval.stores.deepening import ROUNDING, deepened
from ragchat_retrieval.stores.manifest import Gone, Mark, State, passage_text
from ragchat_retrieval.stores.shadow import Both, Clause, Compare

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ragchat_retrieval.stores.chroma.client import Clients
    from ragchat_retrieval.stores.manifest import Entry, Row

PAGE = 500
"""Records of one request; Chroma's own limit is ten times that."""

_NO_VECTOR = [0.0]


class ChromaEngine:
    """Implements `ragchat_retrieval.stores.manifest_engine.Engine`.

    Args:
        clients: Reach Chroma.
        prefix: Begins the names of all collections.
    """

    def __init__(self, clients: Clients, prefix: str) -> None:
        self._clients = clients
        self._prefix = prefix

    # --- states and marks ---

    async def states(self) -> list[State]:
        """Returns the states of all corpora."""
        return [State.from_json(t) for t in await self._records({"kind": "state"})]

    async def state(self, corpus: str) -> State | None:
        """Returns the state of a corpus."""
        found = await self._records({"$and": [{"kind": "state"}, {"corpus": corpus}]})
        return State.from_json(found[0]) if found else None

    async def put_state(self, state: State) -> None:
        """Overwrites the state of its corpus."""
        await self._put_record(record_id("state", state.corpus), "state", state)

    async def marks(self, corpus: str) -> list[Mark]:
        """Returns the marks of a corpus."""
        found = await self._records({"$and": [{"kind": "mark"}, {"corpus": corpus}]})
        return [Mark.from_json(text) for text in found]

    async def put_mark(self, mark: Mark) -> None:
        """Sets a mark."""
        await self._put_record(_mark_id(mark), "mark", mark)

    async def drop_mark(self, mark: Mark) -> None:
        """Removes a mark."""
        await self._clients.of_collection(self._prefix + ".records", "delete", ids=[_mark_id(mark)])

    async def _records(self, where: Mapping[str, Any]) -> list[str]:
        try:
            found = await self._get(self._prefix + ".records", where, ["documents"])
        except Gone:
            return []
        return [record["document"] for record in found]

    async def _put_record(self, id: str, kind: str, record: State | Mark) -> None:
        name = self._prefix + ".records"
        given = {
            "ids": [id],
            "embeddings": [_NO_VECTOR],
            "metadatas": [{"kind": kind, "corpus": record.corpus}],
            "documents": [record.to_json()],
        }
        try:
            await self._clients.of_collection(name, "upsert", **given)
        except Gone:
            await self._make(name)
            await self._clients.of_collection(name, "upsert", **given)

    # --- places ---

    async def create(self, state: State) -> None:
        """Makes the places of rows and entries; those that exist stay as they are."""
        await self._make(self._rows(state))
        await self._make(self._entries(state))

    async def discard(self, state: State, *, rows_only: bool = False) -> None:
        """Removes the places of rows and entries, or of rows; missing ones are no error."""
        for name in [self._rows(state)] + ([] if rows_only else [self._entries(state)]):
            with contextlib.suppress(Gone):
                await self._clients.call("delete_collection", name)

    async def _make(self, name: str) -> None:
        # An inner product, so that vectors come back as they were given.
        await self._clients.call(
            "get_or_create_collection",
            name,
            embedding_function=None,
            configuration={"hnsw": {"space": "ip"}},
        )

    def _rows(self, state: State) -> str:
        return state.places(self._prefix).rows

    def _entries(self, state: State) -> str:
        return state.places(self._prefix).entries

    # --- rows and entries ---

    async def put_rows(self, state: State, rows: Sequence[Row]) -> None:
        """Writes rows; they are visible when this returns."""
        # A vector along one axis stands in where there is none; such rows are never searched.
        blank = [1.0, *[0.0] * ((state.dimension or 1) - 1)]
        for at in range(0, len(rows), PAGE):
            some = rows[at : at + PAGE]
            await self._clients.of_collection(
                self._rows(state),
                "upsert",
                ids=[record_id("row", row.passage_id, row.stamp) for row in some],
                embeddings=[blank if row.vector is None else row.vector.tolist() for row in some],
                metadatas=[row_fields(row) for row in some],
                documents=[passage_text(row.passage) for row in some if row.passage is not None],
            )

    async def drop_rows(self, state: State, clause: Clause) -> None:
        """Removes the rows that match."""
        await self._clients.of_collection(self._rows(state), "delete", where=where_of(clause))

    async def rows(
        self,
        state: State,
        clause: Clause,
        *,
        passages: bool = False,
        vectors: bool = False,
        terms: bool = False,  # noqa: ARG002 - there are none
    ) -> list[Row]:
        """Returns the rows that match, in any order, with what is asked for."""
        include = [
            "metadatas",
            *(["documents"] if passages else []),
            *(["embeddings"] if vectors else []),
        ]
        found = await self._get(self._rows(state), where_of(clause), include)
        return [read_row(record) for record in found]

    async def put_entries(self, state: State, entries: Sequence[Entry]) -> None:
        """Overwrites entries, each in one operation."""
        for at in range(0, len(entries), PAGE):
            some = entries[at : at + PAGE]
            await self._clients.of_collection(
                self._entries(state),
                "upsert",
                ids=[record_id("entry", entry.document.id) for entry in some],
                embeddings=[_NO_VECTOR] * len(some),
                metadatas=[entry_fields(entry) for entry in some],
                documents=[entry.document.text for entry in some],
            )

    async def drop_entries(self, state: State, document_ids: Collection[str]) -> None:
        """Removes entries, each in one operation."""
        ids = [record_id("entry", i) for i in document_ids]
        for at in range(0, len(ids), PAGE):
            some = ids[at : at + PAGE]
            await self._clients.of_collection(self._entries(state), "delete", ids=some)

    async def entries(
        self, state: State, document_ids: Collection[str] | None, clause: Clause, *, text: bool
    ) -> list[Entry]:
        """Returns the entries of these documents, or of all, that match."""
        include = ["metadatas", *(["documents"] if text else [])]
        if document_ids is None:
            found = await self._get(self._entries(state), where_of(clause), include)
        else:
            found = await self._by_ids(state, document_ids, include)
        return [read_entry(record) for record in found]

    async def stamps(self, state: State, document_ids: Collection[str]) -> dict[str, int]:
        """Returns the current revisions of those of these documents that have an entry."""
        found = await self._by_ids(state, document_ids, ["metadatas"])
        return {record["metadata"]["did"]: record["metadata"]["rev"] for record in found}

    async def _by_ids(
        self, state: State, document_ids: Collection[str], include: list[str]
    ) -> list[dict[str, Any]]:
        ids = [record_id("entry", i) for i in document_ids]
        found: list[dict[str, Any]] = []
        for at in range(0, len(ids), PAGE):
            answer = await self._clients.of_collection(
                self._entries(state), "get", ids=ids[at : at + PAGE], include=include
            )
            found += listed(answer)
        return found

    async def _get(
        self, name: str, where: Mapping[str, Any] | None, include: list[str]
    ) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while True:
            page = listed(
                await self._clients.of_collection(
                    name, "get", where=where, include=include, limit=PAGE, offset=len(found)
                )
            )
            found += page
            if len(page) < PAGE:
                return found

    # --- the lanes ---

    async def by_words(
        self,
        state: State,
        terms: Mapping[str, float],
        limit: int,
        clause: Clause,
        *,
        passages: bool,
    ) -> list[Row]:
        """Finds nothing: there is no keyword lane."""
        del state, terms, limit, clause, passages
        return []

    async def words_of(self, state: State, terms: Mapping[str, float], clause: Clause) -> list[Row]:
        """Returns the rows that match, all with a score of zero."""
        del terms
        return await self.rows(state, clause)

    async def holding(self, state: State, terms: Collection[str]) -> dict[str, int]:
        """Finds no terms: there is no keyword lane."""
        del state
        return dict.fromkeys(terms, 0)

    async def by_vector(
        self,
        state: State,
        vector: NDArray[np.float32],
        limit: int,
        clause: Clause,
        *,
        passages: bool,
    ) -> list[Row]:
        """Returns the best rows by cosine."""
        where = where_of(Both((Compare("emb", "gt", 0.0), *_members(clause))))
        include = ["metadatas", "embeddings", *(["documents"] if passages else [])]

        async def read(n: int) -> tuple[list[Row], float | None]:
            answer = await self._clients.of_collection(
                self._rows(state),
                "query",
                query_embeddings=[vector.tolist()],
                n_results=n,
                where=where,
                include=include,
            )
            rows = [
                read_row(record, query=vector)
                for record in listed({key: value and value[0] for key, value in answer.items()})
            ]
            bound = min(row.score for row in rows) + ROUNDING if len(rows) == n else None
            return rows, bound

        return await deepened(limit, read)

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._clients.aclose()


def _mark_id(mark: Mark) -> str:
    return record_id("mark", mark.corpus, mark.stamp, mark.writer)


def _members(clause: Clause) -> tuple[Clause, ...]:
    return clause.clauses if isinstance(clause, Both) else (clause,)
