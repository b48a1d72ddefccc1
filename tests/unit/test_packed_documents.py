"""Documents kept compactly come back as they were."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat_retrieval.filters import Filter
from ragchat_retrieval.index import HybridIndex
from ragchat_retrieval.stores.archive import Archive, Archivist
from ragchat_retrieval.stores.memory import MemoryStore
from ragchat_retrieval.stores.packed import Extra, PackedDocument, run_of
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


@given(drawn=st.lists(revisions(), max_size=4), first_key=st.integers(0, 999), moved=st.booleans())
def test_every_passage_comes_back_as_it_was(
    drawn: list[Revision], first_key: int, *, moved: bool
) -> None:
    """Field by field and type by type, whether it is kept by its numbers or whole."""
    drawn = [revision for revision in drawn if revision.passages]
    writer = Archivist()
    archive = writer.appended(writer.empty, drawn, first_key)
    if moved:
        _, archive = Archivist.compacted(archive, np.arange(len(drawn)))
    for number, (revision, packed) in enumerate(zip(drawn, entries(archive), strict=True)):
        assert packed.document == revision.document
        assert packed.bare == replace(revision.document, text="")
        assert typed(packed.document.metadata) == typed(revision.document.metadata)
        assert packed.fingerprint == revision.fingerprint
        assert (packed.id, packed.size) == (revision.document.id, len(revision.passages))
        for key, passage in enumerate(revision.passages, first_key):
            back = packed.passage(key, passage.id)
            assert back == passage
            assert typed(back.metadata) == typed(passage.metadata)
            assert packed.ordinal(key) == passage.ordinal
            assert archive.numbers(np.array([key])) == [number]
        first_key += len(revision.passages)


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
    assert (extra_of(document, passage) is None) is regular


def test_headings_are_kept_beside_the_numbers() -> None:
    document = Document("d", TEXT)
    passage = Passage(
        TEXT, document_id="d", span=Span(0, 99), digest=document.digest, headings=("A",)
    )
    assert extra_of(document, passage) == ({0: ("A",)}, {})


def extra_of(document: Document, passage: Passage) -> Extra | None:
    """Returns what is kept of a document of one passage beside its run."""
    return run_of(Revision(document=document, passages=(passage,)))[1]


@given(st.lists(st.sampled_from(METADATA), min_size=1, max_size=9))
def test_documents_share_metadata_only_where_it_is_the_same(drawn: list[dict[str, Any]]) -> None:
    """Equal in type too: True, 1 and 1.0 are kept apart."""
    writer = Archivist()
    given_ = [whole(f"d{n}", metadata) for n, metadata in enumerate(drawn)]
    archive = writer.appended(writer.empty, given_, 0)
    kinds = {str(typed(metadata)) for metadata in drawn}
    assert len(archive.metadata) == len(kinds)
    assert [typed(entry.bare.metadata) for entry in entries(archive)] == [*map(typed, drawn)]


def entries(archive: Archive) -> list[PackedDocument]:
    """Returns all documents of an archive."""
    return archive.documents(np.arange(len(archive.firsts)))


def whole(document_id: str, metadata: dict[str, Any], text: str = TEXT) -> Revision:
    """Returns a document of one passage."""
    document = Document(document_id, text, metadata=metadata)
    passage = Passage(text, document_id=document_id, metadata=metadata, span=Span(0, len(text)))
    return Revision(document=document, passages=(passage,))


def test_an_archive_stays_as_it_is_while_others_follow() -> None:
    """A write that failed leaves nothing that a later one could take for its own."""
    writer = Archivist()
    first = writer.appended(writer.empty, [whole("a", {})], 0)
    failed = replace(whole("b", {}), passages=(Passage("own", document_id="b", headings=("H",)),))
    writer.appended(first, [failed, failed], 1)
    second = writer.appended(first, [whole("c", {}, "tea")], 1)
    assert [entry.id for entry in entries(first)] == ["a"]
    assert [entry.id for entry in entries(second)] == ["a", "c"]
    assert entries(second)[1].passage(1, "p").text == "tea"


def test_documents_of_any_size_are_kept() -> None:
    """Longer than a piece of memory is, one after another."""
    writer = Archivist()
    archive = writer.empty
    texts = ["é" * 2**n for n in (3, 22, 5, 14, 21)]
    for n, text in enumerate(texts):
        archive = writer.appended(archive, [whole(f"d{n}", {}, text)], n)
    assert [entry.document.text for entry in entries(archive)] == texts
    assert archive.held == sum(entry.nbytes for entry in entries(archive))


async def test_removed_documents_give_their_memory_back() -> None:
    """Also one that is replaced again and again, beside others that stay."""
    store = MemoryStore()
    index = HybridIndex(store)
    await index.replace(whole("small", {}))
    for n in range(20):
        await index.replace(whole("large", {}, f"{n} " + "tea " * 2**17))
    assert sum(map(len, store._state().archive.pieces)) < 6 * 2**20
    found = await store.document("large", scope=Filter())
    assert found is not None
    assert found.text.startswith("19 tea")
    await store.repair()
    assert store._state().archive.wasted == 0
    assert await store.document("small", scope=Filter()) == whole("small", {}).document
