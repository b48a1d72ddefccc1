"""`RequestBudget`: what a request leaves of the model's window for evidence.

    evidence = window − messages − tools − reserve

Text is counted with the request's model's counter, each field by itself, as chat formats put
special tokens in between. On top come 3 tokens for each message, 1 for a name and 3 for the start
of the reply, after OpenAI's cookbook, "How to count tokens with tiktoken". What a provider renders
in a way of its own is estimated, and a margin is added: images by the rule that the caller names,
tools and tool calls and response formats by their JSON, which is longer than what they become.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel

from ragchat.access import Foreign, read
from ragchat.conversation import REASONING_PARTS, TEXT_PARTS, whole_turns
from ragchat.errors import ContextBudgetExceeded, InvalidContextBudget, WindowExceeded
from ragchat.images import ImageTokens, image_size, tile_tokens
from ragchat.request import as_mapping
from ragchat.tokens import TokenCounter, checked_count, checked_counter, counted, counter_of
from ragchat_retrieval.stages import is_async_callable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ragchat.request import ChatRequest

_PER_NAME, _PER_REPLY, _PER_TOOLS = 1, 3, 12
_IMAGES = frozenset({"image_url", "input_image"})
_RENDERED = ("tools", "functions", "response_format")
"""Parameters that are put into the prompt."""

_ANSWERS = ("max_completion_tokens", "max_tokens")
"""Parameters that ask for room for the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """How a request divides the model's window. All in tokens."""

    window: int
    messages: int
    """The messages that are sent, the question by itself among them."""

    tools: int
    """Tools and response format."""

    reserve: int
    """Kept for the answer."""

    estimated: int
    """How many of `messages` and `tools` are an estimate, its margin included."""

    trimmed: tuple[int, ...] = ()
    """Positions in the given messages of those that are not sent."""

    @property
    def evidence(self) -> int:
        """What is left for evidence and the words around it; negative if the rest is too long."""
        return self.window - self.messages - self.tools - self.reserve

    def after(self, earlier: Allowance | None) -> Allowance:
        """Returns this allowance of what was left of a request that had been trimmed before.

        `trimmed` then names all positions, before either trimming.
        """
        gone = frozenset(() if earlier is None else earlier.trimmed)
        if not gone:
            return self
        left = itertools.filterfalse(gone.__contains__, itertools.count())
        now = frozenset(self.trimmed)
        given = itertools.islice(left, max(now, default=-1) + 1)
        more = {position for sent, position in enumerate(given) if sent in now}
        return replace(self, trimmed=tuple(sorted(gone | more)))

    def counts(self) -> dict[str, int]:
        """Returns the numbers for a trace."""
        names = ("window", "messages", "tools", "reserve", "estimated", "evidence")
        return {**{name: getattr(self, name) for name in names}, "trimmed": len(self.trimmed)}


