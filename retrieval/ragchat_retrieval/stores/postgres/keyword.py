"""The keyword lane: BM25 in SQL, equal to the embedded engine's to the last bit.

PostgreSQL adds and divides binary64 numbers as numpy does. So the same expression, summed in the
same order (that of the terms' spelling), gives the same scores, and passages of equal score are
ordered by id in both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ragchat_retrieval.lexical import K1, B, idf
from ragchat_retrieval.ports import Hit
from ragchat_retrieval.stores.postgres.predicate import predicate
from ragchat_retrieval.text import is_storable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ragchat_retrieval.filters import Filter
    from ragchat_retrieval.stores.postgres.layout import Tables
    from ragchat_retrieval.stores.postgres.sessions import Session
    from ragchat_retrieval.stores.postgres.state import CorpusState

# What `KeywordLane` of the engine computes: factor · count / (norm + count), where
# norm = k1 · ((1 − b) + b · (length / average)). The order of operations is part of it.
_PART: Final = (
    "o.count::float8 / (%(k1)s::float8 * (%(rest)s::float8 + %(b)s::float8 * "
    "(o.length::float8 / %(average)s::float8)) + o.count::float8) * q.factor"
)
_QUERY: Final = (
    "unnest(%(terms)s::integer[], %(factors)s::float8[]) WITH ORDINALITY q (term, factor, place)"
)

_KEPT_CORPORA: Final = 64
_KEPT_TERMS: Final = 10_000


class TermStatistics:
    """How many passages hold each term, remembered as long as a corpus is unchanged.

    A hybrid search asks for the same terms in a search and again where it completes scores.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, dict[str, tuple[int, int]]]] = {}

    async def look_up(
        self, session: Session, tables: Tables, state: CorpusState, terms: Sequence[str]
    ) -> dict[str, tuple[int, int]]:
        """Returns the number of each known term, and how many passages hold it."""
        revision, known = self._known.get(state.key, (-1, {}))
        if revision != state.revision or len(known) > _KEPT_TERMS or session.joins:
            known = {}
        missing = [term for term in terms if term not in known]
        if missing:
            rows = await session.fetch(
                "SELECT t.term, t.id, "  # noqa: S608 - our own names
                f"(SELECT count(*) FROM {tables.postings} o WHERE o.term = t.id) "
                f"FROM unnest(%s::text[]) given JOIN {tables.terms} t "
                'ON t.term = given COLLATE "C"',
                [missing],
            )
            # Unknown terms are remembered too, as held by none.
            known = known | dict.fromkeys(missing, (0, 0)) | {t: (i, n) for t, i, n in rows}
            if len(self._known) >= _KEPT_CORPORA:
                self._known.clear()
            if not session.joins:
                self._known[state.key] = (state.revision, known)
        return {term: known[term] for term in terms if known[term][1]}


@dataclass(frozen=True, slots=True)
class KeywordQuery:
    """A query's terms with their factors: weight times inverse document frequency."""

    terms: Sequence[int]
    """Numbers of the terms that occur, in the order of their spelling."""

    factors: Sequence[float]
    average: float
    """Average length of a passage."""

    @classmethod
    async def of(
        cls,
        session: Session,
        tables: Tables,
        state: CorpusState,
        weights: Mapping[str, float],
        statistics: TermStatistics,
    ) -> KeywordQuery | None:
        """Looks the terms up; returns None if no passage holds any."""
        wanted = sorted(t for t, weight in weights.items() if weight > 0 and is_storable(t))
        if not wanted or not state.length:
            return None
        known = await statistics.look_up(session, tables, state, wanted)
        if not known:
            return None
        return cls(
            [number for number, _ in known.values()],
            [weights[t] * idf(state.passages, holding) for t, (_, holding) in known.items()],
            state.length / state.passages,
        )

    @property
    def params(self) -> dict[str, Any]:
        """Values of the named parameters."""
        return {
            "terms": [*self.terms],
            "factors": [*self.factors],
            "average": self.average,
            "k1": K1,
            "rest": 1.0 - B,
            "b": B,
        }

    async def search(
        self, session: Session, tables: Tables, limit: int, filters: tuple[Filter, ...]
    ) -> list[Hit]:
        """Returns the best passages: score descending, ties by id."""
        inside = predicate(*filters, column="p.fields")
        scores = (
            f"scores AS MATERIALIZED (SELECT o.passage, sum({_PART} ORDER BY q.place) AS score "  # noqa: S608 - our own names
            f"FROM {_QUERY} JOIN {tables.postings} o ON o.term = q.term GROUP BY o.passage)"
        )
        # Without a filter only what reaches the cut needs an id; with one, all need a look.
        cut = (
            "true"
            if inside
            else "s.score >= coalesce((SELECT score FROM scores ORDER BY score DESC "
            "OFFSET %(limit)s - 1 LIMIT 1), '-Infinity')"
        )
        rows = await session.fetch(
            f"WITH {scores} SELECT p.id, s.score FROM scores s "  # noqa: S608 - our own names
            f"JOIN {tables.passages} p ON p.key = s.passage "
            f"WHERE {cut} AND {inside.sql} ORDER BY s.score DESC, p.id LIMIT %(limit)s",
            {**self.params, **inside.params, "limit": limit},
        )
        return [*map(Hit._make, rows)]

    async def score(
        self, session: Session, tables: Tables, ids: Sequence[str], scope: Filter
    ) -> dict[str, float]:
        """Returns the scores of given passages, equal to those of `search`; 0 without a term."""
        inside = predicate(scope, column="p.fields")
        rows = await session.fetch(
            f"SELECT p.id, coalesce((SELECT sum({_PART} ORDER BY q.place) FROM {_QUERY} "  # noqa: S608 - our own names
            f"JOIN {tables.postings} o ON o.term = q.term AND o.passage = p.key), 0) "
            f"FROM {tables.passages} p WHERE p.id = ANY(%(ids)s) AND {inside.sql}",
            {**self.params, **inside.params, "ids": [*ids]},
        )
        found: dict[str, float] = dict(rows)
        return {id_: found[id_] for id_ in ids if id_ in found}
