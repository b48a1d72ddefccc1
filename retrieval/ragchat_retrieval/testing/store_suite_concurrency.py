"""The contract of stores: many tasks, many loops, cancelled callers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ragchat_retrieval.testing.store_suite_kit import ALL, axis, by_vector, by_words, put, revision

if TYPE_CHECKING:
    from ragchat_retrieval.ports import Hit, Store
    from ragchat_retrieval.values import Revision

PARTS = 4
GUARD = 120.0
"""Seconds after which a test counts as hanging."""


def version(name: str, number: int) -> Revision:
    """Returns one revision of a document whose passage ids tell the revision."""
    ids = [f"{name}:{number}:{part}" for part in range(PARTS)]
    texts = [f"shared {name} version{number} part{part}" for part in range(PARTS)]
    return revision(name, *texts, ids=ids)


def versions_of(hits: list[Hit], name: str) -> list[str]:
    """Returns the revision of each hit of a document."""
    return [hit.passage_id.split(":")[1] for hit in hits if hit.passage_id.startswith(f"{name}:")]


class ConcurrencyContract:
    """What holds when several callers work at the same time."""

    async def test_readers_see_whole_revisions(self, store: Store) -> None:
        """While documents are replaced, every answer holds one revision of each, whole."""
        names = [f"doc{n}" for n in range(4)]
        await put(store, *(version(name, 0) for name in names))

        async def write(name: str) -> None:
            for number in range(1, 8):
                await put(store, version(name, number))

        async def read(name: str) -> None:
            for _ in range(10):
                found = [
                    versions_of(await by_words(store, f"shared {name}", 100), name),
                    versions_of(await by_vector(store, axis(0), 100), name),
                    [
                        passage.id.split(":")[1]
                        for passage in await store.neighbours(name, 0, 100, scope=ALL)
                    ],
                ]
                for seen in found:
                    assert len(seen) == PARTS
                    assert len(set(seen)) == 1
                assert (await store.count(scope=ALL)).passages == PARTS * len(names)

        async with asyncio.timeout(GUARD), asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(write(name))
                group.create_task(read(name))
        assert {i.split(":")[1] for i in await store.ids(scope=ALL)} == {"7"}

    async def test_no_write_is_lost(self, store: Store) -> None:
        """Writers of different documents do not undo each other, and each raises the revision."""
        async with asyncio.timeout(GUARD), asyncio.TaskGroup() as group:
            for n in range(20):
                group.create_task(put(store, version(f"doc{n}", n)))
        assert await store.count(scope=ALL) == (20, 20 * PARTS, 20 * PARTS)
        assert await store.revision() >= len(range(20))

    async def test_a_cancelled_write_is_whole_or_not_there(self, store: Store) -> None:
        """Cancelling a writer at any point leaves one revision, and the store works on."""
        await put(store, version("doc", 0))
        for number in range(1, 12):
            task = asyncio.create_task(put(store, version("doc", number)))
            for _ in range(number % 4):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            found = versions_of(await by_words(store, "shared", 100), "doc")
            assert len(found) == PARTS
            assert len(set(found)) == 1
        await put(store, version("doc", 99))
        assert versions_of(await by_words(store, "shared", 100), "doc") == ["99"] * PARTS

    async def test_several_event_loops_share_a_store(self, store: Store) -> None:
        """A store may be used from loops in other threads."""

        def work(n: int) -> int:
            async def inside() -> int:
                await put(store, version(f"doc{n}", n))
                return len(await by_words(store, f"version{n}", 100))

            return asyncio.run(inside())

        async with asyncio.timeout(GUARD):
            found = await asyncio.gather(*(asyncio.to_thread(work, n) for n in range(6)))
        assert found == [PARTS] * 6
        assert (await store.count(scope=ALL)).documents == len(found)
