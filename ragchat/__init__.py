"""Retrieval in front of chat completion calls.

The everyday names of the chat layer and of the core, imported when they are first asked for.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

import ragchat_retrieval

if TYPE_CHECKING:
    from ragchat import errors, sync, testing, wire
    from ragchat.augment import (
        Augmentation,
        AugmentContext,
        Augmenter,
        ContextualAugmenter,
        IdentityAugmenter,
    )
    from ragchat.budget import Allowance, RequestBudget
    from ragchat.citations import (
        Annotation,
        CheckedClaim,
        CitationLedger,
        Citations,
        CitationStream,
        ClaimJudge,
        Emitted,
        Mention,
        Placed,
        Renumbered,
        Support,
        URLCitation,
        Verification,
        markdown_link,
        verify,
    )
    from ragchat.conversation import ConversationQuery
    from ragchat.errors import (
        ChatError,
        ContextBudgetExceeded,
        EmptyExpansion,
        EmptyModelOutput,
        EmptyResponse,
        FailedResponse,
        FilteredModelOutput,
        InvalidAugmentation,
        InvalidCitations,
        InvalidContextBudget,
        InvalidExpansion,
        InvalidPrompt,
        InvalidRequest,
        MalformedVerdicts,
        MissingModelOutput,
        ModelReplyError,
        NoFinalUserMessage,
        OverlongModelOutput,
        RefusedModelOutput,
        TruncatedModelOutput,
        UnknownCitation,
        UnsupportedMedia,
        WindowExceeded,
    )
    from ragchat.evaluation import GivenAnswer, citation_metrics
    from ragchat.events import (
        Answer,
        Answers,
        Citation,
        Event,
        EventFold,
        Finished,
        ReasoningDelta,
        RefusalDelta,
        Sources,
        TextDelta,
        ToolCall,
        ToolCallDelta,
        Usage,
        fold,
    )
    from ragchat.expansion import MultiQueryExpander
    from ragchat.extractive import ExtractiveAnswer, SupportingSentence, extractive_answer
    from ragchat.gate import Gate, RetrievalGate
    from ragchat.images import patch_tokens, tile_tokens
    from ragchat.models import ChatModel
    from ragchat.prepare import Preparer
    from ragchat.prepared import PreparedEvents, PreparedRequest, PreparedStream, Retrieval
    from ragchat.reading import EventReader
    from ragchat.request import ChatRequest
    from ragchat.reranking import LLMReranker
    from ragchat.tokens import TokenCounting, counter_for
    from ragchat.tools import RagTools, ToolResult
    from ragchat.transforms import (
        CompressionTransformer,
        ConversationTransformer,
        HistoryExpansionTransformer,
        HydeTransformer,
        QueryPlanner,
        RewriteTransformer,
        TranslationTransformer,
        chain,
    )
    from ragchat_retrieval import *  # noqa: F403 - all of the core's public names
    from ragchat_retrieval.rerank import rerank

__all__ = [
    "Allowance",
    "Annotation",
    "Answer",
    "Answers",
    "AugmentContext",
    "Augmentation",
    "Augmenter",
    "ChatError",
    "ChatModel",
    "ChatRequest",
    "CheckedClaim",
    "Citation",
    "CitationLedger",
    "CitationStream",
    "Citations",
    "ClaimJudge",
    "CompressionTransformer",
    "ContextBudgetExceeded",
    "ContextualAugmenter",
    "ConversationQuery",
    "ConversationTransformer",
    "Emitted",
    "EmptyExpansion",
    "EmptyModelOutput",
    "EmptyResponse",
    "Event",
    "EventFold",
    "EventReader",
    "ExtractiveAnswer",
    "FailedResponse",
    "FilteredModelOutput",
    "Finished",
    "Gate",
    "GivenAnswer",
    "HistoryExpansionTransformer",
    "HydeTransformer",
    "IdentityAugmenter",
    "InvalidAugmentation",
    "InvalidCitations",
    "InvalidContextBudget",
    "InvalidExpansion",
    "InvalidPrompt",
    "InvalidRequest",
    "LLMReranker",
    "MalformedVerdicts",
    "Mention",
    "MissingModelOutput",
    "ModelReplyError",
    "MultiQueryExpander",
    "NoFinalUserMessage",
    "OverlongModelOutput",
    "Placed",
    "PreparedEvents",
    "PreparedRequest",
    "PreparedStream",
    "Preparer",
    "QueryPlanner",
    "RagTools",
    "ReasoningDelta",
    "RefusalDelta",
    "RefusedModelOutput",
    "Renumbered",
    "RequestBudget",
    "Retrieval",
    "RetrievalGate",
    "RewriteTransformer",
    "Sources",
    "Support",
    "SupportingSentence",
    "TextDelta",
    "TokenCounting",
    "ToolCall",
    "ToolCallDelta",
    "ToolResult",
    "TranslationTransformer",
    "TruncatedModelOutput",
    "URLCitation",
    "UnknownCitation",
    "UnsupportedMedia",
    "Usage",
    "Verification",
    "WindowExceeded",
    "chain",
    "citation_metrics",
    "counter_for",
    "errors",
    "extractive_answer",
    "fold",
    "markdown_link",
    "patch_tokens",
    "rerank",
    "sync",
    "testing",
    "tile_tokens",
    "verify",
    "wire",
]
__all__ += ragchat_retrieval.__all__

_HOMES = {
    "ragchat.augment": """
        AugmentContext Augmentation Augmenter ContextualAugmenter IdentityAugmenter
    """,
    "ragchat.budget": "Allowance RequestBudget",
    "ragchat.citations": """
        Annotation CitationLedger CitationStream Citations Emitted Mention Placed Renumbered
        URLCitation markdown_link CheckedClaim ClaimJudge Support Verification verify
    """,
    "ragchat.conversation": "ConversationQuery",
    "ragchat.errors": """
        ChatError ContextBudgetExceeded EmptyExpansion EmptyModelOutput EmptyResponse
        FailedResponse FilteredModelOutput InvalidAugmentation InvalidCitations InvalidContextBudget
        InvalidExpansion InvalidPrompt InvalidRequest MalformedVerdicts MissingModelOutput
        ModelReplyError NoFinalUserMessage OverlongModelOutput RefusedModelOutput
        TruncatedModelOutput UnknownCitation UnsupportedMedia WindowExceeded
    """,
    "ragchat.events": """
        Answer Answers Citation Event EventFold Finished ReasoningDelta RefusalDelta Sources
        TextDelta ToolCall ToolCallDelta Usage fold
    """,
    "ragchat.evaluation": "GivenAnswer citation_metrics",
    "ragchat.expansion": "MultiQueryExpander",
    "ragchat.extractive": "ExtractiveAnswer SupportingSentence extractive_answer",
    "ragchat.gate": "Gate RetrievalGate",
    "ragchat.images": "patch_tokens tile_tokens",
    "ragchat.models": "ChatModel",
    "ragchat.prepare": "Preparer",
    "ragchat.prepared": "PreparedEvents PreparedRequest PreparedStream Retrieval",
    "ragchat.reading": "EventReader",
    "ragchat.request": "ChatRequest",
    "ragchat.reranking": "LLMReranker",
    "ragchat.tokens": "TokenCounting counter_for",
    "ragchat.tools": "RagTools ToolResult",
    "ragchat.transforms": """
        CompressionTransformer ConversationTransformer HistoryExpansionTransformer HydeTransformer
        QueryPlanner RewriteTransformer TranslationTransformer chain
    """,
    "ragchat_retrieval.rerank": "rerank",
}
_MODULES = frozenset({"errors", "sync", "testing", "wire"})
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}
_HOME |= dict.fromkeys(ragchat_retrieval.__all__, "ragchat_retrieval")


if not TYPE_CHECKING:  # with it, a type checker would accept any name

    def __getattr__(name: str) -> object:
        """Imports a public name when it is first asked for."""
        if name in _MODULES:
            return import_module(f"{__name__}.{name}")
        if name not in _HOME:
            problem = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(problem, name=name, obj=sys.modules[__name__])
        value: object = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """Lists the public names."""
    return sorted(__all__)
