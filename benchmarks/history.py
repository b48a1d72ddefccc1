"""Weights for `HistoryExpansionTransformer`: chosen on one collection, checked on the others.

    python benchmarks/history.py --data ../shared/data

Every weighting of a small grid is measured on the conversations of MTRAG, in the keyword lane, the
vector lane and the hybrid. Each collection in turn chooses the weighting that is best on it, by the
mean over the three rankings of nDCG@10, relative to the last turn's; the other collections check
the choice. A gap of 1 means as good as a person's stand-alone rewrite, 0 as the last turn alone.

The lanes' scores of a weighting are computed once for all passages, with the formulas of the engine
(``benchmarks/quality.py`` measures the shipped weights with the engine itself), so that the grid
takes minutes. Embeddings are cached in ``benchmarks/.cache``.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from embedding import CACHE, cached_embedder

import ragchat
from ragchat.evaluation import rewritten
from ragchat_retrieval.asking import weighted_terms
from ragchat_retrieval.evaluation import load_collection
from ragchat_retrieval.fusion import fuse_wordings
from ragchat_retrieval.lexical import DEFAULT_ANALYZER, K1, B, idf
from ragchat_retrieval.values import indexed_text
from ragchat_retrieval.vectors import blend

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.evaluation import Topic

    Matrix = NDArray[np.float32]
    """Scores, [topics, passages]."""

HERE = Path(__file__).resolve().parent
COLLECTIONS = ("mtrag-clapnq", "mtrag-fiqa", "mtrag-govt")
RANKINGS = ("keyword", "vector", "hybrid")
LEXICAL = {"lexical_user": (0.0, 0.1, 0.2, 0.4), "lexical_shared": (0.0, 0.15, 0.3, 0.45)}
SEMANTIC = {
    "semantic_shared": (0.0, 0.3, 0.5, 0.7, 1.0),
    "semantic_assistant": (0.0, 0.3, 0.4, 0.5, 0.6, 0.8),
}
DEPTH = 100
"""Hits of each lane that are fused, as in a search for the top 10."""

TOP = 10
KEYWORD = ragchat.Weighted().keyword
BATCH = 256


class Figures(NamedTuple):
    """nDCG@10 of one way of asking."""

    keyword: float
    vector: float
    hybrid: float


class Corpus:
    """One collection: what the lanes know of its passages, and its judged topics."""

    def __init__(self, folder: Path) -> None:
        found = load_collection(folder)
        passages = [
            ragchat.Passage(d.text, document_id=d.id, title=d.title) for d in found.documents()
        ]
        places = {passage.document_id: place for place, passage in enumerate(passages)}
        self.name = found.name
        self.texts = [indexed_text(passage) for passage in passages]
        self.topics: Sequence[Topic] = found.topics
        self.gains = [
            {places[id_]: 2.0**grade - 1.0 for id_, grade in topic.grades.items()}
            for topic in found.topics
        ]
        self._postings = self._index()
        self.vectors: Matrix
        self.known: dict[str, NDArray[np.float32]] = {}

    async def embed(self, embedder: ragchat.Embedder, texts: Sequence[str]) -> None:
        """Embeds the passages, and the texts that queries are made of."""
        self.vectors = await _embedded(embedder, self.texts, "passage")
        rows = await _embedded(embedder, texts, "query")
        self.known = dict(zip(texts, rows, strict=True))

    def keyword(self, queries: Sequence[ragchat.Query]) -> Matrix:
        """Returns the BM25 scores of every passage for each query."""
        scores = np.zeros((len(queries), len(self.texts)), np.float32)
        for row, query in zip(scores, queries, strict=True):
            for term, weight in weighted_terms(query, DEFAULT_ANALYZER).items():
                if (posting := self._postings.get(term)) is not None:
                    row[posting[0]] += weight * posting[1]
        return scores

    def vector(self, queries: Sequence[ragchat.Query]) -> Matrix:
        """Returns the cosines of every passage for each query."""
        rows = []
        for query in queries:
            contexts = [context for context in query.context if context.semantic > 0]
            parts = [self.known[context.text] for context in contexts]
            rows.append(blend(self.known[query.text], contexts, parts))
        scores: Matrix = np.stack(rows) @ self.vectors.T
        return scores

    def figures(self, keyword: Matrix, vector: Matrix) -> Figures:
        """Returns the metric of both lanes and of the default fusion of them."""
        rankings = [_rankings(*scores) for scores in zip(keyword, vector, strict=True)]
        return Figures(*map(self._mean, zip(*rankings, strict=True)))

    def merged(self, final: tuple[Matrix, Matrix], early: tuple[Matrix, Matrix]) -> float:
        """Returns the metric of two queries' hybrids as `Preparer(speculative=True)` merges them.

        Args:
            final: Both lanes' scores of the final query.
            early: Likewise of the one that was searched ahead.
        """
        merged: list[Sequence[int]] = []
        for scores in zip(*final, *early, strict=True):
            one, other = (_rankings(*pair)[-1].tolist() for pair in (scores[:2], scores[2:]))
            if set(one[:TOP]) != set(other[:TOP]):
                fused = fuse_wordings([[f"{place:09d}" for place in r] for r in (one, other)])
                one = [int(place) for place in fused]
            merged.append(one)
        return self._mean(merged)

    def _mean(self, rankings: Iterable[Iterable[int]]) -> float:
        return sum(map(_ndcg, rankings, self.gains)) / len(self.gains)

    def _index(self) -> Mapping[str, tuple[NDArray[np.int32], NDArray[np.float32]]]:
        counts = [DEFAULT_ANALYZER.counts(text) for text in self.texts]
        lengths = [sum(count.values()) for count in counts]
        average = sum(lengths) / len(lengths)
        places: defaultdict[str, list[int]] = defaultdict(list)
        shares: defaultdict[str, list[float]] = defaultdict(list)
        for place, count in enumerate(counts):
            norm = K1 * (1 - B + B * lengths[place] / average)
            for term, times in count.items():
                places[term].append(place)
                shares[term].append(times / (times + norm))
        return {
            term: (
                np.array(found, np.int32),
                np.array(shares[term], np.float32) * idf(len(counts), len(found)),
            )
            for term, found in places.items()
        }


async def _embedded(embedder: ragchat.Embedder, texts: Sequence[str], kind: str) -> Matrix:
    rows = [
        await embedder.embed(texts[start : start + BATCH], kind)  # type: ignore[arg-type]
        for start in range(0, len(texts), BATCH)
    ]
    return np.concatenate(rows).astype(np.float32)


def _best(scores: NDArray[np.float32], depth: int) -> NDArray[np.intp]:
    """Returns the places of the best scores, best first, ties by place."""
    depth = min(depth, len(scores))
    best = np.argpartition(-scores, depth - 1)[:depth]
    return best[np.lexsort((best, -scores[best]))]


def _relative(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    best = float(scores.max(initial=0.0))
    positive = np.maximum(scores, 0)
    return positive / np.float32(best) if best > 0 else positive


def _rankings(
    words: NDArray[np.float32], cosines: NDArray[np.float32]
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Returns the order of the keyword lane, of the vector lane, and of the default fusion."""
    first, second = _best(words, DEPTH), _best(cosines, DEPTH)
    first = first[words[first] > 0]
    both = np.union1d(first, second)
    fused = KEYWORD * _relative(words[both]) + (1 - KEYWORD) * _relative(cosines[both])
    return first, second, both[_best(fused, len(both))]


