"""A store in Chroma: vectors only, for those who run it already.

One collection holds the states and marks of all corpora; each corpus has one of entries and one of
rows. Chroma's metadata is flat, so tokens are keys of their own, and it wants a vector with each
record: entries and records have one of length 1, rows without a vector are kept beside the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import re
import uuid
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, assert_never
from urllib.parse import urlsplit

import numpy as np

from ragchat_retrieval.errors import InvalidSetting, MissingExtra, StoreUnavailable
from ragchat_retrieval.ports import Capabilities
from ragchat_retrieval.stores.manifest import (
    Entry,
    Gone,
    Mark,
    Row,
    State,
    passage_text,
    read_passage,
)
from ragchat_retrieval.stores.manifest_store import ManifestStore
from ragchat_retrieval.stores.shadow import (
    TOKENS,
    AnyOf,
    Both,
    Clause,
    Compare,
    Either,
    Neither,
    shadow,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.values import Document, Passage

NAME: Final = "chroma"
PAGE = 500
"""Records of one request; Chroma's own limit is ten times that."""

SLACK = 16
"""How many more than wanted the vector lane reads, for ties at the limit."""

_PORT = 8000
_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_OPPOSITE = {"gt": "lte", "gte": "lt", "lt": "gte", "lte": "gt"}
_NAMESPACE = uuid.UUID("0c0e7d6a-54d8-53a0-9b6c-2b7d5b8b0f11")
_ROUNDING = 1e-5
_NO_VECTOR = [0.0]


