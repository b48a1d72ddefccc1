"""Qdrant as the engine under a revision manifest.

One collection holds the states and marks of all corpora. Each corpus has one of entries, without
vectors, and one of rows, whose name tells the dimension.

The keyword lane: BM25 needs the average length of passages, which changes with every write, and a
sparse vector holds one number a term. So the stored values are BM25's for a *typical* length, fixed
at the first write, and what they bring is scored again exactly, by the terms in the payload and by
exact document frequencies. If the average has grown by a factor f since, no exact score is above f
times the engine's; `deepening` asks on until that proves the best.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from qdrant_client import models

from ragchat_retrieval.stores.deepening import ROUNDING, deepened
from ragchat_retrieval.stores.manifest import Gone, Mark, State
from ragchat_retrieval.stores.qdrant.points import (
    DENSE,
    REFERENCE,
    WORDS,
    batches,
    condition,
    entry_point,
    point_id,
    read_entry,
    read_row,
    row_point,
    where,
    words,
)
from ragchat_retrieval.stores.rescoring import average_of, scored, weighed
from ragchat_retrieval.stores.shadow import AnyOf

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ragchat_retrieval.stores.manifest import Entry, Row
    from ragchat_retrieval.stores.qdrant.client import Clients
    from ragchat_retrieval.stores.shadow import Clause

PAGE = 1_000
"""Points of one answer when all are read."""

REQUEST = 8_000_000
"""Bytes of one write, about; Qdrant takes 32 MB."""

_TERM_QUESTIONS = 8
"""How many terms are counted at a time."""


class QdrantEngine:
    """Implements `ragchat_retrieval.stores.manifest_engine.Engine`.

    Args:
        clients: Reach Qdrant.
        prefix: Begins the names of all collections.
        exact: Search vectors without the graph.
    """

    def __init__(self, clients: Clients, *, prefix: str, exact: bool) -> None:
        self._clients = clients
        self._call = clients.call
        self._prefix = prefix
        self._params = models.SearchParams(exact=True) if exact else None

    # --- states and marks ---

    async def states(self) -> list[State]:
        """Returns the states of all corpora."""
        found = await self._records(_keyword("kind", "state"))
        return [State.from_json(text) for text in found]

    async def state(self, corpus: str) -> State | None:
        """Returns the state of a corpus."""
        try:
            found = await self._call("retrieve", self._prefix, [point_id("state", corpus)])
        except Gone:
            return None
        return State.from_json(found[0].payload["record"]) if found else None

    async def put_state(self, state: State) -> None:
        """Overwrites the state of its corpus."""
        await self._put_record(point_id("state", state.corpus), "state", state)

    async def marks(self, corpus: str) -> list[Mark]:
        """Returns the marks of a corpus."""
        found = await self._records(_keyword("kind", "mark"), _keyword("corpus", corpus))
        return [Mark.from_json(text) for text in found]

    async def put_mark(self, mark: Mark) -> None:
        """Sets a mark."""
        await self._put_record(_mark_id(mark), "mark", mark)

    async def drop_mark(self, mark: Mark) -> None:
        """Removes a mark."""
        await self._call("delete", self._prefix, [_mark_id(mark)], wait=True)

    async def _records(self, *conditions: models.FieldCondition) -> list[str]:
        try:
            found = await self._scroll(self._prefix, models.Filter(must=[*conditions]), ["record"])
        except Gone:
            return []
        return [point.payload["record"] for point in found if point.payload]

    async def _put_record(self, id: str, kind: str, record: State | Mark) -> None:
        payload = {"kind": kind, "corpus": record.corpus, "record": record.to_json()}
        points = [models.PointStruct(id=id, vector={}, payload=payload)]
        try:
            await self._call("upsert", self._prefix, points, wait=True)
        except Gone:
            await self._make(self._prefix, {}, None, {"kind": "keyword", "corpus": "keyword"})
            await self._call("upsert", self._prefix, points, wait=True)

    # --- places ---

    async def create(self, state: State) -> None:
        """Makes the places of rows and entries; those that exist stay as they are."""
        dense: dict[str, models.VectorParams] = {}
        if state.dimension is not None:
            # A dot product, so that vectors come back as they were given.
            dense[DENSE] = models.VectorParams(size=state.dimension, distance=models.Distance.DOT)
        sparse = {WORDS: models.SparseVectorParams()}
        strings = dict.fromkeys(("pid", "did", "f", "terms"), "keyword")
        numbers = dict.fromkeys(("rev", "ord"), "integer")
        await self._make(self._rows(state), dense, sparse, {**strings, **numbers})
        await self._make(self._entries(state), {}, None, {"did": "keyword", "f": "keyword"})

    async def discard(self, state: State, *, rows_only: bool = False) -> None:
        """Removes the places of rows and entries, or of rows; missing ones are no error."""
        await self._call("delete_collection", self._rows(state))
        if not rows_only:
            await self._call("delete_collection", self._entries(state))

    async def _make(
        self,
        name: str,
        dense: Mapping[str, models.VectorParams],
        sparse: Mapping[str, models.SparseVectorParams] | None,
        indexes: Mapping[str, str],
    ) -> None:
        try:
            await self._call(
                "create_collection", name, vectors_config=dense, sparse_vectors_config=sparse
            )
        except FileExistsError:
            return
        if not self._clients.is_local:
            for field, schema in indexes.items():
                await self._call("create_payload_index", name, field, schema, wait=True)

    def _rows(self, state: State) -> str:
        return state.places(self._prefix).rows

    def _entries(self, state: State) -> str:
        return state.places(self._prefix).entries

    # --- rows and entries ---

    async def put_rows(self, state: State, rows: Sequence[Row]) -> None:
        """Writes rows; they are visible when this returns."""
        for batch in batches((row_point(row, state.typical) for row in rows), REQUEST):
            await self._call("upsert", self._rows(state), batch, wait=True)

    async def drop_rows(self, state: State, clause: Clause) -> None:
        """Removes the rows that match."""
        await self._call("delete", self._rows(state), condition(clause), wait=True)

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
        fields = _fields(passages=passages, terms=terms)
        dense = [DENSE] if vectors and state.dimension is not None else False
        found = await self._scroll(self._rows(state), where(clause), fields, vectors=dense)
        return [read_row(point) for point in found]

    async def put_entries(self, state: State, entries: Sequence[Entry]) -> None:
        """Overwrites entries, each in one operation."""
        for batch in batches(map(entry_point, entries), REQUEST):
            await self._call("upsert", self._entries(state), batch, wait=True)

    async def drop_entries(self, state: State, document_ids: Collection[str]) -> None:
        """Removes entries, each in one operation."""
        ids = [point_id("entry", i) for i in document_ids]
        if ids:
            await self._call("delete", self._entries(state), ids, wait=True)

    async def entries(
        self, state: State, document_ids: Collection[str] | None, clause: Clause, *, text: bool
    ) -> list[Entry]:
        """Returns the entries of these documents, or of all, that match."""
        fields = ["rev", "labels", *(["text"] if text else [])]
        place = self._entries(state)
        if document_ids is None:
            found = await self._scroll(place, where(clause), fields)
            return [read_entry(point) for point in found]
        # The caller's bounds are few entries: these are read by id and checked by the store.
        found = await self._retrieve(place, document_ids, fields)
        return [read_entry(point) for point in found]

    async def stamps(self, state: State, document_ids: Collection[str]) -> dict[str, int]:
        """Returns the current revisions of those of these documents that have an entry."""
        found = await self._retrieve(self._entries(state), document_ids, ["did", "rev"])
        return {p.payload["did"]: p.payload["rev"] for p in found if p.payload}

    async def _retrieve(
        self, place: str, document_ids: Collection[str], fields: list[str]
    ) -> list[models.Record]:
        ids = [point_id("entry", i) for i in document_ids]
        found: list[models.Record] = []
        for at in range(0, len(ids), PAGE):
            found += await self._call("retrieve", place, ids[at : at + PAGE], with_payload=fields)
        return found

    async def _scroll(
        self,
        place: str,
        condition: models.Filter | None,
        fields: list[str],
        *,
        vectors: list[str] | bool = False,
    ) -> list[models.Record]:
        found: list[models.Record] = []
        offset: Any = None
        while True:
            page, offset = await self._call(
                "scroll",
                place,
                scroll_filter=condition,
                limit=PAGE,
                offset=offset,
                with_payload=fields,
                with_vectors=vectors,
            )
            found += page
            if offset is None:
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
        """Returns the best rows by BM25."""
        weights = await self._weights(state, terms)
        if not weights:
            return []
        looseness = max(1.0, average_of(state) / state.typical) * (1 + ROUNDING)
        fields = _fields(passages=passages, terms=True)

        async def read(n: int) -> tuple[list[Row], float | None]:
            points = await self._query(state, words(weights), n=n, clause=clause, fields=fields)
            rows = [scored(read_row(point), weights, state) for point in points]
            bound = points[-1].score * looseness if len(points) == n else None
            return [row for row in rows if row.score > 0], bound

        return await deepened(limit, read)

    async def words_of(self, state: State, terms: Mapping[str, float], clause: Clause) -> list[Row]:
        """Returns the rows that match with their BM25 scores, zero included."""
        weights = await self._weights(state, terms)
        rows = await self.rows(state, clause, terms=True)
        return [scored(row, weights, state) for row in rows]

    async def holding(self, state: State, terms: Collection[str]) -> dict[str, int]:
        """Returns how many rows hold each term, zero included, whether the rows count or not."""
        gate = asyncio.Semaphore(_TERM_QUESTIONS)

        async def count(term: str) -> int:
            async with gate:
                question = condition(AnyOf("terms", (term,)))
                found = await self._call("count", self._rows(state), question, exact=True)
                held: int = found.count
                return held

        asked = [*terms]
        counts = await asyncio.gather(*map(count, asked))
        return dict(zip(asked, counts, strict=True))

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
        fields = _fields(passages=passages)

        async def read(n: int) -> tuple[list[Row], float | None]:
            points = await self._query(state, vector.tolist(), n=n, clause=clause, fields=fields)
            bound = points[-1].score + ROUNDING if len(points) == n else None
            return [read_row(point, point.score) for point in points], bound

        return await deepened(limit, read)

    async def aclose(self) -> None:
        """Releases connections; closing twice is no error."""
        await self._clients.aclose()

    async def _query(
        self,
        state: State,
        query: models.SparseVector | list[float],
        *,
        n: int,
        clause: Clause,
        fields: list[str],
    ) -> list[models.ScoredPoint]:
        using = WORDS if isinstance(query, models.SparseVector) else DENSE
        found = await self._call(
            "query_points",
            self._rows(state),
            query=query,
            using=using,
            limit=n,
            query_filter=where(clause),
            search_params=self._params if using == DENSE else None,
            with_payload=fields,
        )
        points: list[models.ScoredPoint] = found.points
        return points

    async def _weights(self, state: State, terms: Mapping[str, float]) -> dict[str, float]:
        """Returns weight times idf of those terms that occur."""
        return weighed(terms, await self.holding(state, terms), state)


def _fields(*, passages: bool = False, terms: bool = False) -> list[str]:
    return [
        *REFERENCE,
        *(["body"] if passages else []),
        *(["terms", "counts"] if terms else []),
    ]


def _keyword(field: str, value: str) -> models.FieldCondition:
    return models.FieldCondition(key=field, match=models.MatchValue(value=value))


def _mark_id(mark: Mark) -> str:
    return point_id("mark", mark.corpus, mark.stamp, mark.writer)
