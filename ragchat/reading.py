"""Reading a provider's reply, streamed or whole, into typed events: a pure state machine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ragchat.access import Foreign, read, reader
from ragchat.citations import CitationStream, markdown_link
from ragchat.citations.stream import checked_mode
from ragchat.errors import EmptyResponse, FailedResponse
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
    from collections.abc import Callable, Iterator

    from ragchat.citations import Annotation, CitationMode, Citations, Emitted, LinkMaker
    from ragchat.events import Event

_REASONING = ("reasoning_content", "reasoning")
"""Where providers put it; whichever holds text first, since some fill both with the same."""

_TEXT_PARTS = frozenset({"text", "output_text"})


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
        """Takes the next chunk.

        Raises:
            FailedResponse: It tells an error of the server.
        """
        if chunk is None:
            return []
        if isinstance(chunk, Mapping) and chunk.get("error"):  # of objects, clients see to it
            raise FailedResponse
        self._empty = False
        sent = reader(chunk)
        if (usage := _usage(sent("usage"))) is not None:
            self._usage = usage  # some send it with every chunk; the last one counts
        events: list[Event] = []
        for position, choice in enumerate(_items(sent("choices"))):
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
        self._halves = Halves()
        self._brought: set[str] = set()
        """Which members of the message have come."""
        self._annotations: list[Annotation] = []
        self._finish_reason: str | None = None

    def feed(self, choice: Foreign) -> Iterator[Event]:
        """Reads a choice of a chunk, or of a whole response: a message is one large delta.

        Some providers end a stream with the whole message. Of that, only what has not come is read.
        """
        sent = reader(choice)
        if (delta := sent("delta")) is not None:
            yield from self._feed(delta)
        if (message := sent("message")) is not None:
            yield from self._feed(message, whole=True, known=frozenset(self._brought))
        if isinstance(reason := sent("finish_reason"), str):
            self._finish_reason = reason

    def _feed(
        self, delta: Foreign, *, whole: bool = False, known: frozenset[str] = frozenset()
    ) -> Iterator[Event]:
        sent = reader(delta)
        for name, text in (
            ("reasoning", _reasoning(sent)),
            ("content", text_of(sent("content"))),
            ("refusal", text_of(sent("refusal"))),
        ):
            if text and name not in known:
                self._brought.add(name)
                yield from self._said(name, self._halves.joined(name, text))
        if "tool_calls" in known:
            return
        for position, call in enumerate(_items(sent("tool_calls"))):
            self._brought.add("tool_calls")
            index = position if whole else _integer(read(call, "index"))
            yield self._calls.delta(self._index, call, index, self._halves)

    def finish(self) -> Iterator[Event]:
        """Returns what was held back."""
        for flow, half in self._halves.left():
            if isinstance(flow, str):
                yield from self._said(flow, half)
            else:
                yield ToolCallDelta(self._index, flow, arguments=half)
        yield from self._shown(self._stream.finish())

    def _said(self, name: str, text: str) -> Iterator[Event]:
        if not text:
            return
        if name == "content":
            yield from self._shown(self._stream.feed(text))
        else:
            yield (ReasoningDelta if name == "reasoning" else RefusalDelta)(self._index, text)

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


class Halves:
    """Joins the halves of a character that was cut in two, as servers do that slice UTF-16."""

    def __init__(self) -> None:
        self._waiting: dict[str | int, str] = {}
        """A first half by the text that it ended: a member's name, or the position of a call."""

    def joined(self, flow: str | int, text: str) -> str:
        """Returns the next piece of a text, less a half at its end, which waits for the other."""
        if not text:
            return ""
        if half := self._waiting.pop(flow, ""):
            pair = (half + text[0]).encode("utf-16-le", "surrogatepass")
            text = pair.decode("utf-16-le", "surrogatepass") + text[1:]
        if "\ud800" <= text[-1] <= "\udbff":
            self._waiting[flow] = text[-1]
            text = text[:-1]
        return text

    def left(self) -> list[tuple[str | int, str]]:
        """Returns the halves whose other half never came."""
        return list(self._waiting.items())


class _Calls:
    """Tells which tool call a piece belongs to, also where a provider gives it no index of its own.

    Some leave the index out, and some give every call the same. A piece without an index belongs to
    the latest call; a name beside another id, or beside neither id nor index, begins a call, and
    so does one behind arguments where there are no ids. Some repeat id and name, or the name alone,
    with every piece.
    """

    def __init__(self) -> None:
        self._latest: dict[int | None, int] = {}
        """Position of the latest call by the provider's index; of all calls by None."""
        self._ids: list[str] = []
        self._names: list[str] = []
        self._argued: set[int] = set()
        """Positions of calls whose arguments have begun, so that their names are whole."""

    def delta(self, choice: int, call: Foreign, index: int | None, halves: Halves) -> ToolCallDelta:
        """Returns the event of one piece."""
        kind = text_of(read(call, "type")) or ("custom" if read(call, "custom") else "")
        custom = kind == "custom"  # only a call's first piece has to name its type
        body = read(call, "custom" if custom else "function")
        name, id_ = text_of(read(body, "name")), text_of(read(call, "id"))
        position = self._position(index, name, id_)
        fresh = not self._ids[position]
        again = (id_ and not fresh) or position in self._argued
        if again and name == self._names[position]:
            name = ""
        self._ids[position] = self._ids[position] or id_
        self._names[position] += name
        arguments = _arguments(read(body, "input" if custom else "arguments"))
        if arguments:
            self._argued.add(position)
        return ToolCallDelta(
            choice,
            position,
            id=id_ if id_ and fresh else None,
            type=kind or None,
            name=name,
            arguments=halves.joined(position, arguments),
        )

    def _position(self, index: int | None, name: str, id_: str) -> int:
        position = self._latest.get(index)
        if position is None or (name and self._begins(position, index, id_)):
            position = len(self._ids)
            self._ids.append("")
            self._names.append("")
        self._latest[index] = self._latest[None] = position
        return position

    def _begins(self, position: int, index: int | None, id_: str) -> bool:
        """Says whether a piece with a name begins another call than the one at `position`."""
        if id_:
            return self._ids[position] not in ("", id_)
        return index is None or (position in self._argued and not self._ids[position])


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


def _reasoning(sent: Callable[..., Foreign]) -> str:
    for name in _REASONING:
        if beside := text_of(sent(name)):
            return beside
    return "".join(
        text_of(read(part, "thinking"))
        for part in _items(sent("content"))
        if read(part, "type") == "thinking"
    )


def text_of(value: Foreign) -> str:
    """Returns a text, or the text parts of a list; empty for anything else."""
    if isinstance(value, str):
        return value
    if value is None:  # the usual case, and the quickest
        return ""
    return "".join(
        part if isinstance(part, str) else text_of(read(part, "text"))
        for part in _items(value)
        if isinstance(part, str) or read(part, "type") in _TEXT_PARTS
    )


def _arguments(value: Foreign) -> str:
    """Returns a call's arguments as text; some servers send the object that it should spell."""
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False, default=str)
    return text_of(value)


def _items(value: Foreign) -> Sequence[Foreign]:
    if value is None or isinstance(value, (str, bytes)):  # the usual cases, told much faster
        return ()
    return value if isinstance(value, (list, Sequence)) else ()


def _integer(value: Foreign) -> int | None:
    return value if type(value) is int else None
