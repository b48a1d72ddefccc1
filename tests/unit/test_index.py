"""The hybrid index over the memory store."""

from __future__ import annotations

import asyncio
import math

import numpy as np
import pytest

from ragchat_retrieval import ranking
from ragchat_retrieval.chunking import ParagraphSplitter, WholeText
from ragchat_retrieval.embedders import CachedEmbedder, HashingEmbedder
from ragchat_retrieval.errors import (
    DuplicateDocumentID,
    EmbeddingError,
    IdentityMismatch,
    InvalidDocument,
    InvalidFilterKey,
    InvalidIndexIdentity,
    InvalidSetting,
    InvalidText,
    InvalidVector,
    ScopeViolation,
)
from ragchat_retrieval.filters import Eq, Filter
from ragchat_retrieval.fusion import RRF, Weighted
from ragchat_retrieval.index import HybridIndex
from ragchat_retrieval.migration import migrate_index
from ragchat_retrieval.opening import in_memory, open_index, quickstart
from ragchat_retrieval.policy import Policy, Run, running
from ragchat_retrieval.stores.memory import MemoryStore
from ragchat_retrieval.values import ContextText, Document, Passage, Query, Revision

CACHE = "The Go build cache lives in ~/Library/Caches/go-build."
HANDBOOK = """# Leave policy

Employees get 25 days of paid leave per year.

# Remote work

Up to three days a week from home."""


class Counting(HashingEmbedder):
    """Counts its calls and texts."""

    def __init__(self) -> None:
        super().__init__(64)
        self.calls: list[list[str]] = []

    async def embed(self, texts, kind="query"):
        self.calls.append(list(texts))
        return await super().embed(texts, kind)


class Refusing(HashingEmbedder):
    """Gives no usable vector for bad texts."""

    async def embed(self, texts, kind="query"):
        rows = await super().embed(texts, kind)
        rows[["bad" in text for text in texts]] = 0.0
        return rows


class Broken(HashingEmbedder):
    """Embeds passages and fails on queries."""

    async def embed(self, texts, kind="query"):
        if kind == "query":
            raise ConnectionError("secret text")
        return await super().embed(texts, kind)


def documents(*texts: str, **fields) -> list[Document]:
    return [Document(f"d{i}", text, **fields) for i, text in enumerate(texts)]


def texts(found) -> list[str]:
    return [candidate.passage.text for candidate in found]


async def filled(*docs: Document, **settings) -> HybridIndex:
    settings.setdefault("embedder", HashingEmbedder(64))
    settings.setdefault("splitter", WholeText())
    index = HybridIndex(**settings)
    await index.ingest(*docs)
    return index


async def test_a_quickstart_index_finds_what_was_put_in():
    index = quickstart()
    await index.ingest(Document("notes", CACHE))
    found = await index.search("where is the Go build cache?", top_k=1)
    assert texts(found) == [CACHE]


async def test_a_batch_keeps_its_rows_and_a_blank_row_is_empty():
    index = in_memory(256)
    await index.ingest(Document("d", "Go uses a concurrent garbage collector."))
    rows = await index.search_batch(["garbage collector", "", "Go memory"], top_k=1)
    assert [len(row) for row in rows] == [1, 0, 1]


async def test_a_batch_is_embedded_in_one_call_without_its_blank_rows():
    embedder = Counting()
    index = await filled(*documents("alpha", "beta"), embedder=embedder)
    embedder.calls.clear()
    await index.search_batch(["alpha", " ", "beta", "alpha"])
    assert embedder.calls == [["alpha", "beta"]]


async def test_question_and_contexts_go_in_one_embedding_call():
    embedder = Counting()
    index = await filled(*documents("alpha"), embedder=embedder)
    embedder.calls.clear()
    context = (ContextText("beta", semantic=0.5), ContextText("gamma", lexical=0.5))
    await index.search(Query("alpha", context=context))
    assert embedder.calls == [["alpha", "beta"]]


class Latin(Counting):
    """Reads ASCII only."""

    def legibility(self, text):
        return text.isascii()


