"""Eight bits a number: bounded error, exact scales."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.quantization import quantize
from ragchat_retrieval.vectors import normalise

MATRICES = arrays(
    np.float32,
    array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=6),
    elements=st.floats(-1e6, 1e6, width=32, allow_subnormal=False),
)


@given(MATRICES)
def test_no_number_is_off_by_more_than_half_a_step(rows):
    made = quantize(rows)
    assert (made.codes.dtype, made.codes.shape, made.scales.shape) == (
        np.int8,
        rows.shape,
        rows.shape[:1],
    )
    error = np.abs(made.restored().astype(np.float64) - rows)
    assert (error <= made.scales[:, None] * 0.5001 + 1e-30).all()


def test_a_row_of_zeros_stays_one_and_signs_are_symmetric():
    rows = np.array([[0, 0, 0], [1, -1, 0.5]], dtype=np.float32)
    made = quantize(rows)
    assert made.codes.tolist() == [[0, 0, 0], [127, -127, 64]]
    assert made.scales[0] == 0.0


def test_similarities_are_those_of_the_restored_vectors_and_close_to_the_true_ones():
    random = np.random.default_rng(7)
    rows = normalise(random.normal(size=(200, 96)).astype(np.float32))
    made = quantize(rows)
    found = made.similarities(rows[3])
    assert np.allclose(found, made.restored() @ rows[3], atol=1e-5)
    assert np.abs(found - rows @ rows[3]).max() < 0.01
    assert int(found.argmax()) == 3


@pytest.mark.parametrize(
    "given_rows",
    [np.zeros(3), np.zeros((1, 2, 3)), np.array([[np.nan]]), np.array([[np.inf]])],
    ids=["vector", "cube", "nan", "infinity"],
)
def test_what_cannot_be_rounded_is_refused(given_rows):
    with pytest.raises(InvalidSetting):
        quantize(given_rows.astype(np.float32))
