"""What the conversation transformers share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ragchat.errors import EmptyModelOutput, MissingModelOutput, OverlongModelOutput
from ragchat.json_search import first_object
from ragchat.replies import begins_json, clean_text, is_overlong
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.text import clean_query

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from ragchat.conversation import ConversationQuery
    from ragchat.models import ChatModel
    from ragchat_retrieval.values import Query


class ConversationTransformer(Protocol):
    """Turns a conversation into a query. A bare async or sync function of this shape will do."""

    def __call__(
        self, conversation: ConversationQuery, /
    ) -> Awaitable[Query | None] | Query | None:
        """Returns the query to retrieve with; None is to retrieve nothing this turn."""
        ...


QUERY_SCHEMA: Mapping[str, Any] = {
    "title": "query",
    "type": "object",
    "properties": {"query": {"type": "string"}},
    "required": ["query"],
    "additionalProperties": False,
}


async def ask_for_query(model: ChatModel, prompt: str, *, asked: str) -> str:
    """Asks a model for one query and returns its text, never blank.

    A JSON object with a text under ``query``, or with one text only, is read first; a reply that is
    no JSON is the text itself.

    Args:
        model: The model.
        prompt: What it is told.
        asked: The question that the query is made of.

    Raises:
        ModelReplyError: The reply is missing, blank, overlong, cut, filtered or refused, or it is
            JSON without that text, or broken.
    """
    reply = await model.complete(prompt, schema=QUERY_SCHEMA)
    given = first_object(reply)
    if isinstance(text := given.get("query"), str):
        return bare(text, model, asked=asked)
    if not begins_json(clean_text(reply)):
        return bare(reply, model, asked=asked)
    texts = [value for value in given.values() if isinstance(value, str)]
    if len(texts) != 1:
        raise MissingModelOutput(model=model.model)
    return bare(texts[0], model, asked=asked)


def bare(text: str, model: ChatModel, *, asked: str) -> str:
    """Returns the bare answer in `text`.

    Raises:
        EmptyModelOutput: Nothing is left of it.
        OverlongModelOutput: It is far longer than the question that it is made of.
    """
    answer = clean_query(clean_text(text))
    if not answer:
        raise EmptyModelOutput(model=model.model)
    if is_overlong(answer, asked):
        raise OverlongModelOutput(model=model.model)
    return answer


def named(name: str, value: str) -> str:
    """Returns a setting without outer blanks.

    Raises:
        InvalidSetting: It is blank.
    """
    stripped = value.strip()
    if not stripped:
        raise InvalidSetting(name, "must not be blank")
    return stripped