async def test_a_question_that_the_model_cannot_read_is_found_by_its_words_alone():
    """To the model all such texts are alike; the keyword lane then has all the weight."""
    embedder = Latin()
    index = await filled(*documents("чай и мёд", "чай", "tea"), embedder=embedder)
    embedder.calls.clear()
    found, english = await index.search_batch(["чай", "tea"])
    assert embedder.calls == [["tea"]]
    assert texts(found)[0] == "чай"
    assert found.candidates[0].score == 1.0
    assert "мёд" not in "".join(texts(english)[:1])
    (left_out,) = found.degraded
    assert left_out.stage == "vector"
    assert "cannot read the text; words alone instead" in left_out.reason

    embedder.calls.clear()
    words = await (await filled(*documents("чай и мёд", "чай", "tea"), embedder=None)).search("чай")
    alone = await index.search("чай")
    assert (texts(alone), embedder.calls) == (texts(words), [])


class Halting(Counting):
    """Reads some texts worse than others."""

    def legibility(self, text):
        return {"alpha": 1.0, "beta": 0.5}[text]


async def test_what_the_model_reads_badly_counts_for_less_beside_the_words():
    """Each question of a batch for itself."""
    index = await filled(*documents("alpha", "beta"), embedder=Halting())
    rows = await index.search_batch(["alpha", "beta"], explain=True)
    rows.append(await index.search("beta", explain=True))
    parts = [(row[0].explain.keyword, row[0].explain.vector) for row in rows]
    shares = [(words.contribution, meaning.contribution) for words, meaning in parts]
    assert shares == [pytest.approx(both) for both in ((0.3, 0.7), (0.65, 0.35), (0.65, 0.35))]
    assert not any(row.degraded for row in rows)


@pytest.mark.parametrize("told", [-0.1, 1.1, math.nan])
async def test_a_legibility_that_is_no_share_is_the_embedder_s_fault(told):
    embedder = Counting()
    embedder.legibility = lambda _: told
    index = await filled(*documents("alpha"), embedder=embedder)
    with pytest.raises(EmbeddingError, match="legibility"):
        await index.search("alpha")


async def test_where_words_are_not_asked_the_model_reads_what_it_can():
    """A garbled comparison is more than none."""
    embedder = Latin()
    index = await filled(*documents("чай", "мёд"), embedder=embedder)
    found = await index.search("чай", fusion=Weighted(keyword=0.0))
    assert texts(found)[0] == "чай"
    assert not found.degraded


async def test_an_earlier_turn_that_the_model_cannot_read_does_not_blur_the_question():
    embedder = Latin()
    index = await filled(*documents("alpha", "beta"), embedder=embedder)
    embedder.calls.clear()
    context = (ContextText("чай", semantic=0.5),)
    found = await index.search(Query("alpha", context=context))
    assert embedder.calls == [["alpha"]]
    assert texts(found)[0] == "alpha"


@pytest.mark.parametrize("blank", ["", "   ", "\n\t", "\x00"])
async def test_a_blank_question_finds_nothing(blank):
    assert not await (await filled(*documents("alpha"))).search(blank)


@pytest.mark.parametrize("query", ["?!", "the of and", '"', "AND", "NEAR(x y)", "a:b", "*", "--"])
async def test_odd_questions_never_raise(query):
    await (await filled(*documents("alpha"))).search(query)


@pytest.mark.parametrize("top_k", [0, -1])
async def test_no_results_wanted_means_no_embedding_and_no_reading(top_k):
    embedder = Counting()
    index = await filled(*documents("alpha"), embedder=embedder)
    embedder.calls.clear()
    assert not await index.search("alpha", top_k=top_k)
    assert embedder.calls == []


async def test_an_empty_index_finds_nothing_and_asks_no_reranker():
    def scorer(query, candidates):
        raise AssertionError

    assert not await in_memory().search("x", fusion=RRF(), rerank=scorer)


async def test_reciprocal_ranks_on_three_documents_are_as_computed_by_hand():
    index = await filled(*documents("red apple", "red red brick", "green pear"), embedder=None)
    found = await index.search("red brick", fusion=RRF())
    assert [(c.passage.document_id, c.score) for c in found] == [("d1", 1 / 61), ("d0", 1 / 62)]


async def test_an_explanation_gives_ranks_overlap_and_contributions():
    index = await filled(*documents("the garbage collector", "memory model"))
    (first,) = await index.search("garbage collector", top_k=1, explain=True)
    why = first.explain
    assert why.final_rank == why.fused_rank == 1
    assert why.keyword.overlap == 1.0
    assert why.keyword.rank == 1
    assert why.keyword.contribution + why.vector.contribution == pytest.approx(first.score)
    assert (await index.search("garbage", top_k=1))[0].explain is None


