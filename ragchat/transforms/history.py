"""`HistoryExpansionTransformer`: the conversation reaches retrieval without a model.

What a user said before and the last answer took up is what the conversation is about. These shared
words become weighted context beside the question: in the keyword lane as words that weigh more than
the rest of the earlier turns, in the vector lane as a second wording, the question with the shared
words behind it. The last answer adds its meaning, damped by the index as far as it resembles the
question already. The shorter the question, the more it leans on what was said before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ragchat.citations import Citations
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.lexical import DEFAULT_ANALYZER, Analyzer, is_paired
from ragchat_retrieval.stages import beside
from ragchat_retrieval.values import ContextText

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ragchat.conversation import ConversationQuery, Turn
    from ragchat_retrieval.values import Query

_WEIGHTS = ("lexical_user", "lexical_shared", "semantic_shared", "semantic_assistant")


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryExpansionTransformer:
    """Fills ``Query.context`` from earlier user and assistant turns.

    The default weights are the best of a small grid on the conversations of MTRAG Govt, and were
    checked on those of ClapNQ and FiQA (``benchmarks/history.py``).

    Raises:
        InvalidSetting: A weight is negative or not finite, or `gains` is not as described.
    """

    lexical_user: float = 0.1
    """Weight in the keyword lane of all earlier user turns together, shared equally."""

    lexical_shared: float = 0.3
    """Weight in the keyword lane of each word that an earlier user turn and the last assistant turn
    share and that the question lacks; if there is none, of the last user turn's words."""

    semantic_shared: float = 0.3
    """Weight in the vector lane of the question with those words behind it; times the gain."""

    semantic_assistant: float = 0.6
    """Weight in the vector lane of the last assistant turn; times the gain, and damped."""

    gains: tuple[tuple[float, float], ...] = ((3, 1.0), (5, 0.7), (8, 0.4), (math.inf, 0.2))
    """Pairs (most content terms in the question, gain of the vector lane), ascending, the first
    that applies; more terms than in any pair mean a gain of 0."""

    analyzer: Analyzer = DEFAULT_ANALYZER
    """Tells content terms."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "gains", tuple((most, gain) for most, gain in self.gains))
        weights = {name: getattr(self, name) for name in _WEIGHTS}
        weights |= {f"gains[{index}]": gain for index, (_, gain) in enumerate(self.gains)}
        for name, weight in weights.items():
            if not (math.isfinite(weight) and weight >= 0):
                raise InvalidSetting(name, "must be a finite number, 0 or more")
        limits = [most for most, _ in self.gains]
        if limits != sorted(limits):
            raise InvalidSetting("gains", "must ascend by the number of terms")

    async def __call__(self, conversation: ConversationQuery) -> Query:
        """Returns what `expanded` returns; a long history is read in a worker thread."""
        return await beside(conversation.is_long, self.expanded, conversation)

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
        answer = next((turn.text for turn in reversed(spoken) if turn.role == "assistant"), "")
        answer = Citations().rewrite(answer, "strip").text.strip()  # its numbers are no words
        known = set(self.analyzer.terms(question))
        gain = next((gain for most, gain in self.gains if len(known) <= most), 0.0)
        last = asked[-1] if asked else ""
        shared = self._shared(known, asked, answer) or self._shared(known, [last], last)
        wording = f"{question} {shared}" if shared else ""
        context = [
            *(ContextText(text, lexical=self.lexical_user / len(asked)) for text in asked),
            ContextText(shared, lexical=self.lexical_shared),
            ContextText(wording, semantic=self.semantic_shared * gain),
            ContextText(answer, semantic=self.semantic_assistant * gain, damp=True),
        ]
        return [given for given in context if given.text and (given.lexical or given.semantic)]

    def _shared(self, known: set[str], asked: Sequence[str], answer: str) -> str:
        """Returns the words of user turns that an answer took up, each term once."""
        said = " ".join(asked)
        shared = set(self.analyzer.terms(answer)).intersection(self.analyzer.terms(said)) - known
        words: list[str] = []
        for chunk in dict.fromkeys(said.split()):
            if not shared:
                break
            terms = self.analyzer.terms(chunk)
            if shared.isdisjoint(terms):
                continue
            # Where words have no spaces between them, a chunk may be a sentence.
            words += _runs(terms, shared) if is_paired(chunk) else [chunk]
            shared.difference_update(terms)
        return " ".join(words)


def _runs(terms: Sequence[str], kept: set[str]) -> list[str]:
    """Joins those terms of a text that are kept where one goes on with the end of the other."""
    runs: list[str] = []
    previous = ""
    for term in terms:
        if term not in kept:
            previous = ""
            continue
        if previous and is_paired(previous) and previous[-1] == term[0]:
            runs[-1] += term[1:]
        else:
            runs.append(term)
        previous = term
    return runs
