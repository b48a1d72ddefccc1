"""`HydeTransformer`: a hypothetical answer, for the vector lane.

The method is that of Gao, Ma, Lin and Callan, "Precise Zero-Shot Dense Retrieval without Relevance
Labels" (2022): a made-up passage lies closer to real answers than the question does.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ragchat.conversation import ConversationQuery
from ragchat.prompts import Prompt, PromptOverride, prompt_for
from ragchat.transforms.base import bare

if TYPE_CHECKING:
    from ragchat.models import ChatModel
    from ragchat_retrieval.values import Query


@dataclass(frozen=True, slots=True)
class HydeTransformer:
    """Lets the vector lane search with a passage that could answer the question.

    The keyword lane keeps the question: made-up facts must not become search terms.

    Raises:
        InvalidPrompt: The template is broken or lacks ``query``.
    """

    model: ChatModel
    prompt: PromptOverride | None = field(default=None, kw_only=True)
    """Replaces the packaged prompt: a template as text, or the path of one."""

    _prompt: Prompt = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        loaded = prompt_for(self.model, "hyde", self.prompt, required=("query",))
        object.__setattr__(self, "_prompt", loaded)

    async def __call__(self, given: ConversationQuery | Query) -> Query:
        """Returns the query with a hypothetical passage as its ``semantic`` text.

        Raises:
            ModelReplyError: The model's reply cannot be used.
        """
        query = ConversationQuery.of(given).query
        reply = await self.model.complete(self._prompt.render(query=query.text))
        return replace(query, semantic=bare(reply, self.model, asked=query.text))