async def test_without_an_embedder_the_index_searches_by_keywords():
    index = HybridIndex(splitter=ParagraphSplitter())
    report = await index.ingest(Document("handbook", HANDBOOK))
    assert report.passages == 4
    found = await index.search("how many days of paid leave", top_k=3, explain=True)
    assert found[0].passage.text == "Employees get 25 days of paid leave per year."
    assert found[0].explain.keyword.overlap == pytest.approx(0.67, abs=0.005)
    assert found.degraded == ()


async def test_a_filter_keeps_to_one_project():
    index = in_memory()
    for project in ("reliquary", "other"):
        text = "Restart the worker with launchctl kickstart."
        await index.ingest(Document(project, text, metadata={"project": project}))
    found = await index.search("restart the worker", filter={"project": "reliquary"}, top_k=3)
    assert [c.passage.document_id for c in found] == ["reliquary"]


async def test_query_and_option_bounds_are_all_applied():
    index = await filled(
        Document("a", "alpha", metadata={"team": "x", "year": 1}),
        Document("b", "alpha", metadata={"team": "x", "year": 2}),
        Document("c", "alpha", metadata={"team": "y", "year": 2}),
    )
    query = Query("alpha", filter=Filter(Eq("year", 2)))
    found = await index.search(query, scope=Filter(Eq("team", "x")))
    assert [c.passage.document_id for c in found] == ["b"]


async def test_a_bad_filter_is_refused_before_anything_is_embedded():
    embedder = Counting()
    index = await filled(*documents("alpha"), embedder=embedder)
    embedder.calls.clear()
    with pytest.raises(InvalidFilterKey):
        await index.search("alpha", filter={"a.b": 1})
    assert embedder.calls == []


async def test_a_store_that_breaks_the_filter_is_an_error_not_a_silent_drop():
    class Leaky(MemoryStore):
        async def search_text(self, terms, limit, *, filter, scope):
            return await super().search_text(terms, limit, filter=Filter(), scope=Filter())

        async def get(self, passage_ids, *, scope):
            return await super().get(passage_ids, scope=Filter())

    index = await filled(Document("a", "alpha"), store=Leaky(), embedder=None)
    with pytest.raises(ScopeViolation):
        await index.search("alpha", filter={"team": "x"})


async def test_least_similarity_drops_vector_finds_and_exempts_keyword_finds():
    index = await filled(*documents("alpha beta", "gamma delta"))
    found = await index.search("alpha zeta", top_k=None, min_similarity=0.99)
    assert texts(found) == ["alpha beta"]


async def test_every_scored_candidate_comes_back_without_a_limit():
    index = await filled(*documents(*(f"word number {i}" for i in range(30))))
    assert len(await index.search("word", top_k=None)) == 30


CARS = ["red cars are fast", "red cars are fast!", "green boats are slow"]


async def test_a_near_duplicate_falls_behind_a_diverse_passage():
    index = await filled(*documents(*CARS))
    question = "red cars, fast cars or green boats"
    plain = await index.search(question, top_k=3)
    diverse = await index.search(question, top_k=3, mmr=0.5, candidates=20)
    assert [c.passage.document_id for c in plain] == ["d0", "d1", "d2"]
    assert [c.passage.document_id for c in diverse] == ["d0", "d2", "d1"]


async def test_diversity_works_on_words_where_there_are_no_vectors():
    index = await filled(*documents(*CARS), embedder=None)
    question = "red red cars, fast cars or boats"
    plain = await index.search(question)
    found = await index.search(question, mmr=0.5, explain=True)
    assert [c.passage.document_id for c in plain] == ["d0", "d1", "d2"]
    assert [c.passage.document_id for c in found] == ["d0", "d2", "d1"]
    assert found[0].explain.mmr.max_similarity == 0.0
    assert [c.explain.final_rank for c in found] == [1, 2, 3]


