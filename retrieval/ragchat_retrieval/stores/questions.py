"""What the lanes of a store on the engine are asked, and how much work an answer is.

A store hands a question to a snapshot, at once if the answer is small, else in a worker thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from ragchat_retrieval.fusion import Hits, LaneResult
from ragchat_retrieval.ports import BothLanes, Hit, TermCounts
from ragchat_retrieval.stores.answers import hits, visible

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.engine import Coded, Found, Snapshot
    from ragchat_retrieval.filters import Filter

T_co = TypeVar("T_co", covariant=True)

# Up to a millisecond or two of work is done at once; more goes to a worker thread. That costs half
# a millisecond of processor time, most of it for what that thread has to bring into its caches.
SMALL_TESTS = 2_000
"""Values tested for a filter, or rows looked at one by one."""

SMALL_IDS = 500
_SMALL_ROWS = 200_000
_SMALL_HITS = 2_000
_SMALL_FLOATS = 10_000_000
"""Numbers of a matrix multiplied by one vector, a tenth of a nanosecond each."""

_ANOTHER = 0.45
"""What each further vector costs beside the first: for that one the matrix comes from memory."""

_SMALL_TERMS = 64


class Question(Protocol[T_co]):
    """Something that a snapshot answers."""

    def is_small(self, snapshot: Snapshot) -> bool:
        """Whether the answer takes about a millisecond at most."""
        ...

    def answer(self, snapshot: Snapshot) -> T_co:
        """Returns the answer."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class TextSearch:
    """The best passages by BM25 over analysed, weighted terms."""

    terms: Mapping[str, float]
    limit: int
    filter: Filter
    scope: Filter

    def is_small(self, snapshot: Snapshot) -> bool:
        """Depends on terms, passages, hits and filters."""
        return _are_few_words(self, snapshot, [self.terms], _SMALL_HITS)

    def answer(self, snapshot: Snapshot) -> list[Hit]:
        """Returns hits, best first."""
        mask = snapshot.mask(self.filter, self.scope)
        return hits(snapshot, snapshot.search_text(self.terms, self.limit, mask))


@dataclass(frozen=True, slots=True, eq=False)
class Nearby(ABC, Generic[T_co]):
    """A question about what is nearest to vectors, which a store may look for in its own way."""

    vectors: Sequence[NDArray[np.float32]]
    """At least one, normalised."""

    limit: int
    filter: Filter
    scope: Filter

    def is_small(self, snapshot: Snapshot) -> bool:
        """Depends on the size of the matrix and on filters."""
        floats = snapshot.rows * (snapshot.dimension or 0)
        return (
            floats * (1 + _ANOTHER * (len(self.vectors) - 1)) <= _SMALL_FLOATS
            and snapshot.mask_cost(self.filter, self.scope) <= SMALL_TESTS
        )

    def answer(self, snapshot: Snapshot) -> T_co:
        """Returns the answer, after a comparison with all vectors."""
        mask = snapshot.mask(self.filter, self.scope)
        found = snapshot.search_vectors(np.array(self.vectors), self.limit, mask)
        return self.told(snapshot, found)

    def answer_rounded(self, snapshot: Snapshot, coded: Coded) -> T_co:
        """Returns the same answer, after a comparison with all vectors in eight bits."""
        mask, vectors = snapshot.mask(self.filter, self.scope), np.array(self.vectors)
        return self.told(snapshot, coded.search_many(snapshot, vectors, self.limit, mask))

    @abstractmethod
    def told(self, snapshot: Snapshot, found: Sequence[Found]) -> T_co:
        """Returns the answer, given what is nearest to each vector."""


@dataclass(frozen=True, slots=True, eq=False)
class VectorSearch(Nearby["list[list[Hit]]"]):
    """The best passages by cosine similarity with each of several vectors."""

    def told(self, snapshot: Snapshot, found: Sequence[Found]) -> list[list[Hit]]:
        """Returns hits for each vector, best first."""
        return [hits(snapshot, each) for each in found]


class Worded(NamedTuple):
    """What the keyword lane finds."""

    found: Found
    similar: NDArray[np.float64] | None
    """Cosine similarity of each row with the question, NaN for rows without a vector; None if the
    lanes are not to be completed."""


