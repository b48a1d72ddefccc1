"""The store in PostgreSQL and the store in memory give exactly equal answers."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragchat_retrieval.filters import Eq, Filter
from ragchat_retrieval.ports import Identity
from ragchat_retrieval.stores.memory import MemoryStore
from ragchat_retrieval.stores.postgres import PostgresStore
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

    from ragchat_retrieval.testing.store_histories import Step

schemas = itertools.count(1)


@settings(max_examples=15)
@given(taken=histories, exact_up_to=st.sampled_from([0, 20_000]))
async def test_any_history_leads_to_equal_answers(
    postgres_url: str, taken: Sequence[Step], exact_up_to: int
) -> None:
    """After any writes, ids and scores are equal to the bit, by comparing all and by the index."""
    memory = MemoryStore()
    schema = f"agrees_{next(schemas)}"
    postgres = PostgresStore(postgres_url, schema=schema, exact_up_to=exact_up_to)
    for step in taken:
        await take(memory, step)
        await take(postgres, step)
    assert await answers(postgres) == await answers(memory)
    assert await postgres.revision() == await memory.revision()
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
