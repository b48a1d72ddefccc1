"""Indexes, and what fills and moves them, without await."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

from ragchat.sync.running import run
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.ingest.directory import ingest_directory as ingest_async_directory
from ragchat_retrieval.migration import migrate_index as migrate_async_index
from ragchat_retrieval.migration import swap_indexes as swap_async_indexes
from ragchat_retrieval.opening import open_index as open_async_index

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Mapping, Sequence
    from types import TracebackType
    from typing import Self, Unpack

    from ragchat_retrieval.chunking.documents import DocumentSplitter
    from ragchat_retrieval.description import IndexDescription
    from ragchat_retrieval.index import HybridIndex as AsyncHybridIndex
    from ragchat_retrieval.ingest.directory import SplitterFor
    from ragchat_retrieval.ingest.duplicates import Duplicates
    from ragchat_retrieval.ingest.reading import MetadataFor
    from ragchat_retrieval.ingest.records import OnError
    from ragchat_retrieval.ingest.report import IngestReport
    from ragchat_retrieval.lexical import Analyzer
    from ragchat_retrieval.migration import MigrationReport
    from ragchat_retrieval.options import FilterLike, SearchKeywords
    from ragchat_retrieval.pipeline import RetrievalPipeline, Transformer
    from ragchat_retrieval.ports import Embedder, Expander, Splitter
    from ragchat_retrieval.values import Document, Query, Revision, SearchResult


class HybridIndex:
    """`ragchat.HybridIndex` with blocking methods.

    Args:
        index: The index whose methods are called.
    """

    def __init__(self, index: AsyncHybridIndex) -> None:
        self.index = index

    def ingest(
        self,
        *documents: Document,
        splitter: Splitter | None = None,
        scope: FilterLike = None,
        on_progress: Callable[[float], object] | None = None,
    ) -> IngestReport:
        """As `ragchat.HybridIndex.ingest`."""
        return run(
            self.index.ingest(*documents, splitter=splitter, scope=scope, on_progress=on_progress)
        )

    def replace(self, *revisions: Revision, scope: FilterLike = None) -> IngestReport:
        """As `ragchat.HybridIndex.replace`."""
        return run(self.index.replace(*revisions, scope=scope))

    def remove(
        self,
        ids: Collection[str] | str | None = None,
        *,
        source: str | None = None,
        scope: FilterLike = None,
    ) -> int:
        """As `ragchat.HybridIndex.remove`."""
        return run(self.index.remove(ids, source=source, scope=scope))

    def reset(self) -> None:
        """As `ragchat.HybridIndex.reset`."""
        run(self.index.reset())

    def embed(self, *, on_progress: Callable[[float], object] | None = None) -> int:
        """As `ragchat.HybridIndex.embed`."""
        return run(self.index.embed(on_progress=on_progress))

    def search(self, query: str | Query, **options: Unpack[SearchKeywords]) -> SearchResult:
        """As `ragchat.HybridIndex.search`."""
        return run(self.index.search(query, **options))

    def search_batch(
        self, queries: Sequence[str | Query], **options: Unpack[SearchKeywords]
    ) -> list[SearchResult]:
        """As `ragchat.HybridIndex.search_batch`."""
        return run(self.index.search_batch(queries, **options))

    def retriever(
        self,
        *,
        transformers: Sequence[Transformer] = (),
        expander: Expander | None = None,
        **options: Unpack[SearchKeywords],
    ) -> RetrievalPipeline:
        """As `ragchat.HybridIndex.retriever`; what it returns is for a `Preparer`."""
        return self.index.retriever(transformers=transformers, expander=expander, **options)

    def corpus(self, name: str | Sequence[str]) -> HybridIndex:
        """As `ragchat.HybridIndex.corpus`."""
        return HybridIndex(self.index.corpus(name))

    def describe(self, *, scope: FilterLike = None) -> IndexDescription:
        """As `ragchat.HybridIndex.describe`."""
        return run(self.index.describe(scope=scope))

    def document_ids(self, *, scope: FilterLike = None) -> Sequence[str]:
        """As `ragchat.HybridIndex.document_ids`."""
        return run(self.index.document_ids(scope=scope))

    def close(self) -> None:
        """Releases what the store holds; closing twice is no error."""
        run(self.index.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def open_index(
    url: str | os.PathLike[str],
    *,
    corpus: str = "default",
    embedder: Embedder | Literal["env"] | None = "env",
    splitter: Splitter | None = None,
    analyzer: Analyzer | None = None,
    read_only: bool = False,
) -> HybridIndex:
    """As `ragchat.open_index`: opens at once; use it with ``with``, or ``close()`` it."""
    opening = open_async_index(
        url,
        corpus=corpus,
        embedder=embedder,
        splitter=splitter,
        analyzer=analyzer,
        read_only=read_only,
    )
    return HybridIndex(run(opening))


class DirectoryOptions(TypedDict, total=False):
    """The keyword options of `ingest_directory`; see the async one for what they mean."""

    root: str | None
    glob: str | Sequence[str]
    exclude: str | Sequence[str]
    follow_gitignore: bool
    max_bytes: int
    max_files: int
    batch: int
    splitter_for: SplitterFor | None
    documents: DocumentSplitter | None
    metadata: Mapping[str, Any] | MetadataFor | None
    duplicates: Duplicates | Literal["report", "drop", "group"] | None
    scope: FilterLike
    remove_vanished: bool
    emptied: bool
    moved: bool
    known_as: str | None
    on_error: OnError
    on_progress: Callable[[float], object] | None


def ingest_directory(
    index: HybridIndex, path: str | os.PathLike[str], **options: Unpack[DirectoryOptions]
) -> IngestReport:
    """As `ragchat.ingest_directory`."""
    return run(ingest_async_directory(_within(index), path, **options))


class MigrationOptions(TypedDict, total=False):
    """The keyword options of `migrate_index`; see the async one for what they mean."""

    batch: int
    on_progress: Callable[[float], object] | None
    verify: bool
    prune: bool


def migrate_index(
    old: HybridIndex, new: HybridIndex, **options: Unpack[MigrationOptions]
) -> MigrationReport:
    """As `ragchat.migrate_index`."""
    return run(migrate_async_index(_within(old), _within(new), **options))


def swap_indexes(live: HybridIndex, built: HybridIndex, *, expected: int | None = None) -> None:
    """As `ragchat.swap_indexes`."""
    run(swap_async_indexes(_within(live), _within(built), expected=expected))


def _within(index: HybridIndex) -> AsyncHybridIndex:
    """Returns the index whose methods block.

    Raises:
        InvalidSetting: It is another index, or none.
    """
    if not isinstance(index, HybridIndex):
        raise InvalidSetting("index", "must be one of ragchat.sync, as sync.open_index gives")
    return index.index
