"""What is checked of a large write at once is told as if each document had been looked at."""

from __future__ import annotations

import numpy as np
import pytest

from ragchat_retrieval.errors import InvalidVector
from ragchat_retrieval.filters import Filter
from ragchat_retrieval.ports import Identity
from ragchat_retrieval.stores.checks import check_write
from ragchat_retrieval.values import Document, Passage, Revision

IDENTITY = Identity(analyzer="a", model="m", dimension=2)


def made(number: int, vectors: list[list[float]]) -> Revision:
    """Returns a document with a passage per vector."""
    document = Document(f"d{number}", "text")
    passages = tuple(
        Passage("text", document_id=document.id, ordinal=ordinal) for ordinal in range(len(vectors))
    )
    matrix = np.array(vectors, np.float32).reshape(len(vectors), -1) if vectors else None
    return Revision(
        document=document, passages=passages, vectors=matrix, terms=({},) * len(passages)
    )


def check(revisions: list[Revision]) -> None:
    check_write(revisions, identity=IDENTITY, scope=Filter(), store="test")


@pytest.mark.parametrize("at", [0, 1500, 2999])
@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ([np.nan, 1], "NaN or infinity"),
        ([1, -np.inf], "NaN or infinity"),
        ([0, 0], "all zeros"),
        ([1, 0, 0], r"shape \(1, 3\), not \(1, 2\)"),
    ],
)
def test_a_wrong_vector_among_many_is_told_with_its_document(
    at: int, row: list[float], problem: str
) -> None:
    revisions = [made(n, [[1, 0]] * (n % 3)) for n in range(3000)]
    check(revisions)
    revisions[at] = made(at, [row])
    with pytest.raises(InvalidVector, match=problem) as caught:
        check(revisions)
    assert caught.value.document_id == f"d{at}"


def test_documents_without_vectors_may_stand_among_others() -> None:
    bare = Revision(
        document=Document("bare", "text"),
        passages=(Passage("text", document_id="bare"),),
        terms=({},),
    )
    check([made(1, [[1, 0]]), bare, made(2, [[0, 1], [1, 0]])])
