"""`chain`: several conversation transformers, one after the other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ragchat.conversation import ConversationQuery
from ragchat_retrieval.foreign import query_of
from ragchat_retrieval.kinds import check_callable
from ragchat_retrieval.stages import call_stage

if TYPE_CHECKING:
    from ragchat.transforms.base import ConversationTransformer
    from ragchat_retrieval.values import Query


@dataclass(frozen=True, slots=True)
class Chain:
    """Transformers in order; made by `chain`."""

    transformers: tuple[ConversationTransformer, ...]

    async def __call__(self, given: ConversationQuery | Query) -> Query | None:
        """Returns what the last transformer made of it; None as soon as one returns None.

        Raises:
            InvalidQuery: A transformer returned something that is neither.
        """
        conversation = ConversationQuery.of(given)
        query = conversation.query
        for transformer in self.transformers:
            outcome = await call_stage(transformer, replace(conversation, query=query))
            if outcome is None:
                return None
            query = query_of(outcome, conversation.query, stage="transform")
        return query


def chain(*transformers: ConversationTransformer) -> Chain:
    """Returns a transformer that runs these one after the other.

    Each gets the query of the one before it and the same history. The caller's filter, scope and
    top_k stand after every step, whatever a transformer returned.

    Raises:
        InvalidSetting: One cannot be called.
    """
    for transformer in transformers:
        check_callable("transformers", transformer, "callable, as HistoryExpansionTransformer() is")
    return Chain(transformers)