@dataclass(frozen=True, slots=True)
class RequestBudget:
    """Holds a whole request to a model's window: evidence gets what the rest of it leaves.

    Raises:
        InvalidContextBudget: A number is out of its range, the reserve leaves nothing of the
            window, or the counter or the rule for images is async or no function.
    """

    window: int
    """Tokens of the model's window. There is no table of models here: it would age."""

    reserve_output: int
    """Tokens kept for the answer, reasoning included; more if the request's
    ``max_completion_tokens`` (or ``max_tokens``) asks for more."""

    trim_history: bool = field(default=False, kw_only=True)
    """Whether whole turns of history may be left out, the oldest first, to make room. System and
    developer messages stay, and so does the question; tool calls go with their results. Retrieval
    sees the whole history all the same."""

    min_evidence: int | None = field(default=None, kw_only=True)
    """Tokens that trimming tries to make free for evidence; None is a quarter of what the reserve
    leaves of the window."""

    count_tokens: TokenCounter | Literal["auto"] = field(default="auto", kw_only=True)
    """Counts tokens; ``"auto"`` takes the counter of the request's model."""

    image_tokens: ImageTokens = field(default=tile_tokens(), kw_only=True)
    """The rule for images, such as ``patch_tokens()`` for gpt-5-mini."""

    media_tokens: Mapping[str, int] = field(default_factory=dict, kw_only=True, hash=False)
    """Tokens of one part of other kinds, such as ``{"file": 4000, "input_audio": 600}``. There is
    no rule for them, and a request with one that is not named here is refused."""

    margin: float = field(default=0.1, kw_only=True)
    """Share that is added to all that is estimated."""

    per_message: int = field(default=3, kw_only=True)
    """Tokens that the chat format spends on a message beside its fields."""

    def __post_init__(self) -> None:
        if not isinstance(self.media_tokens, Mapping):
            raise InvalidContextBudget("media_tokens must be a mapping")
        named = {
            "window": self.window,
            "reserve_output": self.reserve_output,
            "min_evidence": 0 if self.min_evidence is None else self.min_evidence,
            "per_message": self.per_message,
            **{f"media_tokens[{kind!r}]": tokens for kind, tokens in self.media_tokens.items()},
        }
        for name, tokens in named.items():
            if type(tokens) is not int or tokens < 0:
                raise InvalidContextBudget(f"{name} must be an integer, 0 or more")
        if self.reserve_output >= self.window:
            raise InvalidContextBudget("the reserve leaves nothing of the window")
        margin: object = self.margin
        rule: object = self.image_tokens
        if not isinstance(margin, int | float) or not 0.0 <= margin < math.inf:  # NaN is not
            raise InvalidContextBudget("margin must be a number, 0 or more")
        if type(self.trim_history) is not bool:
            raise InvalidContextBudget("trim_history must be True or False")
        if not callable(rule) or is_async_callable(rule):
            raise InvalidContextBudget("image_tokens must be a function, and not async")
        if self.count_tokens is None:
            raise InvalidContextBudget("a budget needs a token counter")
        checked_counter(self.count_tokens)
        object.__setattr__(self, "media_tokens", dict(self.media_tokens))

    def counter(self, model: str | None) -> TokenCounter:
        """Returns what counts the tokens of a request to `model`."""
        return self.count_tokens if callable(self.count_tokens) else counter_of(model)

    def check(self, question: str, text: str, allowance: Allowance, model: str | None) -> None:
        """Checks that a message which says `text` in place of `question` fits; for any augmenter.

        Raises:
            ContextBudgetExceeded: It does not.
        """
        count = self.counter(model)
        added = counted(count, text) - counted(count, question)
        if added > allowance.evidence:
            raise ContextBudgetExceeded(allowance.evidence, smallest=added)

    def held(self, request: ChatRequest) -> tuple[ChatRequest, Allowance]:
        """Returns a request with its evidence in it as it may be sent, and what that takes.

        Of its history no more is trimmed than has to be.

        Raises:
            WindowExceeded: It does not fit.
            InvalidContextBudget: As `allowance`.
        """
        allowance = replace(self, min_evidence=0).allowance(request)
        return request.without(allowance.trimmed), allowance

    def allowance(self, request: ChatRequest) -> Allowance:
        """Counts a request, and chooses what is trimmed of it, if that is wanted.

        Each text is counted once, whatever is trimmed.

        Raises:
            WindowExceeded: Messages, tools and reserve are more than the window.
            InvalidContextBudget: The counter or the rule for images returned no count, there is no
                rule for a part, or something is no JSON.
        """
        params = request.kwargs()
        scale = _Scale(self, self.counter(request.model))
        messages = [scale.message(message) for message in params["messages"]]
        tools = scale.tools(params)
        asked = (read(params, name) for name in _ANSWERS)
        reserve = max([self.reserve_output, *(n for n in asked if type(n) is int)])
        whole = sum(messages, _Tokens(_PER_REPLY))
        allowance = Allowance(
            window=self.window,
            messages=whole.total,
            tools=tools.total,
            reserve=reserve,
            estimated=whole.estimated + tools.estimated,
        )
        if self.trim_history:
            allowance = self._trimmed(allowance, whole_turns(request.history), messages)
        if allowance.evidence < 0:
            raise WindowExceeded(
                self.window, messages=allowance.messages, tools=allowance.tools, reserve=reserve
            )
        return allowance

    def _trimmed(
        self, allowance: Allowance, turns: Sequence[Sequence[int]], tokens: Sequence[_Tokens]
    ) -> Allowance:
        wanted = self.min_evidence
        if wanted is None:
            wanted = max(0, self.window - allowance.reserve) // 4
        for turn in turns:
            if allowance.evidence >= wanted:
                break
            saved = sum((tokens[position] for position in turn), _Tokens(0))
            allowance = replace(
                allowance,
                messages=allowance.messages - saved.total,
                estimated=allowance.estimated - saved.estimated,
                trimmed=(*allowance.trimmed, *turn),
            )
        return allowance


