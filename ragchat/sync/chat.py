"""`ragchat.Preparer` and what it prepares, and `ragchat.verify`, without await."""

from __future__ import annotations

import inspect
import threading
from collections.abc import AsyncIterable, Awaitable, Iterator
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, TypeVar, overload

from ragchat.access import C, Foreign, checked_create
from ragchat.citations import markdown_link
from ragchat.citations import verify as verify_async
from ragchat.errors import EmptyResponse
from ragchat.portal import current_portal
from ragchat.prepare import Preparer as AsyncPreparer
from ragchat.sync.running import run
from ragchat.upstream import checked_stream, close_stream
from ragchat_retrieval.stages import is_async_callable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping
    from types import TracebackType
    from typing import Self, Unpack

    from ragchat.access import Streaming
    from ragchat.augment import Augmenter
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
    from ragchat.gate import Gate
    from ragchat.models import ChatModel
    from ragchat.prepared import PreparedRequest as AsyncPreparedRequest
    from ragchat.prepared import PreparedStream as AsyncPreparedStream
    from ragchat.prepared import Retrieval
    from ragchat.reading import EventReader
    from ragchat.transforms import ConversationTransformer
    from ragchat_retrieval.filters import Filter
    from ragchat_retrieval.foreign import AnyRetriever
    from ragchat_retrieval.lexical import Analyzer
    from ragchat_retrieval.options import FilterLike
    from ragchat_retrieval.policy import Policy
    from ragchat_retrieval.ports import Embedder
    from ragchat_retrieval.trace import StageEvent
    from ragchat_retrieval.values import Passage

T = TypeVar("T")

_END: Final = object()


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

    @property
    def budget(self) -> RequestBudget | None:
        """What later rounds are held to."""
        return self._prepared.budget

    def call_kwargs(self) -> dict[str, Any]:
        """As `ragchat.PreparedRequest.call_kwargs`."""
        return self._prepared.call_kwargs()

    def stream_kwargs(self) -> dict[str, Any]:
        """As `ragchat.PreparedRequest.stream_kwargs`."""
        return self._prepared.stream_kwargs()

    @overload
    def call(self, create: Callable[..., Awaitable[T]]) -> T: ...
    @overload
    def call(self, create: Callable[..., T]) -> T: ...
    def call(self, create: Callable[..., Foreign]) -> Foreign:
        """As `ragchat.PreparedRequest.call`; a sync ``create`` runs in the caller's thread."""
        if is_async_callable(checked_create(create)):
            return run(self._prepared.call(create))
        response = create(**self._prepared.call_kwargs())
        if isinstance(response, Awaitable):
            response = run(response)
        if response is None:
            raise EmptyResponse
        return response

    @overload
    def stream(self, create: Streaming[C]) -> PreparedStream[C]: ...
    @overload
    def stream(self, create: Callable[..., Foreign]) -> PreparedStream[Foreign]: ...
    def stream(self, create: Callable[..., Foreign]) -> PreparedStream[Foreign]:
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
        reader = self.reader(citations=citations, link=link)
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

    def reader(
        self, *, citations: CitationMode = "keep", link: LinkMaker = markdown_link
    ) -> EventReader:
        """As `ragchat.PreparedRequest.reader`."""
        return self._prepared.reader(citations=citations, link=link)

    def with_messages(
        self, extra: Iterable[object], *, shown: Citations | None = None
    ) -> PreparedRequest:
        """As `ragchat.PreparedRequest.with_messages`."""
        return PreparedRequest(self._prepared.with_messages(extra, shown=shown))


