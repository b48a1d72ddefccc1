"""An index is copied to another store or embedder while it is in use, and takes its name."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ragchat_retrieval.chunking import ParagraphSplitter
from ragchat_retrieval.embedders import HashingEmbedder
from ragchat_retrieval.errors import (
    CorpusChanged,
    EmbeddingError,
    IdentityMismatch,
    InvalidSetting,
    MigrationMismatch,
    MigrationSourceChanging,
    MigrationTargetInUse,
    SwapUnsupported,
)
from ragchat_retrieval.filters import Filter
from ragchat_retrieval.index import HybridIndex
from ragchat_retrieval.lexical import Analyzer
from ragchat_retrieval.migration import migrate_index, swap_indexes
from ragchat_retrieval.stores.memory import MemoryStore
from ragchat_retrieval.stores.postgres import PostgresStore
from ragchat_retrieval.stores.sqlite import SQLiteStore
from ragchat_retrieval.values import Document, Passage, Revision

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ragchat_retrieval.ports import Store

ALL = Filter()
SMALL, LARGE = HashingEmbedder(32), HashingEmbedder(48)
TOPICS = ["tea", "coffee", "milk", "bread", "salt", "rice", "oil"]


def documents(count: int = 20, edition: str = "first") -> list[Document]:
    return [
        Document(
            f"d{n:03}",
            f"The {edition} note {n} on {TOPICS[n % 7]}.\n\nIt has number {n * 37} and {n}-xyz.",
            title=f"Note {n}",
            source=f"{n % 3}.md",
            metadata={"n": n, "even": n % 2 == 0},
        )
        for n in range(count)
    ]


async def filled(store: Store, embedder: HashingEmbedder | None = SMALL) -> HybridIndex:
    index = HybridIndex(store, embedder=embedder, splitter=ParagraphSplitter())
    await index.ingest(*documents())
    return index


async def stored(index: HybridIndex) -> dict[str, object]:
    """Everything in a corpus that does not depend on the embedder."""
    store = index.store
    ids = await store.document_ids(scope=ALL)
    return {
        "fingerprints": dict(await store.hashes(scope=ALL)),
        "documents": [await store.document(i, scope=ALL) for i in ids],
        "passages": [list(await store.neighbours(i, 0, 100, scope=ALL)) for i in ids],
    }


async def vectors(index: HybridIndex) -> dict[str, list[float]]:
    ids = await index.store.ids(scope=ALL)
    known = await index.store.vectors(ids, scope=ALL)
    return {i: known[i].tolist() for i in ids if i in known}


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A store to copy into."""
    made: Store
    if request.param == "memory":
        made = MemoryStore()
    elif request.param == "sqlite":
        made = SQLiteStore(tmp_path / "new.sqlite")
    else:
        url, schema = map(request.getfixturevalue, ("postgres_url", "postgres_schema"))
        made = PostgresStore(url, schema=schema)
    yield made
    await made.aclose()


@pytest.fixture
async def old(tmp_path: Path) -> AsyncIterator[HybridIndex]:
    index = await filled(SQLiteStore(tmp_path / "old.sqlite"))
    yield index
    await index.aclose()


class Watching(HashingEmbedder):
    """Counts what it embeds, and fails at a text that it is told."""

    def __init__(self, dimension: int, fails_at: str = "nowhere") -> None:
        super().__init__(dimension)
        self.seen: list[str] = []
        self.fails_at = fails_at

    async def embed(self, texts, kind="query"):
        if any(self.fails_at in text for text in texts):
            raise EmbeddingError("no", model=self.model)
        if kind == "passage":
            self.seen += texts
        return await super().embed(texts, kind)


async def test_a_copy_is_equal_and_ranks_alike(old: HybridIndex, store: Store) -> None:
    """Texts, passages, fingerprints and vectors are the same, and both indexes answer alike."""
    watching = Watching(32)
    new = HybridIndex(store, embedder=watching)
    told: list[float] = []
    report = await migrate_index(old, new, batch=7, on_progress=told.append)
    assert (report.documents, report.passages, report.kept_vectors) == (20, 40, 40)
    assert (report.embedded, report.skipped, report.removed, report.verified) == (0, 0, 0, True)
    assert report.revision == await old.store.revision()
    assert told == sorted(told)
    assert (told[0], told[-1]) == (0.0, 1.0)
    assert await stored(new) == await stored(old)
    assert await vectors(new) == await vectors(old)
    assert watching.seen == []
    for query in ("tea", "number 37", "a note on salt"):
        mine, theirs = await new.search(query), await old.search(query)
        assert [c.passage for c in mine] == [c.passage for c in theirs]
        assert [c.score for c in mine] == pytest.approx([c.score for c in theirs], abs=1e-6)


