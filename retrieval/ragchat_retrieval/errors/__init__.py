"""The error tree of the core.

    RagchatError
    ├── RetrievalError                  everything the core raises
    │   ├── InvalidSetting              a constructor or option got a value it cannot work with
    │   ├── MissingExtra                an optional dependency is not installed; names the extra
    │   ├── InvalidDocument             a document cannot be stored as given
    │   │   ├── InvalidDocumentID       its id is blank
    │   │   ├── InvalidText             NUL or a lone surrogate in a text field
    │   │   ├── InvalidMetadata         a key or value that no store could keep faithfully
    │   │   ├── DocumentTooLarge        more bytes than the limit
    │   │   └── DocumentNotUTF8         bytes that are not UTF-8
    │   ├── InvalidQuery                a blank query, or a malformed query value
    │   ├── InvalidFilter               an operand or operator outside the semantics of filters
    │   │   └── InvalidFilterKey        a key outside the key pattern
    │   ├── InvalidVector               non-finite, zero or wrongly sized
    │   ├── EmbeddingError              an embedder answered with something unusable
    │   ├── TokenizerUnavailable        this machine has no exact tokenizer for an encoding
    │   ├── InvalidCandidates           a retriever or stage returned no valid candidates
    │   ├── RerankError                 a rerank server failed or could not be understood
    │   ├── MalformedRanking            a reranker's scores break its contract
    │   ├── ScopeViolation              a passage or document lies outside filter or scope
    │   ├── FilterUnsupported           a retriever that cannot keep to a filter or scope got one
    │   ├── InvalidCollection           a test collection's files cannot be read as one
    │   ├── InvalidRun                  rankings to evaluate do not fit the topics
    │   ├── MigrationError              a corpus was not, or not rightly, copied into another
    │   │   ├── MigrationTargetInUse    the other corpus holds documents that the first has not
    │   │   └── MigrationMismatch       what was copied is not what there is
    │   │       └── MigrationSourceChanging  it was written faster than it was copied
    │   ├── DeadlineExceeded            the request's time is used up
    │   ├── StageTimeout                one stage used up its own time
    │   └── StoreError                  the store refused or failed
    │       ├── DuplicateDocumentID     one id twice in one write
    │       ├── PassageIDConflict       a passage id that another document owns
    │       ├── DocumentChanged         a document is not the revision that the write expected
    │       ├── CorpusChanged           a corpus is not at the revision that a swap expected
    │       ├── UnknownCorpus           a corpus to be swapped was never written
    │       ├── SwapUnsupported         this store cannot exchange corpora
    │       ├── InvalidIndexIdentity    a blank identity
    │       ├── IdentityMismatch        embedder, dimension or analyser differ from what is stored
    │       ├── ResetUnsupported        this store cannot be reset
    │       ├── StoreReadOnly           a write to a store opened for reading
    │       ├── StoreClosed             used after `aclose()`
    │       ├── StoreUnavailable        busy, unreachable or damaged; says whether a retry may help
    │       └── NotAStore               the file exists and is something else
    └── ChatError                       see `ragchat.errors`

Every error carries its data as attributes. None carries content of documents, prompts or replies,
and none carries keys.
"""

from __future__ import annotations

from ragchat_retrieval.errors.base import (
    DeadlineExceeded,
    InvalidSetting,
    MissingExtra,
    RagchatError,
    RetrievalError,
    StageTimeout,
    _restored,  # noqa: F401 - pickles of errors name it
)
from ragchat_retrieval.errors.corpora import (
    InvalidCollection,
    InvalidRun,
    MigrationError,
    MigrationMismatch,
    MigrationSourceChanging,
    MigrationTargetInUse,
)
from ragchat_retrieval.errors.documents import (
    DocumentNotUTF8,
    DocumentTooLarge,
    InvalidDocument,
    InvalidDocumentID,
    InvalidMetadata,
    InvalidText,
    InvalidVector,
)
from ragchat_retrieval.errors.models import (
    EmbeddingError,
    MalformedRanking,
    RerankError,
    TokenizerUnavailable,
)
from ragchat_retrieval.errors.searching import (
    FilterUnsupported,
    InvalidCandidates,
    InvalidFilter,
    InvalidFilterKey,
    InvalidQuery,
    ScopeViolation,
)
from ragchat_retrieval.errors.stores import (
    CorpusChanged,
    DocumentChanged,
    DuplicateDocumentID,
    IdentityMismatch,
    InvalidIndexIdentity,
    NotAStore,
    PassageIDConflict,
    ResetUnsupported,
    StoreClosed,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
    SwapUnsupported,
    UnknownCorpus,
)

__all__ = [
    "CorpusChanged",
    "DeadlineExceeded",
    "DocumentChanged",
    "DocumentNotUTF8",
    "DocumentTooLarge",
    "DuplicateDocumentID",
    "EmbeddingError",
    "FilterUnsupported",
    "IdentityMismatch",
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
    "MalformedRanking",
    "MigrationError",
    "MigrationMismatch",
    "MigrationSourceChanging",
    "MigrationTargetInUse",
    "MissingExtra",
    "NotAStore",
    "PassageIDConflict",
    "RagchatError",
    "RerankError",
    "ResetUnsupported",
    "RetrievalError",
    "ScopeViolation",
    "StageTimeout",
    "StoreClosed",
    "StoreError",
    "StoreReadOnly",
    "StoreUnavailable",
    "SwapUnsupported",
    "TokenizerUnavailable",
    "UnknownCorpus",
]

for _name in [*__all__, "_restored"]:  # logs, spans and pickles tell where a name is imported from
    globals()[_name].__module__ = __name__
