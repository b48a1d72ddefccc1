"""Reading a provider's reply, streamed or whole, into typed events: a pure state machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ragchat.access import Foreign, read
from ragchat.citations import CitationStream, markdown_link
from ragchat.citations.stream import checked_mode
from ragchat.errors import EmptyResponse
from ragchat.events import (
    Citation,
    Finished,
    ReasoningDelta,
    RefusalDelta,
    Sources,
    TextDelta,
    ToolCallDelta,
    Usage,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ragchat.citations import Annotation, CitationMode, Citations, Emitted, LinkMaker
    from ragchat.events import Event

_REASONING = ("reasoning_content", "reasoning")
"""Where providers put it; whichever holds text first, since some fill both with the same."""


class EventReader:
    """Is fed the chunks of a stream, or one whole response, and returns events.

    Chunks may be objects of an SDK or mappings. Fields that it does not know are ignored, and so
    are audio and the deprecated ``function_call``: they are in the chunks of ``stream`` only.

    Args:
        sources: The first event; its presented passages are what may be cited.
        citations: What becomes of the markers; see `CitationStream`.
        link: Writes the link of one number, in mode ``link``.

    Raises:
        InvalidSetting: There is no such mode.
    """

    def __init__(
        self,
        sources: Sources,
        *,
        citations: CitationMode = "keep",
        link: LinkMaker = markdown_link,
    ) -> None:
        self._sources: Sources | None = sources
        self._presented = sources.presented
        self._mode: CitationMode = checked_mode(citations)
        self._link = link
        self._choices: dict[int, _Choice] = {}
        self._usage: Usage | None = None
        self._empty = True

    def start(self) -> list[Event]:
        """Returns the events before the first chunk, once."""
        sources, self._sources = self._sources, None
        return [] if sources is None else [sources]

    def feed(self, chunk: Foreign) -> list[Event]:
        """Takes the next chunk."""
        if chunk is None:
            return []
        self._empty = False
        if (usage := _usage(read(chunk, "usage"))) is not None:
            self._usage = usage  # some send it with every chunk; the last one counts
        events: list[Event] = []
        for position, choice in enumerate(_items(read(chunk, "choices"))):
            index = _integer(read(choice, "index"))
            number = position if index is None else index
            if number not in self._choices:
                stream = CitationStream(self._presented, mode=self._mode, link=self._link)
                self._choices[number] = _Choice(number, stream, self._presented)
            events += self._choices[number].feed(choice)
        return events

    def finish(self) -> list[Event]:
        """Ends the reply.

        Raises:
            EmptyResponse: There was no chunk at all.
        """
        if self._empty:
            raise EmptyResponse
        choices = [self._choices[index] for index in sorted(self._choices)]
        events = [event for choice in choices for event in choice.finish()]
        usage: list[Event] = [] if self._usage is None else [self._usage]
        return [*events, *usage, *(choice.finished() for choice in choices)]


class _Choice:
    """One choice of the reply on its way."""

    def __init__(self, index: int, stream: CitationStream, presented: Citations) -> None:
        self._index = index
        self._stream = stream
        self._presented = presented
        self._calls = _Calls()
        self._annotations: list[Annotation] = []
        self._finish_reason: str | None = None

    def feed(self, choice: Foreign) -> Iterator[Event]:
        """Reads a choice of a chunk, or of a whole response: a message is one large delta."""
        if (delta := read(choice, "delta")) is not None:
            yield from self._feed(delta, whole=False)
        elif (message := read(choice, "message")) is not None:
            yield from self._feed(message, whole=True)
        if isinstance(reason := read(choice, "finish_reason"), str):
            self._finish_reason = reason

    def _feed(self, delta: Foreign, *, whole: bool) -> Iterator[Event]:
        if reasoning := _reasoning(delta):
            yield ReasoningDelta(self._index, reasoning)
        if text := _text(read(delta, "content")):
            yield from self._shown(self._stream.feed(text))
        if refusal := _text(read(delta, "refusal")):
            yield RefusalDelta(self._index, refusal)
        for position, call in enumerate(_items(read(delta, "tool_calls"))):
            index = position if whole else _integer(read(call, "index"))
            yield self._calls.delta(self._index, call, index)

    def finish(self) -> Iterator[Event]:
        """Returns what was held back."""
        return self._shown(self._stream.finish())

    def finished(self) -> Finished:
        """Returns the last event."""
        return Finished(self._index, self._finish_reason, tuple(self._annotations))

    def _shown(self, emitted: Emitted) -> Iterator[Event]:
        self._annotations += self._presented.annotations(emitted.citations)
        if emitted.text:
            yield TextDelta(self._index, emitted.text)
        for place in emitted.citations:
            passages = tuple(self._presented[number] for number in place.mention.numbers)
            yield Citation(self._index, place.start, place.end, place.mention, passages)


class _Calls:
    """Tells which tool call a piece belongs to, also where a provider gives it no index of its own.

    Some leave the index out, and some give every call the same. A piece without an index belongs to
    the latest call; a name beside another id, or beside neither id nor index, begins a call.
    """

    def __init__(self) -> None:
        self._latest: dict[int | None, int] = {}
        """Position of the latest call by the provider's index; of all calls by None."""
        self._ids: list[str] = []

    def delta(self, choice: int, call: Foreign, index: int | None) -> ToolCallDelta:
        """Returns the event of one piece."""
        kind = _text(read(call, "type"))
        body = read(call, "custom" if kind == "custom" else "function")
        name, id_ = _text(read(body, "name")), _text(read(call, "id"))
        position = self._position(index, name, id_)
        fresh = not self._ids[position]
        self._ids[position] = self._ids[position] or id_
        return ToolCallDelta(
            choice,
            position,
            id=id_ if id_ and fresh else None,
            type=kind or None,
            name=name,
            arguments=_text(read(body, "input" if kind == "custom" else "arguments")),
        )

    def _position(self, index: int | None, name: str, id_: str) -> int:
        position = self._latest.get(index)
        if position is None or (name and self._begins(position, index, id_)):
            position = len(self._ids)
            self._ids.append("")
        self._latest[index] = self._latest[None] = position
        return position

    def _begins(self, position: int, index: int | None, id_: str) -> bool:
        """Says whether a piece with a name begins another call than the one at `position`."""
        return self._ids[position] not in ("", id_) if id_ else index is None