async def test_vectors_are_kept_where_no_embedder_is_given(old: HybridIndex, store: Store) -> None:
    """A change of stores needs no model: vectors are copied under the name of theirs."""
    report = await migrate_index(old, HybridIndex(store))
    assert report.kept_vectors == 40
    assert await store.identity() == await old.store.identity()
    await migrate_index(old, HybridIndex(store))
    assert await vectors(HybridIndex(store)) == await vectors(old)


async def test_another_embedder_embeds_anew_and_keeps_the_passages(
    old: HybridIndex, store: Store
) -> None:
    """Passages stay as they are, also as another splitter made them; an ingest skips them all."""
    watching = Watching(48)
    new = HybridIndex(store, embedder=watching, splitter=ParagraphSplitter())
    report = await migrate_index(old, new)
    assert (report.embedded, report.kept_vectors, report.verified) == (40, 0, True)
    assert len(watching.seen) == 40
    assert await stored(new) == await stored(old)
    assert (await store.count(scope=ALL)).vectors == 40
    assert (await new.ingest(*documents())).skipped == 20


async def test_a_keyword_only_corpus_gets_vectors_on_the_way(store: Store) -> None:
    old = await filled(MemoryStore(), embedder=None)
    report = await migrate_index(old, HybridIndex(store, embedder=SMALL))
    assert (report.embedded, report.verified) == (40, True)
    bare = HybridIndex(MemoryStore())
    assert (await migrate_index(old, bare)).kept_vectors == 0
    assert (await bare.store.count(scope=ALL)).vectors == 0


async def test_the_lexical_analysis_is_taken_over_or_made_anew(store: Store) -> None:
    """Without an analyser of its own the new index analyses as the old one; with one, by that."""
    german = HybridIndex(MemoryStore(), analyzer=Analyzer("german"))
    await german.ingest(Document("h", "Die Häuser der Stadt"))
    new = HybridIndex(store)
    await migrate_index(german, new)
    identity = await store.identity()
    assert identity is not None
    assert identity.analyzer == Analyzer("german").name
    assert len(await HybridIndex(store).search("Haus")) == 1
    english = HybridIndex(store.corpus("english"), analyzer=Analyzer("english"))
    await migrate_index(german, english)
    assert len(await english.search("Häuser")) == 1
    assert len(await english.search("Haus")) == 0


async def test_a_stopped_run_goes_on_where_it_was(old: HybridIndex, store: Store) -> None:
    """What is there is not copied again, and the embedder does not see it again."""
    watching = Watching(48, fails_at="note 13 ")
    new = HybridIndex(store, embedder=watching)
    with pytest.raises(EmbeddingError):
        await migrate_index(old, new, batch=4)
    assert await store.document_ids(scope=ALL) == [f"d{n:03}" for n in range(12)]
    watching.fails_at = "nowhere"
    report = await migrate_index(old, new, batch=4)
    assert (report.skipped, report.documents, report.verified) == (12, 8, True)
    assert len(watching.seen) == len(set(watching.seen)) == 40
    again = await migrate_index(old, new)
    assert (again.skipped, again.documents, again.verified) == (20, 0, True)


async def test_what_was_written_since_is_caught_up(old: HybridIndex, store: Store) -> None:
    """Changed documents are replaced, new ones come, and those that have gone go when asked."""
    new = HybridIndex(store)
    await migrate_index(old, new)
    await old.ingest(*documents(3, "second"), Document("new", "Something new."))
    report = await migrate_index(old, new)
    assert (report.documents, report.skipped) == (4, 17)
    await old.remove("d007")
    with pytest.raises(MigrationTargetInUse) as caught:
        await migrate_index(old, new)
    assert caught.value.documents == 1
    report = await migrate_index(old, new, prune=True)
    assert (report.removed, report.documents, report.verified) == (1, 0, True)
    assert await stored(new) == await stored(old)


async def test_the_old_index_may_be_written_all_the_while(old: HybridIndex, store: Store) -> None:
    """Writers and removals during the copy end up in it, and nothing of it is half."""
    new = HybridIndex(store)

    async def write() -> None:
        for number in range(12):
            await old.ingest(*documents(20, f"edition{number}")[number : number + 5])
            await old.remove(f"d{19 - number:03}")
            await asyncio.sleep(0)

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(write())
        running = group.create_task(migrate_index(old, new, batch=2, prune=True))
    assert running.result().verified
    report = await migrate_index(old, new, prune=True)
    assert report.revision == await old.store.revision()
    assert await stored(new) == await stored(old)


