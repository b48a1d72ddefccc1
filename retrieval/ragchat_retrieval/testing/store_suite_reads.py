"""The contract of stores: what comes back, unchanged, and stays apart."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest

from ragchat_retrieval.errors import StoreClosed
from ragchat_retrieval.ports import StoreCounts
from ragchat_retrieval.testing.store_suite_kit import (
    ALL,
    IDENTITY,
    KEYWORD_ONLY,
    axis,
    by_vector,
    by_words,
    contents,
    ids_of,
    passage_ids,
    put,
    revision,
    vector_of,
)
from ragchat_retrieval.values import Document, Lines, Passage, Revision

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ragchat_retrieval.ports import Store

ODD_IDS = (
    "notes/a.md#1",
    "🔬👩‍🔬",
    "x" * 400,
    "6F9619FF-8B86-D011-B42D-00C04FC964FF",
    "6f9619ff-8b86-d011-b42d-00c04fc964ff",
    "42",
    " 42",
    "042",
    "a'b\"c`d\\e",
    "%_*?",
    "../up",
    "line\nbreak\ttab",
    "cafe\u0301",
    "caf\u00e9",
    "NULL",
)
"""Ids that some engine would take for something else; all differ."""

METADATA: dict[str, Any] = {
    "null": None,
    "flag": True,
    "one": 1,
    "one-float": 1.0,
    "large": 2**53,
    "tiny": 5e-324,
    "text": "naïve ' \" \\ 喝茶",
    "empty": "",
    "list": [1, "two", None, [3.5, {"deep": []}]],
    "map": {"any key.": {"at": "all"}, "$datetime": "2024"},
}


class ReadContract:
    """What reading promises."""

    async def test_an_empty_corpus_gives_empty_answers(self, store: Store) -> None:
        """Before the first write nothing raises and nothing is found."""
        assert await store.identity() is None
        assert await store.count(scope=ALL) == StoreCounts(0, 0, 0)
        assert await store.corpora() == []
        assert await store.ids(scope=ALL) == []
        assert await store.document_ids(scope=ALL) == []
        assert await store.document("a", scope=ALL) is None
        assert not await store.get(["a"], scope=ALL)
        assert not await store.vectors(["a"], scope=ALL)
        assert not await store.neighbours("a", 0, 1, scope=ALL)
        assert not await store.hashes(scope=ALL)
        assert not await by_words(store, "word")
        assert not await by_vector(store, axis(0))
        assert not await store.score_text({"word": 1.0}, ["a"], scope=ALL)
        assert not await store.score_vector(axis(0), ["a"], scope=ALL)
        assert await store.delete(["a"], scope=ALL) == 0
        assert await store.delete_by_source("a", scope=ALL) == 0
        await store.drop_corpus()
        await store.repair()

    async def test_the_store_names_itself_and_its_corpus(self, store: Store) -> None:
        """A store has a name for errors and traces, and a handle knows its corpus."""
        assert store.name.strip()
        assert store.corpus("other").corpus_name == "other"
        assert store.corpus("other").name == store.name

    @pytest.mark.parametrize("odd", ODD_IDS)
    async def test_any_id_comes_back_unchanged(self, store: Store, odd: str) -> None:
        """Write, find, get, rewrite and delete work for any id, and touch no similar one."""
        others = [revision(i, "common", ids=[f"p:{i}"]) for i in ODD_IDS if i != odd]
        given = revision(odd, "common special", ids=[odd])
        await put(store, given, *others)
        assert set(await store.document_ids(scope=ALL)) == set(ODD_IDS)
        assert ids_of(await by_words(store, "special")) == [odd]
        assert dict(await store.get([odd], scope=ALL)) == {odd: given.passages[0]}
        assert await store.document(odd, scope=ALL) == given.document
        again = revision(odd, "rewritten", ids=[odd])
        await put(store, again)
        assert await store.document(odd, scope=ALL) == again.document
        assert await store.delete([odd], scope=ALL) == 1
        assert set(await store.document_ids(scope=ALL)) == set(ODD_IDS) - {odd}
        assert (await store.count(scope=ALL)).passages == len(others)

    async def test_ids_are_listed_in_ascending_order(self, store: Store) -> None:
        """The order is that of code points, whatever the order of writing."""
        names = ["b", "a", "B", "é", "z", "10", "9", "\U0001f600", "\ufb01"]
        await put(store, *(revision(name, "x", ids=[f"p{name}"]) for name in names))
        assert await store.document_ids(scope=ALL) == sorted(names)
        assert await store.ids(scope=ALL) == sorted(f"p{name}" for name in names)

    async def test_a_passage_comes_back_with_every_field(self, store: Store) -> None:
        """Every field is kept, also where a passage differs from its document."""
        document = Document("d", "full text", title="T", source="s", metadata=METADATA)
        own = Passage(
            "not a slice",
            id="own",
            document_id="d",
            title=None,
            source="elsewhere",
            metadata={"one": True},
            headings=("Part", "Chapter [1]"),
            page=7,
            lines=Lines(3, 9),
            ordinal=1,
            digest="abc",
        )
        plain = Passage(
            "text",
            id="plain",
            document_id="d",
            title="T",
            source="s",
            metadata=METADATA,
            ordinal=0,
            digest=document.digest,
        )
        given = Revision(document=document, passages=(plain, own), terms=({"x": 1}, {"y": 2}))
        await put(store, given, identity=KEYWORD_ONLY)
        found = await store.get(["own", "plain"], scope=ALL)
        assert dict(found) == {"own": own, "plain": plain}
        assert (
            list(found["plain"].metadata.items()) == sorted(METADATA.items())
            or dict(found["plain"].metadata) == METADATA
        )
        assert type(found["own"].metadata["one"]) is bool
        assert type(found["plain"].metadata["one"]) is int
        assert type(found["plain"].metadata["one-float"]) is float
        assert await store.document("d", scope=ALL) == document

    async def test_text_comes_back_as_given(self, store: Store) -> None:
        """No normalisation, no trimming, no change of line ends; slices count code points."""
        texts = [
            "e\u0301 é",
            "tail \r\n",
            "\ufeffbom \u200f",
            "👩‍🔬🇵🇱",
            " \t lead",
            "喝茶 \x1b\x7f",
        ]
        given = revision("d", *texts)
        await put(store, given)
        assert await store.document("d", scope=ALL) == given.document
        found = await store.get(passage_ids(given), scope=ALL)
        assert [found[i].text for i in passage_ids(given)] == texts

    async def test_unknown_ids_are_left_out(self, store: Store) -> None:
        """Asking for what is not there is no error, also for ids that no store could hold."""
        given = revision("a", "one")
        await put(store, given)
        wanted = ["missing", *passage_ids(given), "\ud800", "a\x00b", ""]
        assert list(await store.get(wanted, scope=ALL)) == passage_ids(given)
        assert list(await store.vectors(wanted, scope=ALL)) == passage_ids(given)
        assert list(await store.score_text({"one": 1.0}, wanted, scope=ALL)) == passage_ids(given)
        assert list(await store.score_vector(axis(0), wanted, scope=ALL)) == passage_ids(given)
        assert await store.document("\ud800", scope=ALL) is None
        assert await store.delete(["\ud800", "a\x00"], scope=ALL) == 0
        assert await store.delete_by_source("\ud800", scope=ALL) == 0
        assert not await store.neighbours("\ud800", 0, 3, scope=ALL)
        assert not await store.hashes(["missing", "\ud800"], scope=ALL)

    async def test_vectors_come_back_as_given(self, store: Store) -> None:
        """Vectors are float32 and equal to those written; passages without one are left out."""
        given = revision("a", "one", "two")
        await put(store, given)
        found = await store.vectors(passage_ids(given), scope=ALL)
        for passage in given.passages:
            assert found[passage.id].dtype == np.float32
            assert np.array_equal(found[passage.id], vector_of(passage.text))
        bare = revision("b", "three", embedded=False)
        await put(store, bare)
        assert not await store.vectors(passage_ids(bare), scope=ALL)

    async def test_neighbours_stand_around_an_ordinal(self, store: Store) -> None:
        """Passages at ordinals n before to n after come in order, cut at the document's ends."""
        await put(
            store, revision("a", *(f"part{n}" for n in range(6))), revision("b", "other", "x")
        )

        async def around(ordinal: int, n: int) -> list[int]:
            found = await store.neighbours("a", ordinal, n, scope=ALL)
            assert all(passage.document_id == "a" for passage in found)
            assert [passage.text for passage in found] == [f"part{p.ordinal}" for p in found]
            return [passage.ordinal for passage in found]

        assert await around(2, 1) == [1, 2, 3]
        assert await around(0, 2) == [0, 1, 2]
        assert await around(5, 9) == [0, 1, 2, 3, 4, 5]
        assert await around(3, 0) == [3]
        assert await around(3, 2**70) == [0, 1, 2, 3, 4, 5]
        assert await around(99, 1) == []
        assert await around(2, -1) == []
        assert not await store.neighbours("missing", 0, 5, scope=ALL)

    async def test_fingerprints_are_those_of_the_last_write(self, store: Store) -> None:
        """All or some documents' fingerprints are told, by document id."""
        await put(
            store, revision("a", "one", fingerprint="f1"), revision("b", "two", fingerprint="f2")
        )
        await put(store, revision("a", "one!", fingerprint="f3"))
        assert await store.hashes(scope=ALL) == {"a": "f3", "b": "f2"}
        assert await store.hashes(["b", "missing"], scope=ALL) == {"b": "f2"}
        assert await store.hashes([], scope=ALL) == {}


