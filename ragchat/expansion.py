"""`MultiQueryExpander`: one question in several wordings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ragchat.errors import EmptyExpansion, InvalidExpansion
from ragchat.prompts import Prompt, PromptOverride, prompt_for
from ragchat.replies import distinct, wordings
from ragchat_retrieval.errors import InvalidSetting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ragchat.models import ChatModel
    from ragchat_retrieval.values import Query

DEFAULT_COUNT = 3
"""How many variants a count of 0 means."""


@dataclass(frozen=True, slots=True)
class MultiQueryExpander:
    """Asks a model for other wordings of a query.

    Raises:
        InvalidSetting: `n` is negative.
        InvalidPrompt: The template is broken or lacks ``number`` or ``query``.
    """

    model: ChatModel
    n: int = DEFAULT_COUNT
    """How many variants; 0 means 3."""

    include_original: bool = False
    """Whether the query itself comes first in the result."""

    prompt: PromptOverride | None = field(default=None, kw_only=True)
    """Replaces the packaged prompt: a template as text, or the path of one."""

    _prompt: Prompt = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if type(self.n) is not int or self.n < 0:
            raise InvalidSetting("n", "must be an integer, 0 or more")
        put = object.__setattr__
        put(self, "n", self.n or DEFAULT_COUNT)
        loaded = prompt_for(self.model, "expand", self.prompt, required=("number", "query"))
        put(self, "_prompt", loaded)

    async def __call__(self, query: Query) -> list[Query]:
        """Returns exactly `n` distinct variants, after the query itself if it is included.

        Everything but the text is the query's own, texts of single lanes excepted: they belong to
        the old wording.

        Raises:
            EmptyExpansion: The reply holds no usable variant.
            InvalidExpansion: It holds fewer than `n`.
            ModelReplyError: The reply is missing, blank, cut, filtered or refused.
        """
        prompt = self._prompt.render(number=self.n, query=query.text)
        reply = await self.model.complete(prompt, schema=_schema(self.n))
        variants = list(distinct(wordings(reply), query.text))[: self.n]
        if not variants:
            raise EmptyExpansion
        if len(variants) < self.n:
            raise InvalidExpansion(self.n, len(variants))
        expanded = [query.with_text(text) for text in variants]
        return [query, *expanded] if self.include_original else expanded


def _schema(n: int) -> Mapping[str, Any]:
    # Strict schemas of some providers know no item counts, so only the prompt says how many.
    return {
        "title": "queries",
        "description": f"{n} wordings",
        "type": "object",
        "properties": {"queries": {"type": "array", "items": {"type": "string"}}},
        "required": ["queries"],
        "additionalProperties": False,
    }
