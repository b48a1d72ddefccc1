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
    which wait for ours: clients cannot join two lists. Since they may come late, a choice's last
    chunk waits for the end of the stream, unless the choice goes on, as it does where the provider
    runs tools itself. The first of those last chunks has the field ``ragchat`` too.

    Args:
        retrieval: What the answer may cite.
    """

    def __init__(self, retrieval: Retrieval) -> None:
        self._retrieval = retrieval
        self._choices: dict[int, _Choice] = {}
        self._held: list[tuple[bytes, dict[str, Any] | None]] = []
        """A last chunk, and what came behind it: as it came, and as it is read if it changes."""
        self._told = False
        self._ended = False
        self._head: dict[str, Any] = {}

    @property
    def whole(self) -> bool:
        """Whether nothing is missing: the stream has said that it ends, or every choice has."""
        return self._ended or all(choice.ended for choice in self._choices.values())

    def feed(self, batch: Batch) -> Batch:
        """Takes the next chunks; the stream's own end is no chunk."""
        passed: Batch = []
        for data in batch:
            if data == END:
                self._ended = True
                passed += self._released()
            else:
                passed += self._chunk(data)
        return passed

    def finish(self) -> Batch:
        """Ends the stream: annotations of choices that ended without a last chunk."""
        passed = self._released()
        left = [(n, choice.finish()) for n, choice in self._choices.items() if not choice.ended]
        chunks = [
            {**self._head, "choices": [_bare(number, annotations)]}
            for number, annotations in left
            if annotations
        ]
        return passed + [json_bytes(chunk) for chunk in chunks]

    def _chunk(self, data: bytes) -> Batch:
        chunk = _read(data)
        if not isinstance(chunk, dict):
            return [data]
        if not self._head:
            names = ("id", "object", "created", "model")
            self._head = {name: chunk[name] for name in names if name in chunk}
        choices = [(self._known(number), choice) for number, choice in _choices(chunk)]
        taken = [known.read(choice) for known, choice in choices]
        passed: Batch = []
        if self._held and any(known.last and _says(choice) for known, choice in choices):
            for known, _ in choices:
                known.last = None
            passed = self._released()
        lasts = [each for each in choices if each[1].get("finish_reason")]
        for known, choice in lasts:
            known.last = choice
        changed = bool(lasts) or any(taken)
        if (lasts or self._held) and all(known.ended for known, _ in choices):
            self._held.append((data, chunk if changed else None))
            return passed
        for known, _ in lasts:  # beside a choice that goes on
            known.close()
        return [*passed, json_bytes(chunk) if changed else data]

    def _known(self, number: int) -> _Choice:
        if number not in self._choices:
            self._choices[number] = _Choice(self._retrieval.citations)
        return self._choices[number]

    def _released(self) -> Batch:
        """Returns what was held back, with annotations on last chunks that are last indeed."""
        held, self._held = self._held, []
        for choice in self._choices.values():
            choice.close()
        for _, last in held[:1]:
            if last is not None and not self._told:
                self._told = True
                last["ragchat"] = about(self._retrieval)
        return [data if chunk is None else json_bytes(chunk) for data, chunk in held]


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
        self._closed = False
        self.last: dict[str, Any] | None = None
        """What its last chunk says of it, if that has come."""

    @property
    def ended(self) -> bool:
        return self._closed or self.last is not None

    def read(self, choice: dict[str, Any]) -> bool:
        """Reads what a chunk says of it; says whether annotations were taken out."""
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            return False
        if text := text_of(delta.get("content")):
            self._feed(text)
        return self._take(delta)

    def close(self) -> None:
        """Writes all annotations into its last chunk, if that has come."""
        if self.last is None:
            return
        delta, annotations = self.last.get("delta"), self.finish()
        if annotations:
            if not isinstance(delta, dict):
                self.last["delta"] = delta = {}
            delta["annotations"] = annotations
        self.last = None

    def _feed(self, text: str) -> None:
        self._waiting.append(self._halves.joined("content", text))
        self._size += len(text)
        if self._size >= _AT_ONCE:
            self._look()

    def _take(self, delta: dict[str, Any]) -> bool:
        """Takes the provider's own annotations out of a delta; says whether there were any."""
        given = delta.get("annotations")
        if not isinstance(given, list) or not given:
            return False
        self._theirs += delta.pop("annotations")
        return True

    def finish(self) -> list[Any]:
        """Returns all annotations, the provider's first."""
        self._closed = True
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


def _says(choice: dict[str, Any]) -> bool:
    """Says whether there is anything in a choice of a chunk besides its end and its role."""
    delta = choice.get("delta")
    return isinstance(delta, dict) and any(delta[name] for name in delta if name != "role")


def _bare(number: int, annotations: list[Any]) -> dict[str, Any]:
    return {"index": number, "delta": {"annotations": annotations}, "finish_reason": None}
