"""Writing citations and sources into an answer on its way to a client of the OpenAI API."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from ragchat.citations import CitationStream
from ragchat.events import Sources
from ragchat.reading import Halves, text_of
from ragchat.server.server_sent import END
from ragchat.wire import wire_form
from ragchat.wire.encoding import json_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ragchat.access import Foreign
    from ragchat.citations import Annotation, Citations
    from ragchat.prepared import PreparedRequest, Retrieval
    from ragchat.server.completions import Batch

_AT_ONCE = 4096
"""Characters of a choice that are looked through together."""


def about(retrieval: Retrieval) -> dict[str, Any]:
    """Returns the field ``ragchat`` of an answer: sources, what was left out, seconds."""
    sources = wire_form(
        Sources(
            retrieved=retrieval.candidates,
            presented=retrieval.citations,
            degraded=retrieval.degraded,
            skipped=retrieval.skipped,
        )
    )
    seconds: dict[str, float] = defaultdict(float)
    for timing in retrieval.trace.stages:
        seconds[timing.stage] += timing.seconds
    seconds["prepare"] = retrieval.trace.seconds
    return {
        "sources": sources["passages"],
        "degraded": sources["degraded"],
        "skipped": sources["skipped"],
        "timings": {name: round(s, 6) for name, s in seconds.items()},
    }


def annotated(completion: dict[str, Any], prepared: PreparedRequest) -> dict[str, Any]:
    """Adds annotations to the messages of a whole completion, and the field ``ragchat``."""
    answers = {answer.choice: answer for answer in prepared.answers(completion).choices}
    choices = completion.get("choices")
    for position, choice in enumerate(choices if isinstance(choices, list) else ()):
        number = choice.get("index") if isinstance(choice, dict) else None
        answer = answers.get(position if type(number) is not int else number)
        message = choice.get("message") if isinstance(choice, dict) else None
        if answer is not None and answer.annotations and isinstance(message, dict):
            _add(message, list(answer.annotations))
    return {**completion, "ragchat": about(prepared.retrieval)}


class Annotator:
    """Reads the chunks of a stream and returns them with annotations on a choice's last one.

    All other chunks stay as they are, byte for byte, but for annotations of the provider's own,
    which wait for ours: clients cannot join two lists. The first of those last chunks has the field
    ``ragchat`` too.

    Args:
        retrieval: What the answer may cite.
    """

    def __init__(self, retrieval: Retrieval) -> None:
        self._retrieval = retrieval
        self._choices: dict[int, _Choice] = {}
        self._told = False
        self._ended = False
        self._head: dict[str, Any] = {}

    @property
    def whole(self) -> bool:
        """Whether nothing is missing: the stream has said that it ends, or every choice has."""
        return self._ended or all(choice.ended for choice in self._choices.values())

    def feed(self, batch: Batch) -> Batch:
        """Takes the next chunks; the stream's own end is no chunk."""
        self._ended = self._ended or END in batch
        return [self._chunk(data) for data in batch if data != END]

    def finish(self) -> Batch:
        """Ends the stream: annotations of choices that ended without a last chunk."""
        left = [(n, choice.finish()) for n, choice in self._choices.items() if not choice.ended]
        chunks = [
            {**self._head, "choices": [_bare(number, annotations)]}
            for number, annotations in left
            if annotations
        ]
        return [json_bytes(chunk) for chunk in chunks]

    def _chunk(self, data: bytes) -> bytes:
        chunk = _read(data)
        if not isinstance(chunk, dict):
            return data
        changed = [self._choice(*each) for each in _choices(chunk)]
        if not self._head:
            names = ("id", "object", "created", "model")
            self._head = {name: chunk[name] for name in names if name in chunk}
        if not any(changed):
            return data
        if not self._told and any(choice.ended for choice in self._choices.values()):
            self._told = True
            chunk["ragchat"] = about(self._retrieval)
        return json_bytes(chunk)

    def _choice(self, number: int, choice: dict[str, Any]) -> bool:
        """Reads a choice; says whether it was changed, as in its last chunk."""
        known = self._choices.get(number)
        if known is None:
            known = self._choices[number] = _Choice(self._retrieval.citations)
        delta = choice.get("delta")
        if isinstance(delta, dict) and (text := text_of(delta.get("content"))):
            known.feed(text)
        if known.ended:
            return False
        taken = isinstance(delta, dict) and known.take(delta)
        if choice.get("finish_reason") is None:
            return taken
        annotations = known.finish()
        if annotations:
            if not isinstance(delta, dict):
                choice["delta"] = delta = {}
            delta["annotations"] = annotations
        return True


class _Choice:
    """The citations of one choice.

    What it says is looked through some thousands of characters at a time: the citations are the
    same for every way of cutting, and each piece for itself would cost several times as much.
    """

    def __init__(self, presented: Citations) -> None:
        self._presented = presented
        self._stream = CitationStream(presented)
        self._theirs: list[Any] = []
        self._found: list[Annotation] = []
        self._waiting: list[str] = []
        self._size = 0
        self._halves = Halves()
        self.ended = False

    def feed(self, text: str) -> None:
        self._waiting.append(self._halves.joined("content", text))
        self._size += len(text)
        if self._size >= _AT_ONCE:
            self._look()

    def take(self, delta: dict[str, Any]) -> bool:
        """Takes the provider's own annotations out of a delta; says whether there were any."""
        given = delta.get("annotations")
        if not isinstance(given, list) or not given:
            return False
        self._theirs += delta.pop("annotations")
        return True

    def finish(self) -> list[Any]:
        """Returns all annotations, the provider's first."""
        self.ended = True
        self._waiting += [half for _, half in self._halves.left()]
        self._look()
        self._found += self._presented.annotations(self._stream.finish().citations)
        return [*self._theirs, *self._found]

    def _look(self) -> None:
        text, self._waiting, self._size = "".join(self._waiting), [], 0
        self._found += self._presented.annotations(self._stream.feed(text).citations)


def _read(data: bytes) -> Foreign:
    """Returns what a chunk says, None if it is no JSON.

    The quick reader knows fewer kinds of JSON, such as half a surrogate pair, and less depth.
    """
    try:
        return from_json(data)
    except ValueError:
        pass
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _choices(chunk: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    choices = chunk.get("choices")
    for position, choice in enumerate(choices if isinstance(choices, list) else ()):
        if isinstance(choice, dict):
            index = choice.get("index")
            yield (index if type(index) is int else position), choice


def _add(holder: dict[str, Any], annotations: list[Annotation]) -> None:
    """Adds annotations behind those that the provider made."""
    given = holder.get("annotations")
    holder["annotations"] = [*(given if isinstance(given, list) else ()), *annotations]


def _bare(number: int, annotations: list[Any]) -> dict[str, Any]:
    return {"index": number, "delta": {"annotations": annotations}, "finish_reason": None}
