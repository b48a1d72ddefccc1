"""The embedded store and the store in memory give exactly equal answers."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings

from ragchat_retrieval.filters import Eq, Filter
from ragchat_retrieval.ports import Identity
from ragchat_retrieval.stores.memory import MemoryStore
from ragchat_retrieval.stores.sqlite import SQLiteStore
from ragchat_retrieval.testing.store_histories import answers, histories, take
from ragchat_retrieval.testing.store_suite_kit import (
    ALL,
    IDENTITY,
    by_vector,
    by_words,
    put,
    revision,
    terms_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ragchat_retrieval.ports import Store
    from ragchat_retrieval.testing.store_histories import Step


@settings(max_examples=40)
@given(taken=histories)
async def test_any_history_leads_to_equal_answers(
    tmp_path_factory: pytest.TempPathFactory, taken: Sequence[Step]
) -> None:
    """After any writes, with the file reopened in between, ids and scores are equal to the bit."""
    path = tmp_path_factory.mktemp("kb") / "kb.sqlite"
    memory, sqlite = MemoryStore(), SQLiteStore(path)
    for step in taken:
        if step is None:
            await sqlite.aclose()
            sqlite = SQLiteStore(path)
        await take(memory, step)
        await take(sqlite, step)
    expected = await answers(memory)
    assert await answers(sqlite) == expected
    await sqlite.aclose()
    reopened = SQLiteStore(path, read_only=True)
    assert await answers(reopened) == expected
    await reopened.aclose()


@pytest.mark.parametrize("dimension", [8, 100, 384])
async def test_a_larger_corpus_gives_equal_scores(tmp_path: Path, dimension: int) -> None:
    """Thousands of passages written in pieces give the same bits from memory, disk and anew."""
    identity = Identity(analyzer=IDENTITY.analyzer, model="large", dimension=dimension)
    chance = random.Random(dimension)  # noqa: S311 - makes texts
    drawn = np.random.default_rng(dimension).normal(size=(3000, dimension)).astype(np.float32)
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    words = [f"w{n}" for n in range(400)]
    documents = [
        revision(
            f"d{n}",
            *(" ".join(chance.choices(words, k=30)) for _ in range(3)),
            vectors=drawn[3 * n : 3 * n + 3],
            metadata={"n": n % 10},
        )
        for n in range(1000)
    ]
    path = tmp_path / "kb.sqlite"
    memory, sqlite = MemoryStore(), SQLiteStore(path)
    await put(memory, *documents[::-1], identity=identity)
    for start in range(0, 1000, 130):
        await put(sqlite, *documents[start : start + 130], identity=identity)
    await put(sqlite, *documents[40:60], identity=identity)

    async def lanes(store: Store) -> list[object]:
        found: list[object] = []
        for n in range(20):
            text, vector = " ".join(words[n * 5 : n * 5 + 4]), drawn[n * 7]
            only = Filter(Eq("n", n % 10))
            found += [await by_words(store, text, 50), await by_vector(store, vector, 50)]
            found += [await by_words(store, text, 50, filter=only)]
            found += [await by_vector(store, vector, 50, filter=only)]
            ids = [hit.passage_id for hit in await by_words(store, text, 40)]
            found += [dict(await store.score_vector(vector, ids, scope=ALL))]
            found += [dict(await store.score_text(terms_of(text), ids, scope=ALL))]
        return found

    expected = await lanes(memory)
    assert await lanes(sqlite) == expected
    await sqlite.aclose()
    reopened = SQLiteStore(path)
    assert await lanes(reopened) == expected
    await reopened.repair()
    assert await lanes(reopened) == expected
    await reopened.aclose()
