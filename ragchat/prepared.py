"""A prepared request: send it with ``call`` or ``stream``, as often as you like."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar, overload

from ragchat.access import C, checked_create
from ragchat.citations import CitationLedger, Citations, markdown_link
from ragchat.errors import EmptyResponse
from ragchat.events import Sources, fold
from ragchat.reading import EventReader
from ragchat.responses import responses_kwargs
from ragchat.upstream import StreamOwner
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.stages import call_stage
from ragchat_retrieval.trace import Trace

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
    from types import TracebackType
    from typing import Self

    from ragchat.access import Foreign, Streaming
    from ragchat.budget import Allowance, RequestBudget
    from ragchat.citations import CitationMode, LinkMaker
    from ragchat.events import Answers, Event
    from ragchat.request import ChatRequest
    from ragchat_retrieval.trace import Degradation
    from ragchat_retrieval.values import Candidate, Query

T = TypeVar("T")

Skipped: TypeAlias = Literal["gate", "transform", "no text"]
"""What decided that a turn needs no retrieval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieval:
    """What one preparation retrieved, and how."""

    candidates: tuple[Candidate, ...] = ()
    """Everything retrieved, best first; `citations` are those that the prompt presents."""

    citations: Citations = field(default_factory=Citations)
    """The passages presented to the model, by number."""

    budget: Allowance | None = None
    """How the request divides the model's window, and what was trimmed for it; None without a
    budget. After `PreparedRequest.with_messages`, its evidence is among the messages."""

    ledger: CitationLedger | None = None
    """The conversation's ledger after this prompt, for the next turn; None without one."""

    queries: tuple[Query, ...] = ()
    """The queries that were searched, the main one first."""

    degraded: tuple[Degradation, ...] = ()
    """Stages that were left out because they failed."""

    skipped: Skipped | None = None
    """What decided against retrieval; None if there was one."""

    trace: Trace = field(default_factory=Trace, compare=False)
    """Timings, counts and notes."""


@dataclass(frozen=True, slots=True, eq=False)
class PreparedRequest:
    """A chat request with its evidence written in. Immutable; nothing here retrieves again.

    ``create`` is ``client.chat.completions.create`` or any function with its keyword signature,
    async or sync. Its errors arrive as they are, and it is never retried here.
    """

    _request: ChatRequest = field(repr=False)

    question: str
    """The user's own words."""

    retrieval: Retrieval
    """Candidates, citations, queries, degradations and trace."""

    budget: RequestBudget | None = field(default=None, repr=False, kw_only=True)
    """What later rounds are held to, as the prompt was; None holds them to nothing."""

    @property
    def request(self) -> dict[str, Any]:
        """The keyword arguments for ``create``, copied anew each time."""
        return self._request.kwargs()

    @property
    def responses_request(self) -> dict[str, Any]:
        """The keyword arguments for ``client.responses.create``: the same request in its words.

        System messages become developer messages, the response is not stored unless the request
        says ``store=True``, and citations are those of any other answer.

        Raises:
            InvalidRequest: The Responses API cannot say something of it, such as ``stop``.
        """
        return responses_kwargs(self._request.kwargs())

    @overload
    async def call(self, create: Callable[..., Awaitable[T]]) -> T: ...
    @overload
    async def call(self, create: Callable[..., T]) -> T: ...
    async def call(self, create: Callable[..., Foreign]) -> Foreign:
        """Makes the answer call, without ``stream``, and returns the provider's object as it came.

        Raises:
            EmptyResponse: ``create`` returned None.
            InvalidSetting: ``create`` is no function, such as a client in its place.
        """
        response = await call_stage(checked_create(create), **self.call_kwargs())
        if response is None:
            raise EmptyResponse
        return response

    @overload
    def stream(self, create: Streaming[C]) -> PreparedStream[C]: ...
    @overload
    def stream(self, create: Callable[..., Foreign]) -> PreparedStream[Foreign]: ...
    def stream(self, create: Callable[..., Foreign]) -> PreparedStream[Foreign]:
        """Returns the streamed answer; nothing is sent before the first chunk is asked for.

        Raises:
            InvalidSetting: ``create`` is no function, such as a client in its place.
        """
        return PreparedStream(create, self)

    def events(
        self,
        create: Callable[..., Foreign],
        *,
        citations: CitationMode = "keep",
        link: LinkMaker = markdown_link,
    ) -> PreparedEvents:
        """Returns the streamed answer as typed events; nothing is sent before the second is due.

        Args:
            create: As for `stream`. Usage comes if the request's ``stream_options`` ask for it.
            citations: What becomes of the markers in the text; see `CitationStream`.
            link: Writes the link of one number, with ``citations="link"``.

        Raises:
            InvalidSetting: There is no such mode, or ``create`` is no function.
        """
        reader = self.reader(citations=citations, link=link)
        return PreparedEvents(self.stream(create), reader)

    def answers(
        self,
        response: Foreign,
        *,
        citations: CitationMode = "keep",
        link: LinkMaker = markdown_link,
    ) -> Answers:
        """Reads what `call` returned: the same that the events of a stream fold to.

        Args:
            response: The provider's object, or a mapping of its shape.
            citations: What becomes of the markers in the text; see `CitationStream`.
            link: Writes the link of one number, with ``citations="link"``.

        Raises:
            EmptyResponse: There is no response.
            FailedResponse: It is an error that the server told in place of an answer.
            InvalidSetting: There is no such mode, or `response` is no completion, such as a text or
                a stream.
        """
        if not (response is None or isinstance(response, Mapping) or hasattr(response, "choices")):
            problem = f"must be the client's completion, not a {type(response).__name__}"
            raise InvalidSetting("response", f"{problem}; retrieval.citations reads a text")
        reader = self.reader(citations=citations, link=link)
        return fold([*reader.start(), *reader.feed(response), *reader.finish()])

    def reader(
        self, *, citations: CitationMode = "keep", link: LinkMaker = markdown_link
    ) -> EventReader:
        """Returns what reads chunks, however they are got, into events; see `EventReader`."""
        sources = Sources(
            retrieved=self.retrieval.candidates,
            presented=self.retrieval.citations,
            degraded=self.retrieval.degraded,
            skipped=self.retrieval.skipped,
        )
        return EventReader(sources, citations=citations, link=link)

    def with_messages(
        self, extra: Iterable[object], *, shown: Citations | None = None
    ) -> PreparedRequest:
        """Returns a copy with messages appended after the augmented one: rounds of tool calls.

        Evidence and question stay as they are. With a budget, the whole is counted anew: where the
        budget may trim, as few of the oldest turns as have to go are left out, and
        ``retrieval.budget`` says what is taken and what is left.

        Args:
            extra: The messages.
            shown: Passages by number that they present, such as `RagTools.citations`: from now on
                an answer may cite them beside those of the prompt.

        Raises:
            InvalidRequest: `extra` is no sequence of messages.
            InvalidCitations: A number of `shown` stands for another passage in the prompt.
            WindowExceeded: The request with them does not fit the window.
            InvalidContextBudget: The budget has no rule for a part of them.
        """
        longer, retrieval = self._request.with_messages(extra), self.retrieval
        if shown is not None:
            retrieval = replace(retrieval, citations=retrieval.citations.joined(shown))
        if self.budget is not None:
            longer, allowance = self.budget.held(longer)
            retrieval = replace(retrieval, budget=allowance.after(retrieval.budget))
        return replace(self, _request=longer, retrieval=retrieval)

    def call_kwargs(self) -> dict[str, Any]:
        """Returns the keyword arguments of a call that is not streamed."""
        kwargs = self._request.kwargs()
        for name in ("stream", "stream_options"):
            kwargs.pop(name, None)
        return kwargs

    def stream_kwargs(self) -> dict[str, Any]:
        """Returns the keyword arguments of a streamed call."""
        return {**self._request.kwargs(), "stream": True}


