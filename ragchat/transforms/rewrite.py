"""`RewriteTransformer`: the question as a search system wants it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ragchat.conversation import ConversationQuery
from ragchat.prompts import Prompt, PromptOverride, prompt_for
from ragchat.transforms.base import ask_for_query, named

if TYPE_CHECKING:
    from ragchat.models import ChatModel
    from ragchat_retrieval.values import Query


@dataclass(frozen=True, slots=True)
class RewriteTransformer:
    """Rewrites the question for one kind of search system; the history plays no part.

    The rewritten text replaces the query's text, and texts of single lanes go with the old one.

    Raises:
        InvalidSetting: The target is blank.
        InvalidPrompt: The template is broken or lacks ``target`` or ``query``.
    """

    model: ChatModel
    target: str
    """What will run the query, in words: ``vector store``, ``web search engine``, …"""

    prompt: PromptOverride | None = field(default=None, kw_only=True)
    """Replaces the packaged prompt: a template as text, or the path of one."""

    _prompt: Prompt = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "target", named("target", self.target))
        loaded = prompt_for(self.model, "rewrite", self.prompt, required=("target", "query"))
        put(self, "_prompt", loaded)

    async def __call__(self, given: ConversationQuery | Query) -> Query:
        """Returns the query with its text rewritten.

        Raises:
            ModelReplyError: The model's reply cannot be used.
        """
        query = ConversationQuery.of(given).query
        prompt = self._prompt.render(target=self.target, query=query.text)
        return query.with_text(await ask_for_query(self.model, prompt, asked=query.text))