def _ndcg(ranking: Iterable[int], gains: Mapping[int, float]) -> float:
    discounts = 1 / np.log2(np.arange(2, TOP + 2))
    best = sorted(gains.values(), reverse=True)[:TOP]
    ideal = float(np.dot(best, discounts[: len(best)]))
    found = [gains.get(int(place), 0.0) for place in itertools.islice(ranking, TOP)]
    return float(np.dot(found, discounts[: len(found)])) / ideal


class Weighting(NamedTuple):
    """One point of the grid."""

    lexical_user: float
    lexical_shared: float
    semantic_shared: float
    semantic_assistant: float


SHIPPED = Weighting(
    *(getattr(ragchat.HistoryExpansionTransformer(), name) for name in Weighting._fields)
)


class Measured(NamedTuple):
    """What one collection says of the whole grid."""

    last: Figures
    rewrite: Figures
    grid: Mapping[Weighting, Figures]
    merged: float
    """nDCG@10 of the hybrid of rewrite and shipped weighting, merged as by a search ahead."""

    def gaps(self, weighting: Weighting) -> list[float]:
        """Returns the share of the gap to the rewrite that a weighting closes, by ranking."""
        found = zip(self.last, self.grid[weighting], self.rewrite, strict=True)
        return [(own - last) / (best - last) for last, own, best in found]

    def gain(self, weighting: Weighting) -> float:
        """Returns the mean over the rankings of what a weighting adds to the last turn's figure."""
        found = zip(self.last, self.grid[weighting], strict=True)
        return sum(own / last - 1 for last, own in found) / len(RANKINGS)

    def choice(self) -> Weighting:
        """Returns the weighting with the highest gain, of equals the lightest."""
        return max(self.grid, key=lambda point: (self.gain(point), -sum(point)))


