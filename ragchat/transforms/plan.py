"""`QueryPlanner`: one model call decides whether to search, with which question and wordings."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from ragchat.conversation import ConversationQuery, shown_history
from ragchat.errors import MissingModelOutput
from ragchat.json_search import first_object
from ragchat.prompts import Prompt, PromptOverride, prompt_for
from ragchat.replies import distinct, texts_in, wordings
from ragchat.transforms.base import bare
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.tokens import count_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ragchat.models import ChatModel
    from ragchat.tokens import TokenCounter
    from ragchat_retrieval.values import Query

_NO = frozenset({"false", "no"})
_LABEL = re.compile(r"[\s*_#>+-]*(retrieve|query|variants)[\s*_]*[:=][\s*_]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class QueryPlanner:
    """Plans the retrieval of a turn in one model call, where others need one for each step.

    The reply says whether there is anything to retrieve, gives the question so that it stands
    without the conversation, and gives other wordings of it. Those become `Query.variants`, so that
    a pipeline does not ask its expander; with none, it does. The model sees what
    `CompressionTransformer` would show it, and is asked without a history too.

    Raises:
        InvalidSetting: `variants` is negative, or the window is not positive.
        InvalidPrompt: The template is broken or lacks ``history``, ``query`` or ``number``.
    """

    model: ChatModel
    variants: int = 3
    """Most other wordings; 0 asks for none."""

    max_history_tokens: int = field(default=4000, kw_only=True)
    """Most tokens of history in the prompt."""

    count: TokenCounter = field(default=count_tokens, kw_only=True)
    """Counts them; by default exactly, in ``o200k_base``."""

    prompt: PromptOverride | None = field(default=None, kw_only=True)
    """Replaces the packaged prompt: a template as text, or the path of one."""

    _prompt: Prompt = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if type(self.variants) is not int or self.variants < 0:
            raise InvalidSetting("variants", "must be an integer, 0 or more")
        if type(self.max_history_tokens) is not int or self.max_history_tokens < 1:
            raise InvalidSetting("max_history_tokens", "must be an integer, 1 or more")
        loaded = prompt_for(
            self.model, "plan", self.prompt, required=("history", "query", "number")
        )
        object.__setattr__(self, "_prompt", loaded)

    async def __call__(self, given: ConversationQuery | Query) -> Query | None:
        """Returns the query to search with; None if this turn needs no retrieval.

        Only a clear no is one: with anything else under ``retrieve``, the turn is searched for.

        Raises:
            ModelReplyError: The model's reply cannot be used.
        """
        conversation = ConversationQuery.of(given)
        query = conversation.query
        history = await shown_history(
            conversation, max_tokens=self.max_history_tokens, count=self.count
        )
        prompt = self._prompt.render(history=history, query=query.text, number=self.variants)
        reply = await self.model.complete(prompt, schema=_schema(self.variants))
        plan = _fields(reply)
        if str(plan.get("retrieve")).strip().casefold() in _NO:
            return None
        text = plan.get("query")
        if not isinstance(text, str):
            raise MissingModelOutput(model=self.model.model)
        question = bare(text, self.model, asked=query.text)
        listed = plan.get("variants")
        others = distinct(texts_in(listed) if isinstance(listed, list) else (), question)
        return replace(query.with_text(question), variants=tuple(islice(others, self.variants)))


def _fields(reply: str) -> Mapping[str, object]:
    """Reads a reply: a JSON object, else lines such as ``query: …``; empty if it is neither."""
    return first_object(reply) or _labelled(reply.splitlines())


def _labelled(written: Iterable[str]) -> dict[str, object]:
    """Reads lines that begin with a field's name; the lines after ``variants:`` are its items."""
    found: dict[str, object] = {}
    last = ""
    rest: list[str] = []
    for line in written:
        if label := _LABEL.match(line):
            last = label[1].lower()
            found[last] = line[label.end() :].rstrip(" *_")
        elif last == "variants":
            rest.append(line)
    if "variants" in found:
        found["variants"] = wordings("\n".join([str(found["variants"]), *rest]))
    return found


def _schema(number: int) -> Mapping[str, Any]:
    # Strict schemas of some providers know no item counts, so only the prompt says how many.
    properties: dict[str, Any] = {"retrieve": {"type": "boolean"}, "query": {"type": "string"}}
    if number:
        properties["variants"] = {"type": "array", "items": {"type": "string"}}
    return {
        "title": "plan",
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