async def test_a_corpus_of_something_else_is_left_alone(old: HybridIndex) -> None:
    """Old and new the wrong way round, or another model's corpus, are refused before a write."""
    with pytest.raises(MigrationTargetInUse):
        await migrate_index(HybridIndex(MemoryStore()), old)
    assert (await old.store.count(scope=ALL)).documents == 20
    other = await filled(MemoryStore(), LARGE)
    with pytest.raises(IdentityMismatch):
        await migrate_index(old, HybridIndex(other.store, embedder=SMALL))
    with pytest.raises(InvalidSetting, match="old index itself"):
        await migrate_index(old, old)
    with pytest.raises(InvalidSetting, match="batch"):
        await migrate_index(old, HybridIndex(MemoryStore()), batch=0)


class Restless(MemoryStore):
    """Somebody writes it whenever its fingerprints have been read, as often as it is told."""

    writes = 0

    async def hashes(self, document_ids=None, *, scope):
        found = await super().hashes(document_ids, scope=scope)
        if document_ids is None and self.writes:
            self.writes -= 1
            await HybridIndex(self, embedder=SMALL).ingest(*documents(3, f"edition{self.writes}"))
        return found


async def test_an_index_that_is_written_faster_than_it_is_copied_is_told_from_a_bad_copy() -> None:
    """What was copied is not wrong: it says what to do, and a run in a quiet hour completes it."""
    store = Restless()
    old, new = await filled(store), HybridIndex(MemoryStore())
    store.writes = 10_000
    with pytest.raises(MigrationSourceChanging, match="stop its writers") as caught:
        await migrate_index(old, new)
    assert isinstance(caught.value, MigrationMismatch)
    assert caught.value.retryable
    assert any("another fingerprint: 3 documents" in problem for problem in caught.value.problems)
    store.writes = 5
    assert (await migrate_index(old, new)).verified
    assert await stored(new) == await stored(old)


async def test_an_empty_index_is_copied_to_an_empty_one() -> None:
    report = await migrate_index(HybridIndex(MemoryStore()), HybridIndex(MemoryStore()))
    assert (report.documents, report.verified) == (0, True)


class Forgetful(MemoryStore):
    """Spoils one thing about every write."""

    spoils = ""

    async def replace(self, revisions, **options):
        def spoilt(r: Revision) -> Revision:
            parts = {
                "document": r.document,
                "passages": r.passages,
                "vectors": r.vectors,
                "terms": r.terms,
                "fingerprint": r.fingerprint,
            }
            if self.spoils == "text":
                parts["document"] = Document(r.document.id, r.document.text + "!")
            elif self.spoils == "passage":
                first = r.passages[0]
                cut = Passage(first.text[:5], id=first.id, document_id=first.document_id)
                parts["passages"] = (cut, *r.passages[1:])
            elif self.spoils == "vector" and r.vectors is not None:
                parts["vectors"] = np.roll(r.vectors, 1, axis=1)
            elif self.spoils == "terms":
                parts["terms"] = tuple({"x": 1} for _ in r.passages)
            elif self.spoils == "vectors":
                parts["vectors"] = None
            return Revision(**parts)

        await super().replace([spoilt(r) for r in revisions], **options)


@pytest.mark.parametrize(
    ("spoils", "problem"),
    [
        ("text", "another text or label: 20 documents ('d000', 'd001', 'd002, …)"),
        ("passage", "other passages: 20 documents"),
        ("vector", "other vectors: 20 documents"),
        ("terms", "not found by keyword search"),
        ("vectors", "0 vectors, not 40"),
    ],
)
async def test_verification_finds_what_differs(old: HybridIndex, spoils: str, problem: str) -> None:
    """The error names what differs and where, and shows no content."""
    store = Forgetful()
    store.spoils = spoils
    with pytest.raises(MigrationMismatch) as caught:
        await migrate_index(old, HybridIndex(store))
    assert not isinstance(caught.value, MigrationSourceChanging)
    told = "; ".join(caught.value.problems)
    assert problem.replace("'d002, …", "'d002', …") in told
    assert "number" not in told
    store = Forgetful()
    store.spoils = spoils
    report = await migrate_index(old, HybridIndex(store), verify=False)
    assert not report.verified


