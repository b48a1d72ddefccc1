"""Cuts where the meaning changes, by an embedder; and what waits for one."""

from __future__ import annotations

import asyncio
import pickle
import threading
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat_retrieval.chunking import CachedSplitter, SemanticSplitter, TextSplitter
from ragchat_retrieval.chunking.semantic import chosen_cuts, gap_depths
from ragchat_retrieval.embedders import HashingEmbedder
from ragchat_retrieval.errors import EmbeddingError, InvalidSetting
from ragchat_retrieval.index import HybridIndex
from ragchat_retrieval.ports import AsyncSplitter
from ragchat_retrieval.values import Document
from ragchat_retrieval.vectors import normalise

TEA = [f"The tea from hill {n} is green tea." for n in range(6)]
BIKE = [f"A bicycle wheel of size {n} has spokes." for n in range(6)]
TEXT = " ".join(TEA + BIKE)


class Subjects:
    """An embedder that knows two subjects, and where it was called."""

    model = "subjects"
    dimension = 2

    def __init__(self):
        self.calls = []

    async def embed(self, texts, kind="query"):
        self.calls.append((asyncio.get_running_loop(), len(texts), kind))
        return np.array([[1, 0] if "tea" in t else [0, 1] for t in texts], dtype=np.float32)


def texts(passages):
    return [passage.text for passage in passages]


def test_the_cut_is_where_the_subject_changes():
    splitter = SemanticSplitter(Subjects(), least=8)
    assert texts(splitter.split(Document("d", TEXT))) == [" ".join(TEA), " ".join(BIKE)]


def test_one_subject_is_not_cut_and_a_large_one_by_size():
    document = Document("d", " ".join(TEA))
    assert len(SemanticSplitter(Subjects()).split(document)) == 1
    parts = SemanticSplitter(Subjects(), size=24, least=4).split(document)
    assert len(parts) > 2


def test_no_passage_at_a_change_is_smaller_than_the_least():
    text = " ".join([*TEA, "A bicycle.", *TEA])
    assert len(SemanticSplitter(Subjects(), least=20).split(Document("d", text))) <= 2


@given(st.integers(0, 12), st.integers(0, 2**32 - 1))
def test_depths_equal_a_plain_reading_of_texttiling(count, seed):
    random = np.random.default_rng(seed)
    rows = normalise(random.normal(size=(count, 3)).astype(np.float32))

    def similarity(gap):
        a = sum(rows[n].astype(float) for n in range(max(0, gap - 2), gap + 1))
        b = sum(rows[n].astype(float) for n in range(gap + 1, min(count, gap + 4)))
        return float(a @ b / np.sqrt((a @ a) * (b @ b)))

    similar = [similarity(gap) for gap in range(count - 1)]
    expected = []
    for gap, own in enumerate(similar):
        left = gap
        while left > 0 and similar[left - 1] >= similar[left]:
            left -= 1
        right = gap
        while right + 1 < len(similar) and similar[right + 1] >= similar[right]:
            right += 1
        expected.append(similar[left] + similar[right] - 2 * own)
    assert np.allclose(gap_depths(rows), expected, atol=1e-6)


@given(
    st.lists(st.floats(0, 2), max_size=12),
    st.integers(0, 30),
    st.floats(-1, 2),
    st.integers(0, 2**32 - 1),
)
def test_cuts_are_inner_distinct_and_far_enough_apart(depths, least, threshold, seed):
    tokens = np.random.default_rng(seed).integers(1, 20, len(depths) + 1).tolist()
    cuts = chosen_cuts(np.array(depths), tokens, threshold=threshold, least=least)
    edges = [0, *cuts, len(tokens)]
    assert edges == sorted(set(edges))
    if cuts:
        pairs = pairwise(edges)
        assert all(sum(tokens[a:b]) >= least for a, b in pairs)


def test_depths_of_a_long_text_that_repeats_itself_take_one_pass():
    rows = np.tile(np.array([[1, 0]], dtype=np.float32), (40_000, 1))
    assert not gap_depths(rows).any()


@pytest.mark.parametrize("text", ["QUJD" * 5_000, "喝茶" * 5_000, "word " * 4_000])
def test_what_is_no_sentence_is_embedded_in_parts_that_fill_the_size(text):
    embedder = Subjects()
    passages = SemanticSplitter(embedder, size=32, least=4).split(Document("d", text))
    asked = sum(count for _, count, _ in embedder.calls)
    assert asked <= 2 * len(TextSplitter(32, 0).split(Document("d", text)))
    assert "".join(texts(passages)).replace(" ", "") == text.replace(" ", "")


