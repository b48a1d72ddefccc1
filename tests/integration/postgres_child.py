"""A process that writes to and searches in PostgreSQL, and may be killed at any moment.

Called with the URL, the schema, a command and its arguments; tells what it does line by line.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from ragchat_retrieval.stores.postgres import PostgresStore
from ragchat_retrieval.testing.store_suite_concurrency import PARTS, version, versions_of
from ragchat_retrieval.testing.store_suite_kit import axis, by_vector, by_words, put

PAIR = ("left", "right")
"""Documents that are always written together."""


def say(**answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


async def write_pairs(store: PostgresStore, first: int) -> None:
    """Writes revisions of a pair of documents without end, telling after each."""
    number = first
    while True:
        await put(store, *(version(name, number) for name in PAIR))
        say(done=number)
        number += 1


async def write_and_search(store: PostgresStore, name: str, writers: int, writes: int) -> None:
    """Writes documents of its own from several tasks while others search for all documents."""

    async def write(task: int) -> None:
        for number in range(1, writes + 1):
            await put(store, version(f"{name}{task}", number))

    async def read() -> None:
        for _ in range(writes):
            for hits in (
                await by_words(store, "shared", 1000),
                await by_vector(store, axis(0), 1000),
            ):
                for document in {hit.passage_id.split(":")[0] for hit in hits}:
                    seen = versions_of(hits, document)
                    assert len(seen) == PARTS, document
                    assert len(set(seen)) == 1, document

    async with asyncio.TaskGroup() as group:
        for task in range(writers):
            group.create_task(write(task))
        for _ in range(2):
            group.create_task(read())
    say(finished=name)


async def main(url: str, schema: str, command: str, arguments: str) -> None:
    store = PostgresStore(url, schema=schema, timeout=60)
    say(ready=True)
    work = {"write_pairs": write_pairs, "write_and_search": write_and_search}[command]
    await work(store, **json.loads(arguments))
    await store.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
