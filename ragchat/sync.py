"""The blocking face: the classes that do I/O, with methods that return results.

Everything runs on one background event loop per process, so it works in scripts, in notebooks
beside a running loop, in threads, and in servers that fork. Context variables are carried in, and
Ctrl-C stops the work. Callbacks such as `on_progress` are called in the background thread.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, Awaitable, Iterator
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, TypeVar

from ragchat.access import Foreign
from ragchat.citations import markdown_link
from ragchat.citations import verify as verify_async
from ragchat.errors import EmptyResponse
from ragchat.portal import current_portal, portal
from ragchat.prepare import Preparer as AsyncPreparer
from ragchat.upstream import checked_stream, close_stream
from ragchat_retrieval.ingest.directory import ingest_directory as ingest_async_directory
from ragchat_retrieval.migration import migrate_index as migrate_async_index
from ragchat_retrieval.migration import swap_indexes as swap_async_indexes
from ragchat_retrieval.opening import open_index as open_async_index
from ragchat_retrieval.stages import is_async_callable

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
    from types import TracebackType
    from typing import Self, Unpack

    from ragchat.budget import RequestBudget
    from ragchat.citations import (
        CitationLedger,
        CitationMode,
        Citations,
        ClaimJudge,
        LinkMaker,
        Verification,
    )
    from ragchat.events import Answers, Event
    from ragchat.models import ChatModel
    from ragchat.prepare import Augmenter, Gate
    from ragchat.prepared import PreparedRequest as AsyncPreparedRequest
    from ragchat.prepared import Retrieval
    from ragchat.reading import EventReader
    from ragchat.transforms import ConversationTransformer
    from ragchat_retrieval.chunking.documents import DocumentSplitter
    from ragchat_retrieval.description import IndexDescription
    from ragchat_retrieval.filters import Filter
    from ragchat_retrieval.foreign import AnyRetriever
    from ragchat_retrieval.index import HybridIndex as AsyncHybridIndex
    from ragchat_retrieval.ingest.directory import SplitterFor
    from ragchat_retrieval.ingest.duplicates import Duplicates
    from ragchat_retrieval.ingest.reading import MetadataFor
    from ragchat_retrieval.ingest.records import OnError
    from ragchat_retrieval.ingest.report import IngestReport
    from ragchat_retrieval.lexical import Analyzer
    from ragchat_retrieval.migration import MigrationReport
    from ragchat_retrieval.options import FilterLike, SearchKeywords
    from ragchat_retrieval.pipeline import Expander, RetrievalPipeline, Transformer
    from ragchat_retrieval.policy import Policy
    from ragchat_retrieval.ports import Embedder, Splitter
    from ragchat_retrieval.trace import StageEvent
    from ragchat_retrieval.values import Document, Passage, Query, Revision, SearchResult

__all__ = [
    "HybridIndex",
    "PreparedEvents",
    "PreparedRequest",
    "PreparedStream",
    "Preparer",
    "ingest_directory",
    "migrate_index",
    "open_index",
    "run",
    "swap_indexes",
    "verify",
]

T = TypeVar("T")

_END: Final = object()


def run(work: Awaitable[T]) -> T:
    """Runs anything awaitable on the background loop and returns its result.

    Raises:
        RuntimeError: Called on the background loop itself, which cannot wait for itself.
        BaseException: What the work raised.
    """
    door = portal()
    if door.is_here:
        if inspect.iscoroutine(work):
            work.close()
        raise RuntimeError("ragchat.sync was called from ragchat's own event loop; await instead")
    return door.run(work)


class PreparerOptions(TypedDict, total=False):
    """The keyword options of `Preparer`; see `ragchat.Preparer` for what they mean."""

    augmenter: Augmenter
    query_transformer: ConversationTransformer | None
    speculative: bool
    gate: Gate | None
    policy: Policy
    scope: Filter
    filter: Filter
    top_k: int | None
    budget: RequestBudget | None
    ledger: CitationLedger | None
    readmit: int
    on_stage: Callable[[StageEvent], object] | None


class RequestOptions(TypedDict, total=False):
    """The options of one request; see `ragchat.Preparer.with_options`."""

    scope: FilterLike
    filter: FilterLike
    top_k: int | None
    budget: RequestBudget | None
    ledger: CitationLedger | None
    deadline: float | None
    on_stage: Callable[[StageEvent], object] | None


class Preparer:
    """`ragchat.Preparer` with a blocking `prepare`. Its stages may be sync or async.

    Attributes:
        preparer: The async one behind it.
    """

    def __init__(self, retriever: AnyRetriever, **options: Unpack[PreparerOptions]) -> None:
        self.preparer = AsyncPreparer(retriever, **options)

    def prepare(self, request: object = None, /, **params: Any) -> PreparedRequest:
        """As `ragchat.Preparer.prepare`."""
        return PreparedRequest(run(self.preparer.prepare(request, **params)))

    def with_options(self, **options: Unpack[RequestOptions]) -> Preparer:
        """As `ragchat.Preparer.with_options`."""
        made = Preparer.__new__(Preparer)
        made.preparer = self.preparer.with_options(**options)
        return made


class PreparedRequest:
    """`ragchat.PreparedRequest` with blocking methods; ``create`` may be sync or async."""

    def __init__(self, prepared: AsyncPreparedRequest) -> None:
        self._prepared = prepared

    @property
    def request(self) -> dict[str, Any]:
        """The keyword arguments for ``create``, copied anew each time."""
        return self._prepared.request

    @property
    def responses_request(self) -> dict[str, Any]:
        """As `ragchat.PreparedRequest.responses_request`."""
        return self._prepared.responses_request

    @property
    def question(self) -> str:
        """The user's own words."""
        return self._prepared.question

    @property
    def retrieval(self) -> Retrieval:
        """Candidates, citations, queries, degradations and trace."""
        return self._prepared.retrieval

    def call(self, create: Callable[..., Foreign]) -> Foreign:
        """As `ragchat.PreparedRequest.call`; a sync ``create`` runs in the caller's thread."""
        if is_async_callable(create):
            return run(self._prepared.call(create))
        response = create(**self._prepared.call_kwargs())
        if isinstance(response, Awaitable):
            response = run(response)
        if response is None:
            raise EmptyResponse
        return response

    def stream(self, create: Callable[..., Foreign]) -> PreparedStream:
        """As `ragchat.PreparedRequest.stream`, for ``with`` and ``for``."""
        return PreparedStream(create, self._prepared)

    def events(
        self,
        create: Callable[..., Foreign],
        *,
        citations: CitationMode = "keep",
        link: LinkMaker = markdown_link,
    ) -> PreparedEvents:
        """As `ragchat.PreparedRequest.events`, for ``with`` and ``for``."""
        reader = self._prepared.reader(citations=citations, link=link)
        return PreparedEvents(self.stream(create), reader)

    def answers(
        self,
        response: Foreign,
        *,
        citations: CitationMode = "keep",
        link: LinkMaker = markdown_link,
    ) -> Answers:
        """As `ragchat.PreparedRequest.answers`."""
        return self._prepared.answers(response, citations=citations, link=link)

    def with_messages(self, extra: Iterable[object]) -> PreparedRequest:
        """As `ragchat.PreparedRequest.with_messages`."""
        return PreparedRequest(self._prepared.with_messages(extra))


