"""Conversations as retrieval sees them: earlier turns, rendered and windowed. Pure.

Messages are mappings or SDK objects in the shape of ``chat.completions``; they are read, never
changed.
"""

from __future__ import annotations

import itertools
import json
import mimetypes
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ragchat.access import Foreign, read, reader
from ragchat.replies import strip_reasoning
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.stages import beside
from ragchat_retrieval.text import clean_query
from ragchat_retrieval.tokens import within

if TYPE_CHECKING:
    from ragchat.tokens import TokenCounter
    from ragchat_retrieval.values import Query

_SPEAKERS = ("user", "assistant")
_INSTRUCTIONS = ("system", "developer")
_RESULTS = ("tool", "function")
REASONING_PARTS = frozenset({"reasoning", "thinking", "redacted_thinking", "reasoning_content"})
"""Kinds of content parts that hold what a model thought."""

TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""Kinds of content parts that hold text, and the member that it stands in."""

_AT_ONCE = 20_000
"""Characters that are rendered or analysed in some milliseconds."""

_OF_PARTS = 1000
"""Characters that a message counts for whose content is no single text."""

_DATA_URI = re.compile(r"data:([\w.+-]+/[\w.+-]+)[;,]")


@dataclass(frozen=True, slots=True)
class ConversationQuery:
    """What a conversation transformer works on: the query and what was said before it."""

    query: Query
    """The active question, with the caller's filter, scope and top_k."""

    history: Sequence[Foreign] = field(default=(), hash=False)
    """Every message before the active one, oldest first, as given."""

    attachments: tuple[str, ...] = field(default=(), kw_only=True)
    """What the active message shows beside its text, by MIME type: ``image/png``."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "history", tuple(self.history))
        object.__setattr__(self, "attachments", tuple(self.attachments))

    @classmethod
    def of(cls, given: ConversationQuery | Query) -> ConversationQuery:
        """Returns `given`, with an empty history if it is a bare query."""
        return given if isinstance(given, ConversationQuery) else cls(given)

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The earlier user and assistant turns."""
        return turns(self.history)

    @property
    def last_turn(self) -> Turn | None:
        """The latest of them; None if there is none."""
        latest = (turn for message in reversed(self.history) for turn in turns([message]))
        return next(latest, None)

    @property
    def is_long(self) -> bool:
        """Whether reading all of it takes longer than an event loop should wait."""
        texts = (read(message, "content") for message in self.history)
        said = sum(len(text) if isinstance(text, str) else _OF_PARTS for text in texts)
        return said + len(self.query.text) > _AT_ONCE


class Turn(NamedTuple):
    """One earlier user or assistant turn."""

    role: str
    """``user`` or ``assistant``."""

    text: str
    """What was said; blank for a turn of media or tool calls alone."""

    rendered: str
    """The text with ``[image/png]`` for media and ``[tool call name args]`` for tool calls."""


def turns(history: Iterable[Foreign]) -> tuple[Turn, ...]:
    """Returns the user and assistant turns of a history that say or show anything, in order."""
    found = (
        Turn(role, message_text(message), render_content(message))
        for message in history
        if (role := read(message, "role")) in _SPEAKERS
    )
    return tuple(turn for turn in found if turn.rendered)


def message_text(message: Foreign) -> str:
    """Returns the text parts of a message, joined by newlines; empty for null content."""
    return "\n".join(text for kind, text in _parts(message) if kind == "text")


def render_content(message: Foreign) -> str:
    """Returns a message's content as text: media and tool calls by name, reasoning left out."""
    return "\n".join([text for _, text in _parts(message) if text]).strip()


def attachments(message: Foreign) -> tuple[str, ...]:
    """Returns the media of a message by MIME type, as far as it can be told, else by kind."""
    return tuple(text.strip("[]") for kind, text in _parts(message) if kind == "media")


