"""The store in PostgreSQL and the store in memory give exactly equal answers."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragchat_retrieval.filters import Eq, Exists, Filter, Gt, In, Lte, Ne, NotExists
from ragchat_retrieval.ports import Identity
from ragchat_retrieval.stores.memory import MemoryStore
from ragchat_retrieval.stores.postgres import PostgresStore
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

    from ragchat_retrieval.ports import Store

NOON = "2024-03-01T12:00:00Z"
WORDS = ("valve", "pump", "boiler", "leak", "red", "喝茶", "ERR-4041", "the", "of", "x" * 40)
FILTERS = (
    ALL,
    Filter(Eq("team", "red")),
    Filter(Ne("team", "red"), Gt("year", 2020)),
    Filter(In("year", [2019, 2021, 2023.0, "x", None])),
    Filter(NotExists("team")),
    Filter(Exists("source"), Eq("document_id", "d3")),
    Filter(Lte("at", "2024-03-01T13:00:00+01:00")),
    Filter(In("year", range(1900, 2020))),
)

texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join)
labels = st.fixed_dictionaries(
    {},
    optional={
        "team": st.sampled_from(["red", "blue", None, ["red"], True]),
        "year": st.integers(2018, 2024) | st.sampled_from([2021.0, "2021", 1e300, 0.1]),
        "at": st.sampled_from([NOON, "2024-03-01T12:00:00.5Z", "2024-03-01", 3]),
    },
)
writes = st.builds(
    lambda number, passages, metadata, source, embedded: revision(
        f"d{number}", *passages, metadata=metadata, source=source, embedded=embedded
    ),
    st.integers(0, 9),
    st.lists(texts, max_size=4),
    labels,
    st.sampled_from([None, "a.md", "b.md"]),
    st.booleans(),
)
steps = st.lists(
    st.one_of(
        st.lists(writes, min_size=1, max_size=4, unique_by=lambda r: r.document.id),
        st.sets(st.integers(0, 9).map("d{}".format), max_size=3),
        st.sampled_from(["a.md", "b.md"]),
        st.none(),
    ),
    min_size=1,
    max_size=6,
)
schemas = itertools.count(1)


async def answers(store: Store) -> list[object]:
    """What both lanes say under every filter, and what the corpus holds."""
    found: list[object] = []
    ids = await store.ids(scope=ALL)
    for chosen in FILTERS:
        for words in ("valve", "pump red the", "ERR-4041 喝茶 of", " ".join(WORDS)):
            found.append(await by_words(store, words, 7, filter=chosen))
            found.append(dict(await store.score_text(terms_of(words), ids, scope=chosen)))
        for vector in (axis(0), -vector_of("valve pump")):
            found.append(await by_vector(store, vector, 7, filter=chosen))
            found.append(dict(await store.score_vector(vector, ids, scope=chosen)))
        found.append(await store.count(scope=chosen))
        found.append([*await store.document_ids(scope=chosen)])
    return [*found, await contents(store)]


async def apply(store: Store, step: object) -> None:
    """Takes one step: a write, a removal by id or by source, a repair."""
    if isinstance(step, list):
        await put(store, *step)
    elif isinstance(step, set):
        await store.delete(sorted(step), scope=ALL)
    elif isinstance(step, str):
        await store.delete_by_source(step, scope=ALL)
    else:
        await store.repair()


@settings(max_examples=15)
@given(taken=steps, exact_up_to=st.sampled_from([0, 20_000]))
async def test_any_history_leads_to_equal_answers(
    postgres_url: str, taken: Sequence[object], exact_up_to: int
) -> None:
    """After any writes, ids and scores are equal to the bit, by comparing all and by the index."""
    memory = MemoryStore()
    schema = f"agrees_{next(schemas)}"
    postgres = PostgresStore(postgres_url, schema=schema, exact_up_to=exact_up_to)
    for step in taken:
        await apply(memory, step)
        await apply(postgres, step)
    assert await answers(postgres) == await answers(memory)
    await postgres.aclose()


@pytest.mark.parametrize(("dimension", "exact_up_to"), [(384, 20_000), (100, 500), (2500, 100)])
async def test_a_larger_corpus_gives_equal_scores(
    postgres_url: str, postgres_schema: str, dimension: int, exact_up_to: int
) -> None:
    """Hundreds of passages written in pieces give the same bits; the index finds nearly all."""
    identity = Identity(analyzer=IDENTITY.analyzer, model="large", dimension=dimension)
    chance = random.Random(dimension)  # noqa: S311 - makes texts
    drawn = np.random.default_rng(dimension).normal(size=(900, dimension)).astype(np.float32)
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    words = [f"w{n}" for n in range(200)]
    documents = [
        revision(
            f"d{n}",
            *(" ".join(chance.choices(words, k=30)) for _ in range(3)),
            vectors=drawn[3 * n : 3 * n + 3],
            metadata={"n": n % 10, "half": n % 2},
        )
        for n in range(300)
    ]
    memory = MemoryStore()
    postgres = PostgresStore(postgres_url, schema=postgres_schema, exact_up_to=exact_up_to)
    await put(memory, *documents[::-1], identity=identity)
    for start in range(0, 300, 70):
        await put(postgres, *documents[start : start + 70], identity=identity)
    await put(postgres, *documents[40:60], identity=identity)
    patient = PostgresStore(postgres_url, schema=postgres_schema, exact_up_to=10**6)
    found = wanted = 0
    for n in range(8):
        text, vector = " ".join(words[n * 5 : n * 5 + 4]), drawn[n * 7]
        for only in (ALL, Filter(Eq("n", n % 10)), Filter(Eq("half", 1))):
            expected = await by_words(memory, text, 50, filter=only)
            assert await by_words(postgres, text, 50, filter=only) == expected
            near = await by_vector(postgres, vector, 50, filter=only)
            exact = await by_vector(memory, vector, 50, filter=only)
            assert len(near) == len(exact)
            assert await by_vector(patient, vector, 50, filter=only) == exact
            found += len(set(near) & set(exact))
            wanted += len(exact)
            ids = [hit.passage_id for hit in expected + exact]
            for scored in ("score_text", "score_vector"):
                query = terms_of(text) if scored == "score_text" else vector
                mine = await getattr(postgres, scored)(query, ids, scope=only)
                assert dict(mine) == dict(await getattr(memory, scored)(query, ids, scope=only))
    # Nothing is approximate below the threshold, and little is above it.
    assert found / wanted >= (1.0 if exact_up_to > len(drawn) else 0.95)
    await postgres.aclose()
    await patient.aclose()
