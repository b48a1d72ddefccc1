"""What the local embedding model, made of English, is worth in other languages.

    python benchmarks/languages.py --data ../shared/data

XQuAD has the same 240 paragraphs and questions in twelve languages, JaQuAD has Japanese ones. Each
language is a corpus of its own, searched with its first questions. Figures are nDCG@10 of words
alone, of meaning alone, of the default, in which words count for more the less the model can read a
question, and of the same weights for all questions.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from statistics import fmean

from embedding import cached_embedder
from translation import HERE, judgments, rows

import ragchat
from ragchat_retrieval.evaluation import ndcg
from ragchat_retrieval.fusion import Weighted

LANGUAGES = ("en", "de", "es", "ro", "vi", "tr", "el", "ru", "ar", "hi", "th", "zh")
FUSIONS = {
    "words alone": Weighted(keyword=1.0),
    "meaning alone": Weighted(keyword=0.0),
    "default": None,
}
BATCH = 20


class Confident:
    """An embedder that does not tell how well its model reads a text."""

    def __init__(self, embedder: ragchat.Embedder) -> None:
        self.model = embedder.model
        self.dimension = embedder.dimension
        self.embed = embedder.embed


def places(data: Path) -> dict[str, tuple[Path, Path, Path]]:
    """Returns where documents, questions and judgments of each language are."""
    xquad, jaquad = data / "xquad", data / "jaquad-dev"
    found = {
        language: (
            xquad / f"corpus.{language}.jsonl.gz",
            xquad / f"queries.{language}.jsonl.gz",
            xquad / "qrels.tsv.gz",
        )
        for language in LANGUAGES
    }
    found["ja"] = (jaquad / "corpus.jsonl.gz", jaquad / "queries.jsonl.gz", jaquad / "qrels.tsv.gz")
    return found


async def measure(place: tuple[Path, Path, Path], limit: int) -> dict[str, float]:
    """Returns the metric of each fusion."""
    corpus, asked, judged = place
    grades = judgments(judged)
    questions = [row for row in rows(asked) if row["_id"] in grades][:limit]
    embedder = cached_embedder()
    index = ragchat.HybridIndex(splitter=ragchat.WholeText(), embedder=embedder)
    await index.ingest(
        *(
            ragchat.Document(row["_id"], row["text"], title=row["title"] or None)
            for row in rows(corpus)
        )
    )
    unaware = ragchat.HybridIndex(index.store, embedder=Confident(embedder))

    async def mean(asked: ragchat.HybridIndex, fusion: Weighted | None) -> float:
        values = []
        for start in range(0, len(questions), BATCH):
            some = questions[start : start + BATCH]
            found = await asked.search_batch([q["text"] for q in some], top_k=10, fusion=fusion)
            for question, result in zip(some, found, strict=True):
                ranking = [candidate.passage.document_id for candidate in result]
                values.append(ndcg(ranking, grades[question["_id"]], 10))
        return fmean(values)

    figures = {name: await mean(index, fusion) for name, fusion in FUSIONS.items()}
    return figures | {"same weights": await mean(unaware, None)}


def main() -> None:
    """Prints a row a language."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=HERE.parent.parent / "shared" / "data")
    parser.add_argument("--limit", type=int, default=300, help="questions of each language")
    args = parser.parse_args()
    for number, (language, place) in enumerate(places(args.data).items()):
        figures = asyncio.run(measure(place, args.limit))
        if not number:
            print(f"| language | {' | '.join(figures)} |\n" + "|---" * (1 + len(figures)) + "|")
        cells = " | ".join(f"{value:.3f}" for value in figures.values())
        print(f"| {language} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