@pytest.mark.parametrize("duplicates", [None, 1.0])
async def test_of_very_many_candidates_the_best_are_diversified(monkeypatch, duplicates):
    """The others follow in their order; a bounded number is compared with one another."""

    class Asked(MemoryStore):
        async def vectors(self, passage_ids, *, scope):
            asked.append(len(passage_ids))
            return await super().vectors(passage_ids, scope=scope)

    asked = []
    index = await filled(*documents(*(f"tea {'tea ' * n}{n}" for n in range(9))), store=Asked())
    plain = [c.passage.id for c in await index.search("tea", top_k=None)]
    options = {"mmr": 0.0, "near_duplicates": duplicates, "explain": True}
    whole = await index.search("tea", top_k=None, **options)
    monkeypatch.setattr(ranking, "WHOLE", 4)
    found = await index.search("tea", top_k=None, **options)
    ids = [c.passage.id for c in found]
    assert (sorted(ids[:4]), ids[4:]) == (sorted(plain[:4]), plain[4:])
    assert ids[:4] != plain[:4]
    assert ids != [c.passage.id for c in whole]
    assert [c.explain.mmr is None for c in found] == [False] * 4 + [True] * 5
    assert [c.explain.final_rank for c in found] == list(range(1, 10))
    assert [c.passage.id for c in await index.search("tea", top_k=6, **options)] == ids[:6]
    assert [c.passage.id for c in await index.search("tea", top_k=2, **options)] == ids[:2]
    assert asked == [9, 4, 4, 4]


async def test_of_very_many_candidates_the_best_lose_their_near_duplicates(monkeypatch):
    """The others follow in their order, however many there are."""
    monkeypatch.setattr(ranking, "WHOLE", 4)
    index = await filled(*documents(*["tea"] * 3, "tea pot", *["tea set"] * 3))
    options = {"near_duplicates": 1.0}
    plain = [c.passage.document_id for c in await index.search("tea", top_k=None)]
    found = await index.search("tea", top_k=None, **options)
    assert plain[:4] == ["d0", "d1", "d2", "d3"]
    assert [c.passage.document_id for c in found] == ["d0", "d3", *plain[4:]]
    assert list(await index.search("tea", top_k=3, **options)) == list(found)[:3]
    assert list(await index.search("tea", top_k=1, **options)) == list(found)[:1]


async def test_a_document_can_be_capped():
    index = HybridIndex(splitter=ParagraphSplitter())
    await index.ingest(Document("a", "tea one\n\ntea two\n\ntea three"), Document("b", "tea"))
    found = await index.search("tea", top_k=4, per_document=1)
    assert sorted(c.passage.document_id for c in found) == ["a", "b"]


async def test_a_hit_can_be_widened_by_its_neighbours():
    text = "one\n\ntwo tea\n\nthree\n\nfour"
    index = HybridIndex(splitter=ParagraphSplitter())
    document = Document("a", text)
    await index.ingest(document)
    (hit,) = await index.search("tea", neighbours=1)
    assert hit.passage.text == "one\n\ntwo tea\n\nthree"
    assert document.text[slice(*hit.passage.span)] == hit.passage.text
    assert hit.passage.lines == (1, 5)


async def test_history_reaches_the_keyword_lane_with_its_own_weight():
    index = await filled(*documents("price of the tandem", "price of the kayak"), embedder=None)
    query = Query("price", context=(ContextText("the kayak", lexical=0.4),))
    assert (await index.search(query))[0].passage.document_id == "d1"


async def test_a_text_of_one_lane_replaces_the_question_there():
    index = await filled(*documents("cheval", "horse"), embedder=None)
    found = await index.search(Query("cheval", lexical="horse"))
    assert texts(found) == ["horse"]


async def test_unchanged_documents_are_skipped_and_changed_ones_replaced():
    embedder = Counting()
    index = await filled(*documents("alpha", "beta"), embedder=embedder)
    embedder.calls.clear()
    report = await index.ingest(Document("d0", "alpha"), Document("d1", "gamma"))
    assert (report.documents, report.skipped, report.deleted) == (1, 1, 0)
    assert embedder.calls == [["gamma"]]
    assert not any("beta" in t for t in texts(await index.search("beta", top_k=None)))


async def test_another_splitter_means_changed():
    index = await filled(Document("a", "one\n\ntwo"), embedder=None)
    report = await index.ingest(Document("a", "one\n\ntwo"), splitter=ParagraphSplitter())
    assert (report.skipped, report.passages) == (0, 2)


