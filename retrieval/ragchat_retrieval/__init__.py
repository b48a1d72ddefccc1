"""Retrieval core: documents, filters, stores, hybrid search, fusion. Knows nothing of chat.

Names are imported when they are first asked for. The function `ragchat_retrieval.rerank.rerank`
is named like its module, so it is exported by `ragchat` only.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ragchat_retrieval.caching import CachedStage, cached
    from ragchat_retrieval.chunking import (
        OCR,
        CachedSplitter,
        CodeSplitter,
        DocumentSplitter,
        HeadingSplitter,
        ParagraphSplitter,
        Profile,
        ScannedPage,
        SemanticSplitter,
        SentenceSplitter,
        TableSplitter,
        TextSplitter,
        WholeText,
        recommended_profile,
    )
    from ragchat_retrieval.clustering import cluster
    from ragchat_retrieval.combining import fallback, federate
    from ragchat_retrieval.context import format_context
    from ragchat_retrieval.description import IndexDescription
    from ragchat_retrieval.diversity import mmr
    from ragchat_retrieval.duplicates import Duplicate, DuplicateFinder, duplicate_groups, simhash
    from ragchat_retrieval.embedders import (
        CachedEmbedder,
        HashingEmbedder,
        LocalEmbedder,
        OllamaEmbedder,
        OpenAIEmbedder,
        Sending,
        embedder_from_env,
    )
    from ragchat_retrieval.engine import Hnsw
    from ragchat_retrieval.errors import (
        CorpusChanged,
        DeadlineExceeded,
        DocumentChanged,
        DocumentNotUTF8,
        DocumentTooLarge,
        DuplicateDocumentID,
        EmbeddingError,
        FilterUnsupported,
        IdentityMismatch,
        InvalidCandidates,
        InvalidCollection,
        InvalidDocument,
        InvalidDocumentID,
        InvalidFilter,
        InvalidFilterKey,
        InvalidIndexIdentity,
        InvalidMetadata,
        InvalidQuery,
        InvalidRun,
        InvalidSetting,
        InvalidText,
        InvalidVector,
        MalformedRanking,
        MigrationError,
        MigrationMismatch,
        MigrationSourceChanging,
        MigrationTargetInUse,
        MissingExtra,
        NotAStore,
        PassageIDConflict,
        RagchatError,
        RerankError,
        ResetUnsupported,
        RetrievalError,
        ScopeViolation,
        StageTimeout,
        StoreClosed,
        StoreError,
        StoreReadOnly,
        StoreUnavailable,
        SwapUnsupported,
        TokenizerUnavailable,
        UnknownCorpus,
    )
    from ragchat_retrieval.evaluation import Evaluation, evaluate, load_collection, tune
    from ragchat_retrieval.explain import (
        Explanation,
        KeywordExplanation,
        LaneExplanation,
        MMRExplanation,
        RerankExplanation,
        TitleExplanation,
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
    from ragchat_retrieval.fusion import RRF, LaneResult, Weighted
    from ragchat_retrieval.index import HybridIndex
    from ragchat_retrieval.ingest import (
        Duplicates,
        IngestError,
        IngestReport,
        deduplicated,
        ingest_directory,
        records,
    )
    from ragchat_retrieval.keyphrases import keywords
    from ragchat_retrieval.lexical import Analyzer
    from ragchat_retrieval.metadata import Metadata
    from ragchat_retrieval.migration import MigrationReport, migrate_index, swap_indexes
    from ragchat_retrieval.opening import in_memory, open_index, quickstart
    from ragchat_retrieval.pipeline import RetrievalPipeline
    from ragchat_retrieval.policy import Policy, StagePolicy
    from ragchat_retrieval.ports import (
        AsyncSplitter,
        BothLanes,
        Capabilities,
        CountsTerms,
        Embedder,
        Expander,
        Hit,
        Identity,
        LaneQuery,
        Reranker,
        Retriever,
        SearchesAndReads,
        SearchesBoth,
        SearchesVectors,
        Splitter,
        Store,
        StoreCounts,
        SwappableStore,
        TellsWritten,
        TermCounts,
        Written,
    )
    from ragchat_retrieval.quantization import Quantized, quantize
    from ragchat_retrieval.rerank import Rerank
    from ragchat_retrieval.rerankers import HttpReranker
    from ragchat_retrieval.retry import Retries
    from ragchat_retrieval.stores.chroma import ChromaStore
    from ragchat_retrieval.stores.memory import MemoryStore
    from ragchat_retrieval.stores.opensearch import OpenSearchStore
    from ragchat_retrieval.stores.postgres import PostgresStore
    from ragchat_retrieval.stores.qdrant import QdrantStore
    from ragchat_retrieval.stores.sqlite import SQLiteStore
    from ragchat_retrieval.telemetry import instrument
    from ragchat_retrieval.trace import Degradation, ModelCall, StageEvent, StageTiming, Trace
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
    "OCR",
    "RRF",
    "Analyzer",
    "AsyncSplitter",
    "BothLanes",
    "CachedEmbedder",
    "CachedSplitter",
    "CachedStage",
    "Candidate",
    "Capabilities",
    "ChromaStore",
    "CodeSplitter",
    "Condition",
    "ContextText",
    "CorpusChanged",
    "CountsTerms",
    "DeadlineExceeded",
    "Degradation",
    "Document",
    "DocumentChanged",
    "DocumentNotUTF8",
    "DocumentSplitter",
    "DocumentTooLarge",
    "Duplicate",
    "DuplicateDocumentID",
    "DuplicateFinder",
    "Duplicates",
    "Embedder",
    "EmbeddingError",
    "Eq",
    "Evaluation",
    "Exists",
    "Expander",
    "Explanation",
    "Filter",
    "FilterUnsupported",
    "Gt",
    "Gte",
    "HashingEmbedder",
    "HeadingSplitter",
    "Hit",
    "Hnsw",
    "HttpReranker",
    "HybridIndex",
    "Identity",
    "IdentityMismatch",
    "In",
    "IndexDescription",
    "IngestError",
    "IngestReport",
    "InvalidCandidates",
    "InvalidCollection",
    "InvalidDocument",
    "InvalidDocumentID",
    "InvalidFilter",
    "InvalidFilterKey",
    "InvalidIndexIdentity",
    "InvalidMetadata",
    "InvalidQuery",
    "InvalidRun",
    "InvalidSetting",
    "InvalidText",
    "InvalidVector",
    "KeywordExplanation",
    "LaneExplanation",
    "LaneQuery",
    "LaneResult",
    "Lines",
    "LocalEmbedder",
    "Lt",
    "Lte",
    "MMRExplanation",
    "MalformedRanking",
    "MemoryStore",
    "Metadata",
    "MigrationError",
    "MigrationMismatch",
    "MigrationReport",
    "MigrationSourceChanging",
    "MigrationTargetInUse",
    "MissingExtra",
    "ModelCall",
    "Ne",
    "NotAStore",
    "NotExists",
    "OllamaEmbedder",
    "Op",
    "OpenAIEmbedder",
    "OpenSearchStore",
    "ParagraphSplitter",
    "Passage",
    "PassageIDConflict",
    "Policy",
    "PostgresStore",
    "Profile",
    "QdrantStore",
    "Quantized",
    "Query",
    "RagchatError",
    "Rerank",
    "RerankError",
    "RerankExplanation",
    "Reranker",
    "ResetUnsupported",
    "Retries",
    "RetrievalError",
    "RetrievalPipeline",
    "Retriever",
    "Revision",
    "SQLiteStore",
    "ScannedPage",
    "ScopeViolation",
    "SearchResult",
    "SearchesAndReads",
    "SearchesBoth",
    "SearchesVectors",
    "SemanticSplitter",
    "Sending",
    "SentenceSplitter",
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
    "SwapUnsupported",
    "SwappableStore",
    "TableSplitter",
    "TellsWritten",
    "TermCounts",
    "TextSplitter",
    "TitleExplanation",
    "TokenizerUnavailable",
    "Trace",
    "UnknownCorpus",
    "Weighted",
    "WholeText",
    "Written",
    "as_filterable",
    "cached",
    "cluster",
    "deduplicated",
    "duplicate_groups",
    "embedder_from_env",
    "evaluate",
    "fallback",
    "federate",
    "format_context",
    "in_memory",
    "in_values",
    "ingest_directory",
    "instrument",
    "is_semantic",
    "keywords",
    "load_collection",
    "migrate_index",
    "mmr",
    "open_index",
    "quantize",
    "quickstart",
    "recommended_profile",
    "records",
    "simhash",
    "swap_indexes",
    "tune",
    "validate_key",
]

_HOMES = {
    "caching": "CachedStage cached",
    "chunking": """
        OCR CachedSplitter CodeSplitter DocumentSplitter HeadingSplitter ParagraphSplitter Profile
        ScannedPage SemanticSplitter SentenceSplitter TableSplitter TextSplitter WholeText
        recommended_profile
    """,
    "clustering": "cluster",
    "combining": "fallback federate",
    "context": "format_context",
    "description": "IndexDescription",
    "diversity": "mmr",
    "duplicates": "Duplicate DuplicateFinder duplicate_groups simhash",
    "embedders": """
        CachedEmbedder HashingEmbedder LocalEmbedder OllamaEmbedder OpenAIEmbedder Sending
        embedder_from_env
    """,
    "engine": "Hnsw",
    "errors": """
        CorpusChanged DeadlineExceeded DocumentChanged DocumentNotUTF8 DocumentTooLarge
        DuplicateDocumentID EmbeddingError FilterUnsupported IdentityMismatch InvalidCandidates
        InvalidCollection InvalidDocument InvalidDocumentID InvalidFilter InvalidFilterKey
        InvalidIndexIdentity InvalidMetadata InvalidQuery InvalidRun InvalidSetting InvalidText
        InvalidVector MalformedRanking MigrationError MigrationMismatch MigrationSourceChanging
        MigrationTargetInUse MissingExtra NotAStore PassageIDConflict RagchatError RerankError
        ResetUnsupported RetrievalError ScopeViolation StageTimeout StoreClosed StoreError
        StoreReadOnly StoreUnavailable SwapUnsupported TokenizerUnavailable UnknownCorpus
    """,
    "evaluation": "Evaluation evaluate load_collection tune",
    "explain": """
        Explanation KeywordExplanation LaneExplanation MMRExplanation RerankExplanation
        TitleExplanation
    """,
    "filters": """
        Condition Eq Exists Filter Gt Gte In Lt Lte Ne NotExists Op as_filterable in_values
        is_semantic validate_key
    """,
    "fusion": "RRF LaneResult Weighted",
    "index": "HybridIndex",
    "ingest": "Duplicates IngestError IngestReport deduplicated ingest_directory records",
    "keyphrases": "keywords",
    "lexical": "Analyzer",
    "metadata": "Metadata",
    "migration": "MigrationReport migrate_index swap_indexes",
    "opening": "in_memory open_index quickstart",
    "pipeline": "RetrievalPipeline",
    "policy": "Policy StagePolicy",
    "ports": """
        AsyncSplitter BothLanes Capabilities CountsTerms Embedder Expander Hit Identity LaneQuery
        Reranker Retriever SearchesAndReads SearchesBoth SearchesVectors Splitter Store StoreCounts
        SwappableStore TellsWritten TermCounts Written
    """,
    "quantization": "Quantized quantize",
    "rerank": "Rerank",
    "rerankers": "HttpReranker",
    "retry": "Retries",
    "stores.chroma": "ChromaStore",
    "stores.memory": "MemoryStore",
    "stores.opensearch": "OpenSearchStore",
    "stores.postgres": "PostgresStore",
    "stores.qdrant": "QdrantStore",
    "stores.sqlite": "SQLiteStore",
    "telemetry": "instrument",
    "trace": "Degradation ModelCall StageEvent StageTiming Trace",
    "values": "Candidate ContextText Document Lines Passage Query Revision SearchResult Span",
}
_HOME = {name: f"{__name__}.{home}" for home, names in _HOMES.items() for name in names.split()}


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
