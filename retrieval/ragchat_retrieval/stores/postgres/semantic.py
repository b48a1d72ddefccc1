"""The vector lane: pgvector selects, exact scores decide.

pgvector adds in float32. What it selects is scored again in float64, always in the same order of
additions, as the embedded engine does; so scores, their order and ties are the same.

Up to a number of candidates (`exact_up_to` of the store) all are compared. Beyond it the HNSW index
is asked, with its iterative scan in strict order, so that a filter is applied while it searches. If
it comes back with fewer than it should, all are compared after all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

import numpy as np

from ragchat_retrieval.ports import Hit
from ragchat_retrieval.stores.postgres.layout import indexed_as
from ragchat_retrieval.stores.postgres.predicate import predicate
from ragchat_retrieval.stores.postgres.rows import as_text, read_vectors
from ragchat_retrieval.vectors import exact_products

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.filters import Filter
    from ragchat_retrieval.stores.postgres.layout import Catalog, Tables
    from ragchat_retrieval.stores.postgres.predicate import Predicate
    from ragchat_retrieval.stores.postgres.sessions import Session
    from ragchat_retrieval.stores.postgres.state import CorpusState

_MARGIN: Final = 32
"""Hits asked for beyond the limit, whose float32 scores may be out of order."""

_GROWTH: Final = 4
_LEAST_EF: Final = 200
_LARGEST_EF: Final = 1000
"""Bounds of ``hnsw.ef_search``; the upper one is pgvector's."""

Row = tuple[str, bytes, float]
"""Id, vector and negative product of a passage."""


@dataclass(frozen=True, slots=True, eq=False)
class VectorQuery:
    """One search or scoring of the vector lane."""

    session: Session
    catalog: Catalog
    tables: Tables
    state: CorpusState
    vector: NDArray[np.float32]
    exact_up_to: int

    async def search(self, limit: int, filters: tuple[Filter, ...]) -> list[Hit]:
        """Returns the best passages: product descending, ties by id."""
        inside = predicate(*filters, column="p.fields")
        rows = None
        many = self.state.indexed and self.state.vectors > self.exact_up_to
        if many and limit + _MARGIN <= _LARGEST_EF:
            rows = await self._by_index(limit, inside)
        if rows is None:
            rows = await self._by_all(limit, inside)
        return self._ranked(rows)[:limit]

    def scores(self, matrix: NDArray[np.float32]) -> NDArray[np.float64]:
        """Returns the products of rows, exact to float64 and independent of each other."""
        return exact_products(matrix, self.vector)

    async def _by_all(self, limit: int, inside: Predicate) -> list[Row]:
        """Compares all, asking for more until nothing that was left out can be among the best."""
        wanted = limit + _MARGIN
        while True:
            rows = await self._nearest(inside, wanted, by_index=False)
            if len(rows) < wanted or rows[-1][2] > rows[limit - 1][2] + self._slack():
                return rows
            wanted *= _GROWTH

    async def _by_index(self, limit: int, inside: Predicate) -> list[Row] | None:
        """Asks the HNSW index; returns None if that is not the way to good answers."""
        if inside and not await self._many(inside):
            return None
        wanted = limit + _MARGIN
        breadth = min(_LARGEST_EF, max(_LEAST_EF, 2 * wanted))
        # Whatever the planner thinks of it: in order, from the index, one by one.
        await self.session.run(
            "SELECT set_config('hnsw.iterative_scan', 'strict_order', true), "
            "set_config('hnsw.ef_search', %s, true), set_config('enable_seqscan', 'off', true), "
            "set_config('enable_sort', 'off', true), set_config('enable_hashjoin', 'off', true), "
            "set_config('enable_mergejoin', 'off', true)",
            [str(breadth)],
        )
        rows = await self._nearest(inside, wanted, by_index=True)
        await self.session.run(
            "SELECT set_config(name, reset_val, true) FROM pg_settings WHERE name IN "
            "('enable_seqscan', 'enable_sort', 'enable_hashjoin', 'enable_mergejoin')"
        )
        short = len(rows) < min(wanted, self.state.vectors)
        tied = len(rows) == wanted and rows[-1][2] == rows[limit - 1][2]
        return None if short or tied else rows

    async def _many(self, inside: Predicate) -> bool:
        """Says whether more passages match than are worth comparing all."""
        ((found,),) = await self.session.fetch(
            f"SELECT count(*) FROM (SELECT FROM {self.tables.passages} p "  # noqa: S608 - our own names
            f"WHERE {inside.sql} LIMIT %(most)s) found",
            {"most": self.exact_up_to + 1, **inside.params},
        )
        return bool(found > self.exact_up_to)

    async def _nearest(self, inside: Predicate, wanted: int, *, by_index: bool) -> list[Row]:
        """Returns the nearest by pgvector's own sums, in order."""
        catalog, tables, dimension = self.catalog, self.tables, self.vector.shape[0]
        column, kind = "v.embedding", catalog.vector
        if by_index:
            column, kind = indexed_as(catalog, dimension, column)
        distance = f"({column} {catalog.product} %(vector)s::{kind}({dimension}))"
        source, order = f"{tables.vectors} v", distance
        if not by_index:
            order = f"{distance} + 0"  # the index cannot tell this, and keeps out
        chosen = ""
        if inside and by_index:
            # One by one, as the index brings them.
            source += f" JOIN {tables.passages} p ON p.key = v.key WHERE {inside.sql}"
        elif inside:
            chosen = (
                f"chosen AS MATERIALIZED (SELECT p.key FROM {tables.passages} p "  # noqa: S608 - our own names
                f"WHERE {inside.sql}), "
            )
            source = f"chosen JOIN {source} ON v.key = chosen.key"
        rows = await self.session.fetch(
            f"WITH {chosen}near AS MATERIALIZED (SELECT v.key, {distance} AS distance "  # noqa: S608 - our own names
            f"FROM {source} ORDER BY {order} LIMIT %(wanted)s) "
            f"SELECT p.id, {catalog.send}(v.embedding), near.distance FROM near "
            f"JOIN {tables.passages} p ON p.key = near.key "
            f"JOIN {tables.vectors} v ON v.key = near.key ORDER BY near.distance",
            {"vector": as_text(self.vector), "wanted": wanted, **inside.params},
        )
        return cast("list[Row]", rows)

    def _ranked(self, rows: Sequence[Row]) -> list[Hit]:
        if not rows:
            return []
        scores = self.scores(read_vectors([sent for _, sent, _ in rows])).tolist()
        hits = [Hit(id_, score) for (id_, _, _), score in zip(rows, scores, strict=True)]
        return sorted(hits, key=lambda hit: (-hit.score, hit.passage_id))

    def _slack(self) -> float:
        """Returns how far two products of float32 can be out of order.

        A dot product of d terms errs by at most d · 2⁻²⁴ times the product of the norms (Higham,
        Accuracy and Stability of Numerical Algorithms, 3.1); doubled for its second-order terms,
        and doubled again because two are compared.
        """
        size = float(np.linalg.norm(self.vector.astype(np.float64))) * self.state.largest
        slack: float = 4.0 * self.vector.shape[0] * 2.0**-24 * size
        return slack
