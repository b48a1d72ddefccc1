"""What the contract suite of stores writes and reads with: small revisions, exact expectations."""

from __future__ import annotations

import math
import zlib
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from ragchat_retrieval.filters import Filter
from ragchat_retrieval.ports import Hit, Identity
from ragchat_retrieval.values import Document, Lines, Passage, Revision, Span

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.ports import Store

DIMENSION = 8
IDENTITY = Identity(analyzer="words", model="model-a", dimension=DIMENSION)
KEYWORD_ONLY = Identity(analyzer="words")
OTHER_MODEL = Identity(analyzer="words", model="model-b", dimension=DIMENSION)
"""As `IDENTITY`, with another model of the same dimension."""

ALL = Filter()


def terms_of(text: str) -> dict[str, int]:
    """Returns a text's terms: what stands between spaces, without case. Stores take any strings."""
    return Counter(text.casefold().split())


def vector_of(text: str) -> NDArray[np.float32]:
    """Returns a pseudo-random vector of length 1 that depends on the text only."""
    drawn = np.random.default_rng(zlib.crc32(text.encode("utf-8", "surrogatepass"))).normal(
        size=DIMENSION
    )
    unit: NDArray[np.float32] = (drawn / np.linalg.norm(drawn)).astype(np.float32)
    return unit


def axis(position: int) -> NDArray[np.float32]:
    """Returns the unit vector along one axis."""
    unit: NDArray[np.float32] = np.eye(DIMENSION, dtype=np.float32)[position]
    return unit


def revision(
    document_id: str,
    *texts: str,
    title: str | None = None,
    source: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    vectors: NDArray[np.float32] | None = None,
    embedded: bool = True,
    ids: Sequence[str] | None = None,
    fingerprint: str = "",
) -> Revision:
    """Returns a revision with one passage a text; the document is the texts, blank lines between.

    Args:
        document_id: The document's id.
        *texts: Texts of the passages; none means that the document is deleted.
        title: Title of the document and its passages.
        source: Source of the same.
        metadata: Metadata of the same.
        vectors: Vectors of the passages instead of those of `vector_of`.
        embedded: Whether there are vectors at all.
        ids: Ids of the passages instead of the derived ones.
        fingerprint: The revision's fingerprint.
    """
    document = Document(
        document_id, "\n\n".join(texts), title=title, source=source, metadata=metadata or {}
    )
    passages, start, line, digest = [], 0, 1, document.digest
    for ordinal, text in enumerate(texts):
        passages.append(
            Passage(
                text,
                id=ids[ordinal] if ids else "",
                document_id=document_id,
                title=title,
                source=source,
                metadata=document.metadata,
                lines=Lines(line, line + text.count("\n")),
                span=Span(start, start + len(text)),
                ordinal=ordinal,
                digest=digest,
            )
        )
        start += len(text) + 2
        line += text.count("\n") + 2
    if vectors is None and embedded and texts:
        vectors = np.stack([vector_of(text) for text in texts])
    return Revision(
        document=document,
        passages=tuple(passages),
        vectors=vectors,
        terms=tuple(map(terms_of, texts)),
        fingerprint=fingerprint,
    )


def passage_ids(*revisions: Revision) -> list[str]:
    """Returns the ids of all passages, in order."""
    return [passage.id for given in revisions for passage in given.passages]


async def put(
    store: Store, *revisions: Revision, identity: Identity = IDENTITY, scope: Filter = ALL
) -> None:
    """Writes revisions in one step."""
    await store.replace(revisions, identity=identity, scope=scope)


async def by_words(
    store: Store,
    text: str,
    limit: int = 10,
    *,
    filter: Filter = ALL,
    scope: Filter = ALL,
) -> list[Hit]:
    """Searches the keyword lane for the terms of a text.

    A store without that lane is asked to read its passages, which are then ranked here: tests that
    look by words for what is there hold for it too.
    """
    if not store.capabilities.keyword:
        return await _read_by_words(store, terms_of(text), limit, filter & scope)
    return [*await store.search_text(terms_of(text), limit, filter=filter, scope=scope)]


async def _read_by_words(
    store: Store, terms: Mapping[str, float], limit: int, bounds: Filter
) -> list[Hit]:
    while True:
        visible = await store.ids(scope=bounds)
        ids = await store.ids(scope=ALL)
        found = await store.get(ids, scope=ALL)
        if {*visible} <= found.keys() == {*ids}:  # else documents were replaced in between
            break
    corpus = {id_: terms_of(passage.text) for id_, passage in found.items()}
    scores = bm25(terms, corpus) if corpus else {}
    hits = [Hit(id_, scores[id_]) for id_ in visible if id_ in scores]
    return sorted(hits, key=lambda hit: (-hit.score, hit.passage_id))[: max(limit, 0)]


async def by_vector(
    store: Store,
    vector: NDArray[np.float32],
    limit: int = 10,
    *,
    filter: Filter = ALL,
    scope: Filter = ALL,
) -> list[Hit]:
    """Searches the vector lane."""
    return [*await store.search_vector(vector, limit, filter=filter, scope=scope)]


def ids_of(hits: Iterable[Hit]) -> list[str]:
    """Returns the passage ids of hits."""
    return [hit.passage_id for hit in hits]


async def contents(store: Store) -> dict[str, object]:
    """Returns everything that a store says of a corpus, to compare before and after."""
    ids = await store.ids(scope=ALL)
    documents = await store.document_ids(scope=ALL)
    vectors = await store.vectors(ids, scope=ALL)
    return {
        "identity": await store.identity(),
        "revision": await store.revision(),
        "count": await store.count(scope=ALL),
        "ids": [*ids],
        "documents": [await store.document(i, scope=ALL) for i in documents],
        "passages": dict(await store.get(ids, scope=ALL)),
        "vectors": {i: vector.tolist() for i, vector in vectors.items()},
        "fingerprints": dict(await store.hashes(scope=ALL)),
    }


def bm25(terms: Mapping[str, float], corpus: Mapping[str, Mapping[str, int]]) -> dict[str, float]:
    """Returns the BM25 scores of the passages with a common term, as an independent reference.

    k1 = 1.2, b = 0.75, idf = ln(1 + (N − df + .5)/(df + .5)), without the constant factor k1 + 1,
    as in `ragchat_retrieval.lexical.bm25`; after Robertson and Zaragoza, The
    Probabilistic Relevance Framework, 2009.

    Args:
        terms: Terms with weights.
        corpus: Term counts of each passage by its id.
    """
    lengths = {i: sum(counts.values()) for i, counts in corpus.items()}
    mean = sum(lengths.values()) / len(corpus)
    scores: dict[str, float] = {}
    for term, weight in terms.items():
        holders = [i for i, counts in corpus.items() if term in counts]
        idf = math.log(1 + (len(corpus) - len(holders) + 0.5) / (len(holders) + 0.5))
        for i in holders:
            frequency = corpus[i][term]
            norm = frequency + 1.2 * (0.25 + 0.75 * lengths[i] / mean)
            scores[i] = scores.get(i, 0.0) + weight * idf * frequency / norm
    return scores


def close_to(hits: Collection[Hit], expected: Mapping[str, float]) -> bool:
    """Says whether hits are exactly these passages with these scores, up to rounding of float32."""
    return {hit.passage_id for hit in hits} == set(expected) and all(
        math.isclose(hit.score, expected[hit.passage_id], rel_tol=1e-4) for hit in hits
    )