class ApartContract:
    """What stays apart: corpora from each other, answers from what is stored."""

    async def test_corpora_do_not_see_each_other(self, store: Store) -> None:
        """The same ids in two corpora are different documents, and identities are per corpus."""
        other = store.corpus("other")
        await put(store, revision("a", "mine common", ids=["p"]))
        await put(
            other, revision("a", "theirs common", ids=["p"], embedded=False), identity=KEYWORD_ONLY
        )
        assert await other.identity() == KEYWORD_ONLY
        assert await store.identity() == IDENTITY
        assert (await store.get(["p"], scope=ALL))["p"].text == "mine common"
        assert (await other.get(["p"], scope=ALL))["p"].text == "theirs common"
        assert ids_of(await by_words(other, "mine")) == []
        assert len(await by_words(other, "common")) == 1
        assert await store.corpora() == sorted([store.corpus_name, "other"])
        await other.delete(["a"], scope=ALL)
        assert await store.count(scope=ALL) == (1, 1, 1)

    async def test_a_corpus_can_be_dropped(self, store: Store) -> None:
        """A dropped corpus is no longer named, and may be written anew with any identity."""
        other = store.corpus("other")
        await put(store, revision("a", "mine"))
        await put(other, revision("a", "theirs"))
        before = await contents(store)
        await other.drop_corpus()
        assert await store.corpora() == [store.corpus_name]
        assert await other.identity() is None
        assert await other.count(scope=ALL) == (0, 0, 0)
        assert not await by_words(other, "theirs")
        assert await contents(store) == before
        await put(other, revision("b", "new", embedded=False), identity=KEYWORD_ONLY)
        assert await other.document_ids(scope=ALL) == ["b"]

    async def test_handles_on_one_corpus_are_the_same_corpus(self, store: Store) -> None:
        """What one handle writes the other reads."""
        await put(store.corpus("shared"), revision("a", "one"))
        assert await store.corpus("shared").document_ids(scope=ALL) == ["a"]

    async def test_what_was_given_may_be_changed_later(self, store: Store) -> None:
        """A caller's arrays and mappings are his own again once the write is done."""
        vectors = np.stack([axis(0)])
        terms = {"one": 1}
        metadata = {"tags": ["x"]}
        document = Document("a", "one", metadata=metadata)
        passage = Passage("one", id="p", document_id="a", metadata=document.metadata)
        given = Revision(document=document, passages=(passage,), vectors=vectors, terms=(terms,))
        await put(store, given)
        vectors[:] = axis(1)
        terms["two"] = 1
        metadata["tags"].append("y")
        assert np.array_equal((await store.vectors(["p"], scope=ALL))["p"], axis(0))
        assert not await by_words(store, "two")
        assert (await store.get(["p"], scope=ALL))["p"].metadata == {"tags": ["x"]}

    async def test_what_was_returned_may_be_changed(self, store: Store) -> None:
        """Changing an answer changes nothing that is stored, and no other answer."""
        given = revision("a", "one", "two", metadata={"tags": ["x"]}, fingerprint="f")
        await put(store, given)
        before = await contents(store)
        answers: list[Any] = [
            await store.ids(scope=ALL),
            await store.document_ids(scope=ALL),
            await store.get(passage_ids(given), scope=ALL),
            await store.hashes(scope=ALL),
            await store.search_text({"one": 1.0}, 5, filter=ALL, scope=ALL),
            await store.corpora(),
        ]
        for answer in answers:
            if hasattr(answer, "clear"):
                answer.clear()
        for vector in (await store.vectors(passage_ids(given), scope=ALL)).values():
            if vector.flags.writeable:
                vector[:] = 0
        assert await contents(store) == before
        assert len(await by_words(store, "one")) == 1


