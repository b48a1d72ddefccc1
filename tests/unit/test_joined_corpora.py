"""Several corpora of one store, searched as one."""

from __future__ import annotations

import pytest

from ragchat.citations import Citations
from ragchat_retrieval.chunking import ParagraphSplitter
from ragchat_retrieval.embedders import HashingEmbedder
from ragchat_retrieval.errors import (
    IdentityMismatch,
    InvalidSetting,
    ResetUnsupported,
    ScopeViolation,
    StoreClosed,
    StoreReadOnly,
)
from ragchat_retrieval.filters import Eq, Filter, Ne, as_filterable, is_semantic
from ragchat_retrieval.fusion import Weighted
from ragchat_retrieval.index import HybridIndex
from ragchat_retrieval.lexical import Analyzer, idf
from ragchat_retrieval.ports import Capabilities, CountsTerms, TermCounts, Written, written
from ragchat_retrieval.stores.joined import JoinedStore
from ragchat_retrieval.stores.manifest_store import ManifestStore
from ragchat_retrieval.stores.memory import MemoryStore
from ragchat_retrieval.stores.postgres import PostgresStore
from ragchat_retrieval.stores.sqlite import SQLiteStore
from ragchat_retrieval.trace import Degradation
from ragchat_retrieval.values import Document

ALL = Filter()


async def index_of(store=None, *, embedder=None, **corpora: dict[str, str]) -> HybridIndex:
    """An index with documents by corpus and id."""
    index = HybridIndex(store or MemoryStore(), embedder=embedder)
    for name, texts in corpora.items():
        await index.corpus(name).ingest(*(Document(id_, text) for id_, text in texts.items()))
    return index


def places(found) -> list[tuple[str, str]]:
    return [(candidate.passage.corpus, candidate.passage.document_id) for candidate in found]


@pytest.fixture(params=["memory", "sqlite"])
async def store(request, tmp_path):
    opened = MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "kb.sqlite")
    yield opened
    await opened.aclose()


@pytest.mark.parametrize("embedder", [None, HashingEmbedder(64)], ids=["words", "hybrid"])
async def test_passages_of_all_corpora_are_found_and_tell_their_corpus(store, embedder):
    index = await index_of(
        store,
        embedder=embedder,
        team={"leave": "Paid leave is 25 days."},
        law={"leave": "Paid leave is at least 20 days by law."},
        other={"leave": "Paid leave of somebody else."},
    )
    found = await index.corpus(["team", "law"]).search("paid leave", explain=True)
    assert sorted(places(found)) == [("law", "law/leave"), ("team", "team/leave")]
    assert len({c.passage.id for c in found}) == 2
    assert {c.explain.keyword.rank for c in found} == {1, 2}
    assert (await index.corpus("team").search("paid leave"))[0].passage.corpus is None


async def test_one_corpus_read_as_several_ranks_and_scores_as_by_itself():
    texts = {"a": "tea in the hills", "b": "tea tea", "c": "coffee in the shade of the hills"}
    index = await index_of(embedder=HashingEmbedder(64), only=texts)
    alone = await index.corpus("only").search("tea hills")
    joined = await index.corpus(["only", "never-written"]).search("tea hills")
    assert [(f"only/{c.passage.document_id}", c.score) for c in alone] == [
        (c.passage.document_id, c.score) for c in joined
    ]


async def test_words_are_as_rare_as_in_all_corpora_together():
    """A word that is common in one corpus and rare in the other weighs the same in both."""
    index = await index_of(
        small={"s": "valve", "t": "valve"},
        large={"l": "valve", **{str(n): f"pump{n}" for n in range(50)}},
    )
    found = await index.corpus(["small", "large"]).search("valve", fusion=Weighted(1.0))
    joined = JoinedStore([index.store.corpus("small"), index.store.corpus("large")])
    assert await joined.term_counts(["valv", "none"]) == TermCounts(53, {"valv": 3})
    hits = await joined.search_text({"valv": 1.0}, 5, filter=ALL, scope=ALL)
    # All passages are of one word, so that the length changes nothing: tf / (tf + k1) = 1 / 2.2.
    assert [hit.score for hit in hits] == pytest.approx([idf(53, 3) / 2.2] * 3)
    assert [c.passage.document_id for c in found] == ["large/l", "small/s", "small/t"]


@pytest.mark.parametrize("kind", [MemoryStore, SQLiteStore, PostgresStore, ManifestStore])
def test_every_store_with_a_keyword_lane_counts_terms(kind):
    assert issubclass(kind, CountsTerms)


async def test_without_counts_each_corpus_weighs_words_by_itself():
    class Plain:
        """A store that counts no terms."""

        def __init__(self, inner):
            self.inner, self.corpus_name, self.name = inner, inner.corpus_name, "plain"
            self.search_text, self.score_text = inner.search_text, inner.score_text

    index = await index_of(a={"x": "tea"}, b={"x": "tea", "y": "coffee"})
    joined = JoinedStore([Plain(index.store.corpus("a")), index.store.corpus("b")])
    assert await joined.term_counts(["tea"]) is None
    hits = await joined.search_text({"tea": 1.0}, 5, filter=ALL, scope=ALL)
    assert [hit.passage_id[:3] for hit in hits] == ["b/x", "a/x"]