async def test_a_document_without_passages_is_removed():
    index = await filled(Document("a", "one"), embedder=None)
    report = await index.ingest(Document("a", "  \n"))
    assert report.deleted == 1
    assert await index.document_ids() == []


@pytest.mark.parametrize("given", ["a text", [Document("a", "x"), Document("b", "y")], None])
async def test_what_is_no_document_is_refused_before_anything_is_written(given):
    index = quickstart()
    with pytest.raises(InvalidDocument, match=f"not {type(given).__name__}"):
        await index.ingest(Document("c", "Tea."), given)
    assert await index.document_ids() == []


async def test_one_bad_document_leaves_everything_as_it_was():
    index = await filled(Document("a", "one"))
    with pytest.raises(InvalidText):
        await index.ingest(Document("b", "two"), Document("c", "o\x00er"))
    with pytest.raises(DuplicateDocumentID):
        await index.ingest(Document("b", "two"), Document("b", "three"))
    assert await index.document_ids() == ["a"]


async def test_progress_never_falls_and_ends_at_one():
    shares: list[float] = []
    index = in_memory()
    await index.ingest(*documents(*(f"text {i}" for i in range(200))), on_progress=shares.append)
    assert shares[0] == 0.0
    assert shares[-1] == 1.0
    assert shares == sorted(shares)
    assert len(shares) > 3


async def test_an_embedder_that_fails_writes_nothing():
    class Short(HashingEmbedder):
        async def embed(self, texts, kind="query"):
            return (await super().embed(texts, kind))[:-1]

    index = HybridIndex(embedder=Short(16))
    with pytest.raises(EmbeddingError):
        await index.ingest(Document("a", "one"))
    assert await index.document_ids() == []


@pytest.mark.parametrize("write", ["ingest", "embed", "migrate"])
async def test_an_embedder_that_fails_at_a_text_names_its_document(write):
    docs = documents(*["one\n\ntwo"] * 40, "three\n\na bad one", "bad")
    bare = await filled(*docs, embedder=None, splitter=ParagraphSplitter())
    new = HybridIndex(
        bare.store if write == "embed" else None,
        embedder=Refusing(16),
        splitter=ParagraphSplitter(),
    )
    writes = {
        "ingest": lambda: new.ingest(*docs),
        "embed": new.embed,
        "migrate": lambda: migrate_index(bare, new),
    }
    with pytest.raises(EmbeddingError, match=r"document 'd40', .* zero vector") as caught:
        await writes[write]()
    assert caught.value.document_id == "d40"
    assert "bad" not in str(caught.value)


async def test_a_document_that_cannot_be_embedded_keeps_no_other_from_its_vectors():
    docs = documents("one", "bad", *["two"] * 40, "bad too", "three")
    bare = await filled(*docs, embedder=None)
    index = HybridIndex(bare.store, embedder=Refusing(16))
    for _ in range(2):
        with pytest.raises(EmbeddingError, match="document 'd1'"):
            await index.embed()
        assert (await index.describe()).vectors == 42
    await index.ingest(Document("d1", "good"), Document("d42", "good"))
    assert await index.embed() == 0


async def test_removal_is_by_id_or_by_source():
    index = await filled(Document("a", "one", source="x.md"), Document("b", "two"))
    assert await index.remove("b") == 1
    assert await index.remove(source="x.md") == 1
    with pytest.raises(InvalidSetting):
        await index.remove()


async def test_a_scope_hides_documents_from_reading_writing_and_removal():
    mine, theirs = {"tenant": "me"}, {"tenant": "them"}
    index = await filled(Document("theirs", "tea", metadata=theirs))
    assert not await index.search("tea", scope=mine)
    assert await index.remove("theirs", scope=mine) == 0
    with pytest.raises(ScopeViolation, match="stored under its id"):
        await index.ingest(Document("theirs", "mine now", metadata=mine), scope=mine)
    with pytest.raises(ScopeViolation):
        await index.ingest(Document("new", "tea", metadata=theirs), scope=mine)
    await index.ingest(Document("new", "tea", metadata=mine), scope=mine)
    assert await index.document_ids(scope=mine) == ["new"]