class ClosingContract:
    """What closing promises."""

    used: ClassVar[dict[str, Callable[[Store], Awaitable[object]]]] = {
        "replace": lambda store: put(store, revision("b", "two")),
        "delete": lambda store: store.delete(["a"], scope=ALL),
        "delete_by_source": lambda store: store.delete_by_source("s", scope=ALL),
        "reset": lambda store: store.reset(),
        "ids": lambda store: store.ids(scope=ALL),
        "document_ids": lambda store: store.document_ids(scope=ALL),
        "document": lambda store: store.document("a", scope=ALL),
        "get": lambda store: store.get(["p"], scope=ALL),
        "vectors": lambda store: store.vectors(["p"], scope=ALL),
        "neighbours": lambda store: store.neighbours("a", 0, 1, scope=ALL),
        "hashes": lambda store: store.hashes(scope=ALL),
        "search_text": lambda store: by_words(store, "one"),
        "score_text": lambda store: store.score_text({"one": 1.0}, ["p"], scope=ALL),
        "search_vector": lambda store: by_vector(store, axis(0)),
        "score_vector": lambda store: store.score_vector(axis(0), ["p"], scope=ALL),
        "identity": lambda store: store.identity(),
        "revision": lambda store: store.revision(),
        "corpora": lambda store: store.corpora(),
        "drop_corpus": lambda store: store.drop_corpus(),
        "repair": lambda store: store.repair(),
        "count": lambda store: store.count(scope=ALL),
    }
    """Every method, with a call of it."""

    async def test_a_store_may_be_closed_twice(self, store: Store) -> None:
        """Closing again is no error, nor is closing what was never used, nor closing at once."""
        await put(store, revision("a", "one"))
        await asyncio.gather(store.aclose(), store.aclose())
        await store.aclose()

    async def test_an_unused_store_may_be_closed(self, store: Store) -> None:
        """Closing a store that did nothing is no error."""
        await store.aclose()

    @pytest.mark.parametrize("method", used)
    async def test_a_closed_store_says_so(self, store: Store, method: str) -> None:
        """Every method of a closed store raises `StoreClosed`."""
        await put(store, revision("a", "one"))
        await store.aclose()
        with pytest.raises(StoreClosed):
            await self.used[method](store)
