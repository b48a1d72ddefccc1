"""The hybrid index: documents in, ranked passages out.

`HybridIndex` joins a store, an embedder, an analyser and a splitter. What it takes over from the
corpus is in `adopting`, the making of revisions in `revisions`, searching in `searching`, which
leads on to `lanes` and `ranking`.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from ragchat_retrieval.adopting import Adopting
from ragchat_retrieval.description import IndexDescription, described
from ragchat_retrieval.errors import (
    IdentityMismatch,
    InvalidSetting,
    ResetUnsupported,
)
from ragchat_retrieval.filling import fill_vectors
from ragchat_retrieval.filters import Filter
from ragchat_retrieval.fusion import Weighted
from ragchat_retrieval.identity import check_identity
from ragchat_retrieval.ingest.report import IngestReport, named
from ragchat_retrieval.ingest.scope import check_scope
from ragchat_retrieval.kinds import check_fusion, check_splitter
from ragchat_retrieval.options import SearchOptions
from ragchat_retrieval.policy import started
from ragchat_retrieval.ports import Identity
from ragchat_retrieval.revisions import (
    changed,
    check_distinct,
    completed,
    default_splitter,
    revise,
)
from ragchat_retrieval.searching import Searcher, searched
from ragchat_retrieval.stages import check_listener
from ragchat_retrieval.stores.joined import JoinedStore
from ragchat_retrieval.stores.memory import MemoryStore
from ragchat_retrieval.values import Query, Revision, SearchResult

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from types import TracebackType
    from typing import Self, Unpack

    from ragchat_retrieval.fusion import Fusion
    from ragchat_retrieval.lexical import Analyzer
    from ragchat_retrieval.options import FilterLike, SearchKeywords
    from ragchat_retrieval.pipeline import RetrievalPipeline, Transformer
    from ragchat_retrieval.ports import Embedder, Expander, Splitter, Store
    from ragchat_retrieval.values import Document


class HybridIndex(Adopting):
    """Hybrid search over one corpus of a store. Safe for concurrent tasks.

    Args:
        store: Where everything is kept; None is a new `MemoryStore`.
        embedder: Gives vectors; None searches by keywords alone.
        splitter: Cuts documents; None is a `TextSplitter` with the profile recommended for the
            embedder.
        analyzer: The lexical analysis; part of the corpus's identity. None takes what the corpus
            was written with, if that is one of ours, and English for a new one.
        successor: An embedder that changes places with `embedder` as soon as the corpus turns out
            to be written with it, so that a running process follows a swap of corpora.
        identity: Replaces the derived identity (embedding model, dimension, analyser).
        fusion: How the lanes are merged.

    Raises:
        InvalidIndexIdentity: `identity` is blank.
        InvalidSetting: A part is of another kind than it must be.
    """

    def __init__(
        self,
        store: Store | None = None,
        *,
        embedder: Embedder | None = None,
        splitter: Splitter | None = None,
        analyzer: Analyzer | None = None,
        successor: Embedder | None = None,
        identity: str | None = None,
        fusion: Fusion | None = None,
    ) -> None:
        super().__init__(
            MemoryStore() if store is None else store,
            embedder=embedder,
            analyzer=analyzer,
            successor=successor,
            identity=identity,
        )
        if splitter is not None:
            check_splitter("splitter", splitter)
        if fusion is not None:
            check_fusion("fusion", fusion)
        self.splitter: Splitter = splitter or default_splitter(embedder)
        self.fusion: Fusion = fusion or Weighted(keyword=0.3)

    # Writing

    async def ingest(
        self,
        *documents: Document,
        splitter: Splitter | None = None,
        scope: FilterLike = None,
        on_progress: Callable[[float], object] | None = None,
    ) -> IngestReport:
        """Writes documents, all or nothing; each replaces its earlier revision.

        Unchanged documents are skipped. A document that gives no passages is removed.

        Args:
            *documents: Complete revisions with distinct ids.
            splitter: Cuts these documents; None takes the index's own.
            scope: New documents must match it and documents outside it may not be replaced.
            on_progress: Hears floats 0 … 1, never falling, 1.0 last.

        Raises:
            InvalidSetting: `splitter` is none, or `on_progress` is async.
            InvalidDocument: One is no `Document`.
            DuplicateDocumentID: One id occurs twice.
            InvalidText: NUL or a lone surrogate in a field.
            IdentityMismatch: The corpus was written with other settings.
            ScopeViolation: A document lies outside `scope`, changed or not.
            EmbeddingError: The embedder failed; nothing was written.
        """
        if splitter is not None:
            check_splitter("splitter", splitter)
        check_listener("on_progress", on_progress)
        tell = on_progress or _ignore
        tell(0.0)
        cutter = splitter or self.splitter
        bounds = Filter.of(scope)
        check_distinct(documents, store=self.store.name)
        stored = await self._adopted()
        await self._learn()
        check_identity(stored, self.identity, store=self.store.name, writing=True)
        known = await self.store.hashes([d.id for d in documents], scope=Filter())
        await check_scope(self.store, documents, known, bounds)
        fresh = await asyncio.to_thread(changed, documents, known, cutter.name)
        made = await revise(
            fresh, splitter=cutter, analyzer=self.analyzer, embedder=self.embedder, on_progress=tell
        )
        if made.revisions:
            await self.store.replace(made.revisions, identity=self.identity, scope=bounds)
        tell(1.0)
        return replace(
            IngestReport.of(made.revisions),
            skipped=len(documents) - len(fresh),
            deleted=sum(not r.passages and r.document.id in known for r in made.revisions),
            blank=sum(not revision.passages for revision in made.revisions),
            too_long=len(made.too_long),
            too_long_in=named(made.too_long),
        )

    async def replace(self, *revisions: Revision, scope: FilterLike = None) -> IngestReport:
        """Writes ready-made revisions, all or nothing: the way in for given passages and vectors.

        Args:
            *revisions: Terms and fingerprints may be left out and are filled in; vectors that are
                not of length 1 are scaled to it.
            scope: As for `ingest`.

        Raises:
            InvalidDocument: A passage, its title and its headings are all blank; its text is not
                what its span of the document holds; page, lines or ordinal are no whole numbers in
                their range; or given terms are no texts with counts of 1 or more.
            InvalidVector: A vector is non-finite, zero or wrongly sized.
            StoreError: As for `ingest`.
        """
        await self._adopted()
        await self._learn()
        filled = await asyncio.to_thread(completed, revisions, self.analyzer)
        identity = self.identity
        if identity.model is None:
            given = next((r.vectors for r in revisions if r.vectors is not None), None)
            if given is not None:
                name = self._identity_name or "given"
                identity = replace(identity, model=name, dimension=int(given.shape[-1]))
        await self.store.replace(filled, identity=identity, scope=Filter.of(scope))
        return IngestReport.of(filled)

    async def remove(
        self,
        ids: Collection[str] | str | None = None,
        *,
        source: str | None = None,
        scope: FilterLike = None,
    ) -> int:
        """Removes documents by id or by source and returns how many there were.

        Raises:
            InvalidSetting: Neither or both were given.
        """
        if (ids is None) == (source is None):
            raise InvalidSetting("remove", "takes either ids or source")
        bounds = Filter.of(scope)
        if source is not None:
            return await self.store.delete_by_source(source, scope=bounds)
        return await self.store.delete([ids] if isinstance(ids, str) else ids or (), scope=bounds)

    async def reset(self) -> None:
        """Removes everything from the corpus, its identity included.

        Raises:
            ResetUnsupported: The store cannot.
        """
        if not self.store.capabilities.reset:
            raise ResetUnsupported(store=self.store.name)
        await self.store.reset()

    async def embed(self, *, on_progress: Callable[[float], object] | None = None) -> int:
        """Gives vectors to passages that have none; returns how many it gave.

        Turns a keyword-only corpus into a hybrid one without reading its sources again. It writes a
        few documents at a time, so that a stopped run goes on where it was.

        Raises:
            InvalidSetting: The index has no embedder, or `on_progress` is async.
            IdentityMismatch: The corpus has vectors of another model.
            EmbeddingError: The embedder failed. Where it is a document's fault, which is then
                named, the others have got their vectors.
        """
        if self.embedder is None:
            raise InvalidSetting("embedder", "is needed to embed")
        check_listener("on_progress", on_progress)
        tell = on_progress or _ignore
        stored = await self._adopted()
        await self._learn()
        if stored is not None and stored.model is not None and stored != self.identity:
            raise IdentityMismatch(str(stored), str(self.identity), store=self.store.name)
        return await fill_vectors(
            self.store, self.embedder, self.analyzer, self.identity, on_progress=tell
        )

    # Searching

    async def search(self, query: str | Query, **options: Unpack[SearchKeywords]) -> SearchResult:
        """Searches both lanes and merges them.

        Args:
            query: The question; a blank one finds nothing.
            **options: See `SearchOptions`.

        Raises:
            InvalidQuery: The question is neither a string nor a `Query`.
            IdentityMismatch: The corpus was written with other settings.
            ScopeViolation: The store broke filter or scope; the result is withheld.
            Exception: What a lane raised, as it came (a search on its own does not skip stages).
        """
        return (await self.search_batch([query], **options))[0]

    async def search_batch(
        self, queries: Sequence[str | Query], **options: Unpack[SearchKeywords]
    ) -> list[SearchResult]:
        """Searches several questions; all texts are embedded in one call.

        Args:
            queries: In order; a blank one's row is empty and is never embedded.
            **options: See `SearchOptions`.

        Returns:
            A result per question. If any fails, nothing is returned.

        Raises:
            InvalidSetting: `queries` is one string.
            Exception: As for `search`.
        """
        if isinstance(queries, str):
            raise InvalidSetting("queries", "must be a sequence of questions, not one string")
        base = SearchOptions.of(**options)
        run = started(base.policy)
        asked = [base.asked(query) for query in queries]
        live = [query for query in asked if query is not None]
        found = iter(await searched(self.searcher, live, base, run, self.store.corpus_name))
        rows = [(query, () if query is None else next(found)) for query in asked]
        degraded, trace = tuple(run.record.degraded), run.record.trace()
        return [
            SearchResult(f, queries=() if q is None else (q,), degraded=degraded, trace=trace)
            for q, f in rows
        ]

    def retriever(
        self,
        *,
        transformers: Sequence[Transformer] = (),
        expander: Expander | None = None,
        **options: Unpack[SearchKeywords],
    ) -> RetrievalPipeline:
        """Returns this index as a retriever with the stages around it; see `RetrievalPipeline`."""
        from ragchat_retrieval.pipeline import RetrievalPipeline  # noqa: PLC0415 - it imports us

        return RetrievalPipeline(self, transformers=transformers, expander=expander, **options)

    # Looking after

    @property
    def identity(self) -> Identity:
        """What this index writes: embedding model, dimension and analyser, or the given name."""
        named = self._identity_name
        if self.embedder is None:
            return Identity(analyzer=named or self.analyzer.name)
        return Identity(
            analyzer=named or self.analyzer.name,
            model=named or self.embedder.model,
            dimension=self.embedder.dimension or None,  # None until a served model has told it
        )

    def corpus(self, name: str | Sequence[str]) -> HybridIndex:
        """Returns a cheap handle on another corpus of the same store, with the same settings.

        Args:
            name: The corpus; or several, which the handle searches as one and does not write. Their
                passages tell their `Passage.corpus`, and ids begin with it. All must have been
                written with one identity; those without vectors add their keywords, and what is
                searched by meaning names them as `degraded`.

        Raises:
            InvalidSetting: A name cannot be one, there is none, or one occurs twice.
        """
        if isinstance(name, str):
            store = self.store.corpus(name)
        else:
            store = JoinedStore([self.store.corpus(each) for each in name])
        return HybridIndex(
            store,
            embedder=self.embedder,
            splitter=self.splitter,
            analyzer=self._given_analyzer,
            successor=self.successor,
            identity=self._identity_name,
            fusion=self.fusion,
        )

    async def describe(self, *, scope: FilterLike = None) -> IndexDescription:
        """Returns what the index is and holds, with the limits worth knowing."""
        counts = await self.store.count(scope=Filter.of(scope))
        stored = await self._adopted()
        return described(self.store, counts, stored, self.embedder, self.splitter)

    async def revision(self) -> int:
        """Returns a counter that every write of the corpus raises, in whichever process."""
        return await self.store.revision()

    async def document_ids(self, *, scope: FilterLike = None) -> Sequence[str]:
        """Returns all document ids in ascending order."""
        return await self.store.document_ids(scope=Filter.of(scope))

    async def aclose(self) -> None:
        """Closes the store; an embedder that was passed in stays the caller's."""
        await self.store.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    # Inside

    async def searcher(self) -> Searcher:
        """Returns what searches this corpus with these settings."""
        told = await self._told()
        return Searcher(
            store=self.store,
            stored=told.identity,
            keyword_only=told.keyword_only,
            identity=self.identity,
            analyzer=self.analyzer,
            embedder=self.embedder,
            fusion=self.fusion,
        )


def _ignore(share: float) -> None:
    del share
