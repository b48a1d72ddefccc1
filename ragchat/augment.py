"""Writing evidence into the user's message: numbered, within a budget, and kept in its place."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from ragchat.citations import Citations
from ragchat.errors import (
    ContextBudgetExceeded,
    InvalidAugmentation,
    InvalidContextBudget,
    InvalidPrompt,
    UnsupportedMedia,
)
from ragchat.evidence import Evidence, encode
from ragchat.packing import pack
from ragchat.prompts import Prompt
from ragchat.tokens import TokenCounter, checked_counter, counted, counter_of
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.stages import beside, is_async_callable
from ragchat_retrieval.tokens import counts_at_once

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ragchat.citations import CitationLedger
    from ragchat.evidence import Encoding
    from ragchat_retrieval.values import Candidate, Passage

_KEPT = 4
"""Evidence blocks that are kept with their counts: the one that is chosen was measured lately."""

Formatter: TypeAlias = "Callable[[Passage], str]"
"""Renders the content of a passage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AugmentContext:
    """What an augmenter may want to know of the request."""

    model: str | None = None
    """Name of the model that will answer."""

    count_tokens: TokenCounter | None = None
    """Counts as that model does; None lets the augmenter choose by the model's name."""

    budget: int | None = None
    """Tokens that the request has left for everything that augmentation adds to the message: the
    evidence, and what is said about it. None is no limit."""

    ledger: CitationLedger | None = None
    """Gives known passages their numbers; None numbers from 1."""

    earlier: tuple[Passage, ...] = ()
    """Passages of earlier turns to present again, after the candidates and as far as they fit."""


@dataclass(frozen=True, slots=True)
class Augmentation:
    """What an augmenter made of a question and its evidence."""

    text: str | None
    """The new text of the user's message; None keeps the message."""

    citations: Citations = field(default_factory=Citations)
    """The passages that the text presents, by number."""

    tokens: int | None = field(default=None, kw_only=True)
    """Tokens of the evidence block, where they were counted."""


class Augmenter(Protocol):
    """Writes evidence into a message. A bare async or sync function of this shape will do."""

    def __call__(
        self, question: str, candidates: Sequence[Candidate], context: AugmentContext, /
    ) -> Awaitable[Augmentation] | Augmentation:
        """Returns the message's new text and what it presents; a text of None keeps it."""
        ...


def augmentation_of(result: object) -> Augmentation:
    """Checks what an augmenter returned.

    Raises:
        InvalidAugmentation: It is no augmentation, its text is blank, or its citations are none.
    """
    if not isinstance(result, Augmentation):
        raise InvalidAugmentation("the augmenter must return an Augmentation")
    text: object = result.text
    if text is not None and not (isinstance(text, str) and text.strip()):
        raise InvalidAugmentation("the augmented text must not be blank")
    if not isinstance(result.citations, Citations):
        raise InvalidAugmentation("the augmentation's citations must be Citations")
    return result


@dataclass(frozen=True, slots=True)
class IdentityAugmenter:
    """Keeps the user's message. The prompt presents no passage, so there are no citations."""

    keeps_message = True
    """The message may hold any mix of parts."""

    async def __call__(
        self, question: str, candidates: Sequence[Candidate], context: AugmentContext
    ) -> Augmentation:
        """Returns no text and no citations."""
        del question, candidates, context
        return Augmentation(None)


