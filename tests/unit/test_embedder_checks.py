"""What any embedder answers is checked in one place."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ragchat_retrieval.embedders.checks import checked_rows, embed_checked, known_dimension
from ragchat_retrieval.errors import EmbeddingError, InvalidSetting, MissingExtra


class Answering:
    """An embedder that gives one fixed answer and records what it was sent."""

    model = "double"

    def __init__(self, answer, dimension=2):
        self.answer = answer
        self.dimension = dimension
        self.sent = []

    async def embed(self, texts, kind="query"):
        self.sent.append((list(texts), kind))
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


UNUSABLE = {
    "fewer vectors": ([[1, 0]], "1 vectors for 2 texts"),
    "more vectors": ([[1, 0]] * 3, "3 vectors for 2 texts"),
    "none": (None, "0 vectors"),
    "one flat vector": ([1.0, 0.0], "one vector a text"),
    "empty vectors": ([[], []], "one vector a text"),
    "another dimension": ([[1, 0, 0]] * 2, "3 numbers, not 2"),
    "different lengths": ([[1, 0], [1]], "different lengths"),
    "words": ([["1", "0"]] * 2, "no numbers"),
    "booleans": ([[True, False]] * 2, "no numbers"),
    "null values": ([[None, 1.0]] * 2, "no numbers"),
    "objects": ([[{}, 1.0]] * 2, "no numbers"),
}


@pytest.mark.parametrize("case", UNUSABLE)
async def test_an_unusable_answer_is_a_typed_error(case):
    answer, problem = UNUSABLE[case]
    with pytest.raises(EmbeddingError, match=problem) as caught:
        await embed_checked(Answering(answer), ["a", "b"])
    assert caught.value.model == "double"


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
async def test_a_non_finite_value_names_the_position_among_all_texts(bad):
    with pytest.raises(EmbeddingError, match="non-finite") as caught:
        await embed_checked(Answering([[1, 0], [bad, 0]]), ["a", " ", "b"])
    assert caught.value.position == 2


@pytest.mark.parametrize("position", [-1, 2, 10**9, "1", 0.5, True, [0]])
async def test_an_embedder_that_names_no_text_of_its_call_keeps_its_error_without_a_position(
    position,
):
    failure = EmbeddingError("busy", model="theirs", position=position, retryable=True)
    with pytest.raises(EmbeddingError, match="busy") as caught:
        await embed_checked(Answering(failure), ["a", " ", "b"])
    assert caught.value is failure
    assert caught.value.position is None
    assert caught.value.retryable


async def test_the_position_of_an_embedders_own_error_counts_among_all_texts():
    failure = EmbeddingError("too long", model="theirs", position=1)
    with pytest.raises(EmbeddingError, match="too long") as caught:
        await embed_checked(Answering(failure), ["a", " ", "b"])
    assert caught.value.position == 2


async def test_a_zero_vector_of_a_real_text_is_refused():
    with pytest.raises(EmbeddingError, match="zero vector") as caught:
        await embed_checked(Answering([[0, 0]]), ["", "a"])
    assert caught.value.position == 1


async def test_blank_texts_are_not_sent_and_keep_their_slot():
    embedder = Answering([[3, 4], [0, 2]])
    rows = await embed_checked(embedder, ["", "a", "  \n", "b"], "passage")
    assert embedder.sent == [(["a", "b"], "passage")]
    assert rows.tolist() == [[0, 0], [np.float32(0.6), np.float32(0.8)], [0, 0], [0, 1]]
    assert rows.dtype == np.float32


async def test_only_blanks_ask_nothing():
    embedder = Answering(None)
    assert (await embed_checked(embedder, ["", " "])).tolist() == [[0, 0], [0, 0]]
    assert (await embed_checked(embedder, [])).shape == (0, 2)
    assert embedder.sent == []


async def test_one_string_is_not_a_sequence_of_texts():
    with pytest.raises(InvalidSetting):
        await embed_checked(Answering(None), "abc")


async def test_a_sync_embedder_runs_in_a_worker_thread():
    class Sync:
        model, dimension = "sync", 2

        def embed(self, texts, kind="query"):
            with pytest.raises(RuntimeError):
                asyncio.get_running_loop()
            return [[1, 0]] * len(texts)

    assert (await embed_checked(Sync(), ["a"])).tolist() == [[1, 0]]


async def test_a_foreign_failure_becomes_ours_with_its_cause_and_without_its_words():
    failure = KeyError("secret text")
    with pytest.raises(EmbeddingError) as caught:
        await embed_checked(Answering(failure), ["a"])
    assert caught.value.__cause__ is failure
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "failure",
    [MissingExtra("local", "x"), asyncio.CancelledError(), EmbeddingError("x", model="m")],
)
async def test_our_errors_and_cancellation_pass_unchanged(failure):
    with pytest.raises(type(failure)) as caught:
        await embed_checked(Answering(failure), ["a"])
    assert caught.value is failure


def test_rows_of_length_one_keep_their_bits():
    rows = np.array([[0.6, 0.8], [1.0, 1e-9]], dtype=np.float32)
    for answer in (rows, rows.astype(np.float64), rows.tolist()):
        assert checked_rows(answer, count=2, dimension=2, model="m").tobytes() == rows.tobytes()


@given(
    hnp.arrays(
        np.float64,
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=5),
        elements=st.floats(allow_nan=False, allow_infinity=False),
    ).filter(lambda a: a.any(axis=1).all())
)
@settings(max_examples=100, deadline=None)
def test_any_finite_rows_come_back_with_length_one_and_their_direction(rows):
    checked = checked_rows(rows, count=len(rows), dimension=0, model="m")
    assert np.linalg.norm(checked.astype(float), axis=1) == pytest.approx(
        np.ones(len(rows)), abs=2e-5
    )
    largest = np.abs(rows).argmax(axis=1)
    here = np.arange(len(rows))
    assert (np.sign(checked[here, largest]) == np.sign(rows[here, largest])).all()


async def test_a_dimension_is_learned_once_by_preparing():
    class Learning(Answering):
        async def prepare(self):
            self.dimension = 7

    assert await known_dimension(Learning(None, dimension=0)) == 7
    assert await known_dimension(Answering(None, dimension=3)) == 3


async def test_an_embedder_without_any_dimension_is_an_error():
    with pytest.raises(EmbeddingError, match="no dimension"):
        await known_dimension(Answering(None, dimension=0))
