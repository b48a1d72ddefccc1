"""The hybrid index at its edges: scopes, races, lanes that are missing, what the loop must bear."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from ragchat_retrieval import opening, ranking, searching
from ragchat_retrieval.chunking import HeadingSplitter, ParagraphSplitter, WholeText
from ragchat_retrieval.combining import fallback
from ragchat_retrieval.embedders import HashingEmbedder
from ragchat_retrieval.errors import (
    DeadlineExceeded,
    IdentityMismatch,
    InvalidDocument,
    InvalidQuery,
    InvalidSetting,
    NotAStore,
    ScopeViolation,
    StoreUnavailable,
)
from ragchat_retrieval.filters import Eq, Filter
from ragchat_retrieval.fusion import RRF, Weighted
from ragchat_retrieval.index import HybridIndex
from ragchat_retrieval.lexical import DEFAULT_ANALYZER, Analyzer
from ragchat_retrieval.opening import open_index
from ragchat_retrieval.policy import Policy, StagePolicy, current_run
from ragchat_retrieval.ports import Capabilities
from ragchat_retrieval.stores.memory import MemoryStore
from ragchat_retrieval.stores.sqlite import SQLiteStore
from ragchat_retrieval.values import Document, Passage, Query, Revision, Span

RED, BLUE = {"team": "red"}, {"team": "blue"}
MINE = Filter(Eq("team", "red"))
GUARD = 60.0


@pytest.fixture(params=["memory", "sqlite"])
async def store(request, tmp_path):
    made = MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "kb.sqlite")
    yield made
    await made.aclose()


def index_on(store, **settings) -> HybridIndex:
    return HybridIndex(store, **{"splitter": WholeText(), **settings})


def mixed(*parts: tuple[str, dict], ordinals=None) -> Revision:
    """Returns one document whose passages belong to different teams; the document is red."""
    text, passages, at = "\n\n".join(part for part, _ in parts), [], 0
    for n, (part, team) in enumerate(parts):
        passages.append(
            Passage(
                part,
                document_id="doc",
                metadata=team,
                ordinal=n if ordinals is None else ordinals[n],
                span=Span(at, at + len(part)),
            )
        )
        at += len(part) + 2
    return Revision(document=Document("doc", text, metadata=RED), passages=tuple(passages))


# --- scopes ---


@pytest.mark.parametrize("ordinals", [None, [0, 9, 1]], ids=["in order", "out of order"])
async def test_widening_never_reads_out_of_scope(store, ordinals):
    index = index_on(store)
    await index.replace(
        mixed(("public tea", RED), ("secret", BLUE), ("more", RED), ordinals=ordinals)
    )
    for n in (1, 2, 10):
        (hit,) = await index.search("public", scope=MINE, neighbours=n)
        assert "public tea" in hit.passage.text
        assert "secret" not in hit.passage.text
    (hit,) = await index.search("public", neighbours=10)
    assert "secret" in hit.passage.text


async def test_widening_inside_a_scope_keeps_span_and_headings(store):
    text = "# A\n\ntea\n\n## B\n\ncoffee\n"
    index = index_on(store, splitter=HeadingSplitter(8))
    await index.ingest(Document("doc", text, metadata=RED))
    (hit,) = await index.search("tea", scope=MINE, neighbours=1, top_k=1)
    assert "## B" in hit.passage.text
    assert text[slice(*hit.passage.span)] == hit.passage.text


async def test_widening_compares_hits_of_one_document_only(monkeypatch):
    """Among all hits, ten times as many would take a hundred times as long."""

    def compared(outer, inner):
        raise AssertionError((outer.document_id, inner.document_id))

    monkeypatch.setattr(ranking, "_holds", compared)
    index = index_on(MemoryStore())
    await index.ingest(*(Document(f"d{n}", "Tea.\n\nMilk.") for n in range(9)))
    assert len(await index.search("tea", top_k=None, neighbours=1, per_document=1)) == 9


async def test_hits_of_one_document_share_what_is_read_of_it_to_widen_them():
    class Counting(MemoryStore):
        async def document(self, document_id, *, scope):
            read.append(document_id)
            return await super().document(document_id, scope=scope)

        async def neighbours(self, document_id, ordinal, n, *, scope):
            if not scope:
                read.append(f"every passage of {document_id}")
            return await super().neighbours(document_id, ordinal, n, scope=scope)

    read: list[str] = []
    index = index_on(Counting(), splitter=ParagraphSplitter())
    text = "\n\n".join(["tea", *"abcd", "tea", *"efgh", "tea"])
    await index.ingest(Document("doc", text, metadata=RED))
    hits = await index.search("tea", scope=MINE, neighbours=1)
    assert {hit.passage.text for hit in hits} == {"tea\n\na", "d\n\ntea\n\ne", "h\n\ntea"}
    assert sorted(read) == ["doc", "every passage of doc"]


async def test_widening_over_a_later_revision_gives_no_wrong_span():
    class Racing(MemoryStore):
        async def document(self, document_id, *, scope):
            await other.ingest(Document("doc", "something else entirely, and longer"))
            return await super().document(document_id, scope=scope)

    store = Racing()
    index, other = (index_on(store, splitter=ParagraphSplitter()) for _ in range(2))
    await index.ingest(Document("doc", "tea\n\ncoffee"))
    (hit,) = await index.search("tea", neighbours=1)
    assert (hit.passage.text, hit.passage.span) == ("tea\n\ncoffee", None)


async def test_an_unchanged_document_outside_the_scope_is_refused_like_a_changed_one(store):
    index = index_on(store)
    theirs = Document("theirs", "tea", metadata=BLUE)
    await index.ingest(theirs)
    for given in (theirs, Document("theirs", "other", metadata=BLUE)):
        with pytest.raises(ScopeViolation) as caught:
            await index.ingest(given, scope=RED)
        assert (caught.value.document_id, caught.value.passage_id) == ("theirs", None)


async def test_reading_a_corpus_that_was_never_written_leaves_nothing_behind():
    store = MemoryStore()
    for n in range(100):
        other = index_on(store.corpus(f"tenant{n}"))
        assert not await other.search("tea")
        assert await other.document_ids() == []
    assert store._shared.corpora == {}


# --- races ---


class Interrupted(HashingEmbedder):
    """Does something else while it is asked for passages."""

    def __init__(self, work) -> None:
        super().__init__(16)
        self.work = work

    async def embed(self, texts, kind="query"):
        work, self.work = self.work, None
        if kind == "passage" and work is not None:
            await work()
        return await super().embed(texts, kind)


async def test_filling_in_vectors_never_undoes_a_write(store):
    bare = index_on(store)
    await bare.ingest(Document("kept", "tea"), Document("changed", "old"), Document("gone", "x"))

    async def write():
        await bare.ingest(Document("changed", "new"))
        await bare.remove("gone")

    index = index_on(store, embedder=Interrupted(write))
    async with asyncio.timeout(GUARD):
        assert await index.embed() == 2
    assert await index.document_ids() == ["changed", "kept"]
    assert (await index.search("new", top_k=1))[0].passage.text == "new"
    assert await index.store.count(scope=Filter()) == (2, 2, 2)


async def test_filling_in_vectors_never_joins_two_revisions():
    """A document that is written while it is read is read again, and not embedded before."""

    class Racing(MemoryStore):
        async def neighbours(self, document_id, ordinal, n, *, scope):
            await bare.ingest(Document("a", "new words"))
            return await super().neighbours(document_id, ordinal, n, scope=scope)

    class Telling(HashingEmbedder):
        async def embed(self, texts, kind="query"):
            embedded.extend(texts)
            return await super().embed(texts, kind)

    embedded = []
    bare = index_on(store := Racing())
    await bare.ingest(Document("a", "old tea"))
    async with asyncio.timeout(GUARD):
        assert await index_on(store, embedder=Telling(16)).embed() == 1
    assert embedded == ["new words"]


async def test_filling_in_vectors_never_undoes_a_reset(store):
    bare = index_on(store)
    await bare.ingest(Document("a", "tea"))
    async with asyncio.timeout(GUARD):
        assert await index_on(store, embedder=Interrupted(bare.reset)).embed() == 0
    assert await bare.document_ids() == []
    assert await store.identity() is None


async def test_ready_made_revisions_have_fingerprints_of_their_own(store):
    index = index_on(store)
    await index.replace(mixed(("one", RED), ("two", RED)))
    first = await store.hashes(scope=Filter())
    await index.replace(mixed(("one", RED), ("two", BLUE)))
    assert await store.hashes(scope=Filter()) != first


# --- vectors that were given ---


async def test_a_ready_made_passage_without_text_is_refused(store):
    """Nothing finds it, and a corpus that held it could never be given vectors."""
    index = index_on(store)
    titled = Passage("", document_id="a", title="Tea", ordinal=1)
    blank = Passage(" \n", document_id="a", ordinal=0)
    with pytest.raises(InvalidDocument) as caught:
        await index.replace(Revision(document=Document("a", " \n"), passages=(titled, blank)))
    assert (caught.value.document_id, caught.value.field) == ("a", "passages[1].text")
    await index.replace(Revision(document=Document("a", " \n"), passages=(titled,)))
    index.embedder = HashingEmbedder(16)
    assert await index.embed() == 1


@pytest.mark.parametrize("span", [(0, 99), (1, 4), (-3, -1), (3, 0)])
async def test_a_ready_made_passage_is_what_its_span_holds(store, span):
    """Else a citation would show other words than those that were found."""
    index = index_on(store)
    wrong = Passage("tea", document_id="a", span=Span(*span))
    with pytest.raises(InvalidDocument) as caught:
        await index.replace(Revision(document=Document("a", "tea tea"), passages=(wrong,)))
    assert (caught.value.document_id, caught.value.field) == ("a", "passages[0].span")
    right = replace(wrong, span=Span(4, 7))
    await index.replace(Revision(document=Document("a", "tea tea"), passages=(right,)))
    assert (await index.search("tea"))[0].passage.span == (4, 7)


@pytest.mark.parametrize("made", [{"text": "TEA", "span": Span(0, 3)}, {"text": " "}], ids=str)
async def test_a_splitter_that_gives_other_words_than_the_document_s_is_refused(store, made):
    class Splits:
        name = "mine"

        def split(self, document):
            return [Passage(document_id=document.id, **made)]

    with pytest.raises(InvalidDocument) as caught:
        await index_on(store).ingest(Document("a", "tea"), splitter=Splits())
    assert caught.value.document_id == "a"
    assert await store.document_ids(scope=Filter()) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("page", 0),
        ("page", 1.5),
        ("page", "3"),
        ("page", True),
        ("page", np.int64(3)),
        ("page", 2**40),
        ("lines", (0, 1)),
        ("lines", (1, None)),
        ("lines", ("1", "2")),
        ("ordinal", -1),
        ("ordinal", None),
        ("ordinal", 0.0),
        ("ordinal", 2**40),
        ("span", (0.0, 3.0)),
        ("span", ("0", "3")),
    ],
)
async def test_where_a_ready_made_passage_stands_is_told_in_whole_numbers(store, field, value):
    """What is none, or none that every store keeps, is refused before anything is written."""
    index = index_on(store)
    wrong = Passage("tea", document_id="a", id="p", **{field: value})
    made = Revision(document=Document("a", "tea"), passages=(wrong,))
    with pytest.raises(InvalidDocument) as caught:
        await index.replace(made)
    assert (caught.value.document_id, caught.value.field) == ("a", f"passages[0].{field}")
    assert await store.identity() is None


@pytest.mark.parametrize(
    "terms",
    [
        {"tea": 0},
        {"cup": 1, "tea": -1},
        {"tea": 1.5},
        {"tea": float("nan")},
        {"tea": True},
        {"tea": "1"},
        {"tea": 2**40},
        {"": 1},
        {"te\0a": 1},
        {"\ud800": 1},
        {1: 1},
        None,
        [("tea", 1)],
    ],
)
async def test_given_terms_are_texts_with_counts_of_one_or_more(store, terms):
    """Else BM25 would weigh a passage by no number at all."""
    index = index_on(store)
    passage = Passage("tea", document_id="a")
    made = Revision(document=Document("a", "tea"), passages=(passage,), terms=(terms,))
    with pytest.raises(InvalidDocument) as caught:
        await index.replace(made)
    assert (caught.value.document_id, caught.value.field) == ("a", "terms[0]")
    assert await store.identity() is None
    await index.replace(replace(made, terms=({"tea": 2, "cup": 1},)))
    assert [hit.passage for hit in await index.search("cup")] == [passage]


async def test_given_vectors_are_scaled_to_length_one(store):
    index = index_on(store, embedder=HashingEmbedder(2), fusion=Weighted(0.0))
    given = mixed(("one", RED), ("two", RED))
    vectors = np.array([[3.0, 4.0], [0.6, 0.8]], dtype=np.float32)
    await index.replace(replace(given, vectors=vectors))
    ids = [passage.id for passage in given.passages]
    kept = await store.vectors(ids, scope=Filter())
    assert np.allclose(kept[ids[0]], [0.6, 0.8])
    assert kept[ids[1]].tobytes() == vectors[1].tobytes()


# --- lanes that are missing or fail ---


class Blind(MemoryStore):
    """Has no keyword lane."""

    capabilities = Capabilities(keyword=False)


class Deaf(MemoryStore):
    """Has no vector lane."""

    capabilities = Capabilities(semantic=False)


async def test_a_store_without_a_lane_says_so_in_the_result():
    index = index_on(Blind(), embedder=HashingEmbedder(16))
    await index.ingest(Document("a", "tea"))
    found = await index.search("tea")
    assert len(found) == 1
    assert [d.stage for d in found.degraded] == ["keyword"]
    assert (await index.search("tea", fusion=Weighted(0.0))).degraded == ()
    index = index_on(Deaf(), embedder=HashingEmbedder(16))
    await index.ingest(Document("a", "tea"))
    assert [d.stage for d in (await index.search("tea")).degraded] == ["vector"]
    assert "no vector lane" in (await index.describe()).notes[0]
    assert "no keyword lane" in (await index_on(Blind()).describe()).notes[-1]


async def test_nothing_to_search_by_is_an_error_and_not_an_empty_answer():
    store = Blind()
    await index_on(store, embedder=HashingEmbedder(16)).ingest(Document("a", "tea"))
    with pytest.raises(InvalidSetting, match="embedder"):
        await index_on(store).search("tea")


class Failing(MemoryStore):
    """Its lanes fail as told."""

    fails: frozenset[str] = frozenset()

    async def search_vector(self, vector, limit, *, filter, scope):
        if "vector" in self.fails:
            raise StoreUnavailable(store=self.name)
        return await super().search_vector(vector, limit, filter=filter, scope=scope)

    async def score_vector(self, vector, passage_ids, *, scope):
        if "completion" in self.fails:
            raise StoreUnavailable(store=self.name)
        return await super().score_vector(vector, passage_ids, scope=scope)

    async def search_text(self, terms, limit, *, filter, scope):
        if "keyword" in self.fails:
            raise StoreUnavailable(store=self.name)
        return await super().search_text(terms, limit, filter=filter, scope=scope)


@pytest.mark.parametrize("fusion", [Weighted(0.0), Weighted(0.3), RRF()])
async def test_keywords_stand_in_for_a_vector_lane_that_the_store_fails(fusion):
    store = Failing()
    index = index_on(store, embedder=HashingEmbedder(16))
    await index.ingest(Document("a", "tea"))
    store.fails = frozenset({"vector"})
    found = await index.search("tea", policy=Policy(), fusion=fusion)
    assert len(found) == 1
    assert [d.stage for d in found.degraded] == ["vector"]
    with pytest.raises(StoreUnavailable):
        await index.search("tea", fusion=fusion)


async def test_a_failed_keyword_lane_raises_unless_the_policy_says_otherwise():
    store = Failing()
    index = index_on(store, embedder=HashingEmbedder(16))
    await index.ingest(Document("a", "tea"))
    store.fails = frozenset({"keyword"})
    with pytest.raises(StoreUnavailable):
        await index.search("tea", policy=Policy())
    found = await index.search("tea", policy=Policy(keyword=StagePolicy("skip")))
    assert len(found) == 1
    assert [d.stage for d in found.degraded] == ["keyword"]


async def test_a_model_that_tells_its_dimension_late_is_another_identity():
    class Served(HashingEmbedder):
        model = "served"
        dimension = 0

    class Known(HashingEmbedder):
        model = "served"

    store = MemoryStore()
    await index_on(store, embedder=Known(16)).ingest(Document("a", "tea"))
    with pytest.raises(IdentityMismatch, match="served/32"):
        await index_on(store, embedder=Served(32)).search("tea", policy=Policy())


# --- policy and run ---


async def test_a_fallback_inside_a_search_is_told():
    def broken(query, candidates):
        raise ValueError

    index = index_on(MemoryStore())
    await index.ingest(Document("a", "tea"))
    scorer = fallback(broken, lambda query, candidates: [0.5] * len(candidates))
    found = await index.search("tea", rerank=scorer)
    assert [d.reason for d in found.degraded] == ["ValueError"]
    assert current_run() is None


async def test_the_deadline_bounds_reading_too():
    class Slow(MemoryStore):
        async def get(self, passage_ids, *, scope):
            await asyncio.Event().wait()

    index = index_on(Slow())
    await index.ingest(Document("a", "tea"))
    async with asyncio.timeout(GUARD):
        with pytest.raises(DeadlineExceeded):
            await index.search("tea", policy=Policy.strict(deadline=0.05))


async def test_a_cancelled_search_leaves_no_task():
    class Slow(MemoryStore):
        async def search_vectors(self, vectors, limit, *, filter, scope):
            started.set()
            await asyncio.Event().wait()

    started = asyncio.Event()
    index = index_on(Slow(), embedder=HashingEmbedder(16))
    await index.ingest(Document("a", "tea"))
    before = asyncio.all_tasks()
    task = asyncio.create_task(index.search_batch(["tea", "tea x", "tea y"], policy=Policy()))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == before


# --- batches, options, explanations ---


async def test_each_row_of_a_batch_is_as_if_it_were_asked_alone():
    index = index_on(MemoryStore(), embedder=HashingEmbedder(32))
    await index.ingest(*(Document(f"d{i:03}", f"tea {'leaf ' * (i % 7)}{i}") for i in range(300)))
    few, many = Query("tea leaf", top_k=2), Query("tea leaf", top_k=200)
    rows = await index.search_batch([few, many, few])
    alone = [await index.search(few), await index.search(many), await index.search(few)]
    assert [list(row) for row in rows] == [list(row) for row in alone]


async def test_many_explanations_cost_one_look_at_each_lane(monkeypatch):
    index = index_on(MemoryStore(), embedder=HashingEmbedder(16))
    await index.ingest(*(Document(f"d{i}", f"tea {i}") for i in range(50)))
    looks = []
    whole = searching.LaneSearch.rank

    async def counted(self, queries):
        rankings = await whole(self, queries)
        ranks = type(rankings[0].keyword).ranks
        monkeypatch.setattr(
            type(rankings[0].keyword), "ranks", lambda lane: looks.append(1) or ranks(lane)
        )
        return rankings

    monkeypatch.setattr(searching.LaneSearch, "rank", counted)
    found = await index.search("tea", top_k=None, explain=True)
    assert [c.explain.final_rank for c in found] == list(range(1, 51))
    assert len(looks) == 2


@pytest.mark.parametrize(
    "bad",
    [
        {"near_duplicates": 0.0},
        {"top_k": 2.5},
        {"top_k": True},
        {"candidates": "9"},
        {"neighbours": 1.5},
        {"mmr": "high"},
        {"min_similarity": float("nan")},
        {"per_document": 0},
    ],
    ids=str,
)
async def test_bad_options_are_refused_before_anything_is_searched(bad):
    (name,) = bad
    with pytest.raises(InvalidSetting) as caught:
        await index_on(MemoryStore()).search("tea", **bad)
    assert caught.value.name == name


async def test_words_of_many_long_passages_stay_bounded():
    index = index_on(MemoryStore())
    words = [" ".join(f"w{i}x{n}" for n in range(400)) for i in range(30)]
    await index.ingest(*(Document(f"d{i}", f"tea {text}") for i, text in enumerate(words)))
    found = await index.search("tea", top_k=10, mmr=0.5, candidates=100)
    assert len(found) == 10


@pytest.mark.parametrize("text", ["\u200b", "?!", "\ufeff", "a\x00b", "\ud800", "x" * 100_000])
async def test_odd_texts_are_searched_without_a_fault(text):
    index = index_on(MemoryStore(), embedder=HashingEmbedder(16))
    await index.ingest(Document("a", "tea"), Document("b", "---"), Document("c", "?!"))
    await index.search(text)
    await index.search(f"tea {text}", mmr=0.5, explain=True, neighbours=1)


# --- opening ---


async def test_an_index_without_settings_adopts_the_analysis_of_its_corpus(store):
    german = Analyzer("german")
    await index_on(store, analyzer=german).ingest(Document("a", "Die Häuser am Meer"))
    adopting = index_on(store)
    assert len(await adopting.search("Haus")) == 1
    assert adopting.analyzer == german
    assert (await adopting.ingest(Document("b", "Zwei Bäume"))).documents == 1
    assert len(await adopting.search("Baum")) == 1
    with pytest.raises(IdentityMismatch):
        await index_on(store, analyzer=Analyzer("english")).search("Haus")
    await adopting.reset()
    assert not await adopting.search("house")
    assert adopting.analyzer == DEFAULT_ANALYZER


async def test_an_embedder_from_the_environment_is_closed_with_the_index(monkeypatch):
    closed = []

    class Served(HashingEmbedder):
        async def aclose(self):
            closed.append(self)

    mine = Served(8)
    monkeypatch.setattr(opening, "embedder_from_env", lambda: Served(8))
    async with open_index("memory://"):
        pass
    assert len(closed) == 1
    async with open_index("memory://", embedder=mine):
        pass
    assert mine not in closed


async def test_what_cannot_be_opened_is_closed_again(tmp_path, monkeypatch):
    closed = []
    whole = SQLiteStore.aclose

    async def counted(self):
        closed.append(self)
        await whole(self)

    monkeypatch.setattr(SQLiteStore, "aclose", counted)
    path = tmp_path / "notes.md"
    path.write_text("# Notes")
    with pytest.raises(NotAStore):
        async with open_index(path, embedder=None):
            raise AssertionError
    assert len(closed) == 1


async def test_the_scheme_of_a_url_may_be_in_either_case():
    async with open_index("Memory://", embedder=None) as index:
        await index.ingest(Document("a", "tea"))
    with pytest.raises(InvalidSetting, match="read_only"):
        open_index("memory://", embedder=None, read_only=True)


@pytest.mark.parametrize("url", ["sqlite:///kb.sqlite", "sqlite://kb.sqlite", "SQLite:////kb"])
def test_a_file_is_named_by_its_path(url):
    """Other libraries take ``sqlite:///kb.sqlite`` for a file here, not for one at the root."""
    with pytest.raises(InvalidSetting, match="use a path"):
        open_index(url, embedder=None)