def render_message(message: Foreign) -> str:
    """Returns a message as ``role: text``.

    Further lines of the text are indented, so that no text can pass for the start of a turn.
    """
    return _render(str(read(message, "role", "unknown")), render_content(message))


def render_history(history: Iterable[Foreign]) -> str:
    """Returns the user and assistant turns as ``role: text``, one below the other."""
    return "\n".join(
        [
            _render(role, content)
            for message in history
            if (role := read(message, "role")) in _SPEAKERS and (content := render_content(message))
        ]
    )


def window(
    history: Sequence[Foreign],
    *,
    max_tokens: int | None = None,
    max_messages: int | None = None,
    count: TokenCounter | None = None,
    keep_active: bool = True,
) -> tuple[Foreign, ...]:
    """Returns the latest messages that fit, never cutting between a tool call and its results.

    System and developer messages are kept, and so is an unanswered last user message with
    everything after it, whatever their size. Other messages are kept as one unbroken run: an
    assistant message with tool calls and its results go or stay together.

    Args:
        history: Messages, oldest first.
        max_tokens: Most tokens of the kept messages, each rendered as ``role: text``, measured as
            one text. None is no limit.
        max_messages: Most kept messages, system and developer messages not counted. None is no
            limit.
        count: Counts tokens; needed with `max_tokens`.
        keep_active: Whether an unanswered last user message stays even if it is too long.

    Raises:
        InvalidSetting: A limit is negative, or `max_tokens` comes without `count`.
    """
    if any(limit is not None and limit < 0 for limit in (max_tokens, max_messages)):
        raise InvalidSetting("window", "a limit must be 0 or more")
    if max_tokens is not None and count is None:
        raise InvalidSetting("count", "a limit in tokens needs a token counter")
    fixed: list[int] = []
    movable: list[list[int]] = []
    for unit in _units(history):
        if _is_instruction(history, unit):
            fixed += unit
        else:
            movable.append(unit)

    def kept(first: int) -> list[int]:
        """Returns the positions of what is kept with the movable units from there on."""
        return sorted(itertools.chain(fixed, *movable[first:]))

    def fits(positions: Sequence[int]) -> bool:
        few = max_messages is None or len(positions) - len(fixed) <= max_messages
        if max_tokens is None or count is None or not few:
            return few
        shown = "\n".join([render_message(history[position]) for position in positions])
        return within(shown, max_tokens, count)

    # Most often everything fits, so that is tried first. Bisection measures the whole kept text a
    # few times only; what fits, fits with fewer messages.
    low, middle = 0, 0
    high = _active_turn(history, movable) if keep_active else len(movable)
    while low < high:
        if fits(kept(middle)):
            high = middle
        else:
            low = middle + 1
        middle = (low + high) // 2
    return tuple(history[position] for position in kept(low))


async def shown_history(
    conversation: ConversationQuery, *, max_tokens: int, count: TokenCounter
) -> str:
    """Returns what `recent_history` returns; a long history is read in a worker thread."""
    recent = partial(recent_history, max_tokens=max_tokens, count=count)
    return await beside(conversation.is_long, recent, conversation.history)


def recent_history(history: Sequence[Foreign], *, max_tokens: int, count: TokenCounter) -> str:
    """Returns the latest user and assistant turns that fit, as `render_history` does.

    Args:
        history: Messages, oldest first.
        max_tokens: Most tokens of the whole.
        count: Counts them.
    """
    whole = clean_query(render_history(history))
    if within(whole, max_tokens, count):  # most often
        return whole
    # A last answer that is too long by itself would hide the questions before it.
    spoken = [message for message in history if read(message, "role") in _SPEAKERS]
    asked = [message for message in spoken if read(message, "role") == "user"]
    for messages in (spoken, asked):
        kept = window(messages, max_tokens=max_tokens, count=count, keep_active=False)
        if text := clean_query(render_history(kept)):
            return text
    return ""


