"""Asking the topics of a test collection as a conversation would, for their evaluation.

A topic may be the last turn of a conversation. How well its history is used is measured against
the turn alone and, where the collection has one, against a person's stand-alone rewrite.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ragchat.conversation import ConversationQuery
from ragchat.transforms import HistoryExpansionTransformer
from ragchat_retrieval.stages import call_stage
from ragchat_retrieval.text import clean_query

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ragchat_retrieval.evaluation import Topic
    from ragchat_retrieval.evaluation.evaluating import Asker
    from ragchat_retrieval.values import Query

    Transformer = Callable[[ConversationQuery], Query | Awaitable[Query]]

QUESTION = "question"
HISTORY = "history expansion"
LAST_TURN = "last turn"
REWRITE = "rewrite"
"""The ways of asking, as reports call them; `REWRITE` is also the queries' field."""


def in_conversation(transformer: Transformer | None = None) -> Asker:
    """Returns what asks a topic with its history, as a `Preparer` would.

    Args:
        transformer: Makes one query of a conversation; None is `HistoryExpansionTransformer()`.
    """
    chosen: Transformer = transformer or HistoryExpansionTransformer()

    async def ask(topic: Topic) -> Query:
        query: Query = await call_stage(chosen, ConversationQuery(topic.query, topic.history))
        return query.bounded_by(topic.query)

    return ask


def last_turn(topic: Topic) -> Query:
    """Asks the question as it stands, without its history."""
    return topic.query


def rewritten(topic: Topic) -> Query:
    """Asks the rewrite of a person, where the topic has one."""
    text = topic.fields.get(REWRITE)
    if not isinstance(text, str) or not clean_query(text):
        return topic.query
    return replace(topic.query, text=text)


def ways_of_asking(
    topics: Sequence[Topic], transformer: Transformer | None = None
) -> dict[str, Asker]:
    """Returns the ways of asking that topics allow for, the one that a `Preparer` takes first.

    Args:
        topics: Those of one collection.
        transformer: As for `in_conversation`.
    """
    if not any(topic.history for topic in topics):
        return {QUESTION: last_turn}
    ways: dict[str, Asker] = {HISTORY: in_conversation(transformer), LAST_TURN: last_turn}
    if any(isinstance(topic.fields.get(REWRITE), str) for topic in topics):
        ways[REWRITE] = rewritten
    return ways
