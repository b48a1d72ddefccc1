"""`LLMReranker`: a chat model scores candidates against a question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic_core import to_json

from ragchat.judging import Judge, by_index, kind_of
from ragchat_retrieval.errors import MalformedRanking
from ragchat_retrieval.text import clean_query
from ragchat_retrieval.values import indexed_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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


@dataclass(frozen=True, slots=True)
class LLMReranker(Judge):
    """Scores every candidate from 0 to 1 with a chat model.

    Candidates go to the model as JSON, each with its content and an index from 0, and with nothing
    else that could identify it. A pool that exceeds the token budget is scored in several
    concurrent calls, each with indices of its own.

    Raises:
        InvalidSetting: The budget or the number of calls at a time is not positive, or `model` is
            no `ChatModel`.
        InvalidPrompt: The template is broken or lacks ``query`` or ``documents``.
    """

    _task: ClassVar[str] = "rerank"
    _variables: ClassVar[tuple[str, ...]] = ("query", "documents")

    async def __call__(self, query: Query, candidates: Sequence[Candidate]) -> list[float]:
        """Returns one score in [0, 1] per candidate, in the order of the input.

        Without candidates the model is not called.

        Raises:
            MalformedRanking: A reply is not exactly one score per index; it names the fault.
            ModelReplyError: A reply is missing, blank, cut, filtered or refused.
        """
        contents = [clean_query(indexed_text(candidate.passage)) for candidate in candidates]
        return await self._judged(
            contents,
            render=lambda batch: self._render(query.text, batch),
            schema=RANKING_SCHEMA,
            parse=parse_ranking,
        )

    def _render(self, question: str, contents: Sequence[str]) -> str:
        # Writing texts takes the `json` module three times as long.
        documents = ",\n".join(
            f'{{"index": {index}, "content": {to_json(content).decode()}}}'
            for index, content in enumerate(contents)
        )
        return self._prompt.render(query=question, documents=f"[{documents}]")


def parse_ranking(reply: str, count: int) -> list[float]:
    """Returns the scores of a reply ``{"scores": [{"index": 0, "score": 0.9}, …]}``, by index.

    The first complete JSON value is read; fences and prose around it are ignored, and nothing is
    repaired. Indices must be exactly the integers 0 … count − 1, where ``1.0`` and booleans are
    none, and scores finite numbers in [0, 1].

    Raises:
        MalformedRanking: Anything else; it names the fault and quotes nothing.
    """
    return by_index(reply, "scores", count, read=_score, malformed=MalformedRanking)


def _score(entry: dict[str, Any], index: int) -> float:
    value: Any = entry.get("score")
    if type(value) not in (int, float):
        raise MalformedRanking(f"index {index} has no number as its score but {kind_of(value)}")
    if not 0 <= value <= 1:  # NaN is not
        raise MalformedRanking(f"the score of index {index} lies outside 0 … 1")
    return float(value)