@dataclass(frozen=True, slots=True)
class _Tokens:
    """Counted and estimated tokens of a part of a request."""

    counted: int = 0
    estimated: int = 0

    @property
    def total(self) -> int:
        return self.counted + self.estimated

    def __add__(self, other: _Tokens) -> _Tokens:
        return _Tokens(self.counted + other.counted, self.estimated + other.estimated)


@dataclass(frozen=True, slots=True)
class _Scale:
    """Weighs the parts of one request."""

    budget: RequestBudget
    count: TokenCounter

    def message(self, message: Foreign) -> _Tokens:
        tokens = _Tokens(self.budget.per_message)
        for name, value in as_mapping(message).items():
            if name == "content" and isinstance(value, list):
                tokens = sum(map(self.part, value), tokens)
            elif name == "audio" and value is not None:
                tokens += self.media("audio")
            elif value is not None:
                tokens += self.member(value)
                tokens += _Tokens(_PER_NAME if name == "name" else 0)
        return tokens

    def member(self, value: object) -> _Tokens:
        if isinstance(value, str):
            return _Tokens(counted(self.count, value))
        return self.estimate(self.json(value))

    def part(self, part: Foreign) -> _Tokens:
        if isinstance(part, str):
            return self.member(part)
        kind = str(read(part, "type"))
        if kind in TEXT_PARTS:
            return self.member(read(part, TEXT_PARTS[kind]) or "")
        if kind in _IMAGES:
            image = read(part, kind) or read(part, "image_url")
            url = image if isinstance(image, str) else read(image, "url")
            detail = read(image, "detail") or read(part, "detail") or "auto"
            size = image_size(url) if isinstance(url, str) else None
            tokens: object = self.budget.image_tokens(size, str(detail))
            return self.estimate(checked_count(tokens, "the rule for images"))
        if kind in REASONING_PARTS:
            return self.member(part)
        return self.media(kind)

    def media(self, kind: str) -> _Tokens:
        if kind not in self.budget.media_tokens:
            raise InvalidContextBudget(f"media_tokens does not say what {kind[:32]!r} costs")
        return self.estimate(self.budget.media_tokens[kind])

    def tools(self, params: Mapping[str, Any]) -> _Tokens:
        given = [params[name] for name in _RENDERED if params.get(name)]
        if not given:
            return _Tokens()
        return self.estimate(_PER_TOOLS + sum(map(self.json, given)))

    def estimate(self, tokens: int) -> _Tokens:
        return _Tokens(0, tokens + math.ceil(tokens * self.budget.margin))

    def json(self, value: object) -> int:
        try:
            text = json.dumps(
                value, ensure_ascii=False, separators=(",", ":"), sort_keys=True, default=_plain
            )
        except TypeError:  # keys of several kinds
            raise InvalidContextBudget("what is no JSON cannot be counted") from None
        return counted(self.count, text)


def _plain(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(warnings=False)
    if isinstance(value, type) and issubclass(value, BaseModel):
        return value.model_json_schema()
    return str(value)
