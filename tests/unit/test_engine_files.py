"""A saved engine opens as it was, or says that it is damaged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ragchat_retrieval.engine import Batch, DamagedIndex, Engine, Postings, load, save
from ragchat_retrieval.filters import Eq, Exists, Filter, Gt, NotExists
from ragchat_retrieval.values import Passage

if TYPE_CHECKING:
    from pathlib import Path

DIMENSION = 16
STAMP = {"revision": 7, "uuid": "é"}
FILTERS = (
    Filter(Eq("group", 1)),
    Filter(Eq("name", "喝茶")),
    Filter(Gt("group", 1)),
    Filter(Exists("odd")),
    Filter(NotExists("odd")),
    Filter(Eq("document_id", "d3")),
    Filter(Eq("source", "s")),
    Filter(Eq("id", "p0005é")),
)


def batch(first: int, count: int, *, vectors: bool = True) -> Batch:
    """Makes passages with terms, labels, metadata and vectors that depend on their number."""
    rng = np.random.default_rng(first)
    passages = [
        Passage(
            "text",
            id=f"p{n:04}é",
            document_id=f"d{n // 3}",
            source="s" if n % 2 else None,
            metadata={"group": n % 4, "name": "喝茶" if n % 5 else "x"}
            | ({"odd": [1, None]} if n % 2 else {}),
        )
        for n in range(first, first + count)
    ]
    terms = [
        {
            f"w{w}": int(c)
            for w, c in zip(rng.integers(0, 60, 8), rng.integers(1, 4, 8), strict=True)
        }
        for _ in passages
    ]
    matrix = rng.normal(size=(count, DIMENSION)).astype(np.float32)
    return Batch.of_passages(
        range(first, first + count), passages, terms, vectors=matrix if vectors else None
    )


def answers(engine: Engine) -> dict[str, Any]:
    """Returns everything that an engine says."""
    snapshot = engine.snapshot
    rows = snapshot.live_rows()
    query = np.random.default_rng(0).normal(size=DIMENSION).astype(np.float32)
    found: dict[str, Any] = {
        "ids": snapshot.ids(rows),
        "keys": snapshot.keys(rows).tolist(),
        "documents": snapshot.document_ids(rows),
        "has": snapshot.has_vector(rows).tolist(),
        "counts": (snapshot.live, snapshot.vectors, snapshot.dimension),
        "rows": snapshot.ids(snapshot.document_rows(["d3", "d200"])),
    }
    for number, each in enumerate((Filter(), *FILTERS)):
        mask = snapshot.mask(each)
        text = snapshot.search_text({"w3": 1.0, "w9": 0.5, "w58": 2.0}, 40, mask)
        found[f"text{number}"] = (snapshot.ids(text.rows), text.scores.tolist())
        if snapshot.dimension:
            near = snapshot.search_vector(query, 40, mask)
            found[f"near{number}"] = (snapshot.ids(near.rows), near.scores.tolist())
    return found


@pytest.fixture(params=[False, True], ids=["memory", "file"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Gives an engine with several segments, removed rows and rows without vectors."""
    engine = Engine(spilled=request.param)
    engine.apply(add=batch(0, 300))
    engine.apply(add=batch(300, 40, vectors=False), remove_keys=range(10, 60))
    engine.apply(add=batch(340, 9))
    return engine


def test_a_saved_engine_opens_as_it_was(engine: Engine, tmp_path: Path) -> None:
    before = answers(engine)
    path = tmp_path / "with space?.idx"
    save(engine, path, stamp=STAMP)
    assert answers(engine) == before
    again, stamp = load(path)
    assert stamp == STAMP
    assert answers(again) == before
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_an_opened_engine_is_written_on_and_saved_again(engine: Engine, tmp_path: Path) -> None:
    """What is added, removed and saved over mapped arrays gives what it gives in memory."""
    path = tmp_path / "e.idx"
    save(engine, path, stamp={})
    again, _ = load(path)
    for each in (engine, again):
        each.apply(add=batch(400, 25), remove_keys=[61, 62, 341])
        each.apply(add=batch(500, 30, vectors=False))
    assert answers(again) == answers(engine)
    save(again, path, stamp={"n": 2})
    third, stamp = load(path)
    assert stamp == {"n": 2}
    assert answers(third) == answers(engine) == answers(again)


