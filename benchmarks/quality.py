"""Retrieval quality on public collections: lanes and fusions side by side, and conversations.

    python benchmarks/quality.py --data ../shared/data [--only scifact,mtrag-govt] [--store sqlite]

Every collection is indexed whole (one passage per document, title and text) with the local
embedding model; embeddings are cached in ``benchmarks/.cache``, so that a second run takes a
minute. Figures are nDCG@10 with gain 2^rel − 1. For conversations the last turn alone, the
model-free history expansion and the human rewrite are compared, in each lane.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import math
import platform
import sys
import tempfile
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ragchat

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ragchat import HybridIndex, Query

HERE = Path(__file__).resolve().parent
COLLECTIONS = ("scifact", "cranfield", "python-docs", "mtrag-clapnq", "mtrag-fiqa", "mtrag-govt")
CONVERSATIONS = ("mtrag-clapnq", "mtrag-fiqa", "mtrag-govt")
FUSIONS = {
    "keyword": ragchat.Weighted(keyword=1.0),
    "vector": ragchat.Weighted(keyword=0.0),
    "hybrid": ragchat.Weighted(keyword=0.3),
    "not completed": ragchat.Weighted(keyword=0.3, complete=False),
    "RRF": ragchat.RRF(),
}
LANES = ("keyword", "vector", "hybrid")
DEPTH = 10


@dataclass(frozen=True)
class Collection:
    """A test collection in BEIR form."""

    name: str
    folder: Path

    def rows(self, name: str) -> Iterator[dict[str, Any]]:
        """Yields the objects of a gzipped JSON-lines file."""
        with gzip.open(self.folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)

    def documents(self) -> list[ragchat.Document]:
        """Returns the corpus; documents without text are left out."""
        return [
            ragchat.Document(row["_id"], row["text"], title=row.get("title") or None)
            for row in self.rows("corpus")
            if row["text"].strip()
        ]

    def judgments(self) -> dict[str, dict[str, int]]:
        """Returns relevance grades by query id and document id."""
        grades: dict[str, dict[str, int]] = {}
        with gzip.open(self.folder / "qrels.tsv.gz", "rt", encoding="utf-8") as lines:
            next(lines)
            for line in lines:
                query, document, grade = line.split("\t")[:3]
                grades.setdefault(query, {})[document] = int(grade)
        return grades

    def queries(self) -> dict[str, dict[str, Any]]:
        """Returns the judged queries by id."""
        judged = self.judgments()
        return {row["_id"]: row for row in self.rows("queries") if row["_id"] in judged}


def ndcg(ranking: Sequence[str], grades: Mapping[str, int], k: int = DEPTH) -> float:
    """Returns nDCG@k with gain 2^rel − 1 and a logarithmic discount."""

    def gain(values: Sequence[int]) -> float:
        return sum((2**grade - 1) / math.log2(rank + 2) for rank, grade in enumerate(values[:k]))

    ideal = gain(sorted(grades.values(), reverse=True))
    return gain([grades.get(id_, 0) for id_ in ranking]) / ideal if ideal else 0.0


async def score(
    index: HybridIndex,
    queries: Mapping[str, str | Query],
    grades: Mapping[str, Mapping[str, int]],
    fusion: ragchat.Weighted | ragchat.RRF,
) -> float:
    """Returns the mean nDCG@10 of the queries under a fusion."""
    total = 0.0
    for id_, query in queries.items():
        found = await index.search(query, top_k=DEPTH, fusion=fusion)
        total += ndcg([c.passage.document_id for c in found], grades[id_])
    return total / len(queries)


async def conversation(index: HybridIndex, collection: Collection) -> dict[str, dict[str, float]]:
    """Returns nDCG@10 by way of asking and lane."""
    rows, grades = collection.queries(), collection.judgments()
    expand = ragchat.HistoryExpansionTransformer()
    asked: dict[str, dict[str, str | Query]] = {
        "last turn": {id_: row["text"] for id_, row in rows.items()},
        "history expansion": {},
        "human rewrite": {id_: row["rewrite"] or row["text"] for id_, row in rows.items()},
    }
    for id_, row in rows.items():
        turn = ragchat.ConversationQuery(ragchat.Query(row["text"]), row["messages"][:-1])
        asked["history expansion"][id_] = await expand(turn)
    return {
        way: {lane: await score(index, queries, grades, FUSIONS[lane]) for lane in LANES}
        for way, queries in asked.items()
    }


async def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Indexes and measures each collection."""
    embedder = ragchat.CachedEmbedder(ragchat.LocalEmbedder(), HERE / ".cache" / "minilm.sqlite")
    results: dict[str, Any] = {"collections": {}, "conversations": {}}
    with tempfile.TemporaryDirectory() as folder:
        for name in args.only.split(",") if args.only else COLLECTIONS:
            collection = Collection(name, args.data / name)
            store = (
                ragchat.MemoryStore()
                if args.store == "memory"
                else ragchat.SQLiteStore(Path(folder) / f"{name}.sqlite")
            )
            async with ragchat.HybridIndex(
                store, embedder=embedder, splitter=ragchat.WholeText()
            ) as index:
                documents = collection.documents()
                await index.ingest(*documents, on_progress=_progress(name))
                queries = {id_: row["text"] for id_, row in collection.queries().items()}
                grades = collection.judgments()
                results["collections"][name] = {
                    label: await score(index, queries, grades, fusion)
                    for label, fusion in FUSIONS.items()
                }
                if name in CONVERSATIONS:
                    results["conversations"][name] = await conversation(index, collection)
    return results