async def test_limits_and_ties_are_those_of_one_list():
    index = await index_of(b={"1": "tea", "2": "tea"}, a={"1": "tea"})
    for top_k, expected in [(2, ["a/1", "b/1"]), (0, []), (9, ["a/1", "b/1", "b/2"])]:
        found = await index.corpus(["b", "a"]).search("tea", top_k=top_k)
        assert [c.passage.document_id for c in found] == expected


async def test_filter_and_scope_hold_in_every_corpus_and_see_ids_as_written():
    index = HybridIndex(MemoryStore())
    for name in ("a", "b"):
        await index.corpus(name).ingest(
            Document("x", "tea", metadata={"team": "red"}),
            Document("y", "tea", metadata={"team": "blue"}),
        )
    both = index.corpus(["a", "b"])
    for bounds, expected in [
        (Eq("team", "red"), ["a/x", "b/x"]),
        (Eq("document_id", "x"), ["a/x", "b/x"]),
        (Ne("document_id", "x"), ["a/y", "b/y"]),
    ]:
        for given in ({"filter": bounds}, {"scope": bounds}):
            found = await both.search("tea", **given)
            assert [c.passage.document_id for c in found] == expected
        assert (await both.describe(scope=bounds)).documents == 2
        assert list(await both.document_ids(scope=bounds)) == expected


async def test_a_part_that_breaks_the_scope_is_found_out():
    class Leaking(MemoryStore):
        def corpus(self, name):
            handle = Leaking(corpus=name)
            handle._shared = self._shared
            return handle

        async def search_text(self, terms, limit, *, filter, scope):
            return await super().search_text(terms, limit, filter=ALL, scope=ALL)

        async def get(self, passage_ids, *, scope):
            return await super().get(passage_ids, scope=ALL)

    index = await index_of(Leaking(), a={"x": "tea"}, b={"x": "tea"})
    with pytest.raises(ScopeViolation):
        await index.corpus(["a", "b"]).search("tea", scope=Eq("document_id", "y"))


async def test_neighbours_come_from_the_hit_s_own_corpus():
    index = HybridIndex(MemoryStore())
    for name in ("a", "b"):
        text = f"First of {name}.\n\nThe {name}-valve.\n\nLast of {name}."
        await index.corpus(name).ingest(Document("x", text), splitter=ParagraphSplitter())
    found = await index.corpus(["a", "b"]).search("b-valve", top_k=1, neighbours=1, mmr=0.7)
    assert found[0].passage.text == "First of b.\n\nThe b-valve.\n\nLast of b."
    document = await index.corpus(["a", "b"]).store.document("b/x", scope=ALL)
    assert document.text == found[0].passage.text


async def test_corpora_of_different_identities_are_not_read_together():
    store = MemoryStore()
    index = await index_of(store, embedder=HashingEmbedder(64), a={"x": "tea"})
    await HybridIndex(store.corpus("b"), embedder=HashingEmbedder(32)).ingest(Document("x", "tea"))
    await HybridIndex(store.corpus("c"), analyzer=Analyzer("german")).ingest(Document("x", "tea"))
    for other in ("b", "c"):
        with pytest.raises(IdentityMismatch, match=f"'{other}' has another"):
            await index.corpus(["a", other]).search("tea")
    with pytest.raises(IdentityMismatch):
        await HybridIndex(store, embedder=HashingEmbedder(32)).corpus(["a", "d"]).search("tea")


async def test_a_corpus_without_vectors_adds_its_keywords():
    store = MemoryStore()
    await index_of(store, words={"x": "tea"})
    index = await index_of(store, embedder=HashingEmbedder(64), vectors={"x": "tea"})
    both = index.corpus(["words", "vectors"])
    assert len(await both.search("tea")) == 2
    described = await both.describe()
    assert described.notes == ("1 of 2 passages have no vector; embed() fills them in",)
    assert described.corpus == "words, vectors"


async def test_a_search_tells_which_corpora_it_could_not_search_by_meaning():
    store = MemoryStore()
    await index_of(store, words={"x": "tea"}, more={"x": "tea"})
    index = await index_of(store, embedder=HashingEmbedder(64), vectors={"x": "tea"})
    both = index.corpus(["words", "vectors", "more", "never-written"])
    reason = "without vectors: words, more; embed() fills them in"
    assert (await both.search("tea")).degraded == (Degradation("vector", reason),)
    assert (await both.search("tea", fusion=Weighted(1.0))).degraded == ()
    assert (await index.corpus(["vectors", "never-written"]).search("tea")).degraded == ()
    await index.corpus("words").embed()
    await index.corpus("more").embed()
    found = await both.search("tea")
    assert (len(found), found.degraded) == (3, ())


