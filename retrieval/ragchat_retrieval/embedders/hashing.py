"""A deterministic embedder for tests and examples, by feature hashing."""

from __future__ import annotations

import asyncio
import functools
import math
import re
import unicodedata
from collections import Counter
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from ragchat_retrieval.embedders.checks import without_blanks
from ragchat_retrieval.errors import InvalidSetting

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.ports import EmbeddingKind

_WORD = re.compile(r"\w+")
_WORD_WEIGHT = 4
_GRAM = 3


class HashingEmbedder:
    """Hashes words and their character trigrams into signed slots.

    Texts that share words, or parts of words, are similar; meaning plays no part. It needs no
    model, key or network, and gives the same vectors in every process and on every platform. It is
    for examples and tests and is **no production model**: use `LocalEmbedder` or a served model.

    The method is signed feature hashing (Weinberger et al. 2009, "Feature Hashing for Large Scale
    Multitask Learning"): a word counts 4, each trigram of the word between two boundary marks 1,
    and n occurrences count as the bit length of n. Sums are whole numbers: no rounding differs.

    Args:
        dimension: Length of the vectors, 1 or more. Small ones collide often.

    Raises:
        InvalidSetting: The dimension is less than 1.
    """

    def __init__(self, dimension: int = 256) -> None:
        if dimension < 1:
            raise InvalidSetting("dimension", "must be 1 or more")
        self._dimension = dimension

    def __repr__(self) -> str:
        return f"HashingEmbedder({self._dimension})"

    @property
    def model(self) -> str:
        """``hashing-`` and the dimension."""
        return f"hashing-{self._dimension}"

    @property
    def dimension(self) -> int:
        """Length of its vectors."""
        return self._dimension

    async def embed(
        self,
        texts: Sequence[str],
        kind: EmbeddingKind = "query",  # noqa: ARG002 - queries and passages are hashed alike
    ) -> NDArray[np.float32]:
        """Returns float32 [len(texts), dimension], rows L2-normalised; zeros for blank texts."""
        return await without_blanks(texts, self._embed, dimension=lambda: self._dimension)

    async def _embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return await asyncio.to_thread(
            lambda: np.stack([hashed_vector(text, self._dimension) for text in texts])
        )


def hashed_vector(text: str, dimension: int) -> NDArray[np.float32]:
    """Returns the L2-normalised feature vector of a text, float32 [dimension]. Pure."""
    slots = np.zeros(dimension, dtype=np.int64)
    folded = unicodedata.normalize("NFKC", text).casefold()
    for word, times in Counter(_WORD.findall(folded)).items():
        for hashed, weight in _features(word):
            sign = 1 if hashed & 1 else -1
            slots[(hashed >> 1) % dimension] += sign * weight * times.bit_length()
    if not slots.any():
        # No word, or features that cancel out exactly: the text as a whole is the feature.
        slots[_hash(folded) % dimension] = 1
    length = math.sqrt(int(slots @ slots))
    return (slots / length).astype(np.float32)


@functools.lru_cache(maxsize=1 << 16)
def _features(word: str) -> tuple[tuple[int, int], ...]:
    features = Counter({_hash(word): _WORD_WEIGHT})
    features.update(_hash(gram) for gram in _grams(f"^{word}$"))
    return tuple(features.items())


def _grams(marked: str) -> Iterator[str]:
    # The boundary marks cannot occur in a word, so no trigram is mistaken for a whole word.
    yield from (f"^^{marked[i : i + _GRAM]}" for i in range(len(marked) - _GRAM + 1))


def _hash(feature: str) -> int:
    data = feature.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")
