"""What happens while an answer streams, as typed events, and the answer that they fold to.

A stream yields `Sources` first, before anything of the answer. Then come `TextDelta`, `Citation`,
`RefusalDelta`, `ReasoningDelta` and `ToolCallDelta` in the order in which they become certain, then
`Usage` if the provider sent it, and one `Finished` for each choice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Self

    from ragchat.citations import Annotation, Citations, Mention
    from ragchat.prepared import Skipped
    from ragchat_retrieval.trace import Degradation
    from ragchat_retrieval.values import Candidate, Passage


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What the answer can draw on. Retrieved, presented and cited are three different lists."""

    choice: ClassVar[None] = None
    """It is about all choices."""

    retrieved: tuple[Candidate, ...] = ()
    """Everything found, best first."""

    presented: Citations
    """The passages in the prompt, by number: what may be cited."""

    degraded: tuple[Degradation, ...] = ()
    """Stages that were left out because they failed."""

    skipped: Skipped | None = None
    """What decided against retrieval; None if there was one."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next piece of a choice's text."""

    choice: int
    """Index of the choice, from 0."""

    text: str
    """Never empty."""


@dataclass(frozen=True, slots=True)
class Citation:
    """A marker, known, invented or foreign, that became certain."""

    choice: int
    start: int
    """First code point of what stands for it in the choice's text as emitted."""

    end: int
    """The one after its last; equal to `start` where the marker was taken out."""

    mention: Mention
    """What the model wrote; its offsets are those of the model's own text."""

    passages: tuple[Passage, ...] = ()
    """What is cited: the passages of `Mention.numbers`, in that order."""


@dataclass(frozen=True, slots=True)
class RefusalDelta:
    """The next piece of a refusal."""

    choice: int
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """The next piece of the reasoning that some providers send beside the answer."""

    choice: int
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """The next piece of a tool call."""

    choice: int
    index: int
    """Which of the choice's calls, from 0 in the order of their beginning."""

    id: str | None = None
    """The call's id, in its first piece."""

    type: str | None = None
    """``function`` or ``custom``, where the provider says; ``custom`` in every piece of such a
    call."""

    name: str = ""
    """A piece of the name; nearly always whole, in the first piece."""

    arguments: str = ""
    """A piece of the arguments' JSON text, or of a custom tool's input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens as the provider counted them; None is what it did not say."""

    choice: ClassVar[None] = None
    """It is about all choices."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    cached_tokens: int | None = None
    """Those of the prompt that came from the provider's cache."""

    reasoning_tokens: int | None = None
    """Those of the completion that were reasoning."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a choice."""

    choice: int
    finish_reason: str | None
    """As the provider said; None if its stream ended without one."""

    annotations: tuple[Annotation, ...] = field(default=(), hash=False)
    """OpenAI-shaped citations; their offsets are those of the choice's text as emitted."""


Event: TypeAlias = (
    Sources
    | TextDelta
    | Citation
    | RefusalDelta
    | ReasoningDelta
    | ToolCallDelta
    | Usage
    | Finished
)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A whole tool call."""

    id: str | None
    name: str
    arguments: str
    """JSON text as the model wrote it, which may be no valid JSON; a custom tool's input."""

    type: str = "function"
    """``function`` or ``custom``."""

    @property
    def message(self) -> dict[str, object]:
        """The entry of an assistant message's ``tool_calls``."""
        kind, text = ("custom", "input") if self.type == "custom" else ("function", "arguments")
        return {"id": self.id, "type": self.type, kind: {"name": self.name, text: self.arguments}}


@dataclass(frozen=True, slots=True)
class Answer:
    """One choice of a reply."""

    choice: int
    """Its index, from 0."""

    content: str = field(default="", kw_only=True)
    """The text as emitted; empty where the provider sent none or null."""

    refusal: str = field(default="", kw_only=True)
    reasoning: str = field(default="", kw_only=True)
    tool_calls: tuple[ToolCall, ...] = field(default=(), kw_only=True)
    finish_reason: str | None = field(default=None, kw_only=True)
    annotations: tuple[Annotation, ...] = field(default=(), kw_only=True, hash=False)
    citations: tuple[Citation, ...] = field(default=(), kw_only=True)
    """Every marker, in order."""

    @property
    def cited(self) -> dict[int, Passage]:
        """The cited passages by number, in order of first appearance."""
        return {
            number: passage
            for citation in self.citations
            for number, passage in zip(citation.mention.numbers, citation.passages, strict=True)
        }

    @property
    def message(self) -> dict[str, object]:
        """An assistant message for the next request, such as a round of tool calls."""
        # Null stands only beside a call or a refusal; an answer that is empty is refused with it.
        empty = None if self.tool_calls or self.refusal else ""
        message: dict[str, object] = {"role": "assistant", "content": self.content or empty}
        if self.refusal:
            message["refusal"] = self.refusal
        if self.tool_calls:
            message["tool_calls"] = [call.message for call in self.tool_calls]
        return message


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What events fold to: a reply with its sources."""

    choices: tuple[Answer, ...] = ()
    """By index."""

    usage: Usage | None = None
    sources: Sources | None = None
    """None where the events had none."""


class EventFold:
    """Collects events; the pure counterpart of a stream's reader. Events may come at any pace."""

    def __init__(self) -> None:
        self._choices: dict[int, _Folding] = {}
        self._usage: Usage | None = None
        self._sources: Sources | None = None

    def add(self, event: Event) -> Self:
        """Takes the next event."""
        match event:
            case Sources():
                self._sources = event
            case Usage():
                self._usage = event
            case _:
                self._choices.setdefault(event.choice, _Folding()).add(event)
        return self

    @property
    def answers(self) -> Answers:
        """What the events so far fold to."""
        choices = (self._choices[index].answer(index) for index in sorted(self._choices))
        return Answers(choices=tuple(choices), usage=self._usage, sources=self._sources)


def fold(events: Iterable[Event]) -> Answers:
    """Returns the reply that events fold to: what the call would have returned, in our own form."""
    folding = EventFold()
    for event in events:
        folding.add(event)
    return folding.answers


class _Folding:
    """One choice on its way."""

    def __init__(self) -> None:
        self._texts: Mapping[type, list[str]] = {
            TextDelta: [],
            RefusalDelta: [],
            ReasoningDelta: [],
        }
        self._citations: list[Citation] = []
        self._calls: dict[int, list[ToolCallDelta]] = {}
        self._finished: Finished | None = None

    def add(
        self,
        event: TextDelta | RefusalDelta | ReasoningDelta | Citation | ToolCallDelta | Finished,
    ) -> None:
        match event:
            case Citation():
                self._citations.append(event)
            case ToolCallDelta():
                self._calls.setdefault(event.index, []).append(event)
            case Finished():
                self._finished = event
            case _:
                self._texts[type(event)].append(event.text)

    def answer(self, choice: int) -> Answer:
        finished = self._finished
        return Answer(
            choice,
            content="".join(self._texts[TextDelta]),
            refusal="".join(self._texts[RefusalDelta]),
            reasoning="".join(self._texts[ReasoningDelta]),
            tool_calls=tuple(_call(self._calls[index]) for index in sorted(self._calls)),
            finish_reason=finished.finish_reason if finished else None,
            annotations=finished.annotations if finished else (),
            citations=tuple(self._citations),
        )


def _call(deltas: list[ToolCallDelta]) -> ToolCall:
    return ToolCall(
        next((delta.id for delta in deltas if delta.id), None),
        "".join(delta.name for delta in deltas),
        "".join(delta.arguments for delta in deltas),
        next((delta.type for delta in deltas if delta.type), "function"),
    )
