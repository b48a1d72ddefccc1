"""What tuning tries: settings of a search, and grids of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.fusion import Weighted

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One combination of what can be tuned."""

    keyword: float
    """Weight of the keyword lane in `Weighted`, 0 … 1."""

    title: float = 0.0
    """Weight of the title in `Weighted`, 0 … 1; the vector lane has what both leave."""

    candidates: int
    """How many hits each lane is asked for."""

    rerank_weight: float | None = None
    """Share of the reranker's score; None without a reranker."""

    margin: float | None = None
    """From which lead of the first the reranker is not asked; None always asks."""

    @property
    def fusion(self) -> Weighted:
        """The fusion to search with."""
        return Weighted(keyword=self.keyword, title=self.title)

    def distance(self, other: Setting) -> tuple[int, float]:
        """Returns how many values differ from another's, and by how much the weights do."""
        names = ("keyword", "title", "candidates", "rerank_weight", "margin")
        changed = sum(getattr(self, name) != getattr(other, name) for name in names)
        return changed, abs(self.keyword - other.keyword) + abs(self.title - other.title)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The values to try of each; all combinations are whose weights add up to 1 at most.

    Raises:
        InvalidSetting: A list is empty, a value out of range, or no combination is left.
    """

    keyword: Sequence[float] = tuple(step / 10 for step in range(11))
    title: Sequence[float] = (0.0,)
    candidates: Sequence[int] = (50, 100, 200)
    rerank_weight: Sequence[float] = (0.3, 0.5, 0.7, 1.0)
    """Used with a reranker only, like `margin`."""

    margin: Sequence[float | None] = (None, 0.3, 0.2, 0.1)

    def __post_init__(self) -> None:
        for name in ("keyword", "title", "candidates", "rerank_weight", "margin"):
            values = tuple(dict.fromkeys(getattr(self, name)))
            if not values:
                raise InvalidSetting(f"Grid.{name}", "must name at least one value")
            object.__setattr__(self, name, values)
        if any(count < 1 for count in self.candidates):
            raise InvalidSetting("Grid.candidates", "must be 1 or more")
        for weight in (*self.keyword, *self.title, *self.rerank_weight):
            if not 0.0 <= weight <= 1.0:
                raise InvalidSetting("Grid", "weights must lie in 0 … 1")
        if not self.weights:
            raise InvalidSetting("Grid.title", "leaves no room for any weight of keyword")
        if any(margin is not None and not margin >= 0.0 for margin in self.margin):
            raise InvalidSetting("Grid.margin", "must be 0 or more")

    @property
    def weights(self) -> list[tuple[float, float]]:
        """The weights of keyword lane and title to try together."""
        pairs = product(self.keyword, self.title)
        return [(k, t) for k, t in pairs if t < 1.0 and round(k + t, 9) <= 1.0]

    def settings(self, *, rerank: bool) -> list[Setting]:
        """Returns all combinations."""
        weights = self.rerank_weight if rerank else (None,)
        margins = self.margin if rerank else (None,)
        return [
            Setting(keyword=k, title=t, candidates=c, rerank_weight=w, margin=m)
            for (k, t), c, w, m in product(self.weights, self.candidates, weights, margins)
        ]