async def test_an_index_awaits_the_embedder_on_its_own_loop():
    embedder = Subjects()
    splitter = SemanticSplitter(embedder, least=8)
    assert isinstance(splitter, AsyncSplitter)
    index = HybridIndex(splitter=splitter)
    report = await index.ingest(Document("d", TEXT))
    assert report.passages == 2
    assert embedder.calls == [(asyncio.get_running_loop(), 12, "passage")]
    assert (await index.ingest(Document("d", TEXT))).skipped == 1


async def test_cancelling_an_ingestion_cancels_the_embedder():
    started = asyncio.Event()

    class Hangs(Subjects):
        async def embed(self, texts, kind="query"):
            started.set()
            await asyncio.Event().wait()

    index = HybridIndex(splitter=SemanticSplitter(Hangs()))
    task = asyncio.create_task(index.ingest(Document("d", TEXT)))
    async with asyncio.timeout(30):
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_failing_embedder_writes_nothing():
    class Fails(Subjects):
        async def embed(self, texts, kind="query"):
            raise OSError("tea")

    index = HybridIndex(splitter=SemanticSplitter(Fails()))
    with pytest.raises(EmbeddingError) as caught:
        await index.ingest(Document("d", TEXT))
    assert "tea" not in str(caught.value)
    assert await index.document_ids() == []


async def test_the_blocking_way_is_refused_on_an_event_loop_and_fine_in_a_thread():
    splitter = SemanticSplitter(Subjects(), least=8)
    with pytest.raises(InvalidSetting, match="asplit"):
        splitter.split(Document("d", TEXT))
    assert len(await asyncio.to_thread(splitter.split, Document("d", TEXT))) == 2


@pytest.mark.parametrize(
    "options",
    [{"size": 0}, {"least": -1}, {"size": 8, "least": 8}, {"threshold": float("nan")}],
    ids=str,
)
def test_bad_settings_are_refused(options):
    with pytest.raises(InvalidSetting):
        SemanticSplitter(HashingEmbedder(8), **options)


def test_the_name_tells_settings_and_model():
    assert SemanticSplitter(HashingEmbedder(8)).name == "semantic:512/64:1:hashing-8"


# The cache


class Counting(TextSplitter):
    """Counts how often it splits, and in which thread."""

    calls: list = []  # noqa: RUF012 - one for the test

    def split(self, document):
        Counting.calls.append(threading.current_thread())
        return super().split(document)


@pytest.fixture
def counting():
    Counting.calls = []
    return Counting(16, 0)


def test_an_unchanged_document_is_split_once(counting):
    splitter = CachedSplitter(counting)
    document = Document("d", TEXT, title="t", metadata={"a": 1})
    first = splitter.split(document)
    assert splitter.split(Document("d", TEXT, title="t", metadata={"a": 1})) == first
    assert list(first) == counting.split(document)
    assert len(Counting.calls) == 2


@pytest.mark.parametrize(
    "other",
    [
        Document("e", TEXT),
        Document("d", TEXT + "."),
        Document("d", TEXT, title="t"),
        Document("d", TEXT, source="s"),
        Document("d", TEXT, metadata={"a": 1}),
    ],
    ids=["id", "text", "title", "source", "metadata"],
)
def test_any_change_splits_again(counting, other):
    splitter = CachedSplitter(counting)
    splitter.split(Document("d", TEXT))
    passages = splitter.split(other)
    assert len(Counting.calls) == 2
    assert passages[0].document_id == other.id
    assert passages[0].title == other.title


def test_it_is_bounded_and_forgets_what_was_not_asked_for_longest(counting):
    splitter = CachedSplitter(counting, max_entries=2)
    for key in "abacaba":
        splitter.split(Document(key, TEXT))
    # a, b, c, then b again, for which it made room
    assert len(Counting.calls) == 4
    with pytest.raises(InvalidSetting):
        CachedSplitter(counting, max_entries=0)


async def test_it_waits_for_one_that_waits_and_leaves_others_to_threads(counting):
    document = Document("d", TEXT)
    plain = CachedSplitter(counting)
    assert await plain.asplit(document) == await plain.asplit(document)
    [thread] = Counting.calls
    assert thread is not threading.current_thread()
    embedder = Subjects()
    waiting = CachedSplitter(SemanticSplitter(embedder, least=8))
    assert await waiting.asplit(document) == await waiting.asplit(document)
    assert len(embedder.calls) == 1


def test_a_copy_begins_empty_with_the_same_settings(counting):
    splitter = CachedSplitter(TextSplitter(16, 0), max_entries=5)
    splitter.split(Document("d", TEXT))
    copy = pickle.loads(pickle.dumps(splitter))  # noqa: S301 - our own
    assert (copy.name, copy.unwrap(), copy._max_entries) == ("text:16/0", TextSplitter(16, 0), 5)
    assert not copy._known
