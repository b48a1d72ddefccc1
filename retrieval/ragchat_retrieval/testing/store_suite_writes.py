"""The contract of stores: writing, refusing, and what a corpus was written with."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

from ragchat_retrieval.errors import (
    DocumentChanged,
    DuplicateDocumentID,
    IdentityMismatch,
    InvalidDocument,
    InvalidSetting,
    InvalidText,
    InvalidVector,
    PassageIDConflict,
    ScopeViolation,
)
from ragchat_retrieval.filters import Eq, Filter
from ragchat_retrieval.ports import Identity
from ragchat_retrieval.testing.store_suite_kit import (
    ALL,
    DIMENSION,
    IDENTITY,
    KEYWORD_ONLY,
    OTHER_MODEL,
    axis,
    by_words,
    contents,
    ids_of,
    passage_ids,
    put,
    revision,
)
from ragchat_retrieval.values import Document, Lines, Passage, Revision, Span

if TYPE_CHECKING:
    from ragchat_retrieval.ports import Store

_BAD = np.stack([axis(0), axis(1)])


def _of(passage: Passage, terms: dict[str, int] | None = None) -> Revision:
    """Returns a revision with one passage of a document whose text is ``tea tea``."""
    document = Document("new", "tea tea")
    return Revision(document=document, passages=(passage,), terms=(terms or {},))


KEPT = revision("kept", "this one stays", ids=["kept-0"])
"""A document that no refused write names."""

REFUSED: dict[str, tuple[type[Exception], tuple[Revision, ...]]] = {
    "one document twice": (
        DuplicateDocumentID,
        (revision("twice", "first"), revision("twice", "second")),
    ),
    "one passage id twice in one document": (
        PassageIDConflict,
        (revision("new", "a", "b", ids=["same", "same"]),),
    ),
    "one passage id in two documents": (
        PassageIDConflict,
        (revision("new", "a", ids=["same"]), revision("newer", "b", ids=["same"])),
    ),
    "a passage id that another document owns": (
        PassageIDConflict,
        (revision("new", "a", "b", ids=["new-0", "kept-0"]),),
    ),
    "NUL in a text": (InvalidText, (revision("new", "o\x00er"),)),
    "a lone surrogate in a text": (InvalidText, (revision("new", "fine", "x\ud800y"),)),
    "NUL in a title": (InvalidText, (revision("new", "a", title="a\x00b"),)),
    "NUL in a source": (InvalidText, (revision("new", "a", source="a\x00b"),)),
    "NUL in an id": (InvalidText, (revision("a\x00b", "a"),)),
    "NUL in metadata": (InvalidText, (revision("new", "a", metadata={"k": ["a\x00b"]}),)),
    "NUL in a passage id": (InvalidText, (revision("new", "a", ids=["a\x00b"]),)),
    "a vector of NaN": (InvalidVector, (revision("new", "a", "b", vectors=_BAD * np.nan),)),
    "a vector of infinity": (
        InvalidVector,
        (revision("new", "a", "b", vectors=np.where(_BAD > 0, np.inf, _BAD)),),
    ),
    "a vector of zeros": (InvalidVector, (revision("new", "a", "b", vectors=_BAD * 0),)),
    "vectors of another length": (
        InvalidVector,
        (revision("new", "a", "b", vectors=_BAD[:, : DIMENSION - 1]),),
    ),
    "fewer vectors than passages": (InvalidVector, (revision("new", "a", "b", "c", vectors=_BAD),)),
    "more vectors than passages": (InvalidVector, (revision("new", "a", vectors=_BAD),)),
    "terms left out": (
        InvalidSetting,
        (Revision(document=KEPT.document, passages=KEPT.passages),),
    ),
    "a passage of another document": (InvalidDocument, (_of(Passage("a", document_id="other")),)),
    "a passage that is not what its span holds": (
        InvalidDocument,
        (_of(Passage("tea", document_id="new", span=Span(1, 4))),),
    ),
    "a passage that holds nothing": (InvalidDocument, (_of(Passage(" ", document_id="new")),)),
    "a page that is no number": (
        InvalidDocument,
        (_of(Passage("tea", document_id="new", page=cast("int", "3"))),),
    ),
    "lines beyond what every store keeps": (
        InvalidDocument,
        (_of(Passage("tea", document_id="new", lines=Lines(1, 2**31))),),
    ),
    "an ordinal before the first": (
        InvalidDocument,
        (_of(Passage("tea", document_id="new", ordinal=-1)),),
    ),
    "a term that no passage holds": (
        InvalidDocument,
        (_of(Passage("tea", document_id="new"), {"tea": 0}),),
    ),
    "a term that is no text": (
        InvalidDocument,
        (_of(Passage("tea", document_id="new"), {"te\0a": 1}),),
    ),
}
"""Writes that no store may accept, with the error that says why."""


class WriteContract:
    """What replacing, removing and refusing promise."""

    async def test_a_write_is_there_at_once(self, store: Store) -> None:
        """What was written is found by every way of reading."""
        given = revision("guide", "alpha one", "beta two", fingerprint="f1")
        await put(store, given)
        assert await store.count(scope=ALL) == (1, 2, 2)
        assert await store.document("guide", scope=ALL) == given.document
        assert dict(await store.get(passage_ids(given), scope=ALL)) == {
            passage.id: passage for passage in given.passages
        }
        assert await store.hashes(scope=ALL) == {"guide": "f1"}

    async def test_a_shorter_revision_leaves_no_tail(self, store: Store) -> None:
        """After each revision exactly its passages exist; an empty one removes the document."""
        other = revision("other", "unrelated words")
        long = revision("guide", *(f"chunk{n} common" for n in range(5)))
        short = revision("guide", "shorter0 common", "shorter1 common")
        await put(store, other, long)
        await put(store, short)
        assert await store.ids(scope=ALL) == sorted(passage_ids(other, short))
        assert await store.count(scope=ALL) == (2, 3, 3)
        assert not await store.get(passage_ids(long), scope=ALL)
        assert not await store.vectors(passage_ids(long), scope=ALL)
        await put(store, revision("guide"))
        assert await store.ids(scope=ALL) == passage_ids(other)
        assert await store.document_ids(scope=ALL) == ["other"]
        assert await store.document("guide", scope=ALL) is None
        assert await store.hashes(scope=ALL) == {"other": ""}

    async def test_passage_ids_may_stay_over_revisions(self, store: Store) -> None:
        """A new revision may use passage ids of the one that it replaces."""
        await put(store, revision("guide", "old text", "old tail", ids=["p0", "p1"]))
        await put(store, revision("guide", "new text", ids=["p0"]))
        (passage,) = (await store.get(["p0", "p1"], scope=ALL)).values()
        assert passage.text == "new text"

    async def test_passage_ids_may_move_with_their_documents(self, store: Store) -> None:
        """Documents that are replaced together may exchange passage ids."""
        await put(store, revision("a", "one", ids=["x"]), revision("b", "two", ids=["y"]))
        await put(store, revision("a", "three", ids=["y"]), revision("b", "four", ids=["x"]))
        found = await store.get(["x", "y"], scope=ALL)
        assert {i: passage.document_id for i, passage in found.items()} == {"x": "b", "y": "a"}

    async def test_the_last_of_equal_revisions_counts_once(self, store: Store) -> None:
        """Writing the same twice doubles nothing."""
        for _ in range(2):
            await put(store, revision("guide", "alpha", "beta"))
        assert await store.count(scope=ALL) == (1, 2, 2)

    @pytest.mark.parametrize("fault", REFUSED)
    async def test_a_refused_write_changes_nothing(self, store: Store, fault: str) -> None:
        """A fault in one revision is a typed error, and no revision of the write is stored."""
        error, faulty = REFUSED[fault]
        await put(store, KEPT, revision("old", "old text"))
        before = await contents(store)
        with pytest.raises(error):
            await put(store, revision("old", "changed"), *faulty, revision("more", "more"))
        assert await contents(store) == before

    @pytest.mark.parametrize("fault", [fault for fault in REFUSED if "owns" not in fault])
    async def test_a_refused_first_write_leaves_no_corpus(self, store: Store, fault: str) -> None:
        """A refused first write latches no identity."""
        error, faulty = REFUSED[fault]
        with pytest.raises(error):
            await put(store, *faulty)
        assert await store.identity() is None
        assert await store.corpora() == []

    async def test_errors_name_what_is_at_fault(self, store: Store) -> None:
        """An error carries the document, field or passage, and no text of a document."""
        await put(store, KEPT)
        with pytest.raises(InvalidText) as text:
            await put(store, revision("new", "secret \x00 words"))
        assert (text.value.document_id, text.value.field) == ("new", "text")
        assert "secret" not in str(text.value)
        with pytest.raises(InvalidVector) as vector:
            await put(store, revision("new", "a", vectors=_BAD[:1] * 0))
        assert vector.value.document_id == "new"
        with pytest.raises(PassageIDConflict) as conflict:
            await put(store, revision("new", "a", ids=["kept-0"]))
        assert conflict.value.passage_id == "kept-0"
        with pytest.raises(DuplicateDocumentID) as duplicate:
            await put(store, revision("new", "a"), revision("new", "b"))
        assert duplicate.value.document_id == "new"

    async def test_the_first_fault_in_a_fixed_order_is_told(self, store: Store) -> None:
        """Duplicates, text, passages, ids within the write, vectors, scope, identity, owners."""
        await put(store, KEPT)
        faults: list[tuple[type[Exception], list[Revision]]] = [
            (DuplicateDocumentID, [revision("again", "a"), revision("again", "b")]),
            (InvalidText, [revision("text", "\x00")]),
            (InvalidDocument, [revision("blank", " ")]),
            (PassageIDConflict, [revision("ids", "a", "b", ids=["same", "same"])]),
            (InvalidVector, [revision("vectors", "a", vectors=_BAD)]),
            (ScopeViolation, [revision("scope", "a", metadata={"team": "blue"})]),
            (IdentityMismatch, [revision("red", "a", metadata={"team": "red"}, ids=["kept-0"])]),
        ]
        scope = Filter(Eq("team", "red"))
        for start, (error, _) in enumerate(faults):
            faulty = [given for _, group in faults[start:] for given in group]
            with pytest.raises(error):
                await put(store, *reversed(faulty), identity=OTHER_MODEL, scope=scope)
        with pytest.raises(PassageIDConflict):
            await put(store, *faults[-1][1], scope=scope)

    async def test_deleting_tells_how_many_there_were(self, store: Store) -> None:
        """Unknown and repeated ids count nothing; other documents stay."""
        await put(store, revision("a", "one"), revision("b", "two"), revision("c", "three"))
        assert await store.delete(["a", "missing", "a", "c"], scope=ALL) == len("ac")
        assert await store.document_ids(scope=ALL) == ["b"]
        assert await store.count(scope=ALL) == (1, 1, 1)
        assert await store.delete([], scope=ALL) == 0
        assert await store.delete(["a"], scope=ALL) == 0

    async def test_deleting_by_source_takes_every_document_of_it(self, store: Store) -> None:
        """A source is compared exactly, and documents without one are never meant."""
        await put(
            store,
            revision("a", "one", source="docs/x.md"),
            revision("b", "two", source="docs/x.md"),
            revision("c", "three", source="docs/X.md"),
            revision("d", "four"),
        )
        assert await store.delete_by_source("docs/%", scope=ALL) == 0
        assert await store.delete_by_source("", scope=ALL) == 0
        assert await store.delete_by_source("docs/x.md", scope=ALL) == len("ab")
        assert await store.document_ids(scope=ALL) == ["c", "d"]

    async def test_every_write_raises_the_revision(self, store: Store) -> None:
        """Whoever keeps something derived sees from the revision that it is out of date."""
        seen = [await store.revision()]
        await put(store, revision("a", "one", source="s"), revision("b", "two"))
        seen.append(await store.revision())
        await put(store, revision("a", "one", source="s"))
        seen.append(await store.revision())
        await store.delete(["b"], scope=ALL)
        seen.append(await store.revision())
        await store.delete_by_source("s", scope=ALL)
        seen.append(await store.revision())
        await store.reset()
        seen.append(await store.revision())
        await put(store, revision("a", "one"))
        seen.append(await store.revision())
        await store.drop_corpus()
        seen.append(await store.revision())
        await put(store, revision("a", "one"))
        seen.append(await store.revision())
        assert seen == sorted(set(seen))

    async def test_reading_raises_no_revision(self, store: Store) -> None:
        """Searches and look-ups leave the revision as it is."""
        await put(store, revision("a", "one"))
        before = await store.revision()
        await contents(store)
        await by_words(store, "one")
        assert await store.revision() == before

    async def test_a_write_may_depend_on_what_is_stored(self, store: Store) -> None:
        """With expected fingerprints a write replaces the revisions it was made from, or none."""
        await put(store, revision("a", "one", fingerprint="f1"), revision("b", "two"))
        newer = [revision("a", "newer", fingerprint="f2"), revision("b", "newer")]
        before = await contents(store)
        for expected in ({"a": "f0", "b": ""}, {"a": "f1", "b": "", "gone": ""}):
            with pytest.raises(DocumentChanged) as caught:
                await store.replace(newer, identity=IDENTITY, scope=ALL, expected=expected)
            assert caught.value.document_id == ("a" if expected["a"] == "f0" else "gone")
            assert await contents(store) == before
        given = {"a": "f1", "b": ""}
        await store.replace(newer, identity=IDENTITY, scope=ALL, expected=given)
        assert await store.hashes(scope=ALL) == {"a": "f2", "b": ""}
        with pytest.raises(DocumentChanged):
            await store.corpus("empty").replace(newer, identity=IDENTITY, scope=ALL, expected=given)
        assert "empty" not in await store.corpora()

    async def test_many_passages_under_one_document(self, store: Store) -> None:
        """A document of thousands of passages is written, read, replaced and removed like any."""
        many = revision("big", *(f"part number{n}" for n in range(3000)))
        await put(store, revision("small", "part of another"), many)
        ids = passage_ids(many)
        assert len(await store.get(ids, scope=ALL)) == len(ids)
        assert len(await store.vectors(ids, scope=ALL)) == len(ids)
        assert ids_of(await by_words(store, "number2999")) == [ids[-1]]
        fewer = revision("big", *(f"part number{n}" for n in range(1500)))
        await put(store, fewer)
        assert (await store.count(scope=ALL)).passages == 1 + len(fewer.passages)
        assert await store.delete(["big"], scope=ALL) == 1
        assert await store.count(scope=ALL) == (1, 1, 1)


class IdentityContract:
    """What a corpus remembers of how it was written."""

    async def test_the_first_write_latches_the_identity(self, store: Store) -> None:
        """Model, dimension and analyser are what the first write came with."""
        assert await store.identity() is None
        await put(store, revision("a", "one"))
        assert await store.identity() == IDENTITY

    @pytest.mark.parametrize(
        "other",
        [
            OTHER_MODEL,
            KEYWORD_ONLY,
            Identity(analyzer="other words", model="model-a", dimension=DIMENSION),
        ],
        ids=str,
    )
    async def test_another_identity_is_refused(self, store: Store, other: Identity) -> None:
        """Another model, even of the same dimension, none, or another analyser may not write."""
        await put(store, revision("a", "one"))
        before = await contents(store)
        with pytest.raises(IdentityMismatch) as caught:
            await put(store, revision("b", "two", embedded=other.model is not None), identity=other)
        assert (caught.value.stored, caught.value.given) == (str(IDENTITY), str(other))
        assert await contents(store) == before

    async def test_the_identity_survives_deleting_everything(self, store: Store) -> None:
        """An emptied corpus is still one of its model."""
        await put(store, revision("a", "one"))
        await store.delete(["a"], scope=ALL)
        assert await store.identity() == IDENTITY
        with pytest.raises(IdentityMismatch):
            await put(store, revision("a", "one"), identity=OTHER_MODEL)

    async def test_reset_forgets_everything(self, store: Store) -> None:
        """After a reset the corpus is empty and takes any identity, also of another dimension."""
        await put(store, revision("a", "one"))
        await store.reset()
        assert await store.identity() is None
        assert await store.count(scope=ALL) == (0, 0, 0)
        assert await store.ids(scope=ALL) == []
        assert not await by_words(store, "one")
        smaller = Identity(analyzer="words", model="small", dimension=2)
        vectors = np.eye(2, dtype=np.float32)[:1]
        await put(store, revision("b", "two", vectors=vectors), identity=smaller)
        assert await store.identity() == smaller
        assert len(await by_words(store, "two")) == 1

    async def test_a_keyword_only_corpus_takes_a_model(self, store: Store) -> None:
        """The first write in which every revision carries vectors gives it one; the rest waits."""
        await put(store, revision("a", "one", embedded=False), identity=KEYWORD_ONLY)
        assert await store.count(scope=ALL) == (1, 1, 0)
        with pytest.raises(IdentityMismatch):
            await put(store, revision("b", "two"), revision("c", "three", embedded=False))
        assert await store.identity() == KEYWORD_ONLY
        await put(store, revision("b", "two"))
        assert await store.identity() == IDENTITY
        assert await store.count(scope=ALL) == (2, 2, 1)
        await put(store, revision("a", "one"))
        assert await store.count(scope=ALL) == (2, 2, 2)

    async def test_vectors_need_a_model(self, store: Store) -> None:
        """A keyword-only write may not bring vectors."""
        with pytest.raises(InvalidVector):
            await put(store, revision("a", "one"), identity=KEYWORD_ONLY)
