"""What the child processes of the tests do with a store, whichever it is."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

from ragchat_retrieval.testing.store_suite_concurrency import PARTS, version, versions_of
from ragchat_retrieval.testing.store_suite_kit import axis, by_vector, by_words, put

if TYPE_CHECKING:
    from ragchat_retrieval.ports import Store

PAIR = ("left", "right")
"""Documents that are always written together."""


def say(**answer: Any) -> None:
    """Tells the test something, on a line of its own."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


async def write_and_search(store: Store, name: str, writers: int, writes: int, reads: int) -> None:
    """Writes documents of its own from several tasks while others search for all documents."""

    async def write(task: int) -> None:
        for number in range(1, writes + 1):
            await put(store, version(f"{name}{task}", number))

    async def read() -> None:
        for _ in range(reads):
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
    await store.aclose()
    say(finished=name)
