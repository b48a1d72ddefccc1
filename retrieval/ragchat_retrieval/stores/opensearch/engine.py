"""OpenSearch as the engine under a revision manifest.

One index holds the states and marks of all corpora. Each corpus has one of entries and one of rows,
whose name tells the dimension. All are written and read by an alias, since only writes to an alias
can be kept from making an index that is gone. States and entries are read by id, which sees every
write; what is searched for is refreshed first.

The keyword lane: Lucene's statistics count what was deleted and round lengths. So it scores by BM25
for a *typical* length, fixed at the first write, and by exact document frequencies that the search
brings along; what is found is scored again exactly. If the average length has grown by a factor f
since, no exact score is above f times Lucene's; `deepening` asks on until that proves the best.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ragchat_retrieval.errors import StoreUnavailable
from ragchat_retrieval.stores.deepening import ROUNDING, deepened
from ragchat_retrieval.stores.manifest import Gone, Mark, State
from ragchat_retrieval.stores.opensearch.client import part_of, refused
from ragchat_retrieval.stores.opensearch.documents import (
    ENTRIES,
    RECORDS,
    VECTOR,
    WORDS,
    entry_document,
    exact_query,
    grid,
    identified,
    key,
    near_query,
    query_of,
    read_entry,
    read_row,
    removal,
    row_document,
    row_fields,
    rows_index,
    words_query,
)
from ragchat_retrieval.stores.opensearch.store import NAME
from ragchat_retrieval.stores.rescoring import average_of, scored, weighed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.stores.manifest import Entry, Row
    from ragchat_retrieval.stores.opensearch.client import Clients
    from ragchat_retrieval.stores.shadow import Clause

PAGE = 1_000
"""Documents of one answer when all are read."""

EXACT_UP_TO = 1_000
"""Corpora of so many vectors are compared whole."""

_LARGEST_K = 10_000
_LARGEST_WINDOW = 1_000_000
_SNAPSHOT = "2m"
_WHOLE = {"allow_partial_search_results": "false"}


class OpenSearchEngine:
    """Implements `ragchat_retrieval.stores.manifest_engine.Engine`.

    Args:
        clients: Reach OpenSearch.
        prefix: Begins the names of all indexes.
        exact: Search vectors without the graph.
        settings: Of the indexes that are made.
    """

    def __init__(
        self, clients: Clients, *, prefix: str, exact: bool, settings: Mapping[str, Any]
    ) -> None:
        self._clients = clients
        self._call = clients.call
        self._records = f"{prefix}.records"
        self._prefix = prefix
        self._exact = exact
        self._settings = settings

    # --- states and marks ---

    async def states(self) -> list[State]:
        """Returns the states of all corpora."""
        return [State.from_json(text) for text in await self._read_records({"kind": "state"})]

    async def state(self, corpus: str) -> State | None:
        """Returns the state of a corpus."""
        try:
            found = await self._by_id(self._records, [key("state", corpus)], ["record"])
        except Gone:
            return None
        return State.from_json(found[0]["_source"]["record"]) if found else None

    async def put_state(self, state: State) -> None:
        """Overwrites the state of its corpus."""
        await self._put_record(key("state", state.corpus), "state", state)

    async def marks(self, corpus: str) -> list[Mark]:
        """Returns the marks of a corpus."""
        found = await self._read_records({"kind": "mark", "corpus": key(corpus)})
        return [Mark.from_json(text) for text in found]

    async def put_mark(self, mark: Mark) -> None:
        """Sets a mark."""
        await self._put_record(_mark_id(mark), "mark", mark)

    async def drop_mark(self, mark: Mark) -> None:
        """Removes a mark."""
        await self._clients.bulk(self._records, [removal(_mark_id(mark))])

    async def _read_records(self, fields: Mapping[str, str]) -> list[str]:
        tests = [{"term": {field: value}} for field, value in fields.items()]
        try:
            await self._refresh(self._records)
            hits = await self._scan(self._records, {"bool": {"filter": tests}}, ["record"])
        except Gone:
            return []
        return [hit["_source"]["record"] for hit in hits]

    async def _put_record(self, id: str, kind: str, record: State | Mark) -> None:
        fields = {"kind": kind, "corpus": key(record.corpus), "record": record.to_json()}
        document = identified(id, fields)
        try:
            await self._clients.bulk(self._records, [document])
        except Gone:
            await self._make(self._records, {}, RECORDS)
            await self._clients.bulk(self._records, [document])

    # --- places ---

    async def create(self, state: State) -> None:
        """Makes the places of rows and entries; those that exist stay as they are."""
        settings, fields = rows_index(state.dimension, grid(state.typical))
        await self._make(self._rows(state), settings, fields)
        await self._make(self._entries(state), {}, ENTRIES)

    async def discard(self, state: State, *, rows_only: bool = False) -> None:
        """Removes the places of rows and entries, or of rows; missing ones are no error."""
        for alias in [self._rows(state)] + ([] if rows_only else [self._entries(state)]):
            await self._call("indices.delete", index=_behind(alias), ignore_unavailable=True)

    async def _make(
        self, alias: str, settings: Mapping[str, Any], fields: Mapping[str, Any]
    ) -> None:
        body = {
            "settings": {"max_result_window": _LARGEST_WINDOW, **self._settings, **settings},
            # Vectors are kept as they are in another field; they need not be kept twice.
            "mappings": {
                "dynamic": "strict",
                "_source": {"excludes": [VECTOR]},
                "properties": fields,
            },
            "aliases": {alias: {}},
        }
        try:
            await self._call("indices.create", index=_behind(alias), body=body)
        except FileExistsError:
            return

    def _rows(self, state: State) -> str:
        return state.places(self._prefix).rows

    def _entries(self, state: State) -> str:
        return state.places(self._prefix).entries

    # --- rows and entries ---

    async def put_rows(self, state: State, rows: Sequence[Row]) -> None:
        """Writes rows; they are visible when this returns."""
        await self._clients.bulk(self._rows(state), map(row_document, rows))
        await self._refresh(self._rows(state))

    async def drop_rows(self, state: State, clause: Clause) -> None:
        """Removes the rows that match."""
        await self._refresh(self._rows(state))  # for those whose writer came to grief
        found = await self._scan(self._rows(state), query_of(clause), [])
        if found:
            await self._clients.bulk(self._rows(state), (removal(hit["_id"]) for hit in found))
            await self._refresh(self._rows(state))

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
        fields = row_fields(passages=passages, vectors=vectors, terms=terms)
        hits = await self._scan(self._rows(state), query_of(clause), fields)
        return [read_row(hit) for hit in hits]

    async def put_entries(self, state: State, entries: Sequence[Entry]) -> None:
        """Overwrites entries, each in one operation."""
        await self._clients.bulk(self._entries(state), map(entry_document, entries))
        await self._refresh(self._entries(state))

    async def drop_entries(self, state: State, document_ids: Collection[str]) -> None:
        """Removes entries, each in one operation."""
        if document_ids:
            ids = (key("entry", i) for i in document_ids)
            await self._clients.bulk(self._entries(state), map(removal, ids))
            await self._refresh(self._entries(state))

    async def entries(
        self, state: State, document_ids: Collection[str] | None, clause: Clause, *, text: bool
    ) -> list[Entry]:
        """Returns the entries of these documents, or of all, that match."""
        fields = ["rev", "labels", *(["text"] if text else [])]
        place = self._entries(state)
        if document_ids is None:
            hits = await self._scan(place, query_of(clause), fields)
        else:
            # The caller's bounds are few entries: these are read by id and checked by the store.
            hits = await self._by_id(place, [key("entry", i) for i in document_ids], fields)
        return [read_entry(hit) for hit in hits]

    async def stamps(self, state: State, document_ids: Collection[str]) -> dict[str, int]:
        """Returns the current revisions of those of these documents that have an entry."""
        ids = [key("entry", i) for i in document_ids]
        hits = await self._by_id(self._entries(state), ids, ["did", "rev"])
        return {hit["_source"]["did"]: hit["_source"]["rev"] for hit in hits}

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
        weights = weighed(terms, await self.holding(state, terms), state)
        if not weights:
            return []
        looseness = max(1.0, average_of(state) / grid(state.typical)) * (1 + ROUNDING)
        fields = row_fields(passages=passages, terms=True)
        query = words_query(weights, clause)

        async def read(n: int) -> tuple[list[Row], float | None]:
            hits = await self._search(self._rows(state), query, n, fields)
            bound = hits[-1]["_score"] * looseness if len(hits) == n else None
            return [scored(read_row(hit), weights, state) for hit in hits], bound

        return await deepened(limit, read)

    async def words_of(self, state: State, terms: Mapping[str, float], clause: Clause) -> list[Row]:
        """Returns the rows that match with their BM25 scores, zero included."""
        weights = weighed(terms, await self.holding(state, terms), state)
        rows = await self.rows(state, clause, terms=True)
        return [scored(row, weights, state) for row in rows]

    async def holding(self, state: State, terms: Collection[str]) -> dict[str, int]:
        """Returns how many rows hold each term, zero included, whether the rows count or not."""
        asked = [*terms]
        if not asked:
            return {}
        header = {"index": self._rows(state), "allow_partial_search_results": False}
        body: list[dict[str, Any]] = []
        for term in asked:
            question = {"size": 0, "track_total_hits": True, "query": {"term": {WORDS: term}}}
            body += [header, question]
        answer = await self._call("msearch", body=body)
        said = part_of(answer, "responses", list)
        for one in said:
            if "error" in one:
                raise refused("msearch", one)
        counts = [part_of(one, "hits.total.value", int) for one in said]
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
        """Returns the best rows by cosine; what Lucene brings is scored again in float64."""
        fields = row_fields(passages=passages, vectors=True)
        numbers = vector.tolist()
        exact = self._exact or state.sums.vectors <= EXACT_UP_TO

        async def read(n: int) -> tuple[list[Row], float | None]:
            nonlocal exact
            exact = exact or n > _LARGEST_K
            query = exact_query(numbers, clause) if exact else near_query(numbers, n, clause)
            hits = await self._search(self._rows(state), query, n, fields)
            if not exact and len(hits) < n:
                exact = True  # the graph may have parts that it does not reach
                return await read(n)
            bound = 2 * hits[-1]["_score"] - 1 + ROUNDING if len(hits) == n else None
            return [_similar(read_row(hit), vector) for hit in hits], bound

        return await deepened(limit, read)

    async def aclose(self) -> None:
        """Releases connections; closing twice is no error."""
        await self._clients.aclose()

    # --- reading ---

    async def _search(
        self, alias: str, query: Mapping[str, Any], n: int, fields: list[str]
    ) -> list[dict[str, Any]]:
        body = {"query": query, "size": n, "_source": fields, "track_total_hits": False}
        answer = await self._call("search", index=alias, body=body, params=_WHOLE)
        return part_of(answer, "hits.hits", list)

    async def _by_id(
        self, alias: str, ids: Sequence[str], fields: list[str]
    ) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for at in range(0, len(ids), PAGE):
            body = {"ids": ids[at : at + PAGE]}
            answer = await self._call("mget", index=alias, body=body, _source_includes=fields)
            said = part_of(answer, "docs", list)
            for one in said:
                if "error" in one:
                    raise refused("mget", one)
            found += [one for one in said if one["found"]]
        return found

    async def _scan(
        self, alias: str, query: Mapping[str, Any], fields: list[str]
    ) -> list[dict[str, Any]]:
        """Reads all that matches, as it is at one moment."""
        hits = await self._search(alias, query, PAGE, fields)
        if len(hits) < PAGE:
            return hits
        made = await self._call("create_pit", index=alias, params={"keep_alive": _SNAPSHOT})
        snapshot = {"id": part_of(made, "pit_id", str), "keep_alive": _SNAPSHOT}
        body = {"pit": snapshot, "query": query, "size": PAGE, "_source": fields, "sort": ["key"]}
        hits = []
        try:
            while True:
                answer = await self._call("search", body=body, params=_WHOLE)
                page = part_of(answer, "hits.hits", list)
                hits += page
                if len(page) < PAGE:
                    return hits
                body["search_after"] = page[-1]["sort"]
        finally:
            with contextlib.suppress(StoreUnavailable, Gone):  # it ends by itself
                await self._call("delete_pit", body={"pit_id": [snapshot["id"]]})

    async def _refresh(self, alias: str) -> None:
        """Makes what was written visible to searches.

        Raises:
            Gone: There is no such index.
            StoreUnavailable: A copy of the index did not follow.
        """
        answer = await self._call("indices.refresh", index=alias)
        if part_of(answer, "_shards.failed", int):
            raise StoreUnavailable("a copy was not refreshed", store=NAME, retryable=True)


def _behind(alias: str) -> str:
    """Returns the name of the index that an alias stands for."""
    return f"{alias}.index"


def _mark_id(mark: Mark) -> str:
    return key("mark", mark.corpus, mark.stamp, mark.writer)


def _similar(row: Row, vector: NDArray[np.float32]) -> Row:
    assert row.vector is not None  # noqa: S101 - no other row is compared
    return replace(row, score=float(row.vector.astype(np.float64) @ vector.astype(np.float64)))
