"""A process that writes to and searches in PostgreSQL, and may be killed at any moment.

Called with the URL, the schema, a command and its arguments; tells what it does line by line.
"""

from __future__ import annotations

import asyncio
import json
import sys

from child_work import PAIR, say, write_and_search

from ragchat_retrieval.stores.postgres import PostgresStore
from ragchat_retrieval.testing.store_suite_concurrency import version
from ragchat_retrieval.testing.store_suite_kit import put


async def write_pairs(store: PostgresStore, first: int) -> None:
    """Writes revisions of a pair of documents without end, telling after each."""
    number = first
    while True:
        await put(store, *(version(name, number) for name in PAIR))
        say(done=number)
        number += 1


async def main(url: str, schema: str, command: str, arguments: str) -> None:
    store = PostgresStore(url, schema=schema, timeout=60)
    say(ready=True)
    work = {"write_pairs": write_pairs, "write_and_search": write_and_search}[command]
    await work(store, **json.loads(arguments))
    await store.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
