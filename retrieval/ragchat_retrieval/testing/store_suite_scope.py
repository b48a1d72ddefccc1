"""The contract of stores: a document outside the scope does not exist for the caller."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ragchat_retrieval.errors import ScopeViolation
from ragchat_retrieval.filters import Eq, Exists, Filter, Gt, In, Ne, NotExists
from ragchat_retrieval.testing.store_suite_kit import (
    ALL,
    axis,
    by_vector,
    by_words,
    contents,
    ids_of,
    passage_ids,
    put,
    revision,
)
from ragchat_retrieval.values import Passage

if TYPE_CHECKING:
    from ragchat_retrieval.ports import Store
    from ragchat_retrieval.values import Revision

RED = Filter(Eq("team", "red"))
BLUE = Filter(Eq("team", "blue"))

MINE = revision(
    "mine",
    "common mine",
    "common again",
    metadata={"team": "red", "year": 2024},
    source="shared.md",
    fingerprint="f-mine",
)
THEIRS = revision(
    "theirs", "common theirs", metadata={"team": "blue", "year": 2020}, source="shared.md"
)
NOBODYS = revision("nobodys", "common nobodys", source="shared.md")


class ScopeContract:
    """What every method promises of its `scope`, and the lanes of their `filter`."""

    @pytest.fixture
    async def shared(self, store: Store) -> Store:
        """Gives a store with documents of two teams and one of none."""
        await put(store, MINE, THEIRS, NOBODYS)
        return store

    async def test_reading_sees_the_scope_only(self, shared: Store) -> None:
        """Lists, counts and look-ups hold nothing from outside."""
        ids = passage_ids(MINE, THEIRS, NOBODYS)
        mine = passage_ids(MINE)
        assert await shared.ids(scope=RED) == sorted(mine)
        assert await shared.document_ids(scope=RED) == ["mine"]
        assert await shared.count(scope=RED) == (1, 2, 2)
        assert set(await shared.get(ids, scope=RED)) == set(mine)
        assert set(await shared.vectors(ids, scope=RED)) == set(mine)
        assert await shared.hashes(scope=RED) == {"mine": "f-mine"}
        assert await shared.hashes(["mine", "theirs"], scope=RED) == {"mine": "f-mine"}
        assert await shared.document("mine", scope=RED) == MINE.document
        assert await shared.document("theirs", scope=RED) is None
        assert await shared.document("nobodys", scope=RED) is None
        assert len(await shared.neighbours("mine", 0, 9, scope=RED)) == len(mine)
        assert not await shared.neighbours("theirs", 0, 9, scope=RED)

    async def test_searching_sees_the_scope_only(self, shared: Store) -> None:
        """Neither lane returns or scores anything from outside."""
        ids = passage_ids(MINE, THEIRS, NOBODYS)
        mine = set(passage_ids(MINE))
        assert set(ids_of(await by_words(shared, "common", scope=RED))) == mine
        assert set(ids_of(await by_vector(shared, axis(0), scope=RED))) == mine
        assert set(await shared.score_text({"common": 1.0}, ids, scope=RED)) == mine
        assert set(await shared.score_vector(axis(0), ids, scope=RED)) == mine
        assert not await by_words(shared, "theirs", scope=RED)

    async def test_scope_and_filter_both_hold(self, shared: Store) -> None:
        """A filter narrows inside the scope and never widens it."""
        assert not await by_words(shared, "common", filter=BLUE, scope=RED)
        assert not await by_vector(shared, axis(0), filter=BLUE, scope=RED)
        late, mine = Filter(Gt("year", 2021)), set(passage_ids(MINE))
        assert set(ids_of(await by_words(shared, "common", filter=late, scope=RED))) == mine
        assert set(ids_of(await by_vector(shared, axis(0), filter=late, scope=RED))) == mine

    async def test_filters_run_before_the_limit(self, store: Store) -> None:
        """A filter that selects the worst of many still finds it within a limit of one."""
        many = [
            revision(f"d{n:02}", "word " * (40 - n) + "filler", metadata={"n": n}, vectors=None)
            for n in range(40)
        ]
        await put(store, *many)
        for n in (0, 20, 39):
            only = Filter(Eq("n", n))
            expected = passage_ids(many[n])
            assert ids_of(await by_words(store, "word", 1, filter=only)) == expected
            assert ids_of(await by_vector(store, axis(0), 1, filter=only)) == expected
            assert ids_of(await by_words(store, "word", 1, scope=only)) == expected

    async def test_statistics_do_not_depend_on_the_filter(self, shared: Store) -> None:
        """A passage has the same score whatever filter or scope it was found under."""
        free = dict(await by_words(shared, "common mine"))
        scoped = dict(await by_words(shared, "common mine", scope=RED))
        assert scoped == {i: free[i] for i in scoped}
        assert scoped

    @pytest.mark.parametrize(
        ("scope", "expected"),
        [
            (Filter(In("team", ["red", "green"])), ["mine"]),
            (Filter(Ne("team", "red")), ["theirs"]),
            (Filter(Exists("team")), ["mine", "theirs"]),
            (Filter(NotExists("team")), ["nobodys"]),
            (Filter(Eq("document_id", "theirs")), ["theirs"]),
            (Filter(Eq("source", "shared.md"), Eq("team", "blue")), ["theirs"]),
            (Filter(Exists("title")), []),
            (Filter(In("team", [])), []),
        ],
        ids=["in", "ne", "exists", "not-exists", "document-id", "source", "title", "nothing"],
    )
    async def test_any_filter_may_be_a_scope(
        self, shared: Store, scope: Filter, expected: list[str]
    ) -> None:
        """Scopes use every operator and reserved key, in every method alike."""
        ids = passage_ids(MINE, THEIRS, NOBODYS)
        assert await shared.document_ids(scope=scope) == expected
        found = await shared.get(ids, scope=scope)
        assert {passage.document_id for passage in found.values()} == set(expected)
        assert sorted(found) == await shared.ids(scope=scope)
        assert set(ids_of(await by_words(shared, "common", scope=scope))) == set(found)
        assert set(ids_of(await by_vector(shared, axis(0), scope=scope))) == set(found)
        counts = await shared.count(scope=scope)
        assert counts == (len(expected), len(found), len(found))

    async def test_removing_touches_the_scope_only(self, shared: Store) -> None:
        """Deleting from outside the scope removes and counts nothing there."""
        assert await shared.delete(["theirs", "nobodys"], scope=RED) == 0
        assert await shared.delete_by_source("shared.md", scope=RED) == 1
        assert await shared.document_ids(scope=ALL) == ["nobodys", "theirs"]
        assert await shared.delete(["mine", "theirs", "nobodys"], scope=BLUE) == 1
        assert await shared.document_ids(scope=ALL) == ["nobodys"]

    @pytest.mark.parametrize(
        "given",
        [
            revision("new", "a"),
            revision("new", "a", metadata={"team": "blue"}),
            revision("theirs", "taken over", metadata={"team": "red"}),
            revision("nobodys", "taken over", metadata={"team": "red"}),
            revision("theirs"),
            revision("theirs", metadata={"team": "red"}),
        ],
        ids=["unmarked", "foreign", "takes", "claims", "deletes", "deletes-marked"],
    )
    async def test_writing_outside_the_scope_is_refused(
        self, shared: Store, given: Revision
    ) -> None:
        """New documents must match the scope, and documents outside it may not be replaced."""
        before = await contents(shared)
        fine = revision("fine", "b", metadata={"team": "red"})
        with pytest.raises(ScopeViolation):
            await put(shared, fine, given, scope=RED)
        assert await contents(shared) == before

    async def test_a_passage_must_match_the_scope_too(self, shared: Store) -> None:
        """A document inside the scope may not bring a passage from outside."""
        before = await contents(shared)
        fine = revision("new", "a", metadata={"team": "red"})
        smuggled = Passage("a", id="smuggled", document_id="new", metadata={"team": "blue"})
        given = replace(fine, passages=(smuggled,))
        with pytest.raises(ScopeViolation) as caught:
            await put(shared, given, scope=RED)
        assert caught.value.passage_id == "smuggled"
        assert await contents(shared) == before

    async def test_writing_inside_the_scope_works(self, shared: Store) -> None:
        """Documents of the scope are replaced, added and removed."""
        await put(
            shared,
            revision("mine", "new text", metadata={"team": "red"}),
            revision("more", "more text", metadata={"team": "red"}),
            scope=RED,
        )
        assert await shared.document_ids(scope=RED) == ["mine", "more"]
        await put(shared, revision("mine"), scope=RED)
        assert await shared.document_ids(scope=RED) == ["more"]
        assert await shared.document_ids(scope=BLUE) == ["theirs"]
