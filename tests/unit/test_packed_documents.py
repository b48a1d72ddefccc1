"""Documents kept compactly come back as they were."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat_retrieval.stores.packed import PackedDocument, Sharing
from ragchat_retrieval.values import Document, Lines, Passage, Revision, Span

TEXT = "abc déf 喝茶 👩‍🔬 ghi"
METADATA: list[dict[str, Any]] = [{}, {"k": 1}, {"k": True}, {"k": 1.0}, {"k": "1"}, {"j": None}]


def typed(metadata: Any) -> list[tuple[str, type, Any]]:
    """Returns metadata so that True, 1 and 1.0 differ."""
    return [(key, type(value), value) for key, value in metadata.items()]


@st.composite
def revisions(draw: st.DrawFn) -> Revision:
    """Draws a document whose passages differ from it in any way, or in none."""
    document = Document("d", TEXT, title="T", source=None, metadata=draw(st.sampled_from(METADATA)))
    passages = []
    for number in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(TEXT)))
        end = draw(st.integers(start, len(TEXT)))
        passages.append(
            Passage(
                draw(st.sampled_from([TEXT[start:end], "own text"])),
                id=f"p{number}",
                document_id="d",
                title=draw(st.sampled_from(["T", None, "other"])),
                source=draw(st.sampled_from([None, "s"])),
                metadata=draw(st.sampled_from([document.metadata, *METADATA])),
                headings=draw(st.sampled_from([(), ("A",), ("A", "B")])),
                page=draw(st.sampled_from([None, 1, -1])),
                lines=draw(st.sampled_from([None, Lines(1, 2)])),
                span=draw(st.sampled_from([None, Span(start, end), Span(start, end + 99)])),
                ordinal=draw(st.sampled_from([number, 2**70, -5])),
                digest=draw(st.sampled_from([document.digest, "", "other"])),
            )
        )
    fingerprint = draw(st.sampled_from(["", "f", "0a", "0A", "0 a", document.digest]))
    return Revision(document=document, passages=tuple(passages), fingerprint=fingerprint)


@given(revisions(), st.integers(0, 1000))
def test_every_passage_comes_back_as_it_was(revision: Revision, first_key: int) -> None:
    """Field by field and type by type, whether it is kept by its numbers or whole."""
    packed = PackedDocument.of(revision, first_key, Sharing())
    assert packed.document is revision.document
    assert (packed.fingerprint, packed.size) == (revision.fingerprint, len(revision.passages))
    for key, passage in enumerate(revision.passages, first_key):
        back = packed.passage(key, passage.id)
        assert back == passage
        assert typed(back.metadata) == typed(passage.metadata)
        assert packed.ordinal(key) == passage.ordinal


@pytest.mark.parametrize("regular", [True, False])
def test_a_slice_of_the_document_keeps_no_text_of_its_own(*, regular: bool) -> None:
    document = Document("d", TEXT, metadata={"k": [1]})
    passage = Passage(
        TEXT[4:7] if regular else "other",
        document_id="d",
        metadata={"k": [1]},
        span=Span(4, 7),
        digest=document.digest,
    )
    packed = PackedDocument.of(Revision(document=document, passages=(passage,)), 0, Sharing())
    assert (not packed.own) is regular


@given(st.lists(st.sampled_from(METADATA), max_size=9))
def test_documents_share_metadata_only_where_it_is_the_same(drawn: list[dict[str, Any]]) -> None:
    """Equal in type too: True, 1 and 1.0 are kept apart."""
    sharing = Sharing()
    given_ = [Document(f"d{n}", TEXT, metadata=metadata) for n, metadata in enumerate(drawn)]
    shared = [sharing(document) for document in given_]
    assert shared == given_
    assert [typed(document.metadata) for document in shared] == [*map(typed, drawn)]
    kinds = {str(typed(metadata)) for metadata in drawn}
    assert len({id(document.metadata) for document in shared}) == len(kinds)
