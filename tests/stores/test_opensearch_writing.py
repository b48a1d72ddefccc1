"""What the store writes into OpenSearch, and what becomes of it when a writer is cut off."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat_retrieval.errors import StoreUnavailable
from ragchat_retrieval.stores.manifest import Row
from ragchat_retrieval.stores.opensearch.documents import VECTOR, row_document
from ragchat_retrieval.stores.shadow import EVERYTHING
from ragchat_retrieval.testing.store_suite_kit import put, revision

if TYPE_CHECKING:
    from collections.abc import Callable

    from ragchat_retrieval.stores.opensearch import OpenSearchStore

    Open = Callable[..., OpenSearchStore]


async def test_rows_that_no_search_has_seen_are_swept(
    open_opensearch: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a writer wrote before it was cut off, the next write removes, refreshed or not."""
    store = open_opensearch()
    await put(store, revision("a", "one"))
    engine = store._shared.engine
    state = await engine.state(store.corpus_name)
    rows, refresh = engine._rows(state), engine._refresh

    async def cut_off(alias: str) -> None:
        if alias == rows:
            raise StoreUnavailable(store=store.name)
        await refresh(alias)

    with monkeypatch.context() as patch:
        patch.setattr(engine, "_refresh", cut_off)
        with pytest.raises(StoreUnavailable):
            await put(store, revision("a", "two"))
    await put(store, revision("b", "three"))
    await refresh(rows)
    found = await engine.rows(state, EVERYTHING, passages=True)
    assert sorted(row.passage.text for row in found) == ["one", "three"]


@given(
    numbers=st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=8),
    size=st.floats(2**-30, 2**30),
)
def test_vectors_are_searched_for_in_nine_digits(numbers: list[float], size: float) -> None:
    """No number is off by more than half of the ninth digit of the largest, nor written longer."""
    vector = (np.array([*numbers, 1.0]) * size).astype(np.float32)
    passage = revision("a", "one").passages[0]
    row = Row(passage_id=passage.id, document_id="a", stamp=1, passage=passage, vector=vector)
    written = np.array(row_document(row)[VECTOR])
    assert np.abs(written - vector).max() <= 5.001e-9 * np.abs(vector).max()
    digits = [
        repr(number).split("e")[0].replace(".", "").strip("-0") for number in written.tolist()
    ]
    assert max(map(len, digits)) <= len("123456789")