async def test_another_identity_is_refused_for_reading_and_writing_until_reset():
    store = MemoryStore()
    await HybridIndex(store, embedder=HashingEmbedder(64), identity="one").ingest(
        Document("a", "tea")
    )
    other = HybridIndex(store, embedder=HashingEmbedder(64), identity="two")
    with pytest.raises(IdentityMismatch, match=r"ragchat migrate.* or reset it"):
        await other.search("tea")
    with pytest.raises(IdentityMismatch):
        await other.ingest(Document("b", "tea"))
    await other.remove("a")
    with pytest.raises(IdentityMismatch):
        await other.search("tea")
    await other.reset()
    await other.ingest(Document("b", "tea"))
    assert len(await other.search("tea")) == 1


def test_a_blank_identity_is_refused():
    with pytest.raises(InvalidIndexIdentity):
        HybridIndex(identity=" ")


async def test_opening_without_an_embedder_adopts_a_corpus_with_vectors_for_keywords():
    store = MemoryStore()
    await HybridIndex(store, embedder=HashingEmbedder(64)).ingest(Document("a", "tea"))
    bare = HybridIndex(store)
    assert len(await bare.search("tea")) == 1
    with pytest.raises(IdentityMismatch, match="writing needs the embedder"):
        await bare.ingest(Document("b", "tea"))


async def test_embedding_a_keyword_only_corpus_makes_it_hybrid():
    store = MemoryStore()
    await HybridIndex(store).ingest(*documents("cats and dogs", "planes"))
    index = HybridIndex(store, embedder=HashingEmbedder(64))
    found = await index.search("cats")
    assert [d.stage for d in found.degraded] == ["vector"]
    with pytest.raises(IdentityMismatch, match="embed"):
        await index.ingest(Document("new", "x"))
    assert await index.embed() == 2
    assert await index.embed() == 0
    assert (await index.search("cats")).degraded == ()
    assert (await index.describe()).vectors == 2
    assert (await index.ingest(*documents("cats and dogs", "planes"))).skipped == 2


async def test_given_vectors_come_in_by_revisions():
    index = HybridIndex(embedder=HashingEmbedder(2), fusion=Weighted(0.0))
    passages = [Passage("x", document_id="d", ordinal=0), Passage("y", document_id="d", ordinal=1)]
    vectors = np.eye(2, dtype=np.float32)
    report = await index.replace(
        Revision(document=Document("d", "x y"), passages=passages, vectors=vectors)
    )
    assert report.passages == 2
    for bad in (vectors[:, :1], vectors * np.nan, vectors * 0):
        with pytest.raises(InvalidVector, match="'d'"):
            await index.replace(
                Revision(document=Document("d", "x y"), passages=passages, vectors=bad)
            )


async def test_given_vectors_come_in_with_passages_of_text_alone():
    """What names no document is its revision's, inside the same scope and with its source."""
    index = HybridIndex(embedder=HashingEmbedder(2), fusion=Weighted(0.0))
    document = Document("d", "x y", source="d.txt", metadata={"tenant": "a"})
    await index.replace(Revision(document, [Passage("x"), Passage("y")], [[1, 0], [0, 1]]))
    found = await index.search("x", scope={"tenant": "a"})
    assert {(c.passage.text, c.passage.ordinal) for c in found} == {("x", 0), ("y", 1)}
    assert {c.passage.source for c in found} == {"d.txt"}


async def test_what_a_splitter_left_out_is_embedded_as_it_is_indexed():
    class Splitter:
        name = "bare"

        def split(self, document):
            return [Passage(text) for text in document.text.split()]

    class Recording(HashingEmbedder):
        async def embed(self, texts, kind="query"):
            embedded.extend(texts)
            return await super().embed(texts, kind)

    embedded = []
    index = HybridIndex(embedder=Recording(8), splitter=Splitter())
    await index.ingest(Document("d", "x y", title="T"))
    assert embedded == ["T\nx", "T\ny"]
    assert len(await index.search("t")) == 2


async def test_a_search_on_its_own_does_not_skip_a_broken_vector_lane():
    index = await filled(Document("a", "tea"), embedder=Broken(16))
    with pytest.raises(EmbeddingError) as caught:
        await index.search("tea")
    assert isinstance(caught.value.__cause__, ConnectionError)


async def test_under_a_lenient_policy_keywords_stand_in_visibly(caplog):
    index = await filled(Document("a", "tea"), embedder=Broken(16))
    found = await index.search("tea", policy=Policy(), min_similarity=0.9)
    assert texts(found) == ["tea"]
    assert [d.stage for d in found.degraded] == ["vector"]
    assert "ConnectionError" in found.degraded[0].reason
    assert "secret" not in caplog.text
    assert "vector skipped" in caplog.text