class ChromaStore(ManifestStore):
    """Keeps a corpus in a Chroma server. There is no keyword lane.

    Implements `ragchat_retrieval.ports.Store`, whose docstrings say what the methods promise,
    except that `search_text` finds nothing (`Capabilities.keyword`). A write is one step for each
    document, not for the batch (`Capabilities.atomic_batch`).

    Args:
        url: Where Chroma is, as ``http://localhost:8000``.
        corpus: The corpus that this handle reads and writes.
        prefix: Begins the names of the collections: 1 to 64 of A-Z, a-z, 0-9, '_' and '-'.
        read_only: Refuse every write.
        **options: For `chromadb.AsyncHttpClient`, such as ``headers`` and ``tenant``.

    Raises:
        InvalidSetting: The URL or a name has another form.
        MissingExtra: The extra ``chroma`` is not installed.
    """

    name = NAME
    capabilities = Capabilities(atomic_batch=False, keyword=False)

    def __init__(
        self,
        url: str,
        *,
        corpus: str = "default",
        prefix: str = "ragchat",
        read_only: bool = False,
        **options: Any,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username:
            raise InvalidSetting("url", "must be http://host:port")
        if _PREFIX.fullmatch(prefix) is None:
            raise InvalidSetting("prefix", "must be 1 to 64 of A-Z, a-z, 0-9, '_' and '-'")
        if importlib.util.find_spec("chromadb") is None:
            raise MissingExtra("chroma", "ChromaStore")
        where = {
            "host": parts.hostname,
            "port": parts.port or _PORT,
            "ssl": parts.scheme == "https",
        }
        super().__init__(
            ChromaEngine({**where, **options}, prefix), corpus=corpus, read_only=read_only
        )

    @classmethod
    def from_url(cls, url: str, *, corpus: str = "default", read_only: bool = False) -> ChromaStore:
        """Returns the store of ``chroma://host:8000/prefix``; ``chroma+https://`` uses TLS.

        Raises:
            InvalidSetting: The URL has no host, or holds more than host, port and prefix.
        """
        parts = urlsplit(url)
        if not parts.hostname or parts.query or parts.fragment or parts.username:
            raise InvalidSetting("url", "must be chroma://host:port/prefix")
        scheme = "https" if parts.scheme.endswith("+https") else "http"
        return cls(
            f"{scheme}://{parts.netloc}",
            corpus=corpus,
            prefix=parts.path.strip("/") or "ragchat",
            read_only=read_only,
        )


class ChromaEngine:
    """Implements `ragchat_retrieval.stores.manifest.Engine`.

    Args:
        options: For the clients, of which each event loop has one.
        prefix: Begins the names of all collections.
    """

    def __init__(self, options: Mapping[str, Any], prefix: str) -> None:
        self._options = options
        self._prefix = prefix
        self._clients: dict[asyncio.AbstractEventLoop, Any] = {}

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
        await self._put_record(_id("state", state.corpus), "state", state)

    async def marks(self, corpus: str) -> list[Mark]:
        """Returns the marks of a corpus."""
        found = await self._records({"$and": [{"kind": "mark"}, {"corpus": corpus}]})
        return [Mark.from_json(text) for text in found]

    async def put_mark(self, mark: Mark) -> None:
        """Sets a mark."""
        await self._put_record(_mark_id(mark), "mark", mark)

    async def drop_mark(self, mark: Mark) -> None:
        """Removes a mark."""
        await self._call(self._prefix + ".records", "delete", ids=[_mark_id(mark)])

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
            await self._call(name, "upsert", **given)
        except Gone:
            await self._make(name)
            await self._call(name, "upsert", **given)

    # --- places ---

    async def create(self, state: State) -> None:
        """Makes the places of rows and entries; those that exist stay as they are."""
        await self._make(self._rows(state))
        await self._make(self._entries(state))

    async def discard(self, state: State, *, rows_only: bool = False) -> None:
        """Removes the places of rows and entries, or of rows; missing ones are no error."""
        for name in [self._rows(state)] + ([] if rows_only else [self._entries(state)]):
            with contextlib.suppress(Gone):
                await self._client_call("delete_collection", name)

    async def _make(self, name: str) -> None:
        # An inner product, so that vectors come back as they were given.
        await self._client_call(
            "get_or_create_collection",
            name,
            embedding_function=None,
            configuration={"hnsw": {"space": "ip"}},
        )

    def _rows(self, state: State) -> str:
        return f"{self._place(state)}.passages.{state.dimension or 0}"

    def _entries(self, state: State) -> str:
        return f"{self._place(state)}.documents"

    def _place(self, state: State) -> str:
        name = blake2b(state.corpus.encode(), digest_size=8).hexdigest()
        return f"{self._prefix}.{name}.{state.generation}"

    # --- rows and entries ---

    async def put_rows(self, state: State, rows: Sequence[Row]) -> None:
        """Writes rows; they are visible when this returns."""
        # A vector along one axis stands in where there is none; such rows are never searched.
        blank = [1.0, *[0.0] * ((state.dimension or 1) - 1)]
        for at in range(0, len(rows), PAGE):
            some = rows[at : at + PAGE]
            await self._call(
                self._rows(state),
                "upsert",
                ids=[_id("row", row.passage_id, row.stamp) for row in some],
                embeddings=[blank if row.vector is None else row.vector.tolist() for row in some],
                metadatas=[_row_fields(row) for row in some],
                documents=[passage_text(row.passage) for row in some if row.passage is not None],
            )

    async def drop_rows(self, state: State, clause: Clause) -> None:
        """Removes the rows that match."""
        await self._call(self._rows(state), "delete", where=_where(clause))

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
        found = await self._get(self._rows(state), _where(clause), include)
        return [_read_row(record) for record in found]

    async def put_entries(self, state: State, entries: Sequence[Entry]) -> None:
        """Overwrites entries, each in one operation."""
        for at in range(0, len(entries), PAGE):
            some = entries[at : at + PAGE]
            await self._call(
                self._entries(state),
                "upsert",
                ids=[_id("entry", entry.document.id) for entry in some],
                embeddings=[_NO_VECTOR] * len(some),
                metadatas=[
                    {
                        "did": entry.document.id,
                        "rev": entry.stamp,
                        "labels": entry.labels(),
                        **_flat(entry.document),
                    }
                    for entry in some
                ],
                documents=[entry.document.text for entry in some],
            )

    async def drop_entries(self, state: State, document_ids: Collection[str]) -> None:
        """Removes entries, each in one operation."""
        ids = [_id("entry", i) for i in document_ids]
        for at in range(0, len(ids), PAGE):
            await self._call(self._entries(state), "delete", ids=ids[at : at + PAGE])

    async def entries(
        self, state: State, document_ids: Collection[str] | None, clause: Clause, *, text: bool
    ) -> list[Entry]:
        """Returns the entries of these documents, or of all, that match."""
        include = ["metadatas", *(["documents"] if text else [])]
        if document_ids is None:
            found = await self._get(self._entries(state), _where(clause), include)
        else:
            found = await self._by_ids(state, document_ids, include)
        return [
            Entry.read(
                record["metadata"]["labels"],
                record["metadata"]["rev"],
                record.get("document") or "",
            )
            for record in found
        ]

    async def stamps(self, state: State, document_ids: Collection[str]) -> dict[str, int]:
        """Returns the current revisions of those of these documents that have an entry."""
        found = await self._by_ids(state, document_ids, ["metadatas"])
        return {record["metadata"]["did"]: record["metadata"]["rev"] for record in found}

    async def _by_ids(
        self, state: State, document_ids: Collection[str], include: list[str]
    ) -> list[dict[str, Any]]:
        ids = [_id("entry", i) for i in document_ids]
        found: list[dict[str, Any]] = []
        for at in range(0, len(ids), PAGE):
            some = ids[at : at + PAGE]
            found += _listed(
                await self._call(self._entries(state), "get", ids=some, include=include)
            )
        return found

    async def _get(
        self, name: str, where: Mapping[str, Any] | None, include: list[str]
    ) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while True:
            page = _listed(
                await self._call(
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
        where = _where(Both((Compare("emb", "gt", 0.0), *_members(clause))))
        include = ["metadatas", "embeddings", *(["documents"] if passages else [])]
        n = limit + SLACK
        while True:
            answer = await self._call(
                self._rows(state),
                "query",
                query_embeddings=[vector.tolist()],
                n_results=n,
                where=where,
                include=include,
            )
            rows = [
                _read_row(record, query=vector)
                for record in _listed({key: value and value[0] for key, value in answer.items()})
            ]
            read = len(rows)
            rows.sort(key=lambda row: (-row.score, row.passage_id))
            if read < n or n >= 8 * limit + 1_000:
                return rows[:limit]
            if rows[limit - 1].score > rows[-1].score + _ROUNDING:
                return rows[:limit]
            n *= 2

    async def aclose(self) -> None:
        """Forgets the clients, which hold no connection that would have to be closed."""
        self._clients.clear()

    # --- calling ---

    async def _call(self, name: str, method: str, **given: Any) -> Any:  # noqa: ANN401 - as the client's methods
        collection = await self._client_call("get_collection", name, embedding_function=None)
        return await self._safely(getattr(collection, method), **given)

    async def _client_call(self, method: str, *args: Any, **given: Any) -> Any:  # noqa: ANN401 - as above
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            chromadb = importlib.import_module("chromadb")
            settings = chromadb.Settings(anonymized_telemetry=False)
            options = {"settings": settings, **self._options}
            self._clients[loop] = await self._safely(chromadb.AsyncHttpClient, **options)
        return await self._safely(getattr(self._clients[loop], method), *args, **given)

    async def _safely(self, call: Any, *args: Any, **given: Any) -> Any:  # noqa: ANN401 - as above
        """Calls, with Chroma's failures as ours, without their content."""
        errors = importlib.import_module("chromadb.errors")
        httpx = importlib.import_module("httpx")
        try:
            return await call(*args, **given)
        except errors.NotFoundError:
            raise Gone from None
        except (httpx.HTTPError, errors.ChromaError) as error:
            kind = type(error).__name__
            retryable = isinstance(error, httpx.HTTPError)
            raise StoreUnavailable(f"failed: {kind}", store=NAME, retryable=retryable) from None
        except ValueError as error:  # what the client makes of a refused connection
            if "connect" not in str(error).lower():
                raise
            raise StoreUnavailable("was not reached", store=NAME, retryable=True) from None


def _id(*parts: object) -> str:
    return str(uuid.uuid5(_NAMESPACE, repr(parts)))


def _mark_id(mark: Mark) -> str:
    return _id("mark", mark.corpus, mark.stamp, mark.writer)


def _flat(item: Passage | Document) -> dict[str, Any]:
    """Returns the shadow fields as one flat mapping."""
    given = shadow(item)
    flat: dict[str, Any] = {f"{TOKENS}.{token}": True for token in given[TOKENS]}
    flat.update((f"n.{key}", number) for key, number in given["n"].items())
    for key, chunks in given["s"].items():
        flat.update((f"s.{key}.{level}", chunk) for level, chunk in chunks.items())
    return flat


def _row_fields(row: Row) -> dict[str, Any]:
    assert row.passage is not None  # noqa: S101 - rows are written whole
    return {
        "pid": row.passage_id,
        "did": row.document_id,
        "rev": row.stamp,
        "ord": row.ordinal,
        "emb": float(row.vector is not None),
        "len": row.length,
        **_flat(row.passage),
    }


def _listed(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Turns columns into records.

    Raises:
        Gone: Some were removed while the answer was put together.
    """
    if any(metadata is None for metadata in answer.get("metadatas") or ()):
        raise Gone
    names = {"metadatas": "metadata", "documents": "document", "embeddings": "embedding"}
    columns = {one: answer[many] for many, one in names.items() if answer.get(many) is not None}
    return [
        {name: column[at] for name, column in columns.items()} for at in range(len(answer["ids"]))
    ]


def _read_row(record: Mapping[str, Any], query: NDArray[np.float32] | None = None) -> Row:
    fields, body, given = record["metadata"], record.get("document"), record.get("embedding")
    embedded = fields["emb"] > 0
    vector = np.array(given, np.float32) if embedded and given is not None else None
    score = 0.0
    if query is not None and vector is not None:
        score = float((vector.astype(np.float64) * query).sum())
    return Row(
        passage_id=fields["pid"],
        document_id=fields["did"],
        stamp=fields["rev"],
        ordinal=fields["ord"],
        embedded=embedded,
        score=score,
        passage=None if body is None else read_passage(body),
        vector=vector,
    )


def _members(clause: Clause) -> tuple[Clause, ...]:
    return clause.clauses if isinstance(clause, Both) else (clause,)


def _where(clause: Clause) -> dict[str, Any] | None:
    """Translates a clause; None stands for everything."""
    translated = _translated(clause, negated=False)
    return translated or None


def _translated(clause: Clause, *, negated: bool) -> dict[str, Any]:
    made: dict[str, Any]
    match clause:
        case AnyOf(field, values) if field == TOKENS:
            tests = [{f"{TOKENS}.{token}": {"$ne" if negated else "$eq": True}} for token in values]
            made = _joined(tests, every=negated)
        case AnyOf(field, values):
            made = {field: {"$nin" if negated else "$in": list(values)}}
        case Compare(field, op, number):
            made = {field: {f"${_OPPOSITE[op] if negated else op}": float(number)}}
        case Neither(inner):
            made = _translated(inner, negated=not negated)
        case Both(clauses) | Either(clauses):
            every = isinstance(clause, Both) is not negated
            made = _joined([_translated(c, negated=negated) for c in clauses], every=every)
        case _:
            assert_never(clause)
    return made


def _joined(tests: list[dict[str, Any]], *, every: bool) -> dict[str, Any]:
    """Joins tests; {} matches everything, and no record has a negative revision."""
    if every:
        tests = [test for test in tests if test]
    elif not tests:
        return {"rev": {"$lt": -1.0}}
    elif not all(tests):
        return {}
    if not tests:
        return {}
    return tests[0] if len(tests) == 1 else {"$and" if every else "$or": tests}
