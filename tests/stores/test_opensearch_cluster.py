"""A cluster of two nodes loses one, and the store goes on with what the other one holds."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest
from opensearchpy import AsyncOpenSearch

from ragchat_retrieval.errors import StoreUnavailable
from ragchat_retrieval.stores.opensearch import OpenSearchStore
from ragchat_retrieval.testing.store_suite_kit import (
    axis,
    by_vector,
    by_words,
    contents,
    put,
    revision,
)

if TYPE_CHECKING:
    from collections.abc import Callable

MANAGER = {
    "cluster.name": "two",
    "node.name": "manager",
    "cluster.initial_cluster_manager_nodes": "manager",
}
SPREAD = {
    "number_of_replicas": 0,
    "number_of_shards": 2,
    "routing.allocation.total_shards_per_node": 1,
}
"""One shard on each node, so that the loss of a node is that of a shard."""

DATA = {"cluster.name": "two", "node.name": "data", "node.roles": "data"}


async def test_a_lost_node_takes_nothing_that_has_a_replica(launch_opensearch: Callable) -> None:
    """With a replica the store reads and writes on; without one it says so, and drops no hit."""
    with (
        launch_opensearch(MANAGER) as manager,
        launch_opensearch({**DATA, "discovery.seed_hosts": manager.transport}) as data,
    ):
        kept = OpenSearchStore([data.url, manager.url], settings={"number_of_replicas": 1})
        single = OpenSearchStore(manager.url, prefix="single", settings=SPREAD)
        async with (
            AsyncOpenSearch(manager.url, timeout=60) as client,
            aclosing(kept),
            aclosing(single),
        ):
            given = [revision(f"d{n}", f"word number{n}") for n in range(20)]
            for store in (kept, single):
                await put(store, *given)
            health = await client.cluster.health(
                index="ragchat.*", wait_for_status="green", wait_for_nodes="2"
            )
            assert not health["timed_out"]
            before = await contents(kept)
            hits = await by_words(kept, "word", 50), await by_vector(kept, axis(0), 50)
            assert len(hits[0]) == len(hits[1]) == len(given)

            data.process.kill()
            data.process.wait(60)
            health = await client.cluster.health(wait_for_nodes="1")
            assert not health["timed_out"]

            assert await contents(kept) == before
            assert (await by_words(kept, "word", 50), await by_vector(kept, axis(0), 50)) == hits
            await put(kept, revision("d0", "new words"), revision("d20", "word number20"))
            assert len(await by_words(kept, "word", 50)) == len(given)
            with pytest.raises(StoreUnavailable) as caught:
                await by_words(single, "word", 50)
            assert caught.value.retryable
