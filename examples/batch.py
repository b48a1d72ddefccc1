"""Many questions at once: a row of results for each, in order.

All texts are embedded in one call. A blank question has an empty row, so rows and questions always
line up; if anything fails, there is no half of a result.

It prints:

    'garbage collector': 1
    '': 0
    'Go memory': 1
"""

from __future__ import annotations

import asyncio

import ragchat


async def main() -> None:
    index = ragchat.quickstart()
    await index.ingest(
        ragchat.Document("go", "Go frees memory with a concurrent garbage collector.")
    )

    questions = ["garbage collector", "", "Go memory"]
    rows = await index.search_batch(questions, top_k=1)

    for question, row in zip(questions, rows, strict=True):
        print(f"{question!r}: {len(row)}")


if __name__ == "__main__":
    asyncio.run(main())
