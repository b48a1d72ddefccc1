"""The PostgreSQL store under several processes, and under processes that are killed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from ragchat_retrieval.stores.postgres import PostgresStore
from ragchat_retrieval.testing.store_suite_concurrency import PARTS, version, versions_of
from ragchat_retrieval.testing.store_suite_kit import ALL, axis, by_vector, by_words, put

PAIR = ("left", "right")


class Child:
    """A process of `postgres_child`."""

    def __init__(
        self, environment: dict[str, str], url: str, schema: str, command: str, **arguments: Any
    ) -> None:
        script = str(Path(__file__).with_name("postgres_child.py"))
        self.process = subprocess.Popen(
            [sys.executable, script, url, schema, command, json.dumps(arguments)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {}
        return answer

    def end(self) -> int:
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait()


async def test_two_processes_write_and_search_one_corpus(
    postgres_url: str, postgres_schema: str, child_env: dict[str, str]
) -> None:
    """No error, no lost write, no torn read, and both may be the first that makes the tables."""
    names, writers, writes = ("a", "b"), 4, 6
    children = [
        Child(
            child_env,
            postgres_url,
            postgres_schema,
            "write_and_search",
            name=name,
            writers=writers,
            writes=writes,
            reads=writes,
        )
        for name in names
    ]
    for child, name in zip(children, names, strict=True):
        assert child.hear() == {"ready": True}
        assert child.hear() == {"finished": name}
        assert child.end() == 0
    store = PostgresStore(postgres_url, schema=postgres_schema)
    documents = len(names) * writers
    assert await store.count(scope=ALL) == (documents, documents * PARTS, documents * PARTS)
    assert await store.revision() == documents * writes
    hits = await by_words(store, "shared", 1000)
    for name in names:
        for task in range(writers):
            assert versions_of(hits, f"{name}{task}") == [str(writes)] * PARTS
    await store.aclose()


async def test_killed_at_random_moments(
    postgres_url: str, postgres_schema: str, child_env: dict[str, str]
) -> None:
    """A killed writer leaves the old revision of all documents of its write, or the new one."""
    store = PostgresStore(postgres_url, schema=postgres_schema)
    await put(store, *(version(name, 0) for name in PAIR))
    chance = random.Random(4041)  # noqa: S311 - chooses moments
    number = 0
    for _ in range(5):
        child = Child(child_env, postgres_url, postgres_schema, "write_pairs", first=number + 1)
        assert child.hear() == {"ready": True}
        for _ in range(chance.randrange(1, 12)):
            number = child.hear()["done"]
        child.process.kill()
        while answer := child.hear():
            number = answer["done"]
        assert child.end() < 0
        # Waits for what the server still does for the dead, and is counted by nobody.
        await store.delete(["nobody"], scope=ALL)
        hits = await by_words(store, "shared", 100)
        seen = {int(n) for name in PAIR for n in versions_of(hits, name)}
        assert len(hits) == PARTS * len(PAIR)
        assert len(seen) == 1
        assert number <= min(seen) <= number + 1
        number = min(seen)
        assert len(await by_vector(store, axis(0), 100)) == len(hits)
        assert await store.count(scope=ALL) == (len(PAIR), len(hits), len(hits))
        for name in PAIR:
            found = await store.neighbours(name, 0, 100, scope=ALL)
            assert tuple(found) == version(name, number).passages
    await store.aclose()
