"""What a user of an index sees, the same over every store: a suite with one fixture.

    class TestMyIndex(IndexContract):
        @pytest.fixture
        async def store(self):
            store = MyStore(...)
            yield store
            await store.aclose()

The contract of stores asks for each method's answer; this one asks whole questions: text through
splitter, analysis, embedding, lanes and fusion. One without a keyword lane derives from
`VectorIndexContract`. The tests are coroutines and need pytest-asyncio in auto mode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

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
from ragchat_retrieval.values import Document, Passage, Revision

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.explain import KeywordExplanation
    from ragchat_retrieval.ports import EmbeddingKind, Splitter, Store
    from ragchat_retrieval.values import Candidate, SearchResult

ODD_IDS = (
    "notes/a.md#1",
    "\N{GRINNING FACE}",
    "x" * 400,
    "6BA7B810-9DAD-11D1-80B4-00C04FD430C8",
    "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
    "42",
    "042",
    " 42 ",
    "a\nb",
    "%",
    "../x?y=1&z",
    "'; --",
)
"""Ids that are close to each other or that some engine would not take."""


def ids(found: SearchResult) -> list[str]:
    """Returns the document of each candidate, in order."""
    return [candidate.passage.document_id for candidate in found]


def keyword_of(candidate: Candidate) -> KeywordExplanation:
    """Returns what the keyword lane said, which was asked for."""
    assert candidate.explain is not None
    assert candidate.explain.keyword is not None
    return candidate.explain.keyword


class _Short(HashingEmbedder):
    """Returns a vector less than there are texts."""

    async def embed(
        self, texts: Sequence[str], kind: EmbeddingKind = "passage"
    ) -> NDArray[np.float32]:
        return (await super().embed(texts, kind))[:-1]


class _Other(HashingEmbedder):
    """Another model of the same dimension."""

    @property
    def model(self) -> str:
        return "another-4"


class VectorIndexContract:
    """What an index promises over every store with a vector lane."""

    @pytest.fixture
    def store(self) -> Store:
        """Gives the store under test, empty and fresh for each test."""
        pytest.fail("override the fixture store")

    async def test_any_document_id_is_found_and_removed_as_it_is(self, store: Store) -> None:
        """Ids that look alike or that an engine would not take stay apart and come back."""
        index = HybridIndex(store, embedder=HashingEmbedder(64), splitter=WholeText())
        await index.ingest(*(Document(name, f"word {n}") for n, name in enumerate(ODD_IDS)))
        assert sorted(await index.document_ids()) == sorted(ODD_IDS)
        for n, name in enumerate(ODD_IDS):
            found = await index.search("word", filter={"document_id": name})
            assert [(c.passage.document_id, c.passage.text) for c in found] == [(name, f"word {n}")]
        for n, name in enumerate(ODD_IDS):
            assert await index.remove(ids=[name]) == 1
            assert sorted(await index.document_ids()) == sorted(ODD_IDS[n + 1 :])

    @pytest.mark.parametrize(
        "splitter", [ParagraphSplitter(), TextSplitter(4, 0)], ids=lambda splitter: splitter.name
    )
    async def test_a_revision_of_fewer_passages_leaves_nothing_of_the_old_one(
        self, store: Store, splitter: Splitter
    ) -> None:
        """No lane finds an old passage, and the counts are those of the new ones."""
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
            found = await index.search("alpha4", top_k=99, fusion=Weighted(0.0))
            assert {c.passage.text for c in found} == expected
            if store.capabilities.keyword:
                found = await index.search("alpha4", top_k=99, fusion=Weighted(1.0))
                assert len(found) == (blocks == 5)  # noqa: PLR2004 - the number of blocks above

    async def test_a_revision_that_fails_half_way_leaves_the_old_one_whole(
        self, store: Store
    ) -> None:
        """An embedder that returns too few vectors writes nothing."""
        index = HybridIndex(store, embedder=HashingEmbedder(32), splitter=ParagraphSplitter())
        await index.ingest(Document("guide", "alpha\n\nbeta"))
        broken = HybridIndex(store, embedder=_Short(32), splitter=ParagraphSplitter())
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
        ids=lambda value: value if isinstance(value, str) else "",
    )
    async def test_what_cannot_be_stored_anywhere_is_named_and_nothing_is_written(
        self, store: Store, bad: dict[str, Any], where: str
    ) -> None:
        """NUL and lone surrogates are refused with all beside them, telling document and field."""
        index = HybridIndex(store, embedder=HashingEmbedder(4))
        second = Document(**{"id": "2", **bad})
        with pytest.raises(InvalidText, match=where):
            await index.ingest(Document("1", "one"), second, Document("3", "three"))
        assert await index.document_ids() == []
        with pytest.raises(InvalidMetadata):
            Document("2", "x", metadata={"a\x00b": 1})

    async def test_kinds_stay_apart_in_filters(self, store: Store) -> None:
        """True is no number and no text, and 1 is 1.0."""
        index = HybridIndex(store, embedder=HashingEmbedder(4))
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

    async def test_the_spelling_of_metadata_is_compared_exactly(self, store: Store) -> None:
        """A composed character is another value than the same one decomposed."""
        index = HybridIndex(store, embedder=HashingEmbedder(4))
        await index.ingest(Document("d", "paper", metadata={"name": "\u00e9"}))
        assert ids(await index.search("paper", filter={"name": "\u00e9"})) == ["d"]
        assert ids(await index.search("paper", filter={"name": "e\u0301"})) == []

    @pytest.mark.parametrize(
        "vector", [[np.nan, 0, 0, 1], [0, 0, 0, 0], [np.inf, 0, 0, 1], [1, 0, 0], [1, 0, 0, 0, 0]]
    )
    async def test_a_vector_that_cannot_be_compared_is_refused_with_all_beside_it(
        self, store: Store, vector: list[float]
    ) -> None:
        """The error names its document, and nothing of the write is stored."""
        index = HybridIndex(store, embedder=HashingEmbedder(4))
        await index.ingest(Document("old", "hello"))

        def given(name: str, row: list[float]) -> Revision:
            document = Document(name, f"text of {name}")
            passage = Passage(document.text, document_id=name)
            vectors = np.array([row], np.float32)
            return Revision(document=document, passages=(passage,), vectors=vectors)

        with pytest.raises(InvalidVector, match="'bad'"):
            await index.replace(given("good", [1, 0, 0, 0]), given("bad", vector))
        assert await index.document_ids() == ["old"]

    async def test_another_model_of_equal_dimension_is_refused_until_reset(
        self, store: Store
    ) -> None:
        """Vectors of two models are never compared, neither read nor written."""
        await HybridIndex(store, embedder=HashingEmbedder(4)).ingest(Document("a", "tea"))
        other = HybridIndex(store, embedder=_Other(4))
        with pytest.raises(IdentityMismatch):
            await other.search("tea")
        with pytest.raises(IdentityMismatch):
            await other.ingest(Document("b", "more tea"))
        await other.reset()
        await other.ingest(Document("b", "more tea"))
        assert ids(await other.search("tea")) == ["b"]


class IndexContract(VectorIndexContract):
    """What an index promises over every store with both lanes."""

    async def test_spellings_of_one_word_find_each_other_and_stay_as_they_were_written(
        self, store: Store
    ) -> None:
        """Composed and decomposed, wide and narrow, with and without case: one word, own text."""
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
    async def test_scripts_without_spaces_find_only_what_has_characters_in_common(
        self, store: Store, query: str, text: str
    ) -> None:
        """What has no word of the question is not returned at all."""
        index = HybridIndex(store)
        others = [
            "今天天气很好",
            "明天会下雨",
            "今日は天気がいい",
            "오늘은 날씨가 좋다",
            "วันนี้อากาศดี",
        ]
        await index.ingest(Document("tea", text), *(Document(other, other) for other in others))
        found = await index.search(query)
        assert ids(found) == ["tea"]
        assert found[0].score > 0

    async def test_a_term_in_half_of_the_documents_counts_and_a_commoner_one_counts_less(
        self, store: Store
    ) -> None:
        """No match ties with no match, however common its term is."""
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
        assert all((keyword_of(c).score or 0) > 0 for c in both)

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
            ("part\x00norm", ["norm", "part"]),
            ("part \ud800", ["part"]),
        ],
        ids=ascii,
    )
    async def test_a_question_is_words_and_never_a_query_language(
        self, store: Store, query: str, found: list[str]
    ) -> None:
        """Operators, quotes and wildcards of any engine are characters like others."""
        index = HybridIndex(store)
        await index.ingest(
            Document("part", "Part PRJ-204 is here", title="secret"),
            Document("norm", "See norm TS 38.101 of it"),
            Document("lang", "Written in C++ by hand"),
            Document("column", "passages_of nothing"),
        )
        assert sorted(ids(await index.search(query))) == found

    async def test_keyword_scores_tell_degrees_apart_and_fusion_follows_them(
        self, store: Store
    ) -> None:
        """Higher is better, scores differ as the texts do, and so do their shares."""
        index = HybridIndex(store, embedder=HashingEmbedder(64), splitter=WholeText())
        await index.ingest(
            Document("much", "pump pump valve pump"),
            Document("some", "pump valve hose tube and a text about other things"),
            Document("hardly", "one pump among many other words that say nothing of it at all"),
        )
        words = await index.search("pump valve", fusion=Weighted(1.0), explain=True)
        raw = [cast("float", keyword_of(candidate).score) for candidate in words]
        assert ids(words) == ["much", "some", "hardly"]
        assert raw[0] > raw[1] > raw[2] > 0
        assert [c.score for c in words] == pytest.approx([score / raw[0] for score in raw])
        half = {
            c.passage.document_id: keyword_of(c).contribution
            for c in await index.search("pump valve", fusion=Weighted(0.5), explain=True)
        }
        shares = [half[name] for name in ("much", "some", "hardly")]
        assert shares == pytest.approx([0.5 * score / raw[0] for score in raw])

    async def test_of_twenty_candidates_a_near_duplicate_falls_behind_a_diverse_passage(
        self, store: Store
    ) -> None:
        """Diversity reads the store's own vectors."""
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
        assert len(spread) == len(plain)