@dataclass(frozen=True, slots=True, eq=False)
class WordRows:
    """The best rows by BM25 for each of several questions.

    Vectors take longer, and are compared in a thread that needs no interpreter for it. So whoever
    waits for them may be offered to look up the words meanwhile.
    """

    terms: Sequence[Mapping[str, float]]
    """Of each question."""

    vectors: Sequence[NDArray[np.float32]]
    """Of each question; what is found is scored by them, too, if the lanes are completed."""

    limit: int
    filter: Filter
    scope: Filter
    complete: bool = field(kw_only=True)
    """Whether each lane is to score what only the other one finds."""

    _ahead: Future[list[Worded]] = field(default_factory=Future, init=False)

    def is_small(self, snapshot: Snapshot) -> bool:
        """Depends on terms, passages, hits and filters."""
        return _are_few_words(self, snapshot, self.terms, SMALL_IDS)

    def offer(self, snapshot: Snapshot, loop: AbstractEventLoop) -> None:
        """Lets a loop in another thread prepare the answer, if that is little work."""
        if self.is_small(snapshot):
            with suppress(RuntimeError):  # it is closed
                loop.call_soon_threadsafe(self._look_up, snapshot)

    def _look_up(self, snapshot: Snapshot) -> None:
        ahead = self._ahead
        if ahead.set_running_or_notify_cancel():
            try:
                ahead.set_result(self._found(snapshot))
            except BaseException as error:  # noqa: BLE001 - for who asks
                ahead.set_exception(error)

    def answer(self, snapshot: Snapshot) -> list[Worded]:
        """Returns rows for each question, best first, of the snapshot that was offered if any."""
        begun = not self._ahead.cancel()
        return self._ahead.result() if begun else self._found(snapshot)

    def _found(self, snapshot: Snapshot) -> list[Worded]:
        mask = snapshot.mask(self.filter, self.scope)
        every = snapshot.search_texts(self.terms, self.limit, mask)
        if not self.complete:
            return [Worded(found, None) for found in every]
        pairs = zip(every, self.vectors, strict=True)
        return [Worded(found, snapshot.score_vector(vector, found.rows)) for found, vector in pairs]


@dataclass(frozen=True, slots=True, eq=False)
class BothSearch(Nearby["list[BothLanes]"]):
    """The best passages by cosine similarity and, as a rule, by BM25, for several questions."""

    words: WordRows | None
    """The same questions to the keyword lane; None if it is not asked."""

    def is_small(self, snapshot: Snapshot) -> bool:
        """Depends on the lanes that are asked."""
        few = self.words is None or self.words.is_small(snapshot)
        return few and Nearby.is_small(self, snapshot)

    def offer(self, snapshot: Snapshot, loop: AbstractEventLoop) -> None:
        """Lets a loop in another thread look up the words."""
        if self.words is not None:
            self.words.offer(snapshot, loop)

    def told(self, snapshot: Snapshot, found: Sequence[Found]) -> list[BothLanes]:
        """Returns what the lanes found, given what the vector lane did."""
        if self.words is None:
            return [BothLanes(None, LaneResult(_hits(snapshot, near))) for near in found]
        parts = zip(self.words.terms, self.words.answer(snapshot), found, strict=True)
        return [_completed(snapshot, *part) for part in parts]


@dataclass(frozen=True, slots=True, eq=False)
class WordSearch:
    """The best passages by BM25 for several questions, told as by a search of both lanes."""

    words: WordRows

    @property
    def vectors(self) -> Sequence[NDArray[np.float32]]:
        """None."""
        return ()

    @property
    def scope(self) -> Filter:
        """The trusted boundary."""
        return self.words.scope

    def is_small(self, snapshot: Snapshot) -> bool:
        """As the words are."""
        return self.words.is_small(snapshot)

    def offer(self, snapshot: Snapshot, loop: AbstractEventLoop) -> None:
        """Nothing else takes time meanwhile."""

    def answer(self, snapshot: Snapshot) -> list[BothLanes]:
        """Returns what the keyword lane found."""
        found = [worded.found for worded in self.words.answer(snapshot)]
        return [BothLanes(LaneResult(_hits(snapshot, each)), None) for each in found]


@dataclass(frozen=True, slots=True, eq=False)
class AtOnce(Generic[T_co]):
    """Another question, if it is small."""

    question: Question[T_co]

    def is_small(self, snapshot: Snapshot) -> bool:
        """It is, or nothing is done."""
        del snapshot
        return True

    def answer(self, snapshot: Snapshot) -> T_co | None:
        """Returns the answer; None if it takes longer than may be waited for."""
        question = self.question
        return question.answer(snapshot) if question.is_small(snapshot) else None