@pytest.mark.parametrize(
    ("url", "way", "file"),
    [
        ("{}/kb.sqlite", "float32", "kb.sqlite"),
        ("{}/kb.sqlite?vectors=hnsw", "hnsw", "kb.sqlite"),
        ("{}/kb.sqlite?vectors=int8", "int8", "kb.sqlite"),
        ("{}/what?.sqlite", "float32", "what?.sqlite"),
        ("{}/a?mode=ro.sqlite?vectors=int8", "int8", "a?mode=ro.sqlite"),
    ],
)
async def test_a_url_may_say_how_vectors_are_searched(tmp_path, url, way, file):
    """And the description says so; a question mark without options is part of the path."""
    async with open_index(url.format(tmp_path), embedder=None) as index:
        await index.ingest(Document("a", "tea"))
        assert (await index.describe()).vector_search == way
    assert (tmp_path / file).is_file()


async def test_a_store_in_memory_keeps_vectors_as_its_url_says():
    async with open_index("memory://?vectors=int8", embedder=None) as index:
        assert (await index.describe()).vector_search == "int8"
    async with open_index("memory://", embedder=None) as index:
        assert (await index.describe()).vector_search == "float32"


@pytest.mark.parametrize(
    "url", ["kb.sqlite?vectors=int4", "kb.sqlite?vector=hnsw", "memory://?vectors=hnsw"]
)
def test_an_option_that_a_url_cannot_have_is_refused(url):
    with pytest.raises(InvalidSetting, match="vectors"):
        open_index(url, embedder=None)


