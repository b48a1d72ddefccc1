"""A turn leaves nothing behind: its memory is free as soon as the prepared request is dropped."""

from __future__ import annotations

import gc
import sys
import weakref
from contextlib import contextmanager

import ragchat
from ragchat.testing import ScriptedChatModel

TURNS = 1_000
"""So many keep less than an object each, however small: caches may still fill up a little."""


class Marker:
    """Something of the caller's in a request, which is kept by reference."""


@contextmanager
def no_collector():
    """Frees by reference counts alone."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def preparer_of_tea():
    index = ragchat.HybridIndex()
    await index.ingest(
        *(ragchat.Document(f"d{n}", f"Tea number {n} is grown in the hills.") for n in range(20))
    )

    async def scorer(query, candidates):
        return [0.5] * len(candidates)

    return ragchat.Preparer(
        index.retriever(rerank=scorer),
        query_transformer=ragchat.HistoryExpansionTransformer(),
        gate=ragchat.RetrievalGate(),
    )


def request(turn, **params):
    return {
        "model": "m",
        "messages": [
            {"role": "user", "content": "Is tea good?"},
            {"role": "assistant", "content": "Yes."},
            {"role": "user", "content": f"Where is tea number {turn % 20} grown?"},
        ],
        **params,
    }


async def test_a_prepared_request_is_garbage_as_soon_as_it_is_dropped():
    """Without the collector, whatever was done with it."""
    preparer = await preparer_of_tea()
    model = ScriptedChatModel(lambda _: "In the hills [1].")
    with no_collector():
        for use in ("nothing", "call", "stream", "left stream", "events"):
            marker = Marker()
            alive = weakref.ref(marker)
            prepared = await preparer.prepare(request(0, x_marker=marker))
            if use == "call":
                prepared.answers(await prepared.call(model.create))
            elif use == "stream":
                async with prepared.stream(model.create) as chunks:
                    assert [chunk async for chunk in chunks]
                del chunks
            elif use == "left stream":
                async with prepared.stream(model.create) as chunks:
                    await anext(chunks)
                del chunks
            elif use == "events":
                async with prepared.events(model.create) as events:
                    assert [event async for event in events]
                del events
            model.calls.clear()
            model.streams.clear()
            del marker, prepared
            assert alive() is None, use


async def test_a_turn_that_fails_is_garbage_too():
    async def broken(query):
        raise LookupError

    preparer = ragchat.Preparer(broken)
    with no_collector():
        marker = Marker()
        alive = weakref.ref(marker)
        try:
            await preparer.prepare(request(0, x_marker=marker))
        except LookupError:
            del marker
        assert alive() is None


async def test_a_thousand_turns_keep_no_objects_and_no_memory():
    preparer = await preparer_of_tea()

    async def turns(count):
        for turn in range(count):
            await preparer.prepare(request(turn))
        gc.collect()

    await turns(100)
    objects, blocks = len(gc.get_objects()), sys.getallocatedblocks()
    await turns(TURNS)
    assert len(gc.get_objects()) - objects < TURNS // 10
    assert sys.getallocatedblocks() - blocks < TURNS // 2
