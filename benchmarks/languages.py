"""What the local embedding model, made of English, is worth in other languages.

    python benchmarks/languages.py --data ../shared/data

XQuAD has the same 240 paragraphs and questions in twelve languages, JaQuAD has Japanese ones. Each
language is a corpus of its own, searched with its first questions. Figures are nDCG@10 of words
alone, of meaning alone, of the default, which goes by words alone where the model cannot read the
question, and of words with more weight than meaning.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from statistics import fmean

from translation import HERE, judgments, rows

import ragchat
from ragchat_retrieval.evaluation import ndcg
from ragchat_retrieval.fusion import Weighted

LANGUAGES = ("en", "de", "es", "ro", "vi", "tr", "el", "ru", "ar", "hi", "th", "zh")
FUSIONS = {
    "words alone": Weighted(keyword=1.0),
    "meaning alone": Weighted(keyword=0.0),
    "default": None,
    "words at 0.6": Weighted(keyword=0.6),
}
BATCH = 100


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
    index = ragchat.HybridIndex(splitter=ragchat.WholeText(), embedder=ragchat.LocalEmbedder())
    await index.ingest(
        *(
            ragchat.Document(row["_id"], row["text"], title=row["title"] or None)
            for row in rows(corpus)
        )
    )
    figures = {}
    for name, fusion in FUSIONS.items():
        values = []
        for start in range(0, len(questions), BATCH):
            some = questions[start : start + BATCH]
            found = await index.search_batch([q["text"] for q in some], top_k=10, fusion=fusion)
            for question, result in zip(some, found, strict=True):
                ranking = [candidate.passage.document_id for candidate in result]
                values.append(ndcg(ranking, grades[question["_id"]], 10))
        figures[name] = fmean(values)
    return figures


def main() -> None:
    """Prints a row a language."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=HERE.parent.parent / "shared" / "data")
    parser.add_argument("--limit", type=int, default=300, help="questions of each language")
    args = parser.parse_args()
    print(f"| language | {' | '.join(FUSIONS)} |")
    print("|---" * (1 + len(FUSIONS)) + "|")
    for language, place in places(args.data).items():
        figures = asyncio.run(measure(place, args.limit))
        cells = " | ".join(f"{value:.3f}" for value in figures.values())
        print(f"| {language} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