def passage_text(passage: Passage) -> str:
    """Returns a passage's text: the default formatter.

    Raises:
        UnsupportedMedia: The passage holds no text.
    """
    if not isinstance(passage.text, str):
        raise UnsupportedMedia("no text", passage_id=passage.id)
    return passage.text


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextualAugmenter:
    """Writes instructions, the evidence block and the question, the latter two exactly once.

    With a limit, the finished evidence block (tags, fences, numbers and sources included), measured
    as one string, has at most that many tokens. Whole candidates only, in order; one that does not
    fit is skipped and later ones may fit; numbers close up. With a ledger, a known passage has its
    own number, and only the new ones are numbered in order. Where the request has a budget, the
    finished message has at most that many tokens more than the question by itself.

    Raises:
        InvalidContextBudget: The limit is negative, there is one and no counter, or the counter is
            async or no function.
        InvalidSetting: `encoding` or `order` is unknown, a text is blank, or the formatter is async
            or no function.
        InvalidPrompt: A template that replaces ours lacks the evidence or the question.
    """

    instructions: str | None = None
    """Replaces the default guidance, which is to answer from the evidence, to cite, and to say so
    when it does not know. Plain text: braces in it are characters."""

    empty_context_message: str | None = None
    """Replaces the guidance used when nothing was found. Plain text."""

    allow_empty_context: bool = False
    """Leaves the message as it is when nothing was found."""

    formatter: Formatter = passage_text
    """Renders the content of each passage."""

    encoding: Encoding = "json"
    """How the block is written; see `ragchat.evidence`."""

    max_context_tokens: int = 0
    """Most tokens of the evidence block; 0 is no limit."""

    count_tokens: TokenCounter | Literal["auto"] | None = "auto"
    """Counts tokens; ``"auto"`` takes the counter of the request's model when preparing."""

    order: Literal["relevance", "edges"] = "relevance"
    """``edges`` presents the most relevant passages first and last, and the least in the middle.
    Numbers go by relevance either way."""

    _layout: Prompt = field(init=False, repr=False)
    _empty: Prompt = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if type(self.max_context_tokens) is not int or self.max_context_tokens < 0:
            raise InvalidContextBudget("max_context_tokens must be an integer, 0 or more")
        if self.max_context_tokens and self.count_tokens is None:
            raise InvalidContextBudget("a limit needs a token counter")
        checked_counter(self.count_tokens)
        if self.encoding not in ("json", "fenced"):
            raise InvalidSetting("encoding", 'must be "json" or "fenced"')
        if self.order not in ("relevance", "edges"):
            raise InvalidSetting("order", 'must be "relevance" or "edges"')
        for name in ("instructions", "empty_context_message"):
            text = getattr(self, name)
            if text is not None and not (isinstance(text, str) and text.strip()):
                raise InvalidSetting(name, "must be a text that is not blank, or None")
        formatter: object = self.formatter
        if not callable(formatter) or is_async_callable(formatter):
            raise InvalidSetting("formatter", "must be a function, and not async")
        layout = Prompt.load(
            "augment", required=("evidence", "question"), optional=("encoding", "instructions")
        )
        empty = Prompt.load("augment_empty", required=("question",), optional=("message",))
        object.__setattr__(self, "_layout", layout)
        object.__setattr__(self, "_empty", empty)

    @property
    def rewrites(self) -> bool:
        """Whether the message always gets another text, so that it must be able to take one."""
        return not self.allow_empty_context

    async def __call__(
        self, question: str, candidates: Sequence[Candidate], context: AugmentContext
    ) -> Augmentation:
        """As `augment`; much counting and foreign code run in a worker thread."""
        foreign = self.formatter is not passage_text
        if self.max_context_tokens or context.budget is not None:
            size = sum(len(passage.text) for passage in _presentable(candidates, context)[0])
            counters = (self._counter(context), context.count_tokens or counter_of(context.model))
            foreign |= not all(counts_at_once(count, size) for count in counters)
        return await beside(foreign, self.augment, question, candidates, context)

    def augment(
        self, question: str, candidates: Sequence[Candidate], context: AugmentContext
    ) -> Augmentation:
        """Returns the message's new text and the passages that it presents.

        Args:
            question: The user's own words, which stand in the text as they are.
            candidates: Best first.
            context: What is known of the request.

        Raises:
            InvalidAugmentation: A passage renders to blank text.
            UnsupportedMedia: A passage renders to something that is no text.
            ContextBudgetExceeded: There are candidates, and none fits the limits; or there are
                none, and the request's budget has no room to say so.
            InvalidContextBudget: The counter returned no count, or the budget is negative.
        """
        passages, new = _presentable(candidates, context)
        if not passages:
            return Augmentation(self._without_evidence(question, context))
        contents = [self._content(passage) for passage in passages]

        @lru_cache(_KEPT)
        def block(indices: tuple[int, ...]) -> str:
            numbers = _numbers([passages[index] for index in indices], context.ledger)
            numbered = [
                Evidence(number, passages[index], contents[index])
                for number, index in zip(numbers, indices, strict=True)
            ]
            return encode(_arranged(numbered, self.order), self.encoding)

        @lru_cache(_KEPT)
        def count(text: str) -> int:
            return counted(self._counter(context), text)

        def cost(index: int) -> int:
            return count(contents[index])

        chosen = tuple(range(len(passages)))
        tokens = None
        if limits := self._limits(question, context, count):
            meter = _Meter(limits, block)
            chosen = tuple(pack(len(passages), meter.limit, measure=meter.measure, cost=cost))
            if not chosen or chosen[0] >= new > 0:
                raise ContextBudgetExceeded(meter.limit, smallest=meter.smallest)
            tokens = count(block(chosen))
        text = self._with_evidence(question, block(chosen))
        presented = [passages[index] for index in chosen]
        numbers = _numbers(presented, context.ledger)
        citations = Citations(dict(zip(numbers, presented, strict=True)))
        return Augmentation(text, citations, tokens=tokens)

    def _limits(self, question: str, context: AugmentContext, count: TokenCounter) -> list[_Limit]:
        """Returns what a block is held to: its own limit, and the room that the request has."""
        limits: list[_Limit] = []
        if self.max_context_tokens:
            limits.append((self.max_context_tokens, count))
        if context.budget is not None:
            added = _added(question, context)
            limits.append(
                (context.budget, lambda block: added(self._with_evidence(question, block)))
            )
        return limits

    def _counter(self, context: AugmentContext) -> TokenCounter:
        if callable(self.count_tokens):
            return self.count_tokens
        return context.count_tokens or counter_of(context.model)

    def _content(self, passage: Passage) -> str:
        content = self.formatter(passage)
        if not isinstance(content, str):
            raise UnsupportedMedia("the formatter returned no text", passage_id=passage.id)
        if not content.strip():
            raise InvalidAugmentation(f"passage {passage.id!r} has no text to show")
        return content

    def _with_evidence(self, question: str, evidence: str) -> str:
        text = self._layout.render(
            instructions=self.instructions or "",
            encoding=self.encoding,
            evidence=evidence,
            question=question,
        )
        if not text.endswith(question) or text.removesuffix(question).count(evidence) != 1:
            raise InvalidPrompt("augment", "must write the evidence once, and the question last")
        return text

    def _without_evidence(self, question: str, context: AugmentContext) -> str | None:
        if self.allow_empty_context:
            return None
        text = self._empty.render(message=self.empty_context_message or "", question=question)
        if context.budget is not None:
            needed = _added(question, context)(text)
            if needed > context.budget:
                raise ContextBudgetExceeded(context.budget, smallest=needed)
        return text


