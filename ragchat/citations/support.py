"""How well passages support a claim, without a chat model. Pure.

Three things are measured, each 0 … 1:

- words: the share of the claim's terms, weighted by how rare they are among the sentences of all
  passages, that the best sentence or two adjacent ones of a passage hold; a term that only the
  title or headings hold counts for less;
- phrases: the share of the claim's pairs of adjacent words, stop words included, that are adjacent
  in the passage too;
- meaning, with vectors: the cosine of the claim with the best sentence or two adjacent ones.

The score is their weighted mean. It tells agreement in wording and subject, not truth: of two
figures for one thing it cannot say which is right. So a claim is called strongly supported only if,
besides, every number and name in it occurs in the evidence, and the closest sentence denies
something just if the claim does. Names are words that begin with a capital inside the sentence; in
German, where nouns do too, they are not compared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np

from ragchat.citations.wording import Wording, denies, names_in, numbers_in
from ragchat.sentences import ABOVE_CREDIT, sentences_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ragchat.sentences import Sentence
    from ragchat_retrieval.lexical import Analyzer
    from ragchat_retrieval.values import Passage

Level = Literal["verbatim", "strong", "weak", "none"]
"""How a claim is supported: word for word, well, perhaps, or not."""

_WORDS_IN_CHOICE = 0.5
"""What words count against meaning, 1, in choosing the closest sentence of a passage."""

_CAPITALISED = frozenset({"german"})
"""Languages in which a capital does not tell a name."""

_LEAST_VERBATIM = 2
"""Words from which a claim can be there word for word."""


@dataclass(frozen=True, slots=True)
class Measures:
    """What a claim and evidence have in common, each 0 … 1."""

    words: float
    phrases: float
    meaning: float
    """0 without vectors."""


@dataclass(frozen=True, slots=True)
class Rule:
    """How the three measures make a score, and what a score means.

    The weights and thresholds below were chosen on one half of the questions of ExpertQA's
    validation part and of LFRQA; ``benchmarks/RESULTS.md`` has the figures of the other half.
    """

    words: float
    phrases: float
    meaning: float
    """The weights; they sum to 1."""

    strong: float
    """Score from which a claim is well supported, if numbers, names and denials agree."""

    weak: float
    """Score from which it may be supported."""

    def score(self, measures: Measures) -> float:
        """Returns the weighted mean, 0 … 1."""
        mean = (
            self.words * measures.words
            + self.phrases * measures.phrases
            + self.meaning * measures.meaning
        )
        return min(max(mean, 0.0), 1.0)


BY_WORDS = Rule(words=0.25, phrases=0.75, meaning=0.0, strong=0.3, weak=0.15)
"""Without vectors."""

BY_MEANING = Rule(words=0.05, phrases=0.45, meaning=0.5, strong=0.5, weak=0.35)
"""With vectors."""


@dataclass(frozen=True, slots=True)
class Match:
    """How well passages support a claim."""

    level: Level
    score: float
    """0 … 1."""

    closest: int | None
    """Which of `Evidence.sentences` is closest to the claim; None if the passages have none."""


@dataclass(frozen=True, slots=True)
class _Row:
    """One passage of the evidence."""

    text: str
    first: int
    """Its first sentence."""

    size: int
    """How many sentences it has."""

    windows: slice
    """Its windows: first each sentence, then each two adjacent ones."""

    above: frozenset[str]
    """Terms of title and headings."""

    terms: frozenset[str]
    """All its terms, those above included."""

    wording: Wording
    numbers: frozenset[str]


def leads(scores: Sequence[float]) -> list[float]:
    """Returns each score less the best other one; 0 for a single one."""
    if len(scores) < 2:  # noqa: PLR2004 - nothing to compare with
        return [0.0] * len(scores)
    first, second = sorted(scores, reverse=True)[:2]
    return [score - (second if score == first else first) for score in scores]


def _support(scored: tuple[float, Rule]) -> float:
    """Returns a score in units of what its rule calls strong."""
    score, rule = scored
    return score / rule.strong


class Evidence:
    """Passages made ready for many claims.

    Args:
        passages: The passages, in order.
        analyzer: Analysis of words; that of the index.
    """

    def __init__(self, passages: Sequence[Passage], analyzer: Analyzer) -> None:
        self.analyzer = analyzer
        self.sentences: list[Sentence] = []
        self.rows: list[_Row] = []
        self.vectors: NDArray[np.float32] | None = None
        """Of the windows [windows, dimension], if vectors were added."""
        windows: list[tuple[int, int]] = []
        for passage in passages:
            first, begin = len(self.sentences), len(windows)
            self.sentences += sentences_of(passage, analyzer, prose=False)
            places = range(first, len(self.sentences))
            windows += [(place, place) for place in places]
            windows += pairwise(places)
            head = "\n".join([passage.title or "", *passage.headings])
            above = frozenset(analyzer.terms(head))
            row = _Row(
                text=passage.text,
                first=first,
                size=len(places),
                windows=slice(begin, len(windows)),
                above=above,
                terms=above.union(*(self.sentences[place].distinct for place in places)),
                wording=Wording.of(passage.text),
                numbers=numbers_in(f"{head}\n{passage.text}"),
            )
            self.rows.append(row)
        self.read = [False] * len(self.rows)
        """Of which passages there are vectors."""
        self._windows = np.array(windows, dtype=np.intp).reshape(-1, 2)
        self._holding = self._index()

    def texts(self, reads: Callable[[str], object]) -> list[str]:
        """Returns the sentences' texts, blank for those of a passage whose text is not read."""
        return [
            sentence.text if read else ""
            for row in self.rows
            for read in [reads(row.text)]
            for sentence in self.sentences[row.first : row.first + row.size]
        ]

    def add_vectors(self, vectors: NDArray[np.float32]) -> None:
        """Takes the vectors of the sentences, float32 [sentences, dimension].

        Rows have length 1, or are zeros for a passage that could not be read.
        """
        first, last = self._windows.T
        summed = np.where((first == last)[:, None], vectors[first], vectors[first] + vectors[last])
        lengths = np.linalg.norm(summed, axis=1, keepdims=True)
        self.vectors = (summed / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
        self.read = [not row.size or bool(self.vectors[row.windows].any()) for row in self.rows]

    def value(self, term: str) -> float:
        """Returns a term's weight, > 0; one that no sentence holds counts as if one did."""
        holding = len(self._holding[term][0]) if term in self._holding else 1
        return math.log(1 + max(len(self.sentences), 1) / holding)

    def covered(self, terms: frozenset[str]) -> NDArray[np.float64]:
        """Returns the share of the weighted terms that each window holds, 0 … 1 [windows]."""
        shares = np.zeros(len(self._windows))
        whole = 0.0
        for term in sorted(terms):
            value = self.value(term)
            whole += value
            held = np.zeros(len(self._windows))
            for row in self.rows:
                if term in row.above:
                    held[row.windows] = ABOVE_CREDIT
            if term in self._holding:
                held[self._holding[term][1]] = 1.0
            shares += value * held
        return shares / whole if whole else shares

    def terms_of(self, window: int) -> frozenset[str]:
        """Returns the terms of a window."""
        first, last = self._windows[window].tolist()
        both: frozenset[str] = self.sentences[first].distinct | self.sentences[last].distinct
        return both

    def _index(self) -> dict[str, tuple[list[int], list[int]]]:
        """Returns the sentences and the windows that hold each term."""
        around: list[list[int]] = [[] for _ in self.sentences]
        for window, places in enumerate(self._windows.tolist()):
            for place in set(places):
                around[place].append(window)
        holding: dict[str, tuple[list[int], list[int]]] = {}
        for place, sentence in enumerate(self.sentences):
            for term in sentence.distinct:
                places, windows = holding.setdefault(term, ([], []))
                places.append(place)
                windows += around[place]
        return holding


class Comparison:
    """A claim beside all evidence.

    Args:
        claim: The claim, without markers.
        evidence: The evidence.
        vector: The claim's vector, if the evidence has vectors.
    """

    def __init__(
        self, claim: str, evidence: Evidence, vector: NDArray[np.float32] | None = None
    ) -> None:
        self._evidence = evidence
        self._wording = Wording.of(claim)
        self._terms = frozenset(evidence.analyzer.terms(claim))
        self._numbers = numbers_in(claim)
        names = [] if evidence.analyzer.language in _CAPITALISED else names_in(claim)
        self._names = frozenset(evidence.analyzer.terms(" ".join(names)))
        self._denies = denies(claim)
        self._words = evidence.covered(self._terms)
        self._vector = vector
        self._meaning = np.zeros(len(self._words))
        if vector is not None and evidence.vectors is not None:
            self._meaning = np.maximum(evidence.vectors @ vector, 0.0).astype(np.float64)

    def match(self, rows: Sequence[int]) -> Match:
        """Returns how well passages support the claim, together if they are several.

        Each passage counts with the window that is best for it. The score of several is at least
        that of each alone, measured by what its rule calls strong.

        Args:
            rows: Positions of the passages in the evidence, one or more.
        """
        chosen = [self._evidence.rows[row] for row in rows]
        scored = [self._scored([row]) for row in rows]
        closest = self._closest(chosen[scored.index(max(scored, key=_support))])
        together = [self._scored(rows)] if len(rows) > 1 else []
        score, rule = max([*scored, *together], key=_support)
        return Match(self._level(score, rule, chosen, closest), score, closest)

    def _scored(self, rows: Sequence[int]) -> tuple[float, Rule]:
        """Returns the score of passages by meaning if claim and passages could be read."""
        read = self._vector is not None and all(self._evidence.read[row] for row in rows)
        rule = BY_MEANING if read else BY_WORDS
        return rule.score(self.measure(rows)), rule

    def measure(self, rows: Sequence[int]) -> Measures:
        """Returns what passages have in common with the claim, taken together.

        Args:
            rows: Positions of the passages in the evidence, one or more.
        """
        chosen = [self._evidence.rows[row] for row in rows]
        words = self._share_of_words(chosen)
        said = frozenset().union(*(row.wording.phrases for row in chosen))
        mine = self._wording.phrases
        phrases = len(mine & said) / len(mine) if mine else words
        return Measures(words, phrases, self._cosine(chosen))

    def _share_of_words(self, rows: Sequence[_Row]) -> float:
        best = [self._best(self._words, row) for row in rows]
        if len(rows) == 1:
            return 0.0 if best[0] is None else float(self._words[best[0]])
        value = self._evidence.value
        windows = [window for window in best if window is not None]
        held = frozenset().union(*map(self._evidence.terms_of, windows))
        above = frozenset().union(*(row.above for row in rows)) - held
        whole = sum(map(value, self._terms)) or 1.0
        own = sum(map(value, self._terms & held))
        return (own + ABOVE_CREDIT * sum(map(value, self._terms & above))) / whole

    def _cosine(self, rows: Sequence[_Row]) -> float:
        best = [self._best(self._meaning, row) for row in rows]
        windows = [window for window in best if window is not None]
        vectors = self._evidence.vectors
        if not windows or vectors is None or self._vector is None:
            return 0.0
        if len(windows) == 1:
            return float(self._meaning[windows[0]])
        summed = vectors[windows].sum(axis=0)
        length = float(np.linalg.norm(summed))
        return max(float(summed @ self._vector) / length, 0.0) if length else 0.0

    def _closest(self, row: _Row) -> int | None:
        """Returns the sentence of a passage that is closest to the claim."""
        if not row.size:
            return None
        single = slice(row.windows.start, row.windows.start + row.size)
        values = _WORDS_IN_CHOICE * self._words[single] + self._meaning[single]
        return row.first + int(np.argmax(values))

    def _level(self, score: float, rule: Rule, rows: Sequence[_Row], closest: int | None) -> Level:
        mine = self._wording
        if mine.words >= _LEAST_VERBATIM and any(mine.spelled in r.wording.spelled for r in rows):
            return "verbatim"
        if closest is None or not self._terms or score < rule.weak:
            return "none"
        agrees = (
            self._numbers <= frozenset().union(*(row.numbers for row in rows))
            and self._names <= frozenset().union(*(row.terms for row in rows))
            and denies(self._evidence.sentences[closest].text) == self._denies
        )
        return "strong" if score >= rule.strong and agrees else "weak"

    @staticmethod
    def _best(values: NDArray[np.float64], row: _Row) -> int | None:
        """Returns the window of a passage with the highest value; None if it has none."""
        inside = values[row.windows]
        return row.windows.start + int(np.argmax(inside)) if len(inside) else None