@dataclass(frozen=True, slots=True, eq=False)
class TextScores:
    """The BM25 scores of given passages; 0.0 without a common term."""

    terms: Mapping[str, float]
    passage_ids: Sequence[str]
    scope: Filter

    def is_small(self, snapshot: Snapshot) -> bool:
        """Depends on terms, ids and the scope."""
        few = len(self.terms) <= _SMALL_TERMS
        return few and is_small_lookup(snapshot, self.passage_ids, self.scope)

    def answer(self, snapshot: Snapshot) -> dict[str, float]:
        """Returns scores by id."""
        ids, rows = visible(snapshot, self.passage_ids, self.scope)
        return dict(zip(ids, snapshot.score_text(self.terms, rows).tolist(), strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class VectorScores:
    """The cosine similarities of those given passages that have a vector."""

    vector: NDArray[np.float32]
    passage_ids: Sequence[str]
    scope: Filter

    def is_small(self, snapshot: Snapshot) -> bool:
        """Depends on ids and the scope."""
        return is_small_lookup(snapshot, self.passage_ids, self.scope)

    def answer(self, snapshot: Snapshot) -> dict[str, float]:
        """Returns scores by id."""
        ids, rows = visible(snapshot, self.passage_ids, self.scope, vectors=True)
        scores = snapshot.score_vector(self.vector, rows).tolist() if ids else []
        return dict(zip(ids, scores, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Vectors:
    """The vectors of those given passages that have one."""

    passage_ids: Sequence[str]
    scope: Filter

    def is_small(self, snapshot: Snapshot) -> bool:
        """Depends on ids and the scope."""
        return is_small_lookup(snapshot, self.passage_ids, self.scope)

    def answer(self, snapshot: Snapshot) -> dict[str, NDArray[np.float32]]:
        """Returns float32 [dimension] by id, none a view of another."""
        ids, rows = visible(snapshot, self.passage_ids, self.scope, vectors=True)
        return dict(zip(ids, map(np.copy, snapshot.vectors_of(rows)), strict=True)) if ids else {}


@dataclass(frozen=True, slots=True, eq=False)
class PassageIDs:
    """The ids of all passages that a scope shows."""

    scope: Filter

    def is_small(self, snapshot: Snapshot) -> bool:
        """Depends on the number of passages."""
        return snapshot.rows <= SMALL_TESTS

    def answer(self, snapshot: Snapshot) -> list[str]:
        """Returns ids in ascending order."""
        return sorted(snapshot.ids(snapshot.live_rows(snapshot.mask(self.scope))))


@dataclass(frozen=True, slots=True, eq=False)
class Commonness:
    """How common terms are in the corpus."""

    terms: Sequence[str]

    def is_small(self, snapshot: Snapshot) -> bool:
        """Depends on terms and passages."""
        return len(self.terms) <= _SMALL_TERMS and snapshot.rows <= _SMALL_ROWS

    def answer(self, snapshot: Snapshot) -> TermCounts:
        """Returns counts of all passages, and of those that hold each term."""
        return TermCounts(snapshot.live, snapshot.keyword.holding(self.terms))


def is_small_lookup(snapshot: Snapshot, passage_ids: Sequence[str], scope: Filter) -> bool:
    """Whether passages are few enough to be looked up at once."""
    return len(passage_ids) <= SMALL_IDS and snapshot.mask_cost(scope) <= SMALL_TESTS


def _are_few_words(
    asked: TextSearch | WordRows,
    snapshot: Snapshot,
    terms: Sequence[Mapping[str, float]],
    most_hits: int,
) -> bool:
    """Whether the words of one or more questions are looked up in about a millisecond."""
    return (
        sum(map(len, terms)) <= _SMALL_TERMS
        and len(terms) * snapshot.rows <= _SMALL_ROWS
        and len(terms) * min(asked.limit, snapshot.rows) <= most_hits
        and snapshot.mask_cost(asked.filter, asked.scope) <= SMALL_TESTS
    )


def _hits(snapshot: Snapshot, found: Found) -> Hits:
    return Hits(snapshot.ids(found.rows), found.scores.tolist())


def _completed(
    snapshot: Snapshot, terms: Mapping[str, float], worded: Worded, near: Found
) -> BothLanes:
    """Gives each lane the scores of what only the other one found, if it is to have them."""
    keyword = worded.found
    by_terms, by_vector = _hits(snapshot, keyword), _hits(snapshot, near)
    if worded.similar is None:
        return BothLanes(LaneResult(by_terms), LaneResult(by_vector))
    theirs, mine = set(near.rows.tolist()), set(keyword.rows.tolist())
    scored = zip(by_terms.ids, keyword.rows.tolist(), worded.similar.tolist(), strict=True)
    similar = {id_: s for id_, row, s in scored if row not in theirs and s == s}  # noqa: PLR0124 - NaN is not
    rest = {}
    if terms:
        at = [i for i, row in enumerate(near.rows.tolist()) if row not in mine]
        scores = snapshot.score_text(terms, near.rows[at]).tolist()
        rest = {by_vector.ids[i]: score for i, score in zip(at, scores, strict=True)}
    return BothLanes(LaneResult(by_terms, rest), LaneResult(by_vector, similar))
