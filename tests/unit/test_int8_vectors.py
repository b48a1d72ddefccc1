"""Vectors in eight bits inside the engine and the memory store."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragchat_retrieval.engine.columns import Mask
from ragchat_retrieval.engine.matrix import BLOCK, MatrixWriter, empty_matrix
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.filters import Filter
from ragchat_retrieval.index import HybridIndex
from ragchat_retrieval.quantization import quantize
from ragchat_retrieval.stores.memory import MemoryStore
from ragchat_retrieval.values import Document, Passage, Revision

ALL = Filter()


def unit(count: int, dimension: int, seed: int = 0):
    rows = np.random.default_rng(seed).normal(size=(count, dimension)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def filled(*batches):
    matrix = empty_matrix(quantized=True)
    writer = MatrixWriter(matrix)
    for size, batch in batches:
        matrix = writer.appended(matrix, size, batch, None)
    return matrix


@pytest.mark.parametrize("share", [None, 0.5, 0.01])
def test_what_is_found_is_exact_for_the_vectors_as_they_are_kept(share):
    """Over several blocks, with rows without vectors, masks narrow and wide."""
    rows = unit(3000, 24)
    batches = [(700, rows[:700]), (50, None), (2300, rows[700:])]
    matrix = filled(*batches)
    restored = quantize(rows).restored()
    flags = None if share is None else np.random.default_rng(1).random(3050) < share
    allowed = np.ones(3000, np.bool_) if flags is None else flags[matrix.rows]
    for query in unit(5, 24, seed=2):
        exact = (restored.astype(np.float64) * query.astype(np.float64)).sum(axis=1)
        best = np.sort(exact[allowed])[::-1][:10]
        mask = None if flags is None else Mask(flags)
        [(found, scores)] = matrix.search(query[None], 10, mask)
        order = np.argsort(-scores)[: len(best)]
        assert scores[order].tolist() == best.tolist()
        assert all(flags is None or flags[row] for row in found)


@given(st.integers(1, 9), st.integers(0, 1000))
@settings(max_examples=40)
def test_equal_vectors_have_equal_scores_wherever_they_stand(dimension, seed):
    rows = unit(40, dimension, seed)
    twice = np.concatenate([rows, rows[::-1]])
    matrix = filled((80, twice))
    [(found, scores)] = matrix.search(unit(1, dimension, seed + 1), 80, None)
    by_row = dict(zip(found.tolist(), scores.tolist(), strict=True))
    assert [by_row[n] for n in range(40)] == [by_row[79 - n] for n in range(40)]


def test_a_quarter_of_the_memory_is_kept_also_after_compaction():
    rows = unit(BLOCK + 100, 64)
    matrix = filled((100, rows[:100]), (BLOCK, rows[100:]))
    compact = MatrixWriter.compacted(matrix, np.arange(0, BLOCK + 100, 2))
    for each, count in [(matrix, BLOCK + 100), (compact, BLOCK // 2 + 50)]:
        assert all(block.dtype == np.int8 for block in each.blocks)
        assert sum(map(len, each.blocks)) == len(each.scales) == count
    even = np.arange(0, BLOCK + 100, 2)
    assert np.array_equal(compact.take(np.arange(len(even))), matrix.take(even))


def test_an_earlier_state_stays_as_it_was():
    rows = unit(300, 8)
    matrix = empty_matrix(quantized=True)
    writer = MatrixWriter(matrix)
    first = writer.appended(matrix, 100, rows[:100], None)
    before = first.take(np.arange(100))
    second = writer.appended(first, 200, rows[100:], None)
    assert np.array_equal(first.take(np.arange(100)), before)
    assert np.array_equal(second.take(np.arange(100)), before)
    assert len(first.scales) == 100


async def test_every_corpus_of_the_store_is_kept_so_and_reset_changes_nothing():
    store = MemoryStore(vectors="int8")
    rows = unit(1, 16)
    for handle in (store, store.corpus("other")):
        index = HybridIndex(handle)
        for _ in range(2):
            passage = Passage("tea", document_id="a")
            await index.replace(
                Revision(document=Document("a", "tea"), passages=(passage,), vectors=rows)
            )
            [kept] = (await handle.vectors([passage.id], scope=ALL)).values()
            assert np.array_equal(kept, quantize(rows).restored()[0])
            await index.reset()


@pytest.mark.parametrize("word", ["int4", "", None, "hnsw"])
def test_another_way_of_keeping_vectors_is_refused(word):
    with pytest.raises(InvalidSetting, match="vectors"):
        MemoryStore(vectors=word)
