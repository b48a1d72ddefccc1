"""Preparing a body that ends in a round of tool calls, with the evidence that its turn had."""

from __future__ import annotations

import hashlib
import json
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ragchat.access import read
from ragchat.errors import NoFinalUserMessage
from ragchat.prepared import PreparedRequest
from ragchat.request import ChatRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from ragchat.prepare import Preparer
    from ragchat.prepared import Retrieval

    Fingerprints = Callable[[Collection[str]], Awaitable[Mapping[str, str]]]

_ROUND = frozenset({"assistant", "tool", "function"})


@dataclass(frozen=True, slots=True)
class _Kept:
    """The evidence of one turn: nothing of the conversation but its last user message."""

    message: Any
    """That message with its evidence."""

    question: str
    retrieval: Retrieval
    documents: Mapping[str, str]
    """Fingerprints of the documents that it is from, as far as the store knows them."""

    size: int
    until: float


class Rounds:
    """Prepares requests; keeps the evidence of turns that may go on with tool calls.

    What is kept is bounded in number, size and time, and belongs to one key as long as it reaches
    the same documents: a turn is known by what its key reaches and by all its messages and options.
    A turn whose documents were removed or rewritten meanwhile is prepared anew.

    Args:
        most: Most turns kept.
        most_bytes: Most bytes of text in them.
        seconds: How long a turn is kept.
        clock: Seconds from any beginning.
    """

    def __init__(
        self,
        most: int,
        most_bytes: int,
        seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._seconds = seconds
        self._clock = clock
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._kept)

    async def prepare(
        self,
        preparer: Preparer,
        params: dict[str, Any],
        fingerprints: Fingerprints,
        *,
        owner: str,
        options: object = None,
    ) -> PreparedRequest:
        """Prepares a request up to its last user message; what follows it is appended.

        Args:
            preparer: Prepares a turn that is not kept.
            params: The keyword arguments of the answer call.
            fingerprints: Returns those of the known ones among these documents.
            owner: Whose turns these are, and what they may reach.
            options: What else the evidence depends on, as JSON data.

        Raises:
            NoFinalUserMessage: There is no user message, or something else than a round of tool
                calls follows the last.
            RagchatError: As `Preparer.prepare`.
        """
        messages = params["messages"]
        end = turn_of(messages)
        turn, rest = messages[:end], messages[end:]
        if not rest and not (params.get("tools") or params.get("functions")):
            return await preparer.prepare({**params, "messages": turn})
        key = _key(owner, turn, params.get("model"), options)
        kept = self._find(key) if rest else None
        if kept is not None and dict(await fingerprints(kept.documents)) != kept.documents:
            kept = None
        if kept is None:
            prepared = await preparer.prepare({**params, "messages": turn})
            found = {each.passage.document_id for each in prepared.retrieval.candidates}
            self._keep(key, prepared, dict(await fingerprints(found)))
        else:
            request = ChatRequest.snapshot({**params, "messages": [*turn[:-1], kept.message]})
            if kept.retrieval.budget is not None:
                request = request.without(kept.retrieval.budget.trimmed)
            held = preparer.budget
            prepared = PreparedRequest(request, kept.question, kept.retrieval, budget=held)
        return prepared.with_messages(rest) if rest else prepared

    def _find(self, key: bytes) -> _Kept | None:
        kept = self._kept.get(key)
        if kept is None or kept.until < self._clock():
            return None
        self._kept.move_to_end(key)
        return kept

    def _keep(self, key: bytes, prepared: PreparedRequest, documents: Mapping[str, str]) -> None:
        message = prepared.request["messages"][-1]
        texts = [candidate.passage.text for candidate in prepared.retrieval.candidates]
        size = sum(map(len, texts)) + len(json.dumps(message))
        if size > self._most_bytes:
            return
        self._drop(key)
        until = self._clock() + self._seconds
        question, retrieval = prepared.question, prepared.retrieval
        self._kept[key] = _Kept(message, question, retrieval, documents, size, until)
        self._size += size
        now = self._clock()
        for oldest in list(self._kept):
            full = len(self._kept) > self._most or self._size > self._most_bytes
            if not full and self._kept[oldest].until >= now:
                break
            self._drop(oldest)

    def _drop(self, key: bytes) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._size -= kept.size


def turn_of(messages: Sequence[object]) -> int:
    """Returns how many messages there are up to the last user message.

    Raises:
        NoFinalUserMessage: There is none, or something else than a round of tool calls follows.
    """
    end = len(messages)
    while end and read(messages[end - 1], "role") in _ROUND:
        end -= 1
    if not end or read(messages[end - 1], "role") != "user":
        raise NoFinalUserMessage(
            "the last message must be from the user, or a round of tool calls after one"
        )
    return end


def _key(owner: str, turn: object, model: object, options: object) -> bytes:
    form = json.dumps([owner, model, options, turn], separators=(",", ":"))
    return hashlib.sha256(form.encode()).digest()
