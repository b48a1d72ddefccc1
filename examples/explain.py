"""Why a passage stands where it stands.

With `explain=True` each candidate carries what either lane said of it, how the two were fused, and
what came after. Explanations belong to the search and are never stored.

It prints:

    1. gc, score 1.00
       words:   0.40 of the question's, rank 1
       vectors: cosine 0.41, rank 1
    2. mm, score 0.35
       words:   0.20 of the question's, rank 2
       vectors: cosine 0.15, rank 2
"""

from __future__ import annotations

import asyncio

import ragchat


async def main() -> None:
    index = ragchat.quickstart()
    await index.ingest(
        ragchat.Document("gc", "Go uses a concurrent garbage collector."),
        ragchat.Document("mm", "The Go memory model says when a read sees a write."),
        ragchat.Document("mod", "A module is a tree of packages with a version."),
    )

    for candidate in await index.search("how does Go collect garbage?", top_k=2, explain=True):
        why = candidate.explain
        print(f"{why.final_rank}. {candidate.passage.document_id}, score {candidate.score:.2f}")
        print(f"   words:   {why.keyword.overlap:.2f} of the question's, rank {why.keyword.rank}")
        print(f"   vectors: cosine {why.vector.score:.2f}, rank {why.vector.rank}")


if __name__ == "__main__":
    asyncio.run(main())
