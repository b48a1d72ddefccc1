"""`ClaimJudge`: a chat model says whether passages support the claims that cite them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast, get_args

from ragchat.errors import MalformedVerdicts
from ragchat.judging import Judge, by_index, kind_of
from ragchat_retrieval.text import clean_query
from ragchat_retrieval.values import indexed_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ragchat_retrieval.values import Passage

Verdict = Literal["supported", "partial", "unsupported", "contradicted"]
"""What a chat model says of a claim."""

VERDICTS_SCHEMA: Mapping[str, Any] = {
    "title": "verdicts",
    "type": "object",
    "properties": {
        "verdicts": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "index": {"type": "integer"},
                    "verdict": {"type": "string", "enum": list(get_args(Verdict))},
                },
                "required": ["index", "verdict"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["verdicts"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class ClaimJudge(Judge):
    """Judges claims by the passages that they cite, with a chat model.

    Claims and passages go to the model as JSON, each claim with an index from 0, each passage once
    a prompt. Claims that exceed the token budget are judged in several concurrent calls.

    Raises:
        InvalidSetting: The budget or the number of calls at a time is not positive, or `model` is
            no `ChatModel`.
        InvalidPrompt: The template is broken or lacks ``claims`` or ``passages``.
    """

    _task: ClassVar[str] = "verify"
    _variables: ClassVar[tuple[str, ...]] = ("claims", "passages")

    async def __call__(
        self, claims: Sequence[tuple[str, Sequence[int]]], passages: Mapping[int, Passage]
    ) -> list[Verdict]:
        """Returns one verdict per claim, in order.

        Without claims the model is not called.

        Args:
            claims: Each claim with the numbers of the passages that it cites, one or more.
            passages: The passages by number.

        Raises:
            MalformedVerdicts: A reply is not exactly one known verdict per index.
            ModelReplyError: A reply is missing, blank, cut, filtered or refused.
        """
        return await self._judged(
            claims,
            render=lambda batch: self._render(batch, passages),
            schema=VERDICTS_SCHEMA,
            parse=parse_verdicts,
        )

    def _render(
        self, claims: Sequence[tuple[str, Sequence[int]]], passages: Mapping[int, Passage]
    ) -> str:
        cited = sorted({number for _, numbers in claims for number in numbers})
        shown = [
            {"citation": number, "content": clean_query(indexed_text(passages[number]))}
            for number in cited
        ]
        asked = [
            {"index": index, "claim": clean_query(claim), "citations": list(numbers)}
            for index, (claim, numbers) in enumerate(claims)
        ]
        return self._prompt.render(passages=_array(shown), claims=_array(asked))


def parse_verdicts(reply: str, count: int) -> list[Verdict]:
    """Returns the verdicts of a reply ``{"verdicts": [{"index": 0, "verdict": "supported"}, …]}``.

    The first complete JSON value is read; fences and prose around it are ignored, and nothing is
    repaired. Indices must be exactly the integers 0 … count − 1.

    Raises:
        MalformedVerdicts: Anything else; it names the fault and quotes nothing.
    """
    return by_index(reply, "verdicts", count, read=_verdict, malformed=MalformedVerdicts)


def _verdict(entry: dict[str, Any], index: int) -> Verdict:
    value = entry.get("verdict")
    if not isinstance(value, str):
        raise MalformedVerdicts(f"index {index} has no verdict but {kind_of(value)}")
    if value not in get_args(Verdict):
        known = ", ".join(get_args(Verdict))
        raise MalformedVerdicts(f"the verdict of index {index} is none of {known}")
    return cast("Verdict", value)


def _array(entries: Sequence[Mapping[str, Any]]) -> str:
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
    return f"[{lines}]"