def test_a_large_write_onto_an_opened_engine_is_right(engine: Engine, tmp_path: Path) -> None:
    path = tmp_path / "e.idx"
    save(engine, path, stamp={})
    again, _ = load(path)
    for each in (engine, again):
        each.apply(add=batch(1000, 3000))
    assert answers(again) == answers(engine)


def test_the_callers_term_ids_last(tmp_path: Path) -> None:
    """Also those whose passages are gone by the time of saving."""
    path = tmp_path / "e.idx"

    def postings(term: int) -> Postings:
        return Postings(np.array([1]), np.array([term], np.int32), np.array([1], np.int32))

    first = Engine()
    first.name_terms({f"filler{n}": n for n in range(5000)} | {"late": 9000})
    passage = Passage("t", id="a", document_id="a")
    first.apply(add=Batch.of_passages([1], [passage], postings(9000)))
    first.apply(remove_keys=[1])
    first.compact()
    save(first, path, stamp={})
    again, _ = load(path)
    again.apply(add=Batch.of_passages([2], [passage], postings(9000)))
    assert len(again.snapshot.search_text({"late": 1.0}, 5).rows) == 1


@pytest.mark.parametrize("vectors", [True, False])
def test_an_empty_engine_can_be_saved(tmp_path: Path, *, vectors: bool) -> None:
    path = tmp_path / "e.idx"
    engine = Engine()
    if vectors:
        engine.apply(add=batch(0, 3))
        engine.apply(remove_keys=range(3))
    save(engine, path, stamp={})
    again, _ = load(path)
    assert again.snapshot.live == 0
    assert again.snapshot.dimension == (DIMENSION if vectors else None)
    again.apply(add=batch(10, 5))
    assert again.snapshot.live == 5


def test_a_missing_file_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(DamagedIndex):
        load(tmp_path / "none.idx")
    with pytest.raises(DamagedIndex):
        load(tmp_path)


@pytest.mark.parametrize("content", [b"", b"ragchat1", b"x" * 5000, b"\0" * 64])
def test_another_file_is_noticed(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "e.idx"
    path.write_bytes(content)
    with pytest.raises(DamagedIndex):
        load(path)


def test_a_truncated_file_is_noticed(engine: Engine, tmp_path: Path) -> None:
    """At any length."""
    path = tmp_path / "e.idx"
    save(engine, path, stamp={})
    whole = path.read_bytes()
    for length in (*range(0, len(whole), 997), len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(DamagedIndex):
            load(path)


def test_damage_is_noticed_wherever_it_is(engine: Engine, tmp_path: Path) -> None:
    """One changed bit anywhere but in padding, a zeroed page, and two pages exchanged."""
    path = tmp_path / "e.idx"
    save(engine, path, stamp={})
    whole = path.read_bytes()
    expected = answers(engine)
    for offset in range(0, len(whole), 211):
        damaged = bytearray(whole)
        damaged[offset] ^= 1 << (offset % 8)
        path.write_bytes(damaged)
        try:
            again, _ = load(path)
        except DamagedIndex:
            continue
        # The bytes between arrays are zero and mean nothing.
        assert whole[offset] == 0
        assert answers(again) == expected
    start = whole.index(np.ascontiguousarray(engine.snapshot.matrix.blocks[0][:4]).tobytes())
    page = (start // 4096 + 1) * 4096
    one, other = whole[page : page + 4096], whole[page + 4096 : page + 8192]
    for replaced in (bytes(8192), other + one, one + one):
        path.write_bytes(whole[:page] + replaced + whole[page + 8192 :])
        with pytest.raises(DamagedIndex):
            load(path)


def test_a_failed_save_keeps_the_old_file(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And leaves no draft behind."""
    path = tmp_path / "e.idx"
    save(engine, path, stamp=STAMP)
    engine.apply(add=batch(600, 5))
    with pytest.raises(TypeError):
        save(engine, path, stamp={"bad": object()})
    assert load(path)[1] == STAMP
    assert [p.name for p in tmp_path.iterdir()] == ["e.idx"]
