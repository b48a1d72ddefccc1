"""The cache asks the model only for what it does not know, and never lies."""

from __future__ import annotations

import asyncio
import multiprocessing
import sqlite3
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

from ragchat_retrieval.embedders import CachedEmbedder, HashingEmbedder
from ragchat_retrieval.errors import (
    EmbeddingError,
    InvalidSetting,
    NotAStore,
    StoreClosed,
    StoreUnavailable,
)


class Recording(HashingEmbedder):
    """Records what it is asked for."""

    def __init__(self, dimension=8, *, model=None):
        super().__init__(dimension)
        self.asked = []
        self.name = model

    @property
    def model(self):
        return self.name or super().model

    async def embed(self, texts, kind="query"):
        self.asked.append((list(texts), kind))
        return await super().embed(texts, kind)


class Learning(Recording):
    """Learns its dimension by its first call, like a served model."""

    told = 0

    @property
    def dimension(self):
        return self.told

    async def embed(self, texts, kind="query"):
        rows = await super().embed(texts, kind)
        self.told = self._dimension
        return rows


@pytest.fixture(params=["file", "memory"])
async def cached(request, tmp_path):
    path = tmp_path / "a cache?.sqlite" if request.param == "file" else None
    async with CachedEmbedder(Recording(), path) as embedder:
        yield embedder


async def test_a_known_text_is_not_embedded_again(cached):
    first = await cached.embed(["a", "b"])
    again = await cached.embed(["b", "c", "a"])
    assert cached.unwrap().asked == [(["a", "b"], "query"), (["c"], "query")]
    assert np.array_equal(again[[2, 0]], first)
    assert np.array_equal(again, await HashingEmbedder(8).embed(["b", "c", "a"]))


async def test_a_text_that_occurs_twice_is_embedded_once(cached):
    rows = await cached.embed(["a", "b", "a", " "])
    assert cached.unwrap().asked == [(["a", "b"], "query")]
    assert np.array_equal(rows[0], rows[2])
    assert not rows[3].any()


async def test_queries_and_passages_are_kept_apart(cached):
    await cached.embed(["a"], "query")
    await cached.embed(["a"], "passage")
    assert cached.unwrap().asked == [(["a"], "query"), (["a"], "passage")]


@pytest.mark.parametrize("other", [Recording(8, model="other"), Recording(16)])
async def test_models_and_dimensions_are_kept_apart(tmp_path, other):
    path = tmp_path / "cache.sqlite"
    async with CachedEmbedder(Recording(8), path) as one, CachedEmbedder(other, path) as two:
        await one.embed(["a"])
        assert (await two.embed(["a"])).shape == (1, other.dimension)
    assert other.asked == [(["a"], "query")]


async def test_a_file_outlives_its_embedder_without_holding_the_text(tmp_path):
    path = tmp_path / "cache.sqlite"
    async with CachedEmbedder(Recording(), path) as one:
        expected = await one.embed(["a confidential sentence"])
    inner = Recording()
    async with CachedEmbedder(inner, path) as two:
        assert np.array_equal(await two.embed(["a confidential sentence"]), expected)
    assert inner.asked == []
    assert b"confidential" not in path.read_bytes()


async def test_nothing_is_opened_before_the_first_use(tmp_path):
    path = tmp_path / "cache.sqlite"
    async with CachedEmbedder(Recording(), path):
        assert not path.exists()


async def test_the_oldest_entries_go_first():
    inner = Recording()
    async with CachedEmbedder(inner, max_entries=3) as cached:
        for text in "abcd":
            await cached.embed([text])
        inner.asked.clear()
        await cached.embed(["b", "c", "d"])
        assert inner.asked == []
        await cached.embed(["a"])
        assert inner.asked == [(["a"], "query")]


async def test_more_texts_than_it_may_keep_are_still_embedded():
    async with CachedEmbedder(Recording(), max_entries=2) as cached:
        texts = [f"text {n}" for n in range(3_000)]
        assert np.array_equal(await cached.embed(texts), await HashingEmbedder(8).embed(texts))


