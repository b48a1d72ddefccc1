"""Writing evidence into the user's message: numbered, within a budget, and kept in its place."""

from __future__ import annotations

import asyncio
import inspect
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, SupportsIndex, TypeAlias

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
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.policy import current_run
from ragchat_retrieval.stages import is_async_callable

if TYPE_CHECKING:
    from ragchat.citations import CitationLedger
    from ragchat.evidence import Encoding
    from ragchat_retrieval.values import Candidate, Passage

TokenCounter: TypeAlias = Callable[[str], int]
"""Counts the tokens of a text; sync."""

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
    """Tokens that the request has left for evidence; None is no limit."""

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
    own number, and only the new ones are numbered in order.

    Raises:
        InvalidContextBudget: The limit is negative, there is one and no counter, or the counter is
            async or no function.
        InvalidSetting: `encoding` or `order` is unknown, or a text is blank.
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
        if is_async_callable(self.count_tokens):
            raise InvalidContextBudget("a token counter must not be async")
        if self.count_tokens not in ("auto", None) and not callable(self.count_tokens):
            raise InvalidContextBudget('count_tokens must be a function, "auto" or None')
        if self.encoding not in ("json", "fenced"):
            raise InvalidSetting("encoding", 'must be "json" or "fenced"')
        if self.order not in ("relevance", "edges"):
            raise InvalidSetting("order", 'must be "relevance" or "edges"')
        for name in ("instructions", "empty_context_message"):
            text = getattr(self, name)
            if text is not None and not text.strip():
                raise InvalidSetting(name, "must not be blank")
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
        """As `augment`; counting and foreign code run in a worker thread."""
        if self._limit(context) is None and self.formatter is passage_text:
            return self.augment(question, candidates, context)
        return await asyncio.to_thread(self.augment, question, candidates, context)

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
            ContextBudgetExceeded: There are candidates, and none fits the limit.
            InvalidContextBudget: The counter returned no count, or the budget is negative.
        """
        passages, new = _presentable(candidates, context)
        if not passages:
            return Augmentation(self._without_evidence(question))
        contents = [self._content(passage) for passage in passages]

        def block(indices: Sequence[int]) -> str:
            numbers = _numbers([passages[index] for index in indices], context.ledger)
            numbered = [
                Evidence(number, passages[index], contents[index])
                for number, index in zip(numbers, indices, strict=True)
            ]
            return encode(_arranged(numbered, self.order), self.encoding)

        chosen: Sequence[int] = range(len(passages))
        tokens = None
        limit = self._limit(context)
        if limit is not None:
            meter = _Meter(self._counter(context), block, contents)
            chosen = pack(len(passages), limit, measure=meter.measure, cost=meter.cost)
            if not chosen or chosen[0] >= new > 0:
                raise ContextBudgetExceeded(limit, smallest=meter.smallest)
            tokens = meter.measured[tuple(chosen)]
        text = self._with_evidence(question, block(chosen))
        presented = [passages[index] for index in chosen]
        numbers = _numbers(presented, context.ledger)
        citations = Citations(dict(zip(numbers, presented, strict=True)))
        return Augmentation(text, citations, tokens=tokens)

    def _limit(self, context: AugmentContext) -> int | None:
        if context.budget is not None and context.budget < 0:
            raise InvalidContextBudget("the request's budget must be 0 or more")
        limits = [
            limit
            for limit in (self.max_context_tokens or None, context.budget)
            if limit is not None
        ]
        return min(limits) if limits else None

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

    def _without_evidence(self, question: str) -> str | None:
        if self.allow_empty_context:
            return None
        return self._empty.render(message=self.empty_context_message or "", question=question)


def counter_of(model: str | None) -> TokenCounter:
    """Returns a counter that counts as `model` does, chosen at the first count.

    For a model without a known encoding the counts are o200k_base's, and the current run's trace
    says so.
    """
    chosen: list[TokenCounter] = []

    def count(text: str) -> int:
        if not chosen:
            from ragchat.tokens import counter_for  # noqa: PLC0415 - only where tokens are counted

            counting = counter_for(model)
            chosen.append(counting.count)
            if counting.estimated and (run := current_run()) is not None:
                run.record.note(f"tokens estimated with {counting.encoding}")
        return chosen[0](text)

    return count


class _Meter:
    """Counts blocks and items for the packer, each block once, and checks what the counter says."""

    def __init__(
        self, count: TokenCounter, block: Callable[[Sequence[int]], str], contents: Sequence[str]
    ) -> None:
        self._count = count
        self._block = block
        self._contents = contents
        self.measured: dict[tuple[int, ...], int] = {}

    @property
    def smallest(self) -> int | None:
        """The smallest block of one item that was measured."""
        return min((n for key, n in self.measured.items() if len(key) == 1), default=None)

    def measure(self, indices: Sequence[int]) -> int:
        key = tuple(indices)
        if key not in self.measured:
            self.measured[key] = self._checked(self._block(key))
        return self.measured[key]

    def cost(self, index: int) -> int:
        return self._checked(self._contents[index])

    def _checked(self, text: str) -> int:
        tokens: object = self._count(text)
        if inspect.iscoroutine(tokens):
            tokens.close()
        if not isinstance(tokens, SupportsIndex) or isinstance(tokens, bool):
            raise InvalidContextBudget("the token counter must return an integer")
        if operator.index(tokens) < 0:
            raise InvalidContextBudget("the token counter must return 0 or more")
        return operator.index(tokens)


def _presentable(
    candidates: Sequence[Candidate], context: AugmentContext
) -> tuple[list[Passage], int]:
    """Returns the passages to present, and how many of them are no earlier ones.

    With a ledger each is presented once, because a passage has one number.
    """
    found = [candidate.passage for candidate in candidates]
    if context.ledger is None:
        return [*found, *context.earlier], len(found)
    distinct: dict[str, Passage] = {}
    for passage in found:
        distinct.setdefault(passage.id, passage)
    new = len(distinct)
    for passage in context.earlier:
        distinct.setdefault(passage.id, passage)
    return list(distinct.values()), new


def _numbers(passages: Sequence[Passage], ledger: CitationLedger | None) -> Sequence[int]:
    return range(1, len(passages) + 1) if ledger is None else ledger.number(passages)


def _arranged(numbered: list[Evidence], order: Literal["relevance", "edges"]) -> list[Evidence]:
    """Orders for presentation: 1 3 5 … 6 4 2 for ``edges``."""
    return numbered if order == "relevance" else numbered[::2] + numbered[1::2][::-1]
