"""Reading an engine's rows until the best of them are certain."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ragchat_retrieval.stores.deepening import deepened
from ragchat_retrieval.stores.manifest import Row

LOOSENESS = 2.0
"""How many times what the engine says an exact score may be."""

exact_scores = st.lists(st.sampled_from([0.1, 0.2, 0.25, 0.5, 0.5001, 1.0]), max_size=200)


def _row(n: int, score: float) -> Row:
    return Row(passage_id=f"p{n:05}", document_id="d", stamp=1, score=score)


class Engine:
    """Has rows with exact scores, and ranks them by scores of its own, which are lower."""

    def __init__(self, exact: list[float], said: list[float]) -> None:
        rows = [_row(n, score) for n, score in enumerate(exact)]
        self.ranked = sorted(zip(said, rows, strict=True), key=lambda pair: -pair[0])
        self.asked: list[int] = []

    async def read(self, n: int) -> tuple[list[Row], float | None]:
        self.asked.append(n)
        some = self.ranked[:n]
        return [row for _, row in some], some[-1][0] * LOOSENESS if len(some) == n else None


@given(exact=exact_scores, limit=st.integers(1, 30), data=st.data())
async def test_the_best_are_those_of_all_rows_however_the_engine_ranks(exact, limit, data):
    said = [score / data.draw(st.floats(1.0, LOOSENESS)) for score in exact]
    engine = Engine(exact, said)
    best = sorted((row for _, row in engine.ranked), key=lambda row: (-row.score, row.passage_id))
    assert await deepened(limit, engine.read) == best[:limit]


async def test_no_more_is_read_than_proves_the_best():
    exact = [1.0, *[0.4] * 500]
    assert len(await deepened(1, (engine := Engine(exact, exact)).read)) == 1
    assert engine.asked == [17]


async def test_where_nothing_is_proved_reading_ends():
    """Of ten thousand equals, any are as good, but for the ids."""
    engine = Engine([0.5] * 10_000, [0.5] * 10_000)
    assert len(await deepened(10, engine.read)) == 10
    assert engine.asked[-1] < 10_000
