"""`TranslationTransformer`: the question in the language of the documents."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from ragchat.conversation import ConversationQuery
from ragchat.prompts import Prompt, PromptOverride
from ragchat.transforms.base import ask_for_query, named
from ragchat_retrieval.errors import InvalidSetting

if TYPE_CHECKING:
    from ragchat.models import ChatModel
    from ragchat_retrieval.values import Query


@dataclass(frozen=True, slots=True)
class TranslationTransformer:
    """Translates the question; the history plays no part.

    With ``lanes="both"`` the translation replaces the query's text. With ``lanes="keyword"`` it
    serves the keyword lane only, beside the original, which a multilingual embedding model
    understands better than a translation.

    Raises:
        InvalidSetting: The language is blank or `lanes` unknown.
        InvalidPrompt: The template is broken or lacks ``language`` or ``query``.
    """

    model: ChatModel
    language: str
    """The language of the documents, as a person would name it: ``English``."""

    lanes: Literal["both", "keyword"] = "both"
    prompt: PromptOverride | None = field(default=None, kw_only=True)
    _prompt: Prompt = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.lanes not in {"both", "keyword"}:
            raise InvalidSetting("lanes", "must be 'both' or 'keyword'")
        put = object.__setattr__
        put(self, "language", named("language", self.language))
        loaded = Prompt.load(
            "translate", required=("language", "query"), override=self.prompt or self.model.prompts
        )
        put(self, "_prompt", loaded)

    async def __call__(self, given: ConversationQuery | Query) -> Query:
        """Returns the query with its translation.

        Raises:
            ModelReplyError: The model's reply cannot be used.
        """
        query = ConversationQuery.of(given).query
        prompt = self._prompt.render(language=self.language, query=query.text)
        translation = await ask_for_query(self.model, prompt)
        if self.lanes == "keyword":
            return replace(query, lexical=translation)
        return query.with_text(translation)
