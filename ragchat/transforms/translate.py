"""`TranslationTransformer`: the question in the language of the documents."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from ragchat.conversation import ConversationQuery
from ragchat.prompts import Prompt, PromptOverride, prompt_for
from ragchat.transforms.base import ask_for_query, named
from ragchat.transforms.scripts import surely_in
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.values import ContextText

if TYPE_CHECKING:
    from ragchat.models import ChatModel
    from ragchat_retrieval.values import Query


ORIGINAL_WEIGHT = 0.25
"""Weight of the question's own words in the keyword lane, beside a translation's at 1.

Names and codes that a translation changed are still found, and so are documents in the question's
own language; at full weight, words that mean something else in the other language would do harm
(``benchmarks/RESULTS.md``).
"""


@dataclass(frozen=True, slots=True)
class TranslationTransformer:
    """Translates the question; the history plays no part.

    With ``lanes="both"`` the translation replaces the query's text. With ``lanes="keyword"`` it
    serves the keyword lane only, and the original is kept beside it: as it is in the vector lane,
    where a multilingual embedding model understands it better than a translation, and with a
    quarter of the weight in the keyword lane.

    The model is not asked if the question is certain to be in that language already, which only a
    script of its own can tell (`ragchat.transforms.scripts`); for English it is always asked.

    Raises:
        InvalidSetting: The language is blank or `lanes` unknown.
        InvalidPrompt: The template is broken or lacks ``language`` or ``query``.
    """

    model: ChatModel
    language: str
    """The language of the documents by its English name or two-letter code: ``English``, ``ja``."""

    lanes: Literal["both", "keyword"] = "both"
    prompt: PromptOverride | None = field(default=None, kw_only=True)
    """Replaces the packaged prompt: a template as text, or the path of one."""

    _prompt: Prompt = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.lanes not in {"both", "keyword"}:
            raise InvalidSetting("lanes", "must be 'both' or 'keyword'")
        put = object.__setattr__
        put(self, "language", named("language", self.language))
        loaded = prompt_for(self.model, "translate", self.prompt, required=("language", "query"))
        put(self, "_prompt", loaded)

    async def __call__(self, given: ConversationQuery | Query) -> Query:
        """Returns the query with its translation; as it is where it needs none.

        Raises:
            ModelReplyError: The model's reply cannot be used.
        """
        query = ConversationQuery.of(given).query
        if surely_in(query.text, self.language):
            return query
        prompt = self._prompt.render(language=self.language, query=query.text)
        translation = await ask_for_query(self.model, prompt, asked=query.text)
        if self.lanes == "keyword":
            return _beside(query, translation)
        return query.with_text(translation)


def _beside(query: Query, translation: str) -> Query:
    if translation.casefold() == query.text.casefold():
        return query
    original = ContextText(query.text, lexical=ORIGINAL_WEIGHT)
    return replace(query, lexical=translation, context=(*query.context, original))