@pytest.mark.parametrize(
    ("spoils", "problem"),
    [
        ("text", "another text or label: "),
        ("passage", "other passages: "),
        ("vector", "other vectors: "),
        ("terms", "not found by keyword search: "),
    ],
)
async def test_a_bad_copy_is_told_though_its_source_never_rests(spoils: str, problem: str) -> None:
    """What differs in documents that nobody wrote meanwhile is no news."""
    source, target = Restless(), Forgetful()
    old = await filled(source)
    source.writes, target.spoils = 10_000, spoils
    with pytest.raises(MigrationMismatch) as caught:
        await migrate_index(old, HybridIndex(target))
    assert not isinstance(caught.value, MigrationSourceChanging)
    told = "; ".join(caught.value.problems)
    assert told.startswith(problem)
    assert spoils == "terms" or "17 documents ('d003', 'd004', 'd005', …)" in told


async def test_a_document_that_is_lost_is_told_though_the_source_never_rests() -> None:
    """It is copied anew in every round, and never there."""

    class Losing(MemoryStore):
        async def replace(self, revisions, **options):
            await super().replace([r for r in revisions if r.document.id != "d007"], **options)

    source = Restless()
    old = await filled(source)
    source.writes = 10_000
    with pytest.raises(MigrationMismatch) as caught:
        await migrate_index(old, HybridIndex(Losing()))
    assert not isinstance(caught.value, MigrationSourceChanging)
    assert caught.value.problems[0] == "another fingerprint: 1 document ('d007')"


async def test_a_corpus_built_beside_takes_the_name(store: Store) -> None:
    """After the swap every handle on the name finds the new corpus; swapping back goes back."""
    live = await filled(store)
    built = HybridIndex(store.corpus("next"), embedder=LARGE)
    report = await migrate_index(live, built)
    await live.ingest(Document("late", "Written at the last moment."))
    with pytest.raises(CorpusChanged):
        await swap_indexes(live, built, expected=report.revision)
    report = await migrate_index(live, built)
    await swap_indexes(live, built, expected=report.revision)
    now = HybridIndex(store, embedder=LARGE)
    assert (await now.search("last moment", top_k=1))[0].passage.document_id == "late"
    with pytest.raises(IdentityMismatch):
        await live.search("tea")
    await swap_indexes(now, HybridIndex(store.corpus("next"), embedder=SMALL))
    assert (await live.search("last moment", top_k=1))[0].passage.document_id == "late"


async def test_a_running_index_follows_a_swap_to_its_successor(store: Store) -> None:
    """An index that was given both embedders searches and writes before, after, and back again."""
    await filled(store)
    live = HybridIndex(store, embedder=SMALL, successor=LARGE, splitter=ParagraphSplitter())
    built = HybridIndex(store.corpus("next"), embedder=LARGE)
    report = await migrate_index(live, built)
    assert len(await live.search("tea", top_k=3)) == 3
    assert live.embedder is SMALL
    await swap_indexes(live, built, expected=report.revision)
    assert len(await live.search("tea", top_k=3)) == 3
    assert live.embedder is LARGE
    await live.ingest(Document("after", "Written after the swap."))
    await live.store.swap_corpus("next")  # type: ignore[attr-defined]
    assert len(await live.search("tea", top_k=3)) == 3
    assert live.embedder is SMALL


async def test_only_corpora_of_one_store_are_swapped(old: HybridIndex, tmp_path: Path) -> None:
    """Two files, two kinds of stores, and a corpus with itself are refused."""
    elsewhere = await filled(SQLiteStore(tmp_path / "elsewhere.sqlite", corpus="next"))
    await filled(old.store.corpus("next"))
    await elsewhere.ingest(Document("only", "here"))
    with pytest.raises(SwapUnsupported, match="not in the same store"):
        await swap_indexes(old, elsewhere)
    with pytest.raises(SwapUnsupported):
        await swap_indexes(old, HybridIndex(MemoryStore(corpus="next")))
    with pytest.raises(SwapUnsupported, match="itself"):
        await swap_indexes(old, old.corpus("default"))
    await elsewhere.aclose()


async def test_a_copy_into_int8_is_whole(old: HybridIndex) -> None:
    """A store that compares vectors in eight bits gives them back as they were."""
    small = HybridIndex(MemoryStore(vectors="int8"))
    report = await migrate_index(old, small)
    assert (report.kept_vectors, report.verified) == (40, True)
    back = HybridIndex(MemoryStore())
    assert (await migrate_index(small, back)).verified
    before, after = await vectors(old), await vectors(back)
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[id_], after[id_]) for id_ in before)
