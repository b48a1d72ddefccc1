"""`CompressionTransformer`: history and follow-up become one stand-alone question."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ragchat.conversation import ConversationQuery, shown_history
from ragchat.prompts import Prompt, PromptOverride, prompt_for
from ragchat.transforms.base import ask_for_query
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.tokens import count_tokens

if TYPE_CHECKING:
    from ragchat.models import ChatModel
    from ragchat.tokens import TokenCounter
    from ragchat_retrieval.values import Query


@dataclass(frozen=True, slots=True)
class CompressionTransformer:
    """Rewrites a follow-up question so that it stands without the conversation.

    With no user or assistant turn before the question the model is not called and the query stays
    as it is. The model sees earlier user and assistant turns only, the latest that fit the window;
    the question is not among them.

    Raises:
        InvalidSetting: The window is not positive.
        InvalidPrompt: The template is broken or lacks ``history`` or ``query``.
    """

    model: ChatModel
    max_history_tokens: int = field(default=4000, kw_only=True)
    """Most tokens of history in the prompt."""

    count: TokenCounter = field(default=count_tokens, kw_only=True)
    """Counts them; by default exactly, in ``o200k_base``."""

    prompt: PromptOverride | None = field(default=None, kw_only=True)
    """Replaces the packaged prompt: a template as text, or the path of one."""

    _prompt: Prompt = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if type(self.max_history_tokens) is not int or self.max_history_tokens < 1:
            raise InvalidSetting("max_history_tokens", "must be an integer, 1 or more")
        loaded = prompt_for(self.model, "compress", self.prompt, required=("history", "query"))
        object.__setattr__(self, "_prompt", loaded)

    async def __call__(self, conversation: ConversationQuery) -> Query:
        """Returns the query with a text that stands alone.

        Raises:
            ModelReplyError: The model's reply cannot be used.
        """
        query = conversation.query
        history = await shown_history(
            conversation, max_tokens=self.max_history_tokens, count=self.count
        )
        if not history:
            return query
        prompt = self._prompt.render(history=history, query=query.text)
        return query.with_text(await ask_for_query(self.model, prompt, asked=query.text))
