"""The options of a search, as one value.

`HybridIndex.search`, `search_batch`, `retriever` and `RetrievalPipeline` all take these as keyword
arguments; `SearchOptions` checks them once and is passed on as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, TypedDict

from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.filters import Condition, Filter
from ragchat_retrieval.kinds import check_fusion
from ragchat_retrieval.policy import Policy
from ragchat_retrieval.rerank import Rerank
from ragchat_retrieval.text import clean_query
from ragchat_retrieval.values import Query

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Unpack

    from ragchat_retrieval.fusion import Fusion
    from ragchat_retrieval.ports import Reranker

    FilterLike = Filter | Condition | Mapping[str, Any] | Sequence[Any] | None

DEFAULT_TOP_K = 5
UNLIMITED = 2**31 - 1
"""A lane limit that no corpus reaches; a store clamps it to what it can return."""

_LANE_FLOOR, _LANE_FACTOR, _LANE_CEILING = 100, 10, 500


class SearchKeywords(TypedDict, total=False):
    """The keyword arguments of a search."""

    top_k: int | None
    candidates: int | None
    filter: FilterLike
    scope: FilterLike
    min_similarity: float | None
    fusion: Fusion | None
    rerank: Rerank | Reranker | None
    min_rerank: float | None
    mmr: float | None
    near_duplicates: float | None
    per_document: int | None
    neighbours: int
    explain: bool
    policy: Policy | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """How to search. Defaults follow the fields.

    Raises:
        InvalidSetting: A value lies outside its range.
        InvalidFilter: `filter` or `scope` is malformed.
    """

    top_k: int | None = DEFAULT_TOP_K
    """How many candidates to return; 0 or less gives none, None every scored one."""

    candidates: int | None = None
    """Per lane: None is max(100, 10 · top_k), at most 500 or top_k; 0 or less lets the store
    choose. A foreign retriever is asked for as many if a stage after it chooses from them."""

    filter: Filter = field(default_factory=Filter)
    """Narrows both lanes from inside; ANDed with the query's own."""

    scope: Filter = field(default_factory=Filter)
    """The trusted boundary; ANDed with the query's own."""

    min_similarity: float | None = None
    """Least raw cosine, −1 … 1. Passages with a keyword score are exempt."""

    fusion: Fusion | None = None
    """None takes the index's own."""

    rerank: Rerank | None = None
    """Orders the best after fusion anew; as an argument, a bare reranker will do."""

    min_rerank: float | None = None
    """Least score of the reranker, 0 … 1; ignored when reranking did not take place."""

    mmr: float | None = None
    """λ of maximal marginal relevance: 0 is all diversity, 1 all relevance. Of more than 8,192
    candidates, the best 8,192 are ordered by it, and the others follow in their order."""

    near_duplicates: float | None = None
    """Cosine, above 0 … 1, from which the lower of two candidates is dropped. Of more than 8,192
    candidates, the best 8,192 are compared, and the others follow in their order."""

    per_document: int | None = None
    """Most candidates of one document."""

    neighbours: int = 0
    """How many passages before and after a hit to join to it. They lie inside the scope; the
    filter selects hits and does not bound what stands beside them."""

    explain: bool = False
    """Whether each candidate carries an `Explanation`."""

    policy: Policy | None = None
    """None takes the caller's run (a Preparer's), else `Policy.strict()`."""

    def __post_init__(self) -> None:
        _within("min_similarity", self.min_similarity, -1.0, 1.0)
        _within("min_rerank", self.min_rerank, 0.0, 1.0)
        _within("mmr", self.mmr, 0.0, 1.0)
        _within("near_duplicates", self.near_duplicates, 0.0, 1.0)
        if self.near_duplicates == 0.0:
            raise InvalidSetting("near_duplicates", "must be above 0")
        for name in ("top_k", "candidates", "per_document", "neighbours"):
            _number(name, getattr(self, name), Integral, "must be a whole number")
        if self.per_document is not None and self.per_document < 1:
            raise InvalidSetting("per_document", "must be 1 or more")
        if self.neighbours < 0:
            raise InvalidSetting("neighbours", "must be 0 or more")
        if self.fusion is not None:
            check_fusion("fusion", self.fusion)
        for name, kind in (("rerank", Rerank), ("policy", Policy)):
            given = getattr(self, name)
            if given is not None and not isinstance(given, kind):
                problem = f"must be a {kind.__name__}, not {type(given).__name__}"
                raise InvalidSetting(name, problem)

    @classmethod
    def of(
        cls, base: SearchOptions | None = None, /, **keywords: Unpack[SearchKeywords]
    ) -> SearchOptions:
        """Builds options from keyword arguments, on top of others.

        Raises:
            InvalidSetting: There is no such option, or a value lies outside its range.
            InvalidFilter: `filter` or `scope` is malformed.
        """
        values: dict[str, Any] = dict(keywords)
        for name in ("filter", "scope"):
            if name in values:
                values[name] = Filter.of(values[name])
        if (scorer := values.get("rerank")) is not None and not isinstance(scorer, Rerank):
            values["rerank"] = Rerank(scorer)
        try:
            return cls(**values) if base is None else replace(base, **values)
        except TypeError:
            unknown = sorted(set(values) - set(cls.__dataclass_fields__))
            raise InvalidSetting(
                unknown[0] if unknown else "options", "is no search option"
            ) from None

    def bound(self, query: Query) -> Query:
        """Returns a query with its own filter, scope and top_k merged with these options'."""
        return replace(
            query,
            filter=self.filter & query.filter,
            scope=self.scope & query.scope,
            top_k=self.top_k if query.top_k is None else query.top_k,
        )

    def asked(self, query: str | Query) -> Query | None:
        """Returns a question bound as by `bound`; None if it is blank or wants no results."""
        if isinstance(query, str) and not clean_query(query):
            return None
        bound = self.bound(query if isinstance(query, Query) else Query(query))
        return None if bound.top_k is not None and bound.top_k <= 0 else bound

    @property
    def lane_limit(self) -> int:
        """How many hits each lane is asked for."""
        return self.lane_limit_of(self.top_k)

    def lane_limit_of(self, top_k: int | None) -> int:
        """Returns how many hits each lane is asked for by a query with a top_k of its own."""
        if self.candidates is not None:
            return self.candidates if self.candidates > 0 else UNLIMITED
        if top_k is None:
            return UNLIMITED
        return min(max(_LANE_FLOOR, _LANE_FACTOR * top_k), max(_LANE_CEILING, top_k))

    def depth_of(self, top_k: int | None) -> int | None:
        """Returns how many of the best after fusion can bear on the first top_k; None is all."""
        if top_k is None or self.diversifies or self.neighbours:
            return None
        return top_k if self.rerank is None else self.rerank.depth_of(top_k)

    def asked_of(self, top_k: int | None) -> int | None:
        """Returns how many a foreign retriever is asked for; None leaves it to the retriever."""
        depth = self.depth_of(top_k)
        if self.candidates is None and (depth is not None or top_k is None):
            return depth
        limit = self.lane_limit_of(top_k)
        return None if limit == UNLIMITED else limit

    @property
    def diversifies(self) -> bool:
        """Whether anything makes room for other documents or other content."""
        return any(
            option is not None for option in (self.mmr, self.per_document, self.near_duplicates)
        )


def _within(name: str, value: float | None, low: float, high: float) -> None:
    _number(name, value, Real, "must be a number")
    if value is not None and not low <= value <= high:  # also refuses NaN
        raise InvalidSetting(name, f"must lie in {low:g} … {high:g}")


def _number(name: str, value: object, kind: type, problem: str) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, kind)):
        raise InvalidSetting(name, problem)
