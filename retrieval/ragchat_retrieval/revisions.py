"""Making revisions: split, analyse and embed documents, off the event loop where it takes long."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ragchat_retrieval.chunking import TextSplitter, recommended_profile
from ragchat_retrieval.embedders.checks import embed_checked, naming
from ragchat_retrieval.errors import DuplicateDocumentID, InvalidDocument, InvalidSetting
from ragchat_retrieval.metadata import MetadataTexts, are_same, encode
from ragchat_retrieval.ports import AsyncSplitter
from ragchat_retrieval.stores.checks import check_passages
from ragchat_retrieval.text import check_document
from ragchat_retrieval.values import Document, Passage, Revision, indexed_text
from ragchat_retrieval.vectors import unit_matrices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.lexical import Analyzer
    from ragchat_retrieval.ports import Embedder, Splitter

    Progress = Callable[[float], object]

EMBEDDING_BATCH = 64
"""Texts per call of an embedder: often enough for a progress bar, large enough for a server."""

_SPLIT_SHARE, _EMBED_SHARE = 0.1, 0.8

# What `json.dumps` gives, without looking for circles; what is no number, a store will refuse.
_write = json.JSONEncoder(check_circular=False, default=repr).encode


@dataclass(frozen=True, slots=True)
class Revised:
    """Revisions ready to be written."""

    revisions: tuple[Revision, ...]
    too_long: Sequence[str]
    """The document of each passage longer than the embedder's window, whose end it does not see."""


def default_splitter(embedder: Embedder | None) -> TextSplitter:
    """Returns a splitter with the profile recommended for an embedder."""
    if embedder is None:
        return TextSplitter(*recommended_profile())
    window: int | None = getattr(embedder, "max_tokens", None)
    count: Callable[[str], int] | None = getattr(embedder, "count_tokens", None)
    profile = recommended_profile(embedder.model, window=window)
    # A window is full when the model's own tokens fill it; another vocabulary's counts are off.
    return TextSplitter(*profile, count=None if window is None else count)


def check_distinct(documents: Sequence[object], *, store: str) -> None:
    """Raises `DuplicateDocumentID` if one id occurs twice, `InvalidDocument` for what is none."""
    seen: set[str] = set()
    for document in documents:
        if not isinstance(document, Document):
            problem = f"a Document is needed, not {type(document).__name__}"
            if isinstance(document, (list, tuple)):
                problem += "; several are given as ingest(*documents)"
            raise InvalidDocument(problem, field="type")
        if document.id in seen:
            raise DuplicateDocumentID(document.id, store=store)
        seen.add(document.id)


def fingerprint(document: Document, splitter_name: str) -> str:
    """Returns a hash that changes with a document's text, labels, metadata or splitter."""
    labels = [document.title, document.source, encode(document.metadata)]
    parts = [document.digest, *labels, splitter_name]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def changed(
    documents: Sequence[Document], known: Mapping[str, str], splitter_name: str
) -> list[Document]:
    """Returns the documents whose fingerprint is not the known one."""
    return [d for d in documents if known.get(d.id) != fingerprint(d, splitter_name)]


def completed(revisions: Sequence[Revision], analyzer: Analyzer) -> list[Revision]:
    """Fills in terms and fingerprints that are left out, and scales vectors to length 1.

    What is given is left for the store to check.
    """
    vectors = iter(unit_matrices([r.vectors for r in revisions if r.vectors is not None]))
    encoded = MetadataTexts()
    return [
        Revision(
            document=revision.document,
            passages=revision.passages,
            vectors=None if revision.vectors is None else next(vectors),
            terms=terms,
            fingerprint=revision.fingerprint or _given_mark(revision, encoded),
        )
        for revision, terms in zip(revisions, _terms(revisions, analyzer), strict=True)
    ]


def _given_mark(revision: Revision, encoded: MetadataTexts) -> str:
    """Returns a fingerprint of a ready-made revision: of the document and of its passages."""
    document = revision.document
    labels = [document.id, document.title, document.source, encoded(document.metadata)]
    passages = []
    texts = [document.text]
    for p in revision.passages:
        own = None if are_same(p.metadata, document.metadata) else encoded(p.metadata)
        size = None
        if p.text != document.text:
            size = len(p.text)
            texts.append(p.text)
        numbers = [p.page, p.lines, p.span, p.ordinal, size]
        passages.append([p.id, p.title, p.source, own, p.headings, p.digest, *numbers])
    content = hashlib.sha256(_write([labels, len(document.text), passages]).encode())
    # Texts stand behind as they are: escaping them would take longer than hashing them.
    content.update("".join(texts).encode("utf-8", "surrogatepass"))
    if revision.vectors is not None:
        content.update(revision.vectors.data)
    return content.hexdigest()


