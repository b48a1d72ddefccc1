"""What a translated question brings the keyword lane, and at which weight to keep the original.

    python benchmarks/translation.py --data ../shared/data

XQuAD asks the same questions in many languages. English passages are searched with the English
question, as a perfect translation, and the question in another language beside it at various
weights. Figures are nDCG@10 of the keyword lane; the first column is the foreign question alone,
the next the translation alone.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ragchat
from ragchat_retrieval.evaluation import ndcg

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).resolve().parent
LANGUAGES = ("de", "es", "ro", "ru", "tr", "zh")
WEIGHTS = (0.0, 0.1, 0.25, 0.5, 1.0)
BATCH = 200


def rows(path: Path) -> list[dict[str, Any]]:
    """Reads gzipped JSON lines."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def judgments(path: Path) -> dict[str, dict[str, int]]:
    """Reads relevant document ids by question."""
    found: dict[str, dict[str, int]] = {}
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        next(lines)
        for line in lines:
            fields = line.split("\t")
            found.setdefault(fields[0], {})[fields[-2]] = int(fields[-1])
    return found


def beside(translation: str, original: str, weight: float) -> ragchat.Query:
    """Returns the query that `TranslationTransformer` would make with this weight."""
    context = (ragchat.ContextText(original, lexical=weight),) if weight else ()
    return ragchat.Query(original, lexical=translation, context=context)


async def measure(data: Path) -> dict[str, list[float]]:
    """Returns the metric by language: the foreign question, then each weight."""
    grades = judgments(data / "qrels.tsv.gz")
    english = {row["_id"]: row["text"] for row in rows(data / "queries.en.jsonl.gz")}
    index = ragchat.HybridIndex(splitter=ragchat.WholeText())
    await index.ingest(
        *(
            ragchat.Document(row["_id"], row["text"], title=row.get("title"))
            for row in rows(data / "corpus.en.jsonl.gz")
        )
    )

    async def mean(ids: list[str], ask: Callable[[str], ragchat.Query]) -> float:
        total = 0.0
        for start in range(0, len(ids), BATCH):
            batch = ids[start : start + BATCH]
            results = await index.search_batch([ask(id_) for id_ in batch], top_k=10)
            for id_, result in zip(batch, results, strict=True):
                total += ndcg([c.passage.document_id for c in result], grades[id_], 10)
        return total / len(ids)

    figures: dict[str, list[float]] = {}
    for language in LANGUAGES:
        asked = {row["_id"]: row["text"] for row in rows(data / f"queries.{language}.jsonl.gz")}
        ids = [id_ for id_ in asked if id_ in grades]
        figures[language] = [await mean(ids, lambda id_, asked=asked: ragchat.Query(asked[id_]))]
        for weight in WEIGHTS:
            figures[language].append(
                await mean(
                    ids,
                    lambda id_, asked=asked, weight=weight: beside(
                        english[id_], asked[id_], weight
                    ),
                )
            )
    return figures


def report(figures: dict[str, list[float]]) -> str:
    """Renders the figures as a Markdown table."""
    heads = ["language", "question alone", *(f"original at {weight:g}" for weight in WEIGHTS)]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for language, values in figures.items():
        lines.append(f"| {language} | " + " | ".join(f"{value:.4f}" for value in values) + " |")
    means = [sum(column) / len(figures) for column in zip(*figures.values(), strict=True)]
    lines.append("| mean | " + " | ".join(f"{value:.4f}" for value in means) + " |")
    return "\n".join(lines)


def main() -> None:
    """Runs the benchmark and prints its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=HERE.parent.parent / "shared" / "data")
    args = parser.parse_args()
    folder = args.data / "xquad"
    if not folder.is_dir():
        parser.error(f"no folder {folder}; give the collections' folder with --data")
    print(report(asyncio.run(measure(folder))))


if __name__ == "__main__":
    main()
