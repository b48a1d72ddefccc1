"""Histories of writes, and all that a store answers after them: two stores are to agree to the bit.

For property tests with hypothesis: draw from `histories`, `take` each step in both stores, and
compare their `answers`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from hypothesis import strategies as st

from ragchat_retrieval.filters import Eq, Exists, Filter, Gt, In, Lte, Ne, NotExists
from ragchat_retrieval.testing.store_suite_kit import (
    ALL,
    axis,
    by_vector,
    by_words,
    contents,
    put,
    revision,
    terms_of,
    vector_of,
)
from ragchat_retrieval.values import Revision

if TYPE_CHECKING:
    from ragchat_retrieval.ports import Store

Step: TypeAlias = list[Revision] | set[str] | str | None
"""Revisions to write, ids or a source to remove, or None for a repair."""

_NOON = "2024-03-01T12:00:00Z"
_WORDS = ("valve", "pump", "boiler", "leak", "red", "喝茶", "ERR-4041", "the", "of", "x" * 40)
_FILTERS = (
    ALL,
    Filter(Eq("team", "red")),
    Filter(Ne("team", "red"), Gt("year", 2020)),
    Filter(In("year", [2019, 2021, 2023.0, "x", None])),
    Filter(NotExists("team")),
    Filter(Exists("source"), Eq("document_id", "d3")),
    Filter(Lte("at", "2024-03-01T13:00:00+01:00")),
    Filter(In("year", range(1900, 2020))),
)

_texts = st.lists(st.sampled_from(_WORDS), min_size=1, max_size=12).map(" ".join)
_labels = st.fixed_dictionaries(
    {},
    optional={
        "team": st.sampled_from(["red", "blue", None, ["red"], True]),
        "year": st.integers(2018, 2024) | st.sampled_from([2021.0, "2021", 1e300, 0.1]),
        "at": st.sampled_from([_NOON, "2024-03-01T12:00:00.5Z", "2024-03-01", 3]),
    },
)
_writes = st.builds(
    lambda number, passages, metadata, source, embedded: revision(
        f"d{number}", *passages, metadata=metadata, source=source, embedded=embedded
    ),
    st.integers(0, 9),
    st.lists(_texts, max_size=4),
    _labels,
    st.sampled_from([None, "a.md", "b.md"]),
    st.booleans(),
)
histories: st.SearchStrategy[list[Step]] = st.lists(
    st.one_of(
        st.lists(_writes, min_size=1, max_size=4, unique_by=lambda r: r.document.id),
        st.sets(st.integers(0, 9).map("d{}".format), max_size=3),
        st.sampled_from(["a.md", "b.md"]),
        st.none(),
    ),
    min_size=1,
    max_size=8,
)
"""Writes, removals by id and by source, and repairs (None)."""


async def answers(store: Store) -> list[object]:
    """Returns what both lanes say under every filter, and what the corpus holds."""
    found: list[object] = []
    ids = await store.ids(scope=ALL)
    for chosen in _FILTERS:
        for words in ("valve", "pump red the", "ERR-4041 喝茶 of", " ".join(_WORDS)):
            found.append(await by_words(store, words, 7, filter=chosen))
            found.append(dict(await store.score_text(terms_of(words), ids, scope=chosen)))
        for vector in (axis(0), -vector_of("valve pump")):
            found.append(await by_vector(store, vector, 7, filter=chosen))
            found.append(dict(await store.score_vector(vector, ids, scope=chosen)))
        found.append(await store.count(scope=chosen))
        found.append([*await store.document_ids(scope=chosen)])
    return [*found, await contents(store) | {"revision": None}]


async def take(store: Store, step: Step) -> None:
    """Takes one step of a history."""
    match step:
        case list():
            await put(store, *step)
        case set():
            await store.delete(sorted(step), scope=ALL)
        case str():
            await store.delete_by_source(step, scope=ALL)
        case None:
            await store.repair()
