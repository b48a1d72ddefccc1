"""The shortest way to a search: an index in memory, one document, one question.

`quickstart()` needs no key, no network and no extra. Its hashing embedder knows shared words, not
meaning; for real use open a file with `open_index("kb.sqlite")`, which takes a real model.

It prints:

    The Go build cache lives in ~/Library/Caches/go-build.
"""

from __future__ import annotations

import asyncio

import ragchat

NOTES = "The Go build cache lives in ~/Library/Caches/go-build."


async def main() -> None:
    index = ragchat.quickstart()
    await index.ingest(ragchat.Document("notes", NOTES))

    found = await index.search("where is the Go build cache?", top_k=1)

    print(found[0].passage.text)


if __name__ == "__main__":
    asyncio.run(main())
