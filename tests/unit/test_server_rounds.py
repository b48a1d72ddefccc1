"""What a server keeps of turns with tools is bounded in number, size and time, and has an owner."""

from __future__ import annotations

from ragchat.prepare import Preparer
from ragchat.server.rounds import Rounds
from ragchat.testing import tool_call
from ragchat_retrieval.values import Candidate, Passage

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
ROUND = [
    {"role": "assistant", "content": None, "tool_calls": [tool_call("f", "{}")]},
    {"role": "tool", "tool_call_id": "call_1", "content": "7"},
]


class Turns:
    """Asks for turns and rounds, and counts the searches that they took."""

    def __init__(self, most: int = 2, most_bytes: int = 10_000, seconds: float = 60.0):
        self.now = 0.0
        self.searches = 0
        self.rounds = Rounds(most, most_bytes, seconds, clock=lambda: self.now)
        self.preparer = Preparer(self._found)

    async def _found(self, query):
        self.searches += 1
        return [Candidate(Passage("Tea is at four.", document_id="tea"), 1.0)]

    async def ask(self, question, *rest, owner="a"):
        before = self.searches
        turn = {"model": "m", "messages": [{"role": "user", "content": question}, *rest]}
        await self.rounds.prepare(self.preparer, turn | {"tools": TOOLS}, _unchanged, owner=owner)
        return self.searches - before


async def _unchanged(documents):
    return dict.fromkeys(documents, "same")


async def test_a_round_is_answered_from_what_its_turn_found():
    turns = Turns()
    assert [await turns.ask("one"), await turns.ask("one", *ROUND)] == [1, 0]


async def test_no_more_turns_are_kept_than_there_may_be_and_the_longest_unused_goes_first():
    turns = Turns(most=2)
    for question in ("one", "two"):
        await turns.ask(question)
    assert await turns.ask("one", *ROUND) == 0
    await turns.ask("three")
    assert len(turns.rounds) == 2
    assert [await turns.ask(each, *ROUND) for each in ("one", "three", "two")] == [0, 0, 1]


async def test_the_size_of_all_that_is_kept_is_bounded():
    turns = Turns(most=100, most_bytes=6_000)
    for n in range(20):
        await turns.ask(f"question {n} " + "x" * 1_000)
    assert 1 <= len(turns.rounds) < 6


async def test_a_turn_that_is_too_large_is_not_kept_and_drives_no_other_out():
    turns = Turns(most_bytes=6_000)
    await turns.ask("one")
    large = "x" * 10_000
    await turns.ask(large)
    assert [await turns.ask(each, *ROUND) for each in ("one", large)] == [0, 1]


async def test_a_turn_is_forgotten_when_its_time_is_over():
    turns = Turns(seconds=60.0)
    await turns.ask("one")
    turns.now = 59.0
    assert await turns.ask("one", *ROUND) == 0
    turns.now = 61.0
    assert await turns.ask("one", *ROUND) == 1
    turns.now = 200.0
    await turns.ask("two")
    assert len(turns.rounds) == 1


async def test_the_turn_of_another_owner_is_never_shared():
    turns = Turns()
    await turns.ask("one", owner="a")
    assert await turns.ask("one", *ROUND, owner="b") == 1