async def test_what_was_embedded_before_a_failure_is_kept(tmp_path):
    class Failing(Recording):
        async def embed(self, texts, kind="query"):
            if len(self.asked) == 1:
                raise EmbeddingError("down", model=self.model)
            return await super().embed(texts, kind)

    texts = [f"text {n}" for n in range(1_500)]
    path = tmp_path / "cache.sqlite"
    async with CachedEmbedder(Failing(), path) as failing:
        with pytest.raises(EmbeddingError):
            await failing.embed(texts)
    inner = Recording()
    async with CachedEmbedder(inner, path) as cached:
        await cached.embed(texts)
    [(asked, _)] = inner.asked
    assert 0 < len(asked) < len(texts)


async def test_an_unusable_answer_is_not_kept():
    class Short(Recording):
        async def embed(self, texts, kind="query"):
            return (await super().embed(texts, kind))[1:]

    async with CachedEmbedder(Short()) as cached:
        for _ in range(2):
            with pytest.raises(EmbeddingError):
                await cached.embed(["a", "b"])
        assert len(cached.unwrap().asked) == 2


async def test_a_warm_cache_tells_the_dimension_without_the_model(tmp_path):
    path = tmp_path / "cache.sqlite"
    async with CachedEmbedder(Learning(), path) as one:
        assert one.dimension == 0
        await one.embed(["a"])
    inner = Learning()
    async with CachedEmbedder(inner, path) as two:
        await two.embed(["a"])
        assert two.dimension == 8
    assert inner.asked == []


async def test_preparing_asks_the_model_only_for_a_dimension_that_is_not_known():
    class Preparing(Learning):
        async def prepare(self):
            await self.embed(["probe"])

    async with CachedEmbedder(Preparing()) as cached:
        await cached.prepare()
        await cached.prepare()
        assert cached.dimension == 8
        assert len(cached.unwrap().asked) == 1


async def test_a_model_that_changed_its_dimension_is_asked_anew(tmp_path):
    path = tmp_path / "cache.sqlite"
    async with CachedEmbedder(Learning(8, model="m"), path) as one:
        await one.embed(["a", "b"])
    async with CachedEmbedder(Learning(16, model="m"), path) as two:
        assert (await two.embed(["a", "c"])).shape == (2, 16)
        assert (await two.embed(["b", "a"])).shape == (2, 16)


async def test_concurrent_tasks_share_it(cached):
    texts = [f"text {n}" for n in range(40)]
    rows = await asyncio.gather(*(cached.embed(texts[n : n + 20]) for n in range(20)))
    expected = await HashingEmbedder(8).embed(texts)
    for n, some in enumerate(rows):
        assert np.array_equal(some, expected[n : n + 20])


def _fill_one(path):
    with ThreadPoolExecutor(1) as thread:  # with a loop of its own
        thread.submit(lambda: asyncio.run(_embedded(path, ["a"]))).result()


async def _embedded(path, texts):
    async with CachedEmbedder(HashingEmbedder(8), path) as cached:
        await cached.embed(texts)


def _fill(path, offset):
    async def fill():
        async with CachedEmbedder(HashingEmbedder(8), path) as cached:
            for n in range(20):
                await cached.embed([f"text {offset + n}"])

    asyncio.run(fill())


async def test_processes_share_a_file(tmp_path):
    path = tmp_path / "cache.sqlite"
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        works = [pool.submit(_fill, path, offset) for offset in (0, 10)]
        await asyncio.gather(*map(asyncio.wrap_future, works))
    inner = Recording()
    async with CachedEmbedder(inner, path) as cached:
        await cached.embed([f"text {n}" for n in range(30)])
    assert inner.asked == []


async def test_a_file_that_another_process_makes_at_the_same_moment_is_ours(tmp_path, monkeypatch):
    path = tmp_path / "cache.sqlite"
    real = sqlite3.connect

    class Overtaken(sqlite3.Connection):
        statements = 0

        def execute(self, *args):
            self.statements += 1
            if self.statements == 2:  # between any two the other one may come
                monkeypatch.setattr(sqlite3, "connect", real)
                _fill_one(path)
            return super().execute(*args)

    def connect(*args, **kwargs):
        return real(*args, factory=Overtaken, **kwargs)

    monkeypatch.setattr(sqlite3, "connect", connect)
    inner = Recording()
    async with CachedEmbedder(inner, path) as cached:
        await cached.embed(["a", "b"])
    assert [texts for texts, _ in inner.asked] == [["b"]]