@pytest.mark.parametrize("question", [None, 5, b"text"])
async def test_a_question_that_is_no_text_is_refused(question):
    async with opening.quickstart() as index:
        with pytest.raises(InvalidQuery, match=type(question).__name__):
            await index.search(question)


class Foreign:
    """A splitter by its methods only."""

    name = "foreign"

    def __init__(self, cut):
        self.cut = cut

    def split(self, document):
        return self.cut(document)


class Awaited(Foreign):
    async def asplit(self, document):
        return self.cut(document)


@pytest.mark.parametrize("kind", [Foreign, Awaited])
@pytest.mark.parametrize(
    ("cut", "told"),
    [
        (lambda document: document.text.split(". "), "str"),
        (lambda document: [Passage(document.text), None], "NoneType"),
        (lambda document: None, "NoneType"),
        (lambda document: document.text, "str"),
    ],
)
async def test_a_splitter_that_returns_no_passages_is_told_of_by_name(kind, cut, told):
    """Nothing is written, and no document is to blame."""
    index = HybridIndex(splitter=kind(cut))
    with pytest.raises(InvalidSetting, match=f"splitter.* foreign .*Passage.*{told}"):
        await index.ingest(Document("a", "One. Two."))
    assert await index.document_ids() == []


async def test_a_splitter_may_yield_its_passages():
    def cut(document):
        yield Passage(document.text, document_id=document.id)

    index = HybridIndex(splitter=Foreign(cut), embedder=HashingEmbedder(8))
    assert (await index.ingest(Document("a", "One. Two."))).passages == 1
    assert (await index.describe()).passages == 1
    (found,) = await index.search("one", fusion=Weighted(keyword=0.0))
    assert found.passage.text == "One. Two."
