"""`HistoryExpansionTransformer`: the conversation reaches retrieval without a model.

Earlier turns become weighted context beside the question, never glued to it. The shorter the
question, the more it leans on what was said before; and the less an earlier turn resembles it, the
more it adds, which is why the index damps similar context.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.lexical import DEFAULT_ANALYZER, Analyzer
from ragchat_retrieval.values import ContextText

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ragchat.conversation import ConversationQuery, Turn
    from ragchat_retrieval.values import Query


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryExpansionTransformer:
    """Fills ``Query.context`` from earlier user and assistant turns.

    The default weights are measured on the conversations of MTRAG (ClapNQ, FiQA, Govt), with the
    default hybrid search.

    Raises:
        InvalidSetting: A weight is negative or not finite, or `gains` is not as described.
    """

    lexical_user: float = 0.4
    """Weight in the keyword lane of all earlier user turns together, shared equally."""

    lexical_assistant: float = 0.03
    """Weight in the keyword lane of the last assistant turn."""

    semantic_user: float = 0.4
    """Weight in the vector lane of the recent user turns, joined; times the gain, and damped."""

    semantic_assistant: float = 0.4
    """Weight in the vector lane of the last assistant turn; times the gain, and damped."""

    recent: int = 3
    """How many of the last user turns are joined for the vector lane."""

    gains: tuple[tuple[float, float], ...] = ((3, 1.0), (5, 0.7), (8, 0.4), (math.inf, 0.2))
    """Pairs (most content terms in the question, gain of the vector lane), ascending, the first
    that applies; more terms than in any pair mean a gain of 0."""

    analyzer: Analyzer = DEFAULT_ANALYZER
    """Tells content terms; they count once each."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "gains", tuple((most, gain) for most, gain in self.gains))
        weights = {
            name: getattr(self, name)
            for name in ("lexical_user", "lexical_assistant", "semantic_user", "semantic_assistant")
        }
        weights |= {f"gains[{index}]": gain for index, (_, gain) in enumerate(self.gains)}
        for name, weight in weights.items():
            if not (math.isfinite(weight) and weight >= 0):
                raise InvalidSetting(name, "must be a finite number, 0 or more")
        limits = [most for most, _ in self.gains]
        if limits != sorted(limits):
            raise InvalidSetting("gains", "must ascend by the number of terms")
        if self.recent < 1:
            raise InvalidSetting("recent", "must be 1 or more")

    async def __call__(self, conversation: ConversationQuery) -> Query:
        """Returns what `expanded` returns."""
        return self.expanded(conversation)

    def expanded(self, conversation: ConversationQuery) -> Query:
        """Returns the query with context; the query itself where nothing was said before."""
        spoken = [turn for turn in conversation.turns if turn.text.strip()]
        context = self._context(conversation.query.text, spoken)
        if not context:
            return conversation.query
        query = conversation.query
        return replace(query, context=(*query.context, *context))

    def _context(self, question: str, spoken: Sequence[Turn]) -> list[ContextText]:
        asked = [turn.text for turn in spoken if turn.role == "user"]
        answered = [turn.text for turn in spoken if turn.role == "assistant"]
        gain = self._gain(question)
        context = [ContextText(text, lexical=self.lexical_user / len(asked)) for text in asked]
        if asked:
            recent = "\n".join(asked[-self.recent :])
            semantic = self.semantic_user * gain
            if len(asked) == 1:
                context = [replace(context[0], semantic=semantic, damp=True)]
            else:
                context.append(ContextText(recent, semantic=semantic, damp=True))
        if answered:
            context.append(
                ContextText(
                    answered[-1],
                    lexical=self.lexical_assistant,
                    semantic=self.semantic_assistant * gain,
                    damp=True,
                )
            )
        return [text for text in context if text.lexical or text.semantic]

    def _gain(self, question: str) -> float:
        terms = len(set(self.analyzer.terms(question)))
        return next((gain for most, gain in self.gains if terms <= most), 0.0)