def whole_turns(history: Sequence[Foreign]) -> list[list[int]]:
    """Returns the positions of each turn: a user message, and all up to the next one.

    What stands before the first user message is a turn too. System and developer messages belong to
    none, and a tool call and its results to the same.
    """
    found: list[list[int]] = []
    for unit in _units(history):
        if _is_instruction(history, unit):
            continue
        if not found or read(history[unit[0]], "role") == "user":
            found.append([])
        found[-1] += unit
    return found


def _units(history: Sequence[Foreign]) -> list[list[int]]:
    """Groups message positions: tool results join the assistant message that called."""
    units: list[list[int]] = []
    calling = False
    for index, message in enumerate(history):
        said = reader(message)
        if calling and said("role") in _RESULTS:
            units[-1].append(index)
            continue
        units.append([index])
        calling = bool(said("tool_calls") or said("function_call"))
    return units


def _is_instruction(history: Sequence[Foreign], unit: Sequence[int]) -> bool:
    return read(history[unit[0]], "role") in _INSTRUCTIONS


def _active_turn(history: Sequence[Foreign], units: Sequence[Sequence[int]]) -> int:
    """Returns the position of the unit that starts the unanswered user turn, else the end."""
    if not units:
        return 0
    last = history[units[-1][0]]
    answered = read(last, "role") == "assistant" and len(units[-1]) == 1
    if not answered or read(last, "tool_calls"):
        for position in range(len(units) - 1, -1, -1):
            if read(history[units[position][0]], "role") == "user":
                return position
    return len(units)


def _render(role: str, content: str) -> str:
    return f"{role}: " + "\n  ".join(content.splitlines())


def _parts(message: Foreign) -> Iterable[tuple[str, str]]:
    """Yields (kind, text) of all that a message holds, in order; the text of reasoning is empty.

    Kind is ``text``, ``media``, ``reasoning`` or ``call``.
    """
    said = reader(message)
    content = said("content")
    if isinstance(content, str):
        spoken = content
        # Some servers leave the reasoning at the head of the text; further down it is a quotation.
        if said("role") == "assistant" and content.lstrip().startswith("<think>"):
            spoken = strip_reasoning(content)
        yield "text", spoken
    elif isinstance(content, Sequence):
        for part in content:
            yield _part(part)
    if isinstance(refusal := said("refusal"), str):
        yield "text", refusal
    if said("audio") is not None:
        yield "media", "[audio]"
    called = said("tool_calls")
    if called and not isinstance(called, str) and isinstance(called, Sequence):
        for call in called:
            yield "call", _tool_call(call)
    if (legacy := said("function_call")) is not None:
        yield "call", _tool_call({"function": legacy})


def _part(part: Foreign) -> tuple[str, str]:
    if isinstance(part, str):
        return "text", part
    kind = str(read(part, "type") or "part")
    if kind in TEXT_PARTS:
        text = read(part, TEXT_PARTS[kind])
        return "text", text if isinstance(text, str) else ""
    if kind in REASONING_PARTS:
        return "reasoning", ""
    return "media", f"[{_media_type(kind, part)}]"


def _media_type(kind: str, part: Foreign) -> str:
    """Names a media part by its MIME type where that can be told without fetching anything."""
    body = read(part, kind)
    sound = read(body, "format")
    if kind == "input_audio" and isinstance(sound, str):
        return f"audio/{sound}"
    for place in (read(body, "url"), read(body, "file_data"), read(body, "filename"), body):
        if not isinstance(place, str):
            continue
        if inline := _DATA_URI.match(place):
            return inline[1]
        if guess := mimetypes.guess_type(place.partition("?")[0])[0]:
            return guess
    return kind.removesuffix("_url").removeprefix("input_")


def _tool_call(call: Foreign) -> str:
    body = read(call, "function") or read(call, "custom")
    name = read(body, "name") or "unknown"
    arguments = read(body, "arguments") or read(body, "input") or ""
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False, default=str)
    return f"[tool call {name} {arguments}".rstrip() + "]"