async def measure(folder: Path, embedder: ragchat.Embedder) -> Measured:
    """Measures every weighting on one collection."""
    corpus = Corpus(folder)
    last = [topic.query for topic in corpus.topics]
    rewrite = [rewritten(topic) for topic in corpus.topics]
    lexical = {
        point: _expanded(corpus, *point, 0.0, 0.0) for point in _points(LEXICAL, SHIPPED[:2])
    }
    semantic = {
        point: _expanded(corpus, 0.0, 0.0, *point) for point in _points(SEMANTIC, SHIPPED[2:])
    }
    spoken = {c.text: None for asked in semantic.values() for query in asked for c in query.context}
    texts = dict.fromkeys([*(query.text for query in (*last, *rewrite)), *spoken])
    await corpus.embed(embedder, list(texts))
    words = {point: corpus.keyword(queries) for point, queries in lexical.items()}
    meaning = {point: corpus.vector(queries) for point, queries in semantic.items()}
    grid = {
        Weighting(*first, *second): corpus.figures(words[first], meaning[second])
        for first in words
        for second in meaning
    }
    plain, best = ((corpus.keyword(queries), corpus.vector(queries)) for queries in (last, rewrite))
    merged = corpus.merged(best, (words[SHIPPED[:2]], meaning[SHIPPED[2:]]))
    return Measured(corpus.figures(*plain), corpus.figures(*best), grid, merged)


def _points(
    grid: Mapping[str, Sequence[float]], shipped: tuple[float, ...]
) -> list[tuple[float, ...]]:
    return list(dict.fromkeys([*itertools.product(*grid.values()), shipped]))


def _expanded(corpus: Corpus, *weights: float) -> list[ragchat.Query]:
    lexical_user, lexical_shared, semantic_shared, semantic_assistant = weights
    transformer = ragchat.HistoryExpansionTransformer(
        lexical_user=lexical_user,
        lexical_shared=lexical_shared,
        semantic_shared=semantic_shared,
        semantic_assistant=semantic_assistant,
    )
    return [
        transformer.expanded(ragchat.ConversationQuery(topic.query, topic.history))
        for topic in corpus.topics
    ]


def report(measured: Mapping[str, Measured]) -> str:
    """Renders the choices and their checks as Markdown tables."""
    heads = ("chosen on", "weights", "measured on", *RANKINGS, "gap closed in each")
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    choices = {name: found.choice() for name, found in measured.items()}
    for source, point in {**choices, "shipped": SHIPPED}.items():
        weights = f"{point[0]:g}, {point[1]:g}; {point[2]:g}, {point[3]:g}"
        means = []
        for name, found in measured.items():
            own, gaps = found.grid[point], found.gaps(point)
            means += [gaps[-1]] * (name != source)
            mark = " (chosen here)" if name == source else ""
            cells = " | ".join(f"{value:.4f}" for value in own)
            closed = ", ".join(f"{gap:.2f}" for gap in gaps)
            lines.append(f"| {source} | {weights} | {name}{mark} | {cells} | {closed} |")
        if means:
            others = "all" if source == "shipped" else "the others"
            mean = sum(means) / len(means)
            lines.append(f"| {source} | {weights} | mean of {others} | | | | hybrid {mean:.2f} |")
    lines += ["", "| measured on | way of asking | keyword | vector | hybrid |", "|---" * 5 + "|"]
    for name, found in measured.items():
        for way, values in (("last turn", found.last), ("rewrite", found.rewrite)):
            cells = " | ".join(f"{value:.4f}" for value in values)
            lines.append(f"| {name} | {way} | {cells} |")
    for name, found in measured.items():
        lines.append(f"| {name} | rewrite, merged with the shipped | | | {found.merged:.4f} |")
    below = [
        f"{name} {ranking} {point}"
        for name, found in measured.items()
        for point in found.grid
        for ranking, gap in zip(RANKINGS, found.gaps(point), strict=True)
        if gap < 0 and point in {*choices.values(), SHIPPED}
    ]
    lines += ["", f"Below the last turn: {'; '.join(below) or 'none of these, in no ranking'}."]
    return "\n".join(lines)


async def run(args: argparse.Namespace) -> dict[str, Measured]:
    """Measures the collections one after the other."""
    embedder = cached_embedder(args.cache)
    return {
        name: await measure(args.data / name, embedder)
        for name in (args.only.split(",") if args.only else COLLECTIONS)
    }


def main() -> None:
    """Runs the benchmark and prints its tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=HERE.parent.parent / "shared" / "data")
    parser.add_argument("--only", default="", help="comma-separated collections")
    parser.add_argument("--cache", type=Path, default=CACHE, help="cached embeddings")
    args = parser.parse_args()
    if not args.data.is_dir():
        parser.error(f"no folder {args.data}; give the collections' folder with --data")
    print(report(asyncio.run(run(args))))


if __name__ == "__main__":
    main()