def _added(question: str, context: AugmentContext) -> Callable[[str], int]:
    if context.budget is None or context.budget < 0:
        raise InvalidContextBudget("the request's budget must be 0 or more")
    count = context.count_tokens or counter_of(context.model)
    before = counted(count, question)
    return lambda text: counted(count, text) - before


_Limit: TypeAlias = "tuple[int, Callable[[str], int]]"
"""Most tokens, and how many of them a block takes."""


class _Meter:
    """Measures blocks for the packer against one limit or two, each block once."""

    def __init__(self, limits: Sequence[_Limit], block: Callable[[tuple[int, ...]], str]) -> None:
        self._limits = limits
        self._block = block
        self._measured: dict[tuple[int, ...], int] = {}
        self.limit = min(limit for limit, _ in limits)
        """The tighter limit; measures are relative to it."""

    @property
    def smallest(self) -> int | None:
        """The smallest block of one item that was measured."""
        return min((n for key, n in self._measured.items() if len(key) == 1), default=None)

    def measure(self, indices: Sequence[int]) -> int:
        key = tuple(indices)
        if key not in self._measured:
            block = self._block(key)
            over = max(tokens(block) - limit for limit, tokens in self._limits)
            self._measured[key] = self.limit + over
        return self._measured[key]


def _presentable(
    candidates: Sequence[Candidate], context: AugmentContext
) -> tuple[list[Passage], int]:
    """Returns the passages to present, each once, and how many of them are no earlier ones."""

    def key(passage: Passage) -> tuple[str, str]:
        # A ledger has one number for an id. Without one, several texts of one id, as a foreign
        # retriever may return them, are all presented.
        return passage.id, str(passage.text) if context.ledger is None else ""

    distinct: dict[tuple[str, str], Passage] = {}
    for candidate in candidates:
        distinct.setdefault(key(candidate.passage), candidate.passage)
    new = len(distinct)
    for passage in context.earlier:
        distinct.setdefault(key(passage), passage)
    return list(distinct.values()), new


def _numbers(passages: Sequence[Passage], ledger: CitationLedger | None) -> Sequence[int]:
    return range(1, len(passages) + 1) if ledger is None else ledger.number(passages)


def _arranged(numbered: list[Evidence], order: Literal["relevance", "edges"]) -> list[Evidence]:
    """Orders for presentation: 1 3 5 … 6 4 2 for ``edges``."""
    return numbered if order == "relevance" else numbered[::2] + numbered[1::2][::-1]