class PreparedStream(Iterator[Foreign]):
    """The chunks of a streamed answer, unchanged and in order.

    Use it as ``with prepared.stream(create) as chunks: for chunk in chunks: …``. The provider's
    stream is opened at the first chunk and closed once: at its end, at an error, at the exit of
    ``with``, by `close`, or when this object is dropped. A sync stream is read in the caller's
    thread, an async one by a task of its own.
    """

    def __init__(self, create: Callable[..., Foreign], prepared: AsyncPreparedRequest) -> None:
        chunks = _on_the_loop if is_async_callable(create) else _in_this_thread
        self._chunks = chunks(create, prepared)

    def __next__(self) -> Foreign:
        return next(self._chunks)

    def close(self) -> None:
        """Closes the provider's stream; more than once is no error."""
        self._chunks.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class PreparedEvents(Iterator["Event"]):
    """The events of a streamed answer, for ``with`` and ``for``; see `ragchat.events`.

    It lives as `PreparedStream` does.
    """

    def __init__(self, stream: PreparedStream, reader: EventReader) -> None:
        self._stream = stream
        self._events = _read(stream, reader)

    def __next__(self) -> Event:
        return next(self._events)

    def close(self) -> None:
        """Closes the provider's stream; more than once is no error."""
        self._events.close()
        self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _read(stream: PreparedStream, reader: EventReader) -> Generator[Event, None, None]:
    yield from reader.start()
    with stream:
        for chunk in stream:
            yield from reader.feed(chunk)
    yield from reader.finish()


def _in_this_thread(
    create: Callable[..., Foreign], prepared: AsyncPreparedRequest
) -> Generator[Foreign, None, None]:
    """Reads the stream of a sync client."""
    response = create(**prepared.stream_kwargs())
    if isinstance(response, Awaitable | AsyncIterable):
        yield from _on_the_loop(lambda **_: response, prepared)
        return
    chunks = iter(checked_stream(response))
    try:
        for chunk in chunks:  # noqa: UP028 - `yield from` would close it a second time
            yield chunk
    finally:
        if chunks is not response:
            close_stream(chunks)
        close_stream(response)


def _on_the_loop(
    create: Callable[..., Foreign], prepared: AsyncPreparedRequest
) -> Generator[Foreign, None, None]:
    """Reads the stream of an async client."""
    stream = prepared.stream(create)
    try:
        while (chunk := run(anext(stream, _END))) is not _END:
            yield chunk
    finally:
        # The garbage collector may come by on the loop's own thread, or after the loop has ended
        # and closed everything; then the dropped stream closes itself.
        if (door := current_portal()) is not None and not door.is_here:
            door.run(stream.aclose())


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
    read_only: bool = False,
) -> HybridIndex:
    """As `ragchat.open_index`: opens at once; use it with ``with``, or ``close()`` it."""
    opening = open_async_index(
        url, corpus=corpus, embedder=embedder, splitter=splitter, read_only=read_only
    )
    return HybridIndex(run(opening))


class VerifyOptions(TypedDict, total=False):
    """The keyword options of `verify`; see `ragchat.verify` for what they mean."""

    embedder: Embedder | None
    model: ChatModel | ClaimJudge | None
    on_error: Literal["raise", "skip"]
    analyzer: Analyzer


def verify(
    text: str, citations: Citations | Mapping[int, Passage], **options: Unpack[VerifyOptions]
) -> Verification:
    """As `ragchat.verify`."""
    return run(verify_async(text, citations, **options))


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
    moved: bool
    known_as: str | None
    on_error: OnError
    on_progress: Callable[[float], object] | None


def ingest_directory(
    index: HybridIndex, path: str | os.PathLike[str], **options: Unpack[DirectoryOptions]
) -> IngestReport:
    """As `ragchat.ingest_directory`."""
    return run(ingest_async_directory(index.index, path, **options))


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
    return run(migrate_async_index(old.index, new.index, **options))


def swap_indexes(live: HybridIndex, built: HybridIndex, *, expected: int | None = None) -> None:
    """As `ragchat.swap_indexes`."""
    run(swap_async_indexes(live.index, built.index, expected=expected))