class PreparedStream(Generic[C]):
    """The chunks of a streamed answer, unchanged and in order.

    Use it as ``async with prepared.stream(create) as chunks: async for chunk in chunks: …``. The
    provider's stream is opened at the first chunk and closed once: when it ends or fails, when the
    task is cancelled, at the exit of ``async with``, by `aclose`, or when this object is dropped. A
    stream can be iterated once; after it is closed, iteration ends at once.

    Raises:
        EmptyResponse: At the first chunk: ``create`` returned no stream.
        RuntimeError: Two tasks asked for a chunk at the same time, or one on another event loop
            than the first.
    """

    def __init__(self, create: Callable[..., Foreign], prepared: PreparedRequest) -> None:
        self._create = checked_create(create)
        self._prepared = prepared
        self._owner: StreamOwner | None = None
        self._closed = False

    def __aiter__(self) -> AsyncIterator[C]:
        return self

    @property
    def closed(self) -> bool:
        """Whether the stream has ended, failed or was closed."""
        return self._closed

    async def __anext__(self) -> C:
        if self._closed:
            raise StopAsyncIteration
        if self._owner is None:
            self._owner = StreamOwner(self._create, self._prepared.stream_kwargs())
        if not self._owner.is_here:  # one that has ended took the rest of the answer with it
            raise RuntimeError("a stream is read on the event loop on which it was opened")
        if self._owner.busy:
            raise RuntimeError("another task is waiting for this stream's next chunk")
        try:
            chunk: C = await self._owner.next()
        except BaseException:
            self._closed = True
            await self._owner.stop()
            raise
        return chunk

    async def aclose(self) -> None:
        """Closes the provider's stream; more than once is no error."""
        self._closed = True
        if self._owner is not None:
            await self._owner.stop()
            self._owner.raise_close_error()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closed = True
        if self._owner is not None:
            await self._owner.stop()
            if error is None:
                self._owner.raise_close_error()

    def __del__(self) -> None:
        owner = getattr(self, "_owner", None)
        if owner is not None:
            owner.abandon()


class PreparedEvents:
    """The events of a streamed answer; see `ragchat.events`.

    It lives as `PreparedStream` does: use it with ``async with`` and ``async for``; the provider's
    stream is opened after `Sources` and closed once, whatever happens.

    Raises:
        EmptyResponse: ``create`` returned no stream, or a stream without a chunk.
        FailedResponse: The server told an error in place of a chunk, and ``create`` handed it on.
        RuntimeError: Two tasks asked for an event at the same time.
    """

    def __init__(self, stream: PreparedStream[Foreign], reader: EventReader) -> None:
        self._stream = stream
        self._reader = reader
        self._ready: deque[Event] = deque(reader.start())
        self._ended = False

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        while not self._ready:
            if self._ended:
                raise StopAsyncIteration
            self._ready.extend(await self._more())
        return self._ready.popleft()

    async def aclose(self) -> None:
        """Closes the provider's stream; more than once is no error."""
        self._end()
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()
        await self._stream.__aexit__(kind, error, traceback)

    async def _more(self) -> list[Event]:
        try:
            chunk = await anext(self._stream)
        except StopAsyncIteration:
            if self._ended:  # closed by another task meanwhile: the answer has not ended
                return []
            self._ended = True
            return self._reader.finish()
        except BaseException:
            self._ended = self._stream.closed
            raise
        try:
            return self._reader.feed(chunk)
        except BaseException:  # such as one of the caller's own `link`
            await self.aclose()
            raise

    def _end(self) -> None:
        self._ended = True
        self._ready.clear()