async def revise(
    documents: Sequence[Document],
    *,
    splitter: Splitter,
    analyzer: Analyzer,
    embedder: Embedder | None,
    on_progress: Progress,
) -> Revised:
    """Turns documents into revisions.

    Args:
        documents: Checked for text policy before anything is computed.
        splitter: Cuts them.
        analyzer: Gives each passage's terms.
        embedder: Gives each passage's vector; None makes keyword-only revisions.
        on_progress: Hears floats 0 … 0.9, never falling; writing is the rest.

    Raises:
        InvalidText: NUL or a lone surrogate in a field.
        InvalidSetting: The splitter returns something other than passages.
        InvalidDocument: A passage that was to be embedded is not as `check_passages` wants it.
        EmbeddingError: The embedder failed.
    """
    pieces = await _pieces(documents, splitter)
    on_progress(_SPLIT_SHARE)
    revisions = await asyncio.to_thread(_bare, documents, pieces, splitter.name, analyzer)
    too_long: list[str] = []
    if embedder is not None:
        texts, owners, too_long = await asyncio.to_thread(_embeddable, revisions, embedder)
        rows = await embed_texts(texts, owners, embedder, on_progress=_scaled(on_progress))
        revisions = await asyncio.to_thread(_with_vectors, revisions, rows)
    on_progress(_SPLIT_SHARE + _EMBED_SHARE)
    return Revised(tuple(revisions), too_long)


def with_terms(revisions: Sequence[Revision], analyzer: Analyzer) -> list[Revision]:
    """Fills in the analysed terms of those revisions that come without."""
    return [
        revision if revision.terms is terms else replace(revision, terms=terms)
        for revision, terms in zip(revisions, _terms(revisions, analyzer), strict=True)
    ]


def _terms(
    revisions: Sequence[Revision], analyzer: Analyzer
) -> Iterator[Sequence[Mapping[str, int]]]:
    """Yields each revision's terms, analysed where it came without."""
    missing = [revision for revision in revisions if revision.terms is None]
    texts = [indexed_text(passage) for revision in missing for passage in revision.passages]
    counts = analyzer.counts_many(texts)
    start = 0
    for revision in revisions:
        if revision.terms is None:
            end = start + len(revision.passages)
            yield counts[start:end]
            start = end
        else:
            yield revision.terms


async def embed_texts(
    texts: Sequence[str], owners: Sequence[str], embedder: Embedder, *, on_progress: Progress
) -> list[NDArray[np.float32]]:
    """Embeds passages in batches; `on_progress` hears the share done, 0 … 1.

    Args:
        texts: Of the passages.
        owners: Id of each passage's document.
        embedder: The model.
        on_progress: The listener.

    Returns:
        float32 [batch, dimension] of each batch, in order.

    Raises:
        EmbeddingError: The embedder failed; where a text is at fault, its document is named.
    """
    rows = []
    for start in range(0, len(texts), EMBEDDING_BATCH):
        end = start + EMBEDDING_BATCH
        with naming(owners[start:end]):
            rows.append(await embed_checked(embedder, texts[start:end], "passage"))
        on_progress(min(1.0, (start + EMBEDDING_BATCH) / len(texts)))
    return rows


async def _pieces(documents: Sequence[Document], splitter: Splitter) -> list[Sequence[Passage]]:
    await asyncio.to_thread(_check, documents)
    if isinstance(splitter, AsyncSplitter):
        return [_passages(await splitter.asplit(each), splitter.name) for each in documents]
    return await asyncio.to_thread(
        lambda: [_passages(splitter.split(each), splitter.name) for each in documents]
    )


def _passages(given: object, splitter_name: str) -> Sequence[Passage]:
    """Returns what a splitter made of a document, which may be an iterator.

    Raises:
        InvalidSetting: It is no passages.
    """
    passages: list[Passage] = []
    for piece in given if isinstance(given, Iterable) else (given,):
        if not isinstance(piece, Passage):
            kind = type(piece).__name__
            problem = f"{splitter_name} must return a Passage for each piece, not {kind}"
            raise InvalidSetting("splitter", problem)
        passages.append(piece)
    return passages


def _check(documents: Sequence[Document]) -> None:
    for document in documents:
        check_document(document)


def _bare(
    documents: Sequence[Document],
    pieces: Sequence[Sequence[Passage]],
    splitter_name: str,
    analyzer: Analyzer,
) -> list[Revision]:
    revisions = [
        Revision(document=d, passages=tuple(p), fingerprint=fingerprint(d, splitter_name))
        for d, p in zip(documents, pieces, strict=True)
    ]
    return with_terms(revisions, analyzer)


def _embeddable(
    revisions: Sequence[Revision], embedder: Embedder
) -> tuple[list[str], list[str], list[str]]:
    """Returns the texts to embed, their documents, and those of texts that the window cuts."""
    for revision in revisions:  # as a store will, before a model is paid for it
        check_passages(revision.document, revision.passages)
    texts = [indexed_text(passage) for revision in revisions for passage in revision.passages]
    owners = [revision.document.id for revision in revisions for _ in revision.passages]
    window: int | None = getattr(embedder, "max_tokens", None)
    count: Callable[[str], int] | None = getattr(embedder, "count_tokens", None)
    if window is None or count is None:
        return texts, owners, []
    pairs = zip(owners, texts, strict=True)
    return texts, owners, [owner for owner, text in pairs if count(text) > window]


def _with_vectors(
    revisions: Sequence[Revision], rows: Sequence[NDArray[np.float32]]
) -> list[Revision]:
    """Hands each revision the vectors of its passages, which stand in order."""
    matrix = np.concatenate(rows) if rows else None
    filled = []
    start = 0
    for revision in revisions:
        end = start + len(revision.passages)
        vectors = None if matrix is None or start == end else matrix[start:end]
        filled.append(replace(revision, vectors=vectors))
        start = end
    return filled


def _scaled(on_progress: Progress) -> Progress:
    return lambda share: on_progress(_SPLIT_SHARE + _EMBED_SHARE * share)
