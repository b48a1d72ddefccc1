"""The hashing embedder is deterministic everywhere and finds shared words."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragchat_retrieval.embedders.hashing import HashingEmbedder, hashed_vector
from ragchat_retrieval.errors import InvalidSetting

SNIPPET = """
from ragchat_retrieval.embedders.hashing import hashed_vector
import hashlib
print(hashlib.sha256(hashed_vector("Größe of the Go build cache, 喝茶", 64).tobytes()).hexdigest())
"""


async def cosine(a, b, dimension=256):
    x, y = await HashingEmbedder(dimension).embed([a, b])
    return float(x @ y)


def test_model_and_dimension_are_named():
    embedder = HashingEmbedder(64)
    assert (embedder.model, embedder.dimension) == ("hashing-64", 64)
    assert HashingEmbedder().dimension == 256


@pytest.mark.parametrize("dimension", [0, -1])
def test_a_dimension_below_one_is_refused(dimension):
    with pytest.raises(InvalidSetting):
        HashingEmbedder(dimension)


@pytest.mark.parametrize("seed", ["0", "1"])
def test_every_process_computes_the_same_bits(seed):
    run = subprocess.run(
        [sys.executable, "-c", SNIPPET],
        env={"PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    here = hashed_vector("Größe of the Go build cache, 喝茶", 64).tobytes()
    assert run.stdout.strip() == hashlib.sha256(here).hexdigest()


def test_the_vector_of_one_letter_is_as_computed_by_hand():
    """A word counts 4, its only trigram 1, each in the slot and with the sign of its hash."""

    def place(feature):
        number = int.from_bytes(hashlib.blake2b(feature, digest_size=8).digest(), "little")
        return (number >> 1) % 1000, 1 if number & 1 else -1

    expected = np.zeros(1000)
    for feature, weight in ((b"a", 4), (b"^^^a$", 1)):
        slot, sign = place(feature)
        expected[slot] += sign * weight
    expected /= 17**0.5
    assert hashed_vector("A", 1000) == pytest.approx(expected)


async def test_shared_words_and_parts_of_words_mean_similarity():
    question = "where is the Go build cache?"
    near = await cosine(question, "The Go build cache lives in ~/Library/Caches/go-build.")
    far = await cosine(question, "Employees get 25 days of paid leave.")
    part = await cosine("caching", "cached")
    assert near > far + 0.2
    assert part > await cosine("caching", "leave") + 0.1


async def test_case_and_compatibility_forms_do_not_matter():
    assert await cosine("STRASSE \uff21\uff22\uff23", "straße abc") == pytest.approx(1.0)


@given(st.text(st.characters(exclude_categories=()), min_size=1), st.sampled_from([1, 2, 3, 256]))
@settings(max_examples=100, deadline=None)
def test_any_text_has_a_vector_of_length_one(text, dimension):
    vector = hashed_vector(text, dimension)
    assert vector.dtype == np.float32
    assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-6)


async def test_the_loop_is_free_while_many_texts_are_hashed(ticks_during):
    texts = [f"text number {n} " * 20 for n in range(200)]
    assert await ticks_during(HashingEmbedder().embed(texts)) > 1
