"""Having a chat model judge many items: prompts under a token budget, one strict verdict an item.

Items go to the model as data with indices from 0. A reply counts only if it holds every index
exactly once; anything else is an error that names the fault.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ragchat.json_search import first_json
from ragchat.prompts import Prompt, PromptOverride, prompt_for
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.stages import beside
from ragchat_retrieval.tasks import gather
from ragchat_retrieval.tokens import count_tokens, counts_at_once, within

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ragchat.models import ChatModel
    from ragchat.tokens import TokenCounter
    from ragchat_retrieval.errors import RagchatError

    Malformed = Callable[[str], RagchatError]

T = TypeVar("T")
V = TypeVar("V")

_NAMEABLE = 10**9


@dataclass(frozen=True, slots=True)
class Judge:
    """A chat model that judges items: how many go into one prompt, how many are out at a time.

    Raises:
        InvalidSetting: The budget or the number of calls at a time is not positive, or `model` is
            no `ChatModel`.
        InvalidPrompt: The template is broken or lacks a variable.
    """

    _task: ClassVar[str]
    """Name of the packaged prompt."""

    _variables: ClassVar[tuple[str, ...]]
    """What the prompt must use."""

    model: ChatModel
    max_prompt_tokens: int = field(default=8000, kw_only=True)
    """Most tokens of one prompt. An item that is longer by itself goes alone."""

    count: TokenCounter = field(default=count_tokens, kw_only=True)
    """Counts them; by default exactly, in ``o200k_base``."""

    concurrency: int = field(default=4, kw_only=True)
    """Most calls at a time."""

    prompt: PromptOverride | None = field(default=None, kw_only=True)
    """Replaces the packaged prompt: a template as text, or the path of one."""

    _prompt: Prompt = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("max_prompt_tokens", "concurrency"):
            most = getattr(self, name)
            if type(most) is not int or most < 1:
                raise InvalidSetting(name, "must be an integer, 1 or more")
        loaded = prompt_for(self.model, self._task, self.prompt, required=self._variables)
        object.__setattr__(self, "_prompt", loaded)

    async def _judged(
        self,
        items: Sequence[T],
        *,
        render: Callable[[Sequence[T]], str],
        schema: Mapping[str, Any],
        parse: Callable[[str, int], list[V]],
    ) -> list[V]:
        """Returns a verdict for each item, in order; asks nothing without items.

        Args:
            items: What to judge.
            render: Writes the prompt for a run of items.
            schema: JSON schema of a reply.
            parse: Reads a reply about that many items; its errors pass through.
        """
        limit = asyncio.Semaphore(self.concurrency)

        async def judged(size: int, prompt: str) -> list[V]:
            async with limit:
                reply = await self.model.complete(prompt, schema=schema)
            return parse(reply, size)

        if not items:
            return []
        whole = render(items)
        much = not counts_at_once(self.count, len(whole))
        batches = await beside(much, self._batches, items, render, whole)
        if len(batches) == 1:
            return await judged(*batches[0])
        works = (judged(size, prompt) for size, prompt in batches)
        return [verdict for verdicts in await gather(*works) for verdict in verdicts]

    def _batches(
        self, items: Sequence[T], render: Callable[[Sequence[T]], str], whole: str
    ) -> list[tuple[int, str]]:
        """Cuts the items into runs; returns how many each has, and its prompt within the budget."""
        batches: list[tuple[int, str]] = []
        rest, prompt = list(items), whole
        while rest:
            batches.append(self._fitting(rest, render, prompt))
            rest = rest[batches[-1][0] :]
            prompt = render(rest) if rest else ""
        return batches

    def _fitting(
        self, items: Sequence[T], render: Callable[[Sequence[T]], str], whole: str
    ) -> tuple[int, str]:
        """Returns how many of the first items fit one prompt, at least 1, and that prompt."""
        low, high = 1, len(items)
        middle, prompt = high, whole
        while low < high:
            if within(prompt, self.max_prompt_tokens, self.count):
                low = middle
            else:
                high = middle - 1
            if middle != (low + high + 1) // 2:
                middle = (low + high + 1) // 2
                prompt = render(items[:middle])
        return low, prompt


def by_index(
    reply: str,
    name: str,
    count: int,
    *,
    read: Callable[[dict[str, Any], int], V],
    malformed: Malformed,
) -> list[V]:
    """Returns what a reply ``{"name": [{"index": 0, …}, …]}`` says of each index, in their order.

    The first complete JSON value is read; fences and prose around it are ignored, and nothing is
    repaired. Indices must be exactly the integers 0 … count − 1, where ``1.0`` and booleans are
    none.

    Args:
        reply: What the model said.
        name: Key of the list.
        count: How many items were asked about.
        read: Reads an entry, whose index it is given.
        malformed: Makes the error of a fault; nothing of the reply is told but an index.

    Raises:
        RagchatError: What `malformed` made, for anything else than one entry an index.
    """
    said: dict[int, V] = {}
    for position, entry in enumerate(_entries(reply, name, malformed)):
        if not isinstance(entry, dict):
            raise malformed(f"entry {position} is no object")
        index = entry.get("index")
        if type(index) is not int:
            raise malformed(f"entry {position} has no integer index but {kind_of(index)}")
        if not 0 <= index < count:
            named = str(index) if abs(index) < _NAMEABLE else "of many digits"
            raise malformed(f"index {named} lies outside 0 … {count - 1}")
        if index in said:
            raise malformed(f"index {index} occurs twice")
        said[index] = read(entry, index)
    if len(said) < count:
        index = next(index for index in range(count) if index not in said)
        raise malformed(f"index {index} of 0 … {count - 1} is missing")
    return [said[index] for index in range(count)]


def _entries(reply: str, name: str, malformed: Malformed) -> list[Any]:
    """Returns the list in the first complete JSON value of a reply."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise malformed("a key occurs twice in one object")
        return found

    value = first_json(reply, pairs=unique)
    if value is None:
        raise malformed("the reply holds no JSON object")
    entries = value.get(name) if isinstance(value, dict) else None
    if not isinstance(entries, list):
        raise malformed(f"the reply is no object with a list of {name}")
    return entries


def kind_of(value: object) -> str:
    """Returns what kind of value a reply holds where another one belongs, for an error."""
    kinds = {bool: "a boolean", str: "a string", float: "a fraction", type(None): "nothing"}
    return kinds.get(type(value), "another kind of value")
