"""What is asked, and what a search found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import TYPE_CHECKING, overload

from ragchat_retrieval.errors import InvalidCandidates, InvalidQuery, InvalidSetting
from ragchat_retrieval.filters import Filter
from ragchat_retrieval.text import clean_query
from ragchat_retrieval.trace import Degradation, Trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ragchat_retrieval.explain import Explanation
    from ragchat_retrieval.values.documents import Passage


@dataclass(frozen=True, slots=True)
class ContextText:
    """Conversation carried into retrieval without gluing strings together.

    It is added linearly to the query's own text, with its own weight in each lane: BM25 scores are
    summed; embeddings are summed and normalised again.
    """

    text: str
    lexical: float = field(default=0.0, kw_only=True)
    """Weight of its terms in the keyword lane, ≥ 0."""

    semantic: float = field(default=0.0, kw_only=True)
    """Weight of its embedding in the vector lane, ≥ 0."""

    damp: bool = field(default=False, kw_only=True)
    """Lets the index multiply `semantic` by 1 − clip((cos(query, text) − .1) / .5, 0, 1)."""

    def __post_init__(self) -> None:
        for name in ("lexical", "semantic"):
            weight = getattr(self, name)
            if not (math.isfinite(weight) and weight >= 0):
                raise InvalidSetting(f"ContextText.{name}", "must be a finite number, 0 or more")
        object.__setattr__(self, "text", clean_query(self.text))


@dataclass(frozen=True, slots=True)
class Query:
    """What to retrieve.

    Raises:
        InvalidQuery: The text is blank after trimming, a text is no string, or `top_k` is no whole
            number.
    """

    text: str
    context: tuple[ContextText, ...] = field(default=(), kw_only=True)
    lexical: str | None = field(default=None, kw_only=True)
    """Replaces `text` in the keyword lane (a translation)."""

    semantic: str | None = field(default=None, kw_only=True)
    """Replaces `text` in the vector lane (a hypothetical answer)."""

    variants: tuple[str, ...] = field(default=(), kw_only=True)
    """Other wordings, from a planner; a pipeline then skips its expander."""

    filter: Filter = field(default_factory=Filter, kw_only=True)
    """What the user asked to narrow to."""

    scope: Filter = field(default_factory=Filter, kw_only=True)
    """The trusted boundary (a tenant), set by the app, always ANDed."""

    top_k: int | None = field(default=None, kw_only=True)
    """Most candidates; None leaves it to the search's options."""

    def __post_init__(self) -> None:
        put = object.__setattr__
        for given in (self.text, self.lexical or "", self.semantic or "", *self.variants):
            if not isinstance(given, str):
                raise InvalidQuery(f"a text must be a string, not {type(given).__name__}")
        text = clean_query(self.text)
        if not text:
            raise InvalidQuery("a query must not be blank")
        most: object = self.top_k
        if most is not None and (isinstance(most, bool) or not isinstance(most, (int, Integral))):
            raise InvalidQuery("top_k must be a whole number, or None")
        put(self, "text", text)
        put(self, "filter", Filter.of(self.filter))
        put(self, "scope", Filter.of(self.scope))
        put(self, "context", tuple(c for c in self.context if c.text))
        for name in ("lexical", "semantic"):
            value = getattr(self, name)
            put(self, name, (clean_query(value) or None) if value is not None else None)
        put(self, "variants", tuple(v for v in map(clean_query, self.variants) if v))

    def with_text(self, text: str) -> Query:
        """Returns a copy with another text; texts of single lanes go with the old one."""
        return replace(self, text=text, lexical=None, semantic=None)

    def bounded_by(self, caller: Query) -> Query:
        """Returns the query with the caller's scope, filter and top_k, whatever became of them."""
        mine, theirs = ((q.scope, q.filter, q.top_k) for q in (self, caller))
        if mine == theirs:
            return self
        return replace(self, scope=caller.scope, filter=caller.filter, top_k=caller.top_k)

    def alone(self) -> Query:
        """Returns the query without variants."""
        return replace(self, variants=()) if self.variants else self


@dataclass(frozen=True, slots=True)
class Candidate:
    """A passage that a search found.

    Raises:
        InvalidCandidates: The score is not finite.
    """

    passage: Passage
    score: float
    """Higher is better; comparable only inside its own result."""

    explain: Explanation | None = field(default=None, kw_only=True)
    """Why it stands where it stands; None unless the search was asked to explain."""

    def __post_init__(self) -> None:
        if not math.isfinite(self.score):
            raise InvalidCandidates("a candidate's score must be finite", stage="candidate")
        if type(self.score) is not float:
            object.__setattr__(self, "score", float(self.score))


@dataclass(frozen=True, slots=True)
class SearchResult(Sequence[Candidate]):
    """An immutable sequence of candidates, best first, with how it came about."""

    candidates: tuple[Candidate, ...] = ()
    queries: tuple[Query, ...] = field(default=(), kw_only=True)
    """The queries that were searched, the original first."""

    degraded: tuple[Degradation, ...] = field(default=(), kw_only=True)
    """What was left out, and why; empty where all of it ran."""

    trace: Trace = field(default_factory=Trace, kw_only=True, compare=False)
    """Which stages ran, and how long each took; no part of equality."""

    def __post_init__(self) -> None:
        for name in ("candidates", "queries", "degraded"):
            object.__setattr__(self, name, tuple(getattr(self, name)))

    def __len__(self) -> int:
        return len(self.candidates)

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self.candidates)

    @overload
    def __getitem__(self, index: int) -> Candidate: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Candidate, ...]: ...
    def __getitem__(self, index: int | slice) -> Candidate | tuple[Candidate, ...]:
        return self.candidates[index]


def documents_of(candidates: Iterable[Candidate]) -> list[dict[str, object]]:
    """Returns what was found as OpenTelemetry lists it: ids and scores, no text."""
    return [{"id": c.passage.id, "score": c.score} for c in candidates]
