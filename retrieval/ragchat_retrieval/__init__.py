"""Retrieval core: documents, filters, stores, hybrid search, fusion. Knows nothing of chat.

Names are imported when they are first asked for. The function `ragchat_retrieval.rerank.rerank`
is named like its module, so it is exported by `ragchat` only.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ragchat_retrieval.chunking import (
        HeadingSplitter,
        ParagraphSplitter,
        Profile,
        TextSplitter,
        WholeText,
        recommended_profile,
    )
    from ragchat_retrieval.context import format_context
    from ragchat_retrieval.diversity import mmr
    from ragchat_retrieval.embedders import (
        CachedEmbedder,
        HashingEmbedder,
        LocalEmbedder,
        OllamaEmbedder,
        OpenAIEmbedder,
        embedder_from_env,
    )
    from ragchat_retrieval.errors import (
        DeadlineExceeded,
        DocumentNotUTF8,
        DocumentTooLarge,
        DuplicateDocumentID,
        EmbeddingError,
        IdentityMismatch,
        InvalidCandidates,
        InvalidDocument,
        InvalidDocumentID,
        InvalidFilter,
        InvalidFilterKey,
        InvalidIndexIdentity,
        InvalidMetadata,
        InvalidQuery,
        InvalidSetting,
        InvalidText,
        InvalidVector,
        MalformedRanking,
        MissingExtra,
        NotAStore,
        PassageIDConflict,
        RagchatError,
        ResetUnsupported,
        RetrievalError,
        ScopeViolation,
        StageTimeout,
        StoreClosed,
        StoreError,
        StoreReadOnly,
        StoreUnavailable,
        TokenizerUnavailable,
    )
    from ragchat_retrieval.explain import (
        Explanation,
        KeywordExplanation,
        LaneExplanation,
        MMRExplanation,
        RerankExplanation,
    )
    from ragchat_retrieval.filters import (
        Condition,
        Eq,
        Exists,
        Filter,
        Gt,
        Gte,
        In,
        Lt,
        Lte,
        Ne,
        NotExists,
        Op,
        as_filterable,
        in_values,
        is_semantic,
        validate_key,
    )
    from ragchat_retrieval.fusion import RRF, Weighted
    from ragchat_retrieval.index import HybridIndex
    from ragchat_retrieval.ingest import IngestReport, ingest_directory, records
    from ragchat_retrieval.lexical import Analyzer
    from ragchat_retrieval.metadata import Metadata
    from ragchat_retrieval.opening import in_memory, open_index, quickstart
    from ragchat_retrieval.pipeline import RetrievalPipeline, fallback, federate
    from ragchat_retrieval.policy import Policy, StagePolicy
    from ragchat_retrieval.ports import (
        Capabilities,
        Embedder,
        Hit,
        Identity,
        Reranker,
        Retriever,
        Splitter,
        Store,
        StoreCounts,
    )
    from ragchat_retrieval.rerank import Rerank
    from ragchat_retrieval.stores.memory import MemoryStore
    from ragchat_retrieval.stores.sqlite import SQLiteStore
    from ragchat_retrieval.trace import Degradation, StageEvent, StageTiming, Trace
    from ragchat_retrieval.values import (
        Candidate,
        ContextText,
        Document,
        Lines,
        Passage,
        Query,
        Revision,
        SearchResult,
        Span,
    )

__all__ = [
    "RRF",
    "Analyzer",
    "CachedEmbedder",
    "Candidate",
    "Capabilities",
    "Condition",
    "ContextText",
    "DeadlineExceeded",
    "Degradation",
    "Document",
    "DocumentNotUTF8",
    "DocumentTooLarge",
    "DuplicateDocumentID",
    "Embedder",
    "EmbeddingError",
    "Eq",
    "Exists",
    "Explanation",
    "Filter",
    "Gt",
    "Gte",
    "HashingEmbedder",
    "HeadingSplitter",
    "Hit",
    "HybridIndex",
    "Identity",
    "IdentityMismatch",
    "In",
    "IngestReport",
    "InvalidCandidates",
    "InvalidDocument",
    "InvalidDocumentID",
    "InvalidFilter",
    "InvalidFilterKey",
    "InvalidIndexIdentity",
    "InvalidMetadata",
    "InvalidQuery",
    "InvalidSetting",
    "InvalidText",
    "InvalidVector",
    "KeywordExplanation",
    "LaneExplanation",
    "Lines",
    "LocalEmbedder",
    "Lt",
    "Lte",
    "MMRExplanation",
    "MalformedRanking",
    "MemoryStore",
    "Metadata",
    "MissingExtra",
    "Ne",
    "NotAStore",
    "NotExists",
    "OllamaEmbedder",
    "Op",
    "OpenAIEmbedder",
    "ParagraphSplitter",
    "Passage",
    "PassageIDConflict",
    "Policy",
    "Profile",
    "Query",
    "RagchatError",
    "Rerank",
    "RerankExplanation",
    "Reranker",
    "ResetUnsupported",
    "RetrievalError",
    "RetrievalPipeline",
    "Retriever",
    "Revision",
    "SQLiteStore",
    "ScopeViolation",
    "SearchResult",
    "Span",
    "Splitter",
    "StageEvent",
    "StagePolicy",
    "StageTimeout",
    "StageTiming",
    "Store",
    "StoreClosed",
    "StoreCounts",
    "StoreError",
    "StoreReadOnly",
    "StoreUnavailable",
    "TextSplitter",
    "TokenizerUnavailable",
    "Trace",
    "Weighted",
    "WholeText",
    "as_filterable",
    "embedder_from_env",
    "fallback",
    "federate",
    "format_context",
    "in_memory",
    "in_values",
    "ingest_directory",
    "is_semantic",
    "mmr",
    "open_index",
    "quickstart",
    "recommended_profile",
    "records",
    "validate_key",
]

_HOMES = {
    "ragchat_retrieval.chunking": (
        "HeadingSplitter",
        "ParagraphSplitter",
        "Profile",
        "TextSplitter",
        "WholeText",
        "recommended_profile",
    ),
    "ragchat_retrieval.context": ("format_context",),
    "ragchat_retrieval.diversity": ("mmr",),
    "ragchat_retrieval.embedders": (
        "CachedEmbedder",
        "HashingEmbedder",
        "LocalEmbedder",
        "OllamaEmbedder",
        "OpenAIEmbedder",
        "embedder_from_env",
    ),
    "ragchat_retrieval.errors": (
        "DeadlineExceeded",
        "DocumentNotUTF8",
        "DocumentTooLarge",
        "DuplicateDocumentID",
        "EmbeddingError",
        "IdentityMismatch",
        "InvalidCandidates",
        "InvalidDocument",
        "InvalidDocumentID",
        "InvalidFilter",
        "InvalidFilterKey",
        "InvalidIndexIdentity",
        "InvalidMetadata",
        "InvalidQuery",
        "InvalidSetting",
        "InvalidText",
        "InvalidVector",
        "MalformedRanking",
        "MissingExtra",
        "NotAStore",
        "PassageIDConflict",
        "RagchatError",
        "ResetUnsupported",
        "RetrievalError",
        "ScopeViolation",
        "StageTimeout",
        "StoreClosed",
        "StoreError",
        "StoreReadOnly",
        "StoreUnavailable",
        "TokenizerUnavailable",
    ),
    "ragchat_retrieval.explain": (
        "Explanation",
        "KeywordExplanation",
        "LaneExplanation",
        "MMRExplanation",
        "RerankExplanation",
    ),
    "ragchat_retrieval.filters": (
        "Condition",
        "Eq",
        "Exists",
        "Filter",
        "Gt",
        "Gte",
        "In",
        "Lt",
        "Lte",
        "Ne",
        "NotExists",
        "Op",
        "as_filterable",
        "in_values",
        "is_semantic",
        "validate_key",
    ),
    "ragchat_retrieval.fusion": ("RRF", "Weighted"),
    "ragchat_retrieval.index": ("HybridIndex",),
    "ragchat_retrieval.ingest": ("IngestReport", "ingest_directory", "records"),
    "ragchat_retrieval.lexical": ("Analyzer",),
    "ragchat_retrieval.metadata": ("Metadata",),
    "ragchat_retrieval.opening": ("in_memory", "open_index", "quickstart"),
    "ragchat_retrieval.pipeline": ("RetrievalPipeline", "fallback", "federate"),
    "ragchat_retrieval.policy": ("Policy", "StagePolicy"),
    "ragchat_retrieval.ports": (
        "Capabilities",
        "Embedder",
        "Hit",
        "Identity",
        "Reranker",
        "Retriever",
        "Splitter",
        "Store",
        "StoreCounts",
    ),
    "ragchat_retrieval.rerank": ("Rerank",),
    "ragchat_retrieval.stores.memory": ("MemoryStore",),
    "ragchat_retrieval.stores.sqlite": ("SQLiteStore",),
    "ragchat_retrieval.trace": ("Degradation", "StageEvent", "StageTiming", "Trace"),
    "ragchat_retrieval.values": (
        "Candidate",
        "ContextText",
        "Document",
        "Lines",
        "Passage",
        "Query",
        "Revision",
        "SearchResult",
        "Span",
    ),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


if not TYPE_CHECKING:  # with it, a type checker would accept any name

    def __getattr__(name: str) -> object:
        """Imports a public name when it is first asked for."""
        if name not in _HOME:
            problem = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(problem, name=name, obj=sys.modules[__name__])
        value: object = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """Lists the public names."""
    return sorted(__all__)