async def test_keywords_stand_in_even_where_only_vectors_were_asked_for():
    index = await filled(Document("a", "tea"), embedder=Broken(16), fusion=Weighted(0.0))
    assert texts(await index.search("tea", policy=Policy())) == ["tea"]


async def test_a_run_further_up_shares_its_policy_and_record():
    index = await filled(Document("a", "tea"), embedder=Broken(16))
    run = Run(Policy())
    with running(run):
        found = await index.search("tea")
    assert found.degraded == tuple(run.record.degraded)
    assert found.trace.of("keyword")


async def test_corpora_of_one_store_do_not_see_each_other():
    index = await filled(Document("a", "tea"))
    other = index.corpus("other")
    assert not await other.search("tea")
    await other.ingest(Document("a", "coffee"))
    assert texts(await index.search("tea coffee")) == ["tea"]
    assert await index.store.corpora() == ["default", "other"]


async def test_a_passage_removed_between_lanes_and_reading_is_left_out():
    class Racing(MemoryStore):
        async def get(self, passage_ids, *, scope):
            await self.delete(["d0"], scope=Filter())
            return await super().get(passage_ids, scope=scope)

    index = await filled(*documents("tea", "tea tea"), store=Racing())
    assert [c.passage.document_id for c in await index.search("tea", top_k=1)] == ["d1"]


async def test_searches_run_side_by_side():
    index = await filled(*documents(*(f"tea {i}" for i in range(20))))
    rows = await asyncio.gather(*(index.search(f"tea {i}", top_k=1) for i in range(20)))
    assert [texts(row) for row in rows] == [[f"tea {i}"] for i in range(20)]


async def test_an_unknown_option_is_refused():
    with pytest.raises(InvalidSetting, match="topk"):
        await in_memory().search("x", topk=3)


async def test_opening_by_url_is_awaitable_and_a_context_manager():
    async with open_index("memory://", embedder=None) as index:
        assert (await index.describe()).store == "memory"
    index = await open_index("memory://", embedder=HashingEmbedder(8))
    await index.aclose()
    with pytest.raises(InvalidSetting, match="scheme"):
        open_index("nosuch://x", embedder=None)


class Narrow(HashingEmbedder):
    """Reads few tokens, and counts each character as one."""

    max_tokens = 64

    def count_tokens(self, text):
        return len(text) + 2


async def test_passages_fit_the_window_as_the_embedder_itself_counts_it():
    """Another vocabulary's count would be off, and the end of a passage unseen."""
    text = "The kettle is on; it boils in a while. " * 20
    for embedder in (Narrow(16), CachedEmbedder(Narrow(16))):
        report = await HybridIndex(embedder=embedder).ingest(Document("d", text))
        assert report.passages > 10
        assert report.too_long == 0


async def test_documents_with_passages_that_the_window_cuts_are_named():
    """Those to look at are found by their ids; of many, the first."""
    index = HybridIndex(embedder=Narrow(16), splitter=ParagraphSplitter())
    long, short = "a kettle " * 9, "tea"
    report = await index.ingest(
        Document("b", f"{long}\n\n{short}\n\n{long}"), Document("c", short), Document("a", long)
    )
    assert (report.too_long, report.too_long_in) == (3, ("b", "a"))
    assert (await index.ingest(Document("c", "milk"))).too_long_in == ()
    many = await index.ingest(*(Document(f"d{n}", long) for n in range(12)))
    assert (many.too_long, many.too_long_in) == (12, tuple(f"d{n}" for n in range(10)))
    assert (report + many).too_long_in == ("b", "a", *(f"d{n}" for n in range(8)))


async def test_documents_without_text_are_counted():
    index = HybridIndex()
    report = await index.ingest(Document("a", "Tea"), Document("b", ""), Document("c", " \n"))
    assert (report.documents, report.blank, report.deleted) == (1, 2, 0)
    report = await index.ingest(Document("a", ""))
    assert (report.documents, report.blank, report.deleted) == (0, 1, 1)


async def test_a_description_says_what_limits_the_index():
    description = await HybridIndex().describe()
    assert "keyword search only" in description.notes[0]
    assert description.identity is None
