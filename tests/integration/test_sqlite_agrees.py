"""The embedded store and the store in memory give exactly equal answers."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragchat_retrieval.filters import Eq, Exists, Filter, Gt, In, Ne, NotExists
from ragchat_retrieval.ports import Identity
from ragchat_retrieval.stores.memory import MemoryStore
from ragchat_retrieval.stores.sqlite import SQLiteStore
from ragchat_retrieval.testing.store_suite_kit import (
    ALL,
    IDENTITY,
    axis,
    by_vector,
    by_words,
    contents,
    put,
    revision,
    terms_of,
    vector_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ragchat_retrieval.ports import Store

WORDS = ("valve", "pump", "boiler", "leak", "red", "喝茶", "ERR-4041", "the", "of", "x" * 40)
FILTERS = (
    ALL,
    Filter(Eq("team", "red")),
    Filter(Ne("team", "red"), Gt("year", 2020)),
    Filter(In("year", [2019, 2021, 2023.0])),
    Filter(NotExists("team")),
    Filter(Exists("source"), Eq("document_id", "d3")),
)

texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join)
labels = st.fixed_dictionaries(
    {},
    optional={
        "team": st.sampled_from(["red", "blue", None]),
        "year": st.integers(2018, 2024) | st.just(2021.0),
    },
)
writes = st.builds(
    lambda number, passages, metadata, source: revision(
        f"d{number}", *passages, metadata=metadata, source=source
    ),
    st.integers(0, 9),
    st.lists(texts, max_size=4),
    labels,
    st.sampled_from([None, "a.md", "b.md"]),
)
steps = st.lists(
    st.one_of(
        st.lists(writes, min_size=1, max_size=4, unique_by=lambda r: r.document.id),
        st.sets(st.integers(0, 9).map("d{}".format), max_size=3),
        st.sampled_from(["a.md", "b.md"]),
        st.just(None),
    ),
    min_size=1,
    max_size=8,
)


async def answers(store: Store) -> list[object]:
    """What both lanes say under every filter, and what the corpus holds."""
    found: list[object] = []
    ids = await store.ids(scope=ALL)
    for chosen in FILTERS:
        for words in ("valve", "pump red the", "ERR-4041 喝茶 of", "x" * 40):
            found.append(await by_words(store, words, 7, filter=chosen))
            found.append(dict(await store.score_text(terms_of(words), ids, scope=chosen)))
        for vector in (axis(0), -vector_of("valve pump")):
            found.append(await by_vector(store, vector, 7, filter=chosen))
            found.append(dict(await store.score_vector(vector, ids, scope=chosen)))
        found.append(await store.count(scope=chosen))
        found.append([*await store.document_ids(scope=chosen)])
    return [*found, await contents(store) | {"revision": None}]


async def apply(store: Store, step: object) -> None:
    """Takes one step: a write, a removal by id or by source; None is taken elsewhere."""
    if isinstance(step, list):
        await put(store, *step)
    elif isinstance(step, set):
        await store.delete(sorted(step), scope=ALL)
    elif isinstance(step, str):
        await store.delete_by_source(step, scope=ALL)


@settings(max_examples=40)
@given(taken=steps)
async def test_any_history_leads_to_equal_answers(
    tmp_path_factory: pytest.TempPathFactory, taken: Sequence[object]
) -> None:
    """After any writes, with the file reopened in between, ids and scores are equal to the bit."""
    path = tmp_path_factory.mktemp("kb") / "kb.sqlite"
    memory, sqlite = MemoryStore(), SQLiteStore(path)
    for step in taken:
        if step is None:
            await sqlite.aclose()
            sqlite = SQLiteStore(path)
        await apply(memory, step)
        await apply(sqlite, step)
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
