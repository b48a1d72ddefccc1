"""What every store checks of a write before it changes anything.

The order of the checks is part of the contract: duplicate documents, shape of the revisions, text,
what passages hold and their terms, passage ids within the write, vectors, scope; then, against what
is stored, identity, scope of the documents replaced, their expected fingerprints, and passage ids
that other documents own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ragchat_retrieval.errors import (
    DocumentChanged,
    DuplicateDocumentID,
    IdentityMismatch,
    InvalidDocument,
    InvalidSetting,
    InvalidVector,
    PassageIDConflict,
    ScopeViolation,
)
from ragchat_retrieval.terms import TermSlices
from ragchat_retrieval.text import check_document, is_storable
from ragchat_retrieval.values import indexed_text
from ragchat_retrieval.vectors import squared_lengths

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.filters import Filter
    from ragchat_retrieval.ports import Identity
    from ragchat_retrieval.values import Document, Passage, Revision

_MOST = 2**31 - 1
"""The largest number that every store keeps of a passage."""


def checked_name(corpus: str) -> str:
    """Returns the name of a corpus.

    Raises:
        InvalidSetting: It is blank, or holds NUL or a lone surrogate.
    """
    if not corpus.strip() or not is_storable(corpus):
        raise InvalidSetting("corpus", "must be a non-blank name without NUL or lone surrogates")
    return corpus


def check_write(
    revisions: Sequence[Revision], *, identity: Identity, scope: Filter, store: str
) -> None:
    """Checks everything about a write that needs no look at what is stored.

    Args:
        revisions: The write.
        identity: What the caller works with.
        scope: The caller's boundary.
        store: The store's name, for errors.

    Raises:
        DuplicateDocumentID: One document occurs twice.
        InvalidSetting: Terms are missing, or not one mapping per passage.
        InvalidDocument: A passage names another document than its revision's, or is not as
            `check_passages` wants it; or its terms are no texts with counts of 1 or more.
        InvalidText: NUL or a lone surrogate in a text field.
        PassageIDConflict: One passage id occurs twice.
        InvalidVector: A vector is non-finite, zero or wrongly sized, or there is no model for it.
        ScopeViolation: A document or passage lies outside `scope`.
    """
    seen: set[str] = set()
    for revision in revisions:
        if revision.document.id in seen:
            raise DuplicateDocumentID(revision.document.id, store=store)
        seen.add(revision.document.id)
    for revision in revisions:
        _check_shape(revision)
        check_document(revision.document, revision.passages)
    for revision in revisions:
        check_passages(revision.document, revision.passages)
        if not isinstance(revision.terms, TermSlices):  # of our own making
            for place, terms in enumerate(revision.terms or ()):
                _check_terms(revision.document, place, terms)
    _check_passage_ids(revisions, store)
    _check_vectors(revisions, identity)
    if scope:
        for revision in revisions:
            _check_scope(revision, scope)


def check_passages(document: Document, passages: Sequence[Passage]) -> None:
    """Checks that passages can be kept, searched and cited as parts of their document.

    Raises:
        InvalidDocument: A passage, its title and its headings are all blank, so that nothing could
            find it; its text is not what its span of the document holds; or page, lines, span or
            ordinal are no whole numbers in their range.
    """
    for place, passage in enumerate(passages):
        problem, field = _problem(document, passage)
        if problem:
            field = f"passages[{place}].{field}"
            raise InvalidDocument(problem, document_id=document.id, field=field)


def _problem(document: Document, passage: Passage) -> tuple[str, str]:
    """Returns what is wrong with a passage, and with which field of it; "" for nothing."""
    if not passage.text.strip() and not indexed_text(passage).strip():
        return "holds no text", "text"
    page, lines, span = passage.page, passage.lines, passage.span
    for name, least, numbers in (
        ("ordinal", 0, (passage.ordinal,)),
        ("page", 1, () if page is None else (page,)),
        ("lines", 1, lines or ()),
        ("span", 0, span or ()),
    ):
        for number in numbers:
            if type(number) is not int or not least <= number <= _MOST:
                return f"no whole number {least} … {_MOST}", name
    # A citation shows what the span holds, and so does a hit that is joined to its neighbours.
    if span is not None and document.text[slice(*span)] != passage.text:
        return "does not hold the passage's text", "span"
    return "", ""


def agreed_identity(
    stored: Identity | None, given: Identity, revisions: Sequence[Revision], *, store: str
) -> Identity:
    """Returns the identity that the corpus has after a write.

    The first write latches what is given. A corpus latched without a model takes the given one when
    every revision of the write carries vectors.

    Args:
        stored: What the corpus was written with; None before the first write.
        given: What the caller works with.
        revisions: The write.
        store: The store's name, for errors.

    Raises:
        IdentityMismatch: The two differ otherwise.
    """
    if stored is None or stored == given:
        return given
    bare = given.model is not None and stored == replace(given, model=None, dimension=None)
    written = [revision for revision in revisions if revision.passages]
    if bare and all(revision.vectors is not None for revision in written):
        return given if written else stored
    raise IdentityMismatch(str(stored), str(given), store=store)


def check_expected(
    expected: Mapping[str, str] | None, stored: Mapping[str, str], *, store: str
) -> None:
    """Checks that documents are still the revisions that a write was made from.

    Args:
        expected: Fingerprints by document id; None expects nothing.
        stored: The fingerprints of those of them that are stored.
        store: The store's name, for errors.

    Raises:
        DocumentChanged: One is another revision, or is gone.
    """
    for document_id, fingerprint in (expected or {}).items():
        if stored.get(document_id) != fingerprint:
            raise DocumentChanged(document_id, store=store)


def _check_shape(revision: Revision) -> None:
    terms = revision.terms
    if revision.passages and (terms is None or len(terms) != len(revision.passages)):
        raise InvalidSetting("revisions", "terms must be filled in, one mapping per passage")
    for passage in revision.passages:
        if passage.document_id != revision.document.id:
            raise InvalidDocument(
                "a passage names another document",
                document_id=revision.document.id,
                field="passages.document_id",
            )


def _check_terms(document: Document, place: int, terms: object) -> None:
    if not isinstance(terms, Mapping):
        problem = "must map texts to counts"
    elif not (
        all(isinstance(term, str) for term in terms)
        and "" not in terms
        and is_storable("".join(terms))
    ):
        problem = "a term must be a text, not empty, without NUL or lone surrogates"
    elif not all(type(count) is int and 1 <= count <= _MOST for count in terms.values()):
        problem = f"a count must be a whole number 1 … {_MOST}"
    else:
        return
    raise InvalidDocument(problem, document_id=document.id, field=f"terms[{place}]")


def _check_passage_ids(revisions: Sequence[Revision], store: str) -> None:
    total = sum(len(revision.passages) for revision in revisions)
    seen = {passage.id for revision in revisions for passage in revision.passages}
    if len(seen) == total:
        return
    seen.clear()
    for revision in revisions:
        for passage in revision.passages:
            if passage.id in seen:
                raise PassageIDConflict(passage.id, store=store)
            seen.add(passage.id)


def _check_vectors(revisions: Sequence[Revision], identity: Identity) -> None:
    owners: list[str] = []
    matrices: list[NDArray[np.float32]] = []
    for revision in revisions:
        if revision.vectors is not None and revision.passages:
            _check_matrix(revision.vectors, revision, identity)
            owners += [revision.document.id] * len(revision.passages)
            matrices.append(revision.vectors)
    # A sum of squares is finite only if all are, and saves a pass over the matrix.
    squares = squared_lengths(matrices)
    wrong = np.flatnonzero(~((squares > 0) & (squares < np.inf)))
    if len(wrong):
        row = int(wrong[0])
        problem = "is all zeros" if squares[row] == 0 else "holds NaN or infinity"
        raise InvalidVector(problem, document_id=owners[row])


def _check_matrix(vectors: NDArray[np.float32], revision: Revision, identity: Identity) -> None:
    document_id = revision.document.id
    if identity.model is None or identity.dimension is None:
        raise InvalidVector("there is no embedding model in the identity", document_id=document_id)
    expected = (len(revision.passages), identity.dimension)
    if vectors.shape != expected:
        raise InvalidVector(
            f"the matrix has shape {vectors.shape}, not {expected}", document_id=document_id
        )


def _check_scope(revision: Revision, scope: Filter) -> None:
    if not revision.passages:
        return  # nothing comes; whether the document that goes is in scope, the store must see
    if not scope.matches_document(revision.document):
        raise ScopeViolation(document_id=revision.document.id)
    for passage in revision.passages:
        if not scope.matches_passage(passage):
            raise ScopeViolation(passage.id, document_id=revision.document.id)
