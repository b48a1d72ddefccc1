"""Rows on their way into a SQLite file."""

from __future__ import annotations

import sqlite3
import struct
from contextlib import closing
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat_retrieval.engine import Postings
from ragchat_retrieval.stores.sqlite import rows
from ragchat_retrieval.stores.sqlite.schema import BATCH

PAIRS = st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(1, 2**31 - 1)), max_size=4)


@pytest.mark.parametrize(
    "number", [0, 1, BATCH // 2 - 1, BATCH // 2, BATCH // 2 + 1, 2 * BATCH + 3]
)
def test_rows_go_in_however_many_there_are(number: int) -> None:
    given_rows = [(n, f"row {n}") for n in range(number)]
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT)")
        rows.insert_rows(connection, "t", 2, iter(given_rows))
        assert connection.execute("SELECT a, b FROM t").fetchall() == given_rows


@given(st.lists(PAIRS, max_size=9), st.integers(1, 3))
def test_terms_are_encoded_passage_by_passage_as_pairs_of_four_bytes(
    passages: list[list[tuple[int, int]]], together: int
) -> None:
    """Whether a passage has terms or none, and however many are encoded together."""
    flat = np.array([*chain.from_iterable(passages)], np.int32).reshape(-1, 2)
    lengths = np.array([*map(len, passages)], np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "_TOGETHER", together)
        encoded = list(map(bytes, rows.encoded_terms(Postings(lengths, flat[:, 0], flat[:, 1]))))
    assert encoded == [b"".join(struct.pack("<2i", *pair) for pair in each) for each in passages]