class _Closable(Iterator[T]):
    """What a generator gives, until it is closed: by any thread, also while another one waits."""

    def __init__(self) -> None:
        self._left = threading.Event()
        self._reading = threading.Lock()
        self._items: Generator[T, None, None]

    def __next__(self) -> T:
        with self._reading:
            item = next(self._items)
        if self._left.is_set():  # closed meanwhile, by a thread that could not wait for this one
            self.close()
            raise StopIteration
        return item

    def close(self) -> None:
        """Closes the provider's stream; more than once is no error."""
        self._left.set()
        if self._reading.acquire(blocking=False):
            try:
                self._items.close()
            finally:
                self._reading.release()
        else:
            self._interrupt()

    def _interrupt(self) -> None:
        """Ends the wait of another thread for the next item, if that can be."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class PreparedStream(_Closable[C]):
    """The chunks of a streamed answer, unchanged and in order.

    Use it as ``with prepared.stream(create) as chunks: for chunk in chunks: …``. The provider's
    stream is opened at the first chunk and closed once: at its end, at an error, at the exit of
    ``with``, by `close`, or when this object is dropped. A sync stream is read in the caller's
    thread, an async one by a task of its own.

    Another thread may close it. That ends the wait for a chunk at once where the client is async;
    one that is sync is left when it comes out, with that chunk or an error.
    """

    def __init__(self, create: Callable[..., Foreign], prepared: AsyncPreparedRequest) -> None:
        super().__init__()
        self._on_loop: list[AsyncPreparedStream[Foreign]] = []
        chunks = _on_the_loop if is_async_callable(checked_create(create)) else _in_this_thread
        self._items = chunks(create, prepared, self._on_loop)

    @property
    def closed(self) -> bool:
        """Whether the stream has ended, failed or was closed."""
        return self._left.is_set() or inspect.getgeneratorstate(self._items) == inspect.GEN_CLOSED

    def _interrupt(self) -> None:
        for stream in self._on_loop:
            _close_on_the_loop(stream)


class PreparedEvents(_Closable["Event"]):
    """The events of a streamed answer, for ``with`` and ``for``; see `ragchat.events`.

    It lives as `PreparedStream` does.
    """

    def __init__(self, stream: PreparedStream[Foreign], reader: EventReader) -> None:
        super().__init__()
        self._stream = stream
        self._items = _read(stream, reader, self._left)

    def close(self) -> None:
        """Closes the provider's stream; more than once is no error."""
        super().close()
        self._stream.close()


def _read(
    stream: PreparedStream[Foreign], reader: EventReader, left: threading.Event
) -> Generator[Event, None, None]:
    yield from reader.start()
    with stream:
        for chunk in stream:
            yield from reader.feed(chunk)
    if not left.is_set():
        yield from reader.finish()


def _in_this_thread(
    create: Callable[..., Foreign],
    prepared: AsyncPreparedRequest,
    on_loop: list[AsyncPreparedStream[Foreign]],
) -> Generator[Foreign, None, None]:
    """Reads the stream of a sync client."""
    response = create(**prepared.stream_kwargs())
    if isinstance(response, Awaitable | AsyncIterable):
        yield from _on_the_loop(lambda **_: response, prepared, on_loop)
        return
    chunks = response
    try:
        chunks = iter(checked_stream(response))
        for chunk in chunks:  # noqa: UP028 - `yield from` would close it a second time
            yield chunk
    finally:
        if chunks is not response:
            close_stream(chunks)
        close_stream(response)


def _on_the_loop(
    create: Callable[..., Foreign],
    prepared: AsyncPreparedRequest,
    on_loop: list[AsyncPreparedStream[Foreign]],
) -> Generator[Foreign, None, None]:
    """Reads the stream of an async client, which is then in the list."""
    stream = prepared.stream(create)
    on_loop.append(stream)
    try:
        while (chunk := run(anext(stream, _END))) is not _END:
            yield chunk
    finally:
        _close_on_the_loop(stream)


def _close_on_the_loop(stream: AsyncPreparedStream[Foreign]) -> None:
    # The garbage collector may come by on the loop's own thread, or after the loop has ended and
    # closed everything; then the dropped stream closes itself.
    if (door := current_portal()) is not None and not door.is_here:
        door.run(stream.aclose())


class VerifyOptions(TypedDict, total=False):
    """The keyword options of `verify`; see `ragchat.verify` for what they mean."""

    embedder: Embedder | None
    model: ChatModel | ClaimJudge | None
    on_error: Literal["raise", "skip"]
    analyzer: Analyzer


def verify(
    text: str | None, citations: Citations | Mapping[int, Passage], **options: Unpack[VerifyOptions]
) -> Verification:
    """As `ragchat.verify`."""
    return run(verify_async(text, citations, **options))
