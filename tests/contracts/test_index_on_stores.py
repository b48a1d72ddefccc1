"""What a user of the index sees is the same over every store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from ragchat_retrieval.chunking import ParagraphSplitter, TextSplitter, WholeText
from ragchat_retrieval.embedders import HashingEmbedder
from ragchat_retrieval.errors import (
    EmbeddingError,
    IdentityMismatch,
    InvalidMetadata,
    InvalidText,
    InvalidVector,
)
from ragchat_retrieval.filters import Eq, Filter, Gt, In, Ne
from ragchat_retrieval.fusion import Weighted
from ragchat_retrieval.index import HybridIndex
from ragchat_retrieval.stores.memory import MemoryStore
from ragchat_retrieval.stores.sqlite import SQLiteStore
from ragchat_retrieval.values import Document, Passage, Revision

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ragchat_retrieval.ports import Store
    from ragchat_retrieval.values import SearchResult


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    store = MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "kb.sqlite")
    yield store
    await store.aclose()


def ids(found: SearchResult) -> list[str]:
    return [candidate.passage.document_id for candidate in found]


async def test_spellings_of_one_word_find_each_other_and_stay_as_they_were_written(store):
    texts = {
        "decomposed": "re\u0301sume\u0301 format",
        "composed": "r\u00e9sum\u00e9 paper",
        "wide": "\uff21\uff22\uff23 company",
        "narrow": "ABC firm",
        "sharp": "stra\u00dfe lang",
        "hebrew": "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd",
    }
    index = HybridIndex(store)
    await index.ingest(*(Document(name, text) for name, text in texts.items()))
    for query, expected in [
        ("r\u00e9sum\u00e9", {"decomposed", "composed"}),
        ("re\u0301sume\u0301", {"decomposed", "composed"}),
        ("ABC", {"wide", "narrow"}),
        ("\uff21\uff22\uff23", {"wide", "narrow"}),
        ("STRASSE", {"sharp"}),
        ("\u200f\u05e9\u05dc\u05d5\u05dd", {"hebrew"}),
    ]:
        found = await index.search(query)
        assert set(ids(found)) == expected, ascii(query)
        assert all(texts[c.passage.document_id] == c.passage.text for c in found)


async def test_the_spelling_of_metadata_is_compared_exactly(store):
    index = HybridIndex(store)
    await index.ingest(Document("d", "paper", metadata={"name": "\u00e9"}))
    assert ids(await index.search("paper", filter={"name": "\u00e9"})) == ["d"]
    assert ids(await index.search("paper", filter={"name": "e\u0301"})) == []


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("喝茶", "我喜欢喝茶"),
        ("お茶", "お茶を飲むのが好き"),
        ("차를", "나는 차를 마신다"),
        ("ดื่มชา", "ผมชอบดื่มชา"),
        ("GPU显存", "GPU显存 不足"),
        ("显存", "GPU显存 不足"),
    ],
)
async def test_scripts_without_spaces_find_only_what_has_characters_in_common(store, query, text):
    index = HybridIndex(store)
    others = ["今天天气很好", "明天会下雨", "今日は天気がいい", "오늘은 날씨가 좋다", "วันนี้อากาศดี"]
    await index.ingest(Document("tea", text), *(Document(other, other) for other in others))
    found = await index.search(query)
    assert ids(found) == ["tea"]
    assert found[0].score > 0


async def test_a_term_in_half_of_the_documents_counts_and_a_commoner_one_counts_less(store):
    index = HybridIndex(store)
    await index.ingest(
        Document("1", "pump valve"),
        Document("2", "pump hose"),
        Document("3", "pump clamp"),
        Document("4", "valve clip"),
    )
    assert set(ids(await index.search("valve"))) == {"1", "4"}
    both = await index.search("pump valve", explain=True)
    assert ids(both) == ["1", "4", "2", "3"]
    assert all(candidate.explain.keyword.score > 0 for candidate in both)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("PRJ-204", ["part"]),
        ("prj 204", ["part"]),
        ("title:secret", ["part"]),
        ("don't", []),
        ('say "hi', []),
        ("a AND", []),
        ("NEAR(x y)", []),
        ("x*", []),
        ("^x", []),
        ("(", []),
        ("38.101", ["norm"]),
        ("C++ {x}", ["lang"]),
        ("--", []),
        (":", []),
        ("a & part", ["part"]),
        ("!part | norm", ["norm", "part"]),
        ("'; DROP TABLE passages; --", ["column"]),
        ("pa%", []),
        ("_art", []),
        ("\\", []),
    ],
)
async def test_a_question_is_words_and_never_a_query_language(store, query, found):
    index = HybridIndex(store)
    await index.ingest(
        Document("part", "Part PRJ-204 is here", title="secret"),
        Document("norm", "See norm TS 38.101 of it"),
        Document("lang", "Written in C++ by hand"),
        Document("column", "passages_of nothing"),
    )
    assert sorted(ids(await index.search(query))) == found


async def test_keyword_scores_tell_degrees_apart_and_fusion_follows_them(store):
    index = HybridIndex(store, embedder=HashingEmbedder(64), splitter=WholeText())
    await index.ingest(
        Document("much", "pump pump valve pump"),
        Document("some", "pump valve hose tube and a text about other things"),
        Document("hardly", "one pump among many other words that say nothing of it at all"),
    )
    words = await index.search("pump valve", fusion=Weighted(1.0), explain=True)
    raw = [candidate.explain.keyword.score for candidate in words]
    assert ids(words) == ["much", "some", "hardly"]
    assert raw[0] > raw[1] > raw[2] > 0
    assert [c.score for c in words] == pytest.approx([score / raw[0] for score in raw])
    half = {
        c.passage.document_id: c.explain
        for c in await index.search("pump valve", fusion=Weighted(0.5), explain=True)
    }
    shares = [half[name].keyword.contribution for name in ("much", "some", "hardly")]
    assert shares == pytest.approx([0.5 * score / raw[0] for score in raw])


@pytest.mark.parametrize(
    "splitter", [ParagraphSplitter(), TextSplitter(4, 0)], ids=lambda splitter: splitter.name
)
async def test_a_revision_of_fewer_passages_leaves_nothing_of_the_old_one(store, splitter):
    """Neither lane finds an old passage, and the counts are those of the new ones."""
    index = HybridIndex(store, embedder=HashingEmbedder(32), splitter=ParagraphSplitter())
    await index.ingest(Document("other", "quux"))

    def guide(blocks: int) -> Document:
        return Document("guide", "\n\n".join(f"alpha{n} block" for n in range(blocks)))

    for blocks in (5, 2, 0, 5):
        await index.ingest(guide(blocks), splitter=splitter)
        expected = {"quux", *(passage.text for passage in splitter.split(guide(blocks)))}
        described = await index.describe()
        assert described.documents == (2 if blocks else 1)
        assert described.passages == described.vectors == len(expected)
        for keyword in (0.0, 1.0):
            found = await index.search("alpha4", top_k=99, fusion=Weighted(keyword))
            assert {c.passage.text for c in found} <= expected
            if keyword == 1.0:
                assert len(found) == (blocks == 5)


async def test_a_revision_that_fails_half_way_leaves_the_old_one_whole(store):
    index = HybridIndex(store, embedder=HashingEmbedder(32), splitter=ParagraphSplitter())
    await index.ingest(Document("guide", "alpha\n\nbeta"))

    class Broken(HashingEmbedder):
        async def embed(self, texts, kind="passage"):
            return (await super().embed(texts, kind))[:-1]

    broken = HybridIndex(store, embedder=Broken(32), splitter=ParagraphSplitter())
    with pytest.raises(EmbeddingError):
        await broken.ingest(Document("guide", "gamma\n\ndelta"), Document("new", "epsilon"))
    assert await index.document_ids() == ["guide"]
    assert {c.passage.text for c in await index.search("alpha beta")} == {"alpha", "beta"}


@pytest.mark.parametrize(
    ("bad", "where"),
    [
        ({"text": "o\x00er"}, "'2', text"),
        ({"text": "x", "metadata": {"k": "a\x00b"}}, "'2', metadata.k"),
        ({"text": "x", "title": "a\x00b"}, "'2', title"),
        ({"text": "x", "source": "a\ud800b"}, "'2', source"),
        ({"id": "2\x00", "text": "x"}, "id: holds NUL"),
    ],
)
async def test_what_cannot_be_stored_anywhere_is_named_and_nothing_is_written(store, bad, where):
    index = HybridIndex(store)
    second = Document(**{"id": "2", **bad})
    with pytest.raises(InvalidText, match=where):
        await index.ingest(Document("1", "one"), second, Document("3", "three"))
    assert await index.document_ids() == []
    with pytest.raises(InvalidMetadata):
        Document("2", "x", metadata={"a\x00b": 1})


async def test_kinds_stay_apart_in_filters(store):
    index = HybridIndex(store)
    flags = {"true": True, "one": 1, "one-point": 1.0, "text": "true"}
    await index.ingest(*(Document(n, "word", metadata={"flag": f}) for n, f in flags.items()))
    for condition, expected in [
        (Eq("flag", True), {"true"}),
        (Eq("flag", 1), {"one", "one-point"}),
        (Eq("flag", 1.0), {"one", "one-point"}),
        (Gt("flag", 0), {"one", "one-point"}),
        (In("flag", [1, True]), {"true", "one", "one-point"}),
        (In("flag", [1]), {"one", "one-point"}),
        (Eq("flag", "true"), {"text"}),
        (Ne("flag", True), {"one", "one-point", "text"}),
    ]:
        assert set(ids(await index.search("word", filter=Filter(condition)))) == expected


@pytest.mark.parametrize(
    "vector", [[np.nan, 0, 0, 1], [0, 0, 0, 0], [np.inf, 0, 0, 1], [1, 0, 0], [1, 0, 0, 0, 0]]
)
async def test_a_vector_that_cannot_be_compared_is_refused_with_all_beside_it(store, vector):
    index = HybridIndex(store, embedder=HashingEmbedder(4))
    await index.ingest(Document("old", "hello"))

    def given(name: str, row: list[float]) -> Revision:
        document = Document(name, f"text of {name}")
        passage = Passage(document.text, document_id=name)
        return Revision(document=document, passages=(passage,), vectors=np.array([row], np.float32))

    with pytest.raises(InvalidVector, match="'bad'"):
        await index.replace(given("good", [1, 0, 0, 0]), given("bad", vector))
    assert await index.document_ids() == ["old"]


async def test_another_model_of_equal_dimension_is_refused_until_reset(store):
    class Other(HashingEmbedder):
        model = "another-4"

    await HybridIndex(store, embedder=HashingEmbedder(4)).ingest(Document("a", "tea"))
    other = HybridIndex(store, embedder=Other(4))
    with pytest.raises(IdentityMismatch):
        await other.search("tea")
    with pytest.raises(IdentityMismatch):
        await other.ingest(Document("b", "more tea"))
    await other.reset()
    await other.ingest(Document("b", "more tea"))
    assert ids(await other.search("tea")) == ["b"]


async def test_of_twenty_candidates_a_near_duplicate_falls_behind_a_diverse_passage(store):
    index = HybridIndex(store, embedder=HashingEmbedder(256), splitter=WholeText())
    await index.ingest(
        Document("best", "red cars are fast"),
        Document("copy", "red cars are fast!"),
        Document("diverse", "green boats are slow"),
        *(Document(f"x{n:02}", f"item {n} of cars in a list") for n in range(17)),
    )
    question = "red cars, fast cars or green boats"
    plain = ids(await index.search(question, top_k=5, candidates=20))
    spread = ids(await index.search(question, top_k=5, candidates=20, mmr=0.5))
    assert plain[:3] == ["best", "copy", "diverse"]
    assert spread[:2] == ["best", "diverse"]
    assert len(spread) == 5
