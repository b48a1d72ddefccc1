"""`LLMReranker`: a chat model scores candidates against a question."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ragchat.json_search import first_json
from ragchat.prompts import Prompt, PromptOverride
from ragchat_retrieval.errors import InvalidSetting, MalformedRanking
from ragchat_retrieval.policy import gather
from ragchat_retrieval.text import clean_query
from ragchat_retrieval.tokens import count_tokens
from ragchat_retrieval.values import indexed_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ragchat.conversation import TokenCounter
    from ragchat.models import ChatModel
    from ragchat_retrieval.values import Candidate, Query

RANKING_SCHEMA: Mapping[str, Any] = {
    "title": "ranking",
    "type": "object",
    "properties": {
        "scores": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"index": {"type": "integer"}, "score": {"type": "number"}},
                "required": ["index", "score"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["scores"],
    "additionalProperties": False,
}

_NAMEABLE = 10**9


@dataclass(frozen=True, slots=True)
class LLMReranker:
    """Scores every candidate from 0 to 1 with a chat model.

    Candidates go to the model as JSON, each with its content and an index from 0, and with nothing
    else that could identify it. A pool that exceeds the token budget is scored in several
    concurrent calls, each with indices of its own.

    Raises:
        InvalidSetting: The budget or the number of calls at a time is not positive.
        InvalidPrompt: The template is broken or lacks ``query`` or ``documents``.
    """

    model: ChatModel
    max_prompt_tokens: int = field(default=8000, kw_only=True)
    """Most tokens of one prompt. A candidate that is longer by itself goes alone."""

    count: TokenCounter = field(default=count_tokens, kw_only=True)
    """Counts them; by default exactly, in ``o200k_base``."""

    concurrency: int = field(default=4, kw_only=True)
    """Most calls at a time."""

    prompt: PromptOverride | None = field(default=None, kw_only=True)
    _prompt: Prompt = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("max_prompt_tokens", "concurrency"):
            if getattr(self, name) < 1:
                raise InvalidSetting(name, "must be 1 or more")
        loaded = Prompt.load(
            "rerank", required=("query", "documents"), override=self.prompt or self.model.prompts
        )
        object.__setattr__(self, "_prompt", loaded)

    async def __call__(self, query: Query, candidates: Sequence[Candidate]) -> list[float]:
        """Returns one score in [0, 1] per candidate, in the order of the input.

        Without candidates the model is not called.

        Raises:
            MalformedRanking: A reply is not exactly one score per index; it names the fault.
            ModelReplyError: A reply is missing, blank, cut, filtered or refused.
        """
        if not candidates:
            return []
        contents = [clean_query(indexed_text(candidate.passage)) for candidate in candidates]
        limit = asyncio.Semaphore(self.concurrency)

        async def scored(batch: Sequence[str]) -> list[float]:
            async with limit:
                prompt = self._render(query.text, batch)
                reply = await self.model.complete(prompt, schema=RANKING_SCHEMA)
            return parse_ranking(reply, len(batch))

        batches = await asyncio.to_thread(self._batches, query.text, contents)
        return [score for scores in await gather(*map(scored, batches)) for score in scores]

    def _render(self, question: str, contents: Sequence[str]) -> str:
        documents = ",\n".join(
            json.dumps({"index": index, "content": content}, ensure_ascii=False)
            for index, content in enumerate(contents)
        )
        return self._prompt.render(query=question, documents=f"[{documents}]")

    def _batches(self, question: str, contents: Sequence[str]) -> list[Sequence[str]]:
        """Cuts the pool into runs whose finished prompts fit the budget."""
        batches: list[Sequence[str]] = []
        rest = list(contents)
        while rest:
            size = self._fitting(question, rest)
            batches.append(rest[:size])
            rest = rest[size:]
        return batches

    def _fitting(self, question: str, contents: Sequence[str]) -> int:
        """Returns how many of the first contents fit one prompt, at least 1."""
        low, high = 1, len(contents)
        middle = high
        while low < high:
            if self.count(self._render(question, contents[:middle])) <= self.max_prompt_tokens:
                low = middle
            else:
                high = middle - 1
            middle = (low + high + 1) // 2
        return low


def parse_ranking(reply: str, count: int) -> list[float]:
    """Returns the scores of a reply ``{"scores": [{"index": 0, "score": 0.9}, …]}``, by index.

    The first complete JSON value is read; fences and prose around it are ignored, and nothing is
    repaired. Indices must be exactly the integers 0 … count − 1, where ``1.0`` and booleans are
    none, and scores finite numbers in [0, 1].

    Raises:
        MalformedRanking: Anything else; it names the fault and quotes nothing.
    """
    ranking = first_json(reply, pairs=_unique)
    if ranking is None:
        raise MalformedRanking("the reply holds no JSON object")
    entries = ranking.get("scores") if isinstance(ranking, dict) else None
    if not isinstance(entries, list):
        raise MalformedRanking("the reply is no object with a list of scores")
    scores: dict[int, float] = {}
    for position, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise MalformedRanking(f"entry {position} is no object")
        index = _index(entry.get("index"), position, count)
        if index in scores:
            raise MalformedRanking(f"index {index} occurs twice")
        scores[index] = _score(entry.get("score"), index)
    for index in range(count):
        if index not in scores:
            raise MalformedRanking(f"index {index} of 0 … {count - 1} is missing")
    return [scores[index] for index in range(count)]


def _index(value: object, position: int, count: int) -> int:
    if type(value) is not int:
        raise MalformedRanking(f"entry {position} has no integer index but {_kind(value)}")
    if not 0 <= value < count:
        named = str(value) if abs(value) < _NAMEABLE else "of many digits"
        raise MalformedRanking(f"index {named} lies outside 0 … {count - 1}")
    return value


def _score(value: object, index: int) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MalformedRanking(f"index {index} has no number as its score but {_kind(value)}")
    if not 0 <= value <= 1:  # NaN is not
        raise MalformedRanking(f"the score of index {index} lies outside 0 … 1")
    return float(value)


def _kind(value: object) -> str:
    kinds = {bool: "a boolean", str: "a string", float: "a fraction", type(None): "nothing"}
    return kinds.get(type(value), "another kind of value")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        raise MalformedRanking("a key occurs twice in one object")
    return unique