def _progress(name: str) -> Any:  # noqa: ANN401 - a callback
    def tell(share: float) -> None:
        print(f"\r{name}: {share:4.0%}", end="" if share < 1 else "\n", file=sys.stderr)

    return tell


def report(results: dict[str, Any]) -> str:
    """Renders the results as Markdown tables."""
    lines = ["| collection | " + " | ".join(FUSIONS) + " | hybrid over better lane | RRF over it |"]
    lines.append("|---" * (len(FUSIONS) + 3) + "|")
    gains: dict[str, list[float]] = {"hybrid": [], "not completed": [], "RRF": []}
    for name, row in results["collections"].items():
        best = max(row["keyword"], row["vector"])
        for label, values in gains.items():
            values.append(row[label] / best - 1)
        cells = " | ".join(f"{row[label]:.4f}" for label in FUSIONS)
        lines.append(f"| {name} | {cells} | {gains['hybrid'][-1]:+.1%} | {gains['RRF'][-1]:+.1%} |")
    for label, values in gains.items():
        if values:
            mean = sum(values) / len(values)
            lines.append(f"\n{label}: worst {min(values):+.1%}, mean {mean:+.1%}")
    if not results["conversations"]:
        return "\n".join(lines)
    lines += [
        "",
        "| conversations | lane | last turn | history expansion | human rewrite | gap closed |",
    ]
    lines.append("|---" * 6 + "|")
    means: dict[str, list[float]] = {lane: [] for lane in LANES}
    for name, ways in results["conversations"].items():
        for lane in LANES:
            last, expanded, rewrite = (ways[way][lane] for way in ways)
            gap = (expanded - last) / (rewrite - last) if rewrite != last else float("nan")
            means[lane].append(gap)
            lines.append(
                f"| {name} | {lane} | {last:.4f} | {expanded:.4f} | {rewrite:.4f} | {gap:.2f} |"
            )
    for lane, gaps in means.items():
        lines.append(f"\n{lane}: mean gap closed {sum(gaps) / len(gaps):.2f}")
    return "\n".join(lines)


def main() -> None:
    """Runs the benchmark and prints its tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=HERE.parent.parent / "shared" / "data")
    parser.add_argument("--only", default="", help="comma-separated collections")
    parser.add_argument("--store", choices=("memory", "sqlite"), default="memory")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    args = parser.parse_args()
    if not args.data.is_dir():
        parser.error(f"no folder {args.data}; give the collections' folder with --data")
    results = asyncio.run(measure(args))
    packages = ("numpy", "onnxruntime", "PyStemmer", "tokenizers")
    print(f"{date.today()}, Python {platform.python_version()}, {platform.machine()}, ", end="")  # noqa: DTZ011
    print(", ".join(f"{name} {version(name)}" for name in packages), f"({args.store} store)\n")
    print(report(results))
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