async def test_corpora_that_nobody_searches_by_meaning_miss_no_vectors():
    store = MemoryStore()
    await index_of(store, embedder=HashingEmbedder(64), vectors={"x": "tea"})
    index = await index_of(store, words={"x": "tea"})
    found = await index.corpus(["words", "vectors"]).search("tea")
    assert (len(found), found.degraded) == (2, ())


async def test_any_store_may_tell_which_of_its_corpora_miss_vectors():
    class Shelf(MemoryStore):
        async def written(self):
            return Written(await self.identity(), ["old", "older"])

    index = await index_of(Shelf(), embedder=HashingEmbedder(64), default={"x": "tea"})
    reason = "without vectors: old, older; embed() fills them in"
    assert (await index.search("tea")).degraded == (Degradation("vector", reason),)
    assert (await index.search("tea", fusion=Weighted(1.0))).degraded == ()


async def test_an_identity_that_a_subclass_tells_in_its_own_way_is_the_one_that_counts():
    class Later(JoinedStore):
        async def identity(self):
            return None

    index = await index_of(embedder=HashingEmbedder(64), a={"x": "tea"})
    assert await written(index.store.corpus("a")) == Written(index.identity)
    assert await written(JoinedStore([index.store.corpus("a")])) == Written(index.identity, [])
    assert await written(Later([index.store.corpus("a")])) == Written(None)


async def test_what_is_missed_is_of_the_same_moment_as_the_identity():
    """A search that looks on while another corpus is written names what it saw itself."""
    store = MemoryStore()
    await index_of(store, words={"x": "tea"})
    index = await index_of(store, embedder=HashingEmbedder(64), vectors={"x": "tea"})
    both = index.corpus(["words", "vectors"])
    earlier = await both.searcher()
    await index.corpus("words").embed()
    later = await both.searcher()
    assert (earlier.keyword_only, later.keyword_only) == (["words"], [])


async def test_writing_to_several_corpora_is_refused():
    index = await index_of(embedder=HashingEmbedder(16), a={"x": "tea"}, b={"y": "tea"})
    both = index.corpus(["a", "b"])
    for write in (
        both.ingest(Document("z", "tea")),
        both.remove("a/x"),
        both.remove(source="s"),
        both.store.reset(),
        both.store.drop_corpus(),
        both.store.repair(),
    ):
        with pytest.raises(StoreReadOnly, match="each by its own name"):
            await write
    with pytest.raises(ResetUnsupported):
        await both.reset()
    assert await both.document_ids() == ["a/x", "b/y"]
    await both.corpus("a").ingest(Document("z", "tea"))
    assert await both.document_ids() == ["a/x", "a/z", "b/y"]


async def test_every_write_of_a_part_raises_the_revision():
    index = await index_of(a={"x": "tea"}, b={"y": "tea"})
    both = index.corpus(["a", "b"])
    before = await both.store.revision()
    await index.corpus("b").remove("y")
    assert await both.store.revision() > before


@pytest.mark.parametrize("names", [[], ["a", "a"], ["a", " "]])
async def test_names_that_cannot_be_read_together_are_refused(names):
    with pytest.raises(InvalidSetting):
        HybridIndex().corpus(names)


async def test_no_two_corpora_share_an_id():
    """A name may hold what separates it from the id."""
    index = HybridIndex(MemoryStore())
    names = ["a", "a/b", "a%2Fb"]
    for name, id_ in zip(names, ["b/x", "x", "x"], strict=True):
        await index.corpus(name).ingest(Document(id_, f"tea of {id_}"))
    found = await index.corpus(names).search("tea")
    assert sorted(places(found)) == [("a", "a/b/x"), ("a%2Fb", "a%252Fb/x"), ("a/b", "a%2Fb/x")]
    known = await index.corpus(names).store.get(["x", "b/x", "c/x", "/"], scope=ALL)
    assert known == {}


async def test_it_can_do_what_every_part_can():
    class Limited(MemoryStore):
        capabilities = Capabilities(filterable=False, semantic=False)

    parts = [MemoryStore(corpus="a"), MemoryStore(corpus="b")]
    assert as_filterable(JoinedStore(parts)) is not None
    assert is_semantic(JoinedStore(parts))
    assert as_filterable(JoinedStore([*parts, Limited(corpus="c")])) is None
    assert not is_semantic(JoinedStore([*parts, Limited(corpus="c")]))
    assert not JoinedStore([*parts, Limited(corpus="c")]).capabilities.semantic


async def test_citations_of_several_corpora_keep_the_corpus():
    index = await index_of(a={"x": "tea"}, b={"x": "tea"})
    found = await index.corpus(["a", "b"]).search("tea")
    citations = Citations([candidate.passage for candidate in found])
    again = Citations.from_json(citations.to_json())
    assert again.resolve("[2]").corpus == "b"
    assert again == citations


async def test_closing_closes_the_store_of_all_parts(store):
    index = await index_of(store, a={"x": "tea"})
    both = index.corpus(["a", "b"])
    await both.aclose()
    await both.aclose()
    with pytest.raises(StoreClosed):
        await both.search("tea")
