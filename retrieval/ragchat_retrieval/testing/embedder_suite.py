"""The contract of embedders as a test suite: an adapter overrides one fixture.

    class TestMyEmbedder(EmbedderContract):
        @pytest.fixture
        def embedder(self):
            return MyEmbedder()

The tests are coroutines and need pytest-asyncio in auto mode.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pytest

from ragchat_retrieval.embedders.checks import embed_checked, known_dimension

if TYPE_CHECKING:
    from ragchat_retrieval.ports import Embedder, EmbeddingKind

TEXTS = (
    "The Go build cache lives in a folder of its own.",
    "Employees get 25 days of paid leave.",
    "喝茶 is what they do at four, naïvely.",
    "x",
)

ODD_TEXTS = (
    "?!",
    "\x00 and \x1b",
    "a lone \ud800 surrogate",
    "👩‍🔬🇵🇱 e\u0301",
    "<|endoftext|> [SEP] {{ x }}",
    "word " * 20_000,
    "unbroken" * 5_000,
)


class EmbedderContract:
    """What every embedder promises."""

    exact: ClassVar[bool] = True
    """Whether equal texts have the same bits; a served model may differ in the last digits."""

    @pytest.fixture
    def embedder(self) -> Embedder:
        """Gives the embedder under test, fresh for each test."""
        pytest.fail("override the fixture embedder")

    async def test_it_names_its_model(self, embedder: Embedder) -> None:
        """The model has a name that is not blank."""
        assert embedder.model.strip()

    async def test_it_gives_one_normalised_row_a_text(self, embedder: Embedder) -> None:
        """Vectors are float32 rows of length 1, in the dimension that the embedder tells."""
        rows = await embedder.embed(TEXTS, "passage")
        assert rows.dtype == np.float32
        assert rows.shape == (len(TEXTS), embedder.dimension)
        assert np.abs(np.linalg.norm(rows, axis=1) - 1).max() < 1e-4  # noqa: PLR2004 - tolerance

    async def test_its_dimension_can_be_known_before_the_first_text(
        self, embedder: Embedder
    ) -> None:
        """The dimension is told, or learned by preparing, and does not change."""
        dimension = await known_dimension(embedder)
        rows = await embedder.embed(TEXTS[:1])
        assert rows.shape[1] == dimension == embedder.dimension

    async def test_no_text_gives_no_row(self, embedder: Embedder) -> None:
        """An empty call gives an empty matrix."""
        dimension = await known_dimension(embedder)
        assert (await embedder.embed([])).shape == (0, dimension)

    async def test_blank_texts_keep_their_slot(self, embedder: Embedder) -> None:
        """A blank text gives a row of zeros, and the others stay in their places."""
        plain = await embedder.embed(TEXTS[:2])
        mixed = await embedder.embed(["", TEXTS[0], " \n\t", TEXTS[1]])
        assert not mixed[[0, 2]].any()
        self.check_equal(mixed[[1, 3]], plain)

    async def test_only_blank_texts_are_zeros(self, embedder: Embedder) -> None:
        """A call with nothing but blanks gives zeros."""
        dimension = await known_dimension(embedder)
        rows = await embedder.embed(["", "  "])
        assert rows.shape == (2, dimension)
        assert not rows.any()

    async def test_a_vector_does_not_depend_on_its_company(self, embedder: Embedder) -> None:
        """A text has the same vector alone, among others, twice in a call and in any order."""
        together = await embedder.embed([*TEXTS, *reversed(TEXTS)])
        for place, text in enumerate(TEXTS):
            alone = (await embedder.embed([text]))[0]
            self.check_equal(together[place], alone)
            self.check_equal(together[-1 - place], alone)

    @pytest.mark.parametrize("kind", ["query", "passage"])
    async def test_both_kinds_are_embedded(self, embedder: Embedder, kind: EmbeddingKind) -> None:
        """Queries and passages can be embedded, each deterministically."""
        first, second = [await embedder.embed(TEXTS, kind) for _ in range(2)]
        self.check_equal(first, second)

    async def test_different_texts_differ(self, embedder: Embedder) -> None:
        """No two of the sample texts share a vector."""
        rows = await embedder.embed(TEXTS)
        cosines = rows @ rows.T
        assert cosines[~np.eye(len(TEXTS), dtype=bool)].max() < 0.999  # noqa: PLR2004 - tolerance

    @pytest.mark.parametrize("text", ODD_TEXTS, ids=range(len(ODD_TEXTS)))
    async def test_any_text_that_is_not_blank_has_a_vector(
        self, embedder: Embedder, text: str
    ) -> None:
        """Control characters, special tokens and very long texts pass all checks."""
        assert (await embed_checked(embedder, [text])).any()

    async def test_concurrent_calls_do_not_mix(self, embedder: Embedder) -> None:
        """Concurrent tasks get each their own rows."""
        expected = await embedder.embed(TEXTS)
        calls = [embedder.embed([TEXTS[n % len(TEXTS)]]) for n in range(12)]
        for n, rows in enumerate(await asyncio.gather(*calls)):
            self.check_equal(rows[0], expected[n % len(TEXTS)])

    def check_equal(self, one: np.ndarray, other: np.ndarray) -> None:
        """Asserts that vectors are equal, bit for bit where the embedder is exact."""
        if self.exact:
            assert np.array_equal(one, other)
        else:
            assert np.allclose(one, other, atol=1e-3)