def _usage(usage: Foreign) -> Usage | None:
    if usage is None:
        return None
    prompt, completion = (
        read(usage, f"{part}_tokens_details") for part in ("prompt", "completion")
    )
    return Usage(
        prompt_tokens=_integer(read(usage, "prompt_tokens")),
        completion_tokens=_integer(read(usage, "completion_tokens")),
        total_tokens=_integer(read(usage, "total_tokens")),
        cached_tokens=_integer(read(prompt, "cached_tokens")),
        reasoning_tokens=_integer(read(completion, "reasoning_tokens")),
    )


def _reasoning(delta: Foreign) -> str:
    beside = (_text(read(delta, name)) for name in _REASONING)
    within = (
        _text(read(part, "thinking"))
        for part in _items(read(delta, "content"))
        if read(part, "type") == "thinking"
    )
    return next(filter(None, beside), "") or "".join(within)


def _text(value: Foreign) -> str:
    """Returns a text, or the text parts of a list; empty for anything else."""
    if isinstance(value, str):
        return value
    if value is None:  # the usual case, and the quickest
        return ""
    parts = (part for part in _items(value) if read(part, "type") == "text")
    return "".join(_text(read(part, "text")) for part in parts)


def _items(value: Foreign) -> Sequence[Foreign]:
    return value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else ()


def _integer(value: Foreign) -> int | None:
    return value if type(value) is int else None