@pytest.mark.parametrize("content", [b"this is no database, " * 200, b"x"])
async def test_a_file_of_another_kind_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    async with CachedEmbedder(Recording(), path) as cached:
        with pytest.raises(NotAStore):
            await cached.embed(["a"])
    assert path.read_bytes() == content


async def test_a_database_of_somebody_else_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "other.sqlite"
    other = sqlite3.connect(path)
    other.execute("create table vectors (x)")
    other.close()
    before = path.read_bytes()
    async with CachedEmbedder(Recording(), path) as cached:
        with pytest.raises(NotAStore):
            await cached.embed(["a"])
    assert path.read_bytes() == before


@pytest.mark.parametrize("vector", [b"", b"abc", b"\0" * 32, np.full(8, np.nan, "<f4").tobytes()])
async def test_a_damaged_vector_is_a_typed_error(tmp_path, vector):
    path = tmp_path / "cache.sqlite"
    async with CachedEmbedder(Recording(), path) as cached:
        await cached.embed(["a"])
        with sqlite3.connect(path) as other:
            other.execute("update vectors set vector = ?", [vector])
        other.close()
        with pytest.raises(StoreUnavailable, match="damaged"):
            await cached.embed(["a"])


async def test_a_damaged_file_is_a_typed_error(tmp_path):
    path = tmp_path / "cache.sqlite"
    async with CachedEmbedder(Recording(), path) as cached:
        await cached.embed([f"text {n}" for n in range(2_000)])
    data = bytearray(path.read_bytes())
    data[4096:] = b"\x55" * (len(data) - 4096)
    path.write_bytes(data)
    async with CachedEmbedder(Recording(), path) as cached:
        with pytest.raises(StoreUnavailable, match="damaged") as caught:
            await cached.embed(["text 3"])
    assert not caught.value.retryable


async def test_a_file_that_cannot_be_opened_is_a_typed_error(tmp_path):
    async with CachedEmbedder(Recording(), tmp_path / "absent" / "cache.sqlite") as cached:
        with pytest.raises(StoreUnavailable):
            await cached.embed(["a"])


async def test_a_busy_file_is_a_retryable_error(tmp_path, monkeypatch):
    monkeypatch.setattr("ragchat_retrieval.embedders.vectorfile._BUSY_SECONDS", 0.01)
    path = tmp_path / "cache.sqlite"
    async with CachedEmbedder(Recording(), path) as cached:
        await cached.embed(["a"])
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("begin immediate")
        with pytest.raises(StoreUnavailable) as caught:
            await cached.embed(["b"])
        other.close()
        assert caught.value.retryable
        assert (await cached.embed(["b"])).any()


async def test_use_after_closing_is_a_typed_error(cached):
    await cached.embed(["a"])
    await cached.aclose()
    await cached.aclose()
    with pytest.raises(StoreClosed):
        await cached.embed(["a"])


def test_an_empty_cache_is_refused():
    with pytest.raises(InvalidSetting):
        CachedEmbedder(Recording(), max_entries=0)


async def test_the_window_of_the_inner_embedder_shows_through():
    class Windowed(Recording):
        max_tokens = 7

        def legibility(self, text):
            return text == "a"

        def count_tokens(self, text):
            return len(text.split())

    cached = CachedEmbedder(Windowed())
    assert (cached.max_tokens, cached.count_tokens("a b")) == (7, 2)
    assert (cached.legibility("a"), cached.legibility("b")) == (True, False)
    assert getattr(CachedEmbedder(Recording()), "max_tokens", None) is None
    with pytest.raises(AttributeError):
        _ = cached.asked


async def test_a_text_at_fault_is_counted_among_all_texts_also_among_known_ones():
    class Refusing(Recording):
        async def embed(self, texts, kind="query"):
            rows = await super().embed(texts, kind)
            rows[np.array(texts) == "bad"] = np.nan
            return rows

    async with CachedEmbedder(Refusing()) as embedder:
        await embedder.embed(["a", "b"])
        with pytest.raises(EmbeddingError, match="non-finite") as caught:
            await embedder.embed(["a", " ", "new", "b", "new", "bad", "c"])
    assert caught.value.position == 5
