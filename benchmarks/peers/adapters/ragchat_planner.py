"""ragchat through the openai client: one plan in place of condensing and expanding, then rerank."""

from __future__ import annotations

from adapters import ragchat_classic


class Adapter(ragchat_classic.Adapter):
    """The planner's path."""

    name = "ragchat-planner"
    planned = True
