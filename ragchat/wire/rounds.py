"""Rounds of tool calls: the events of several calls of the chat model as those of one answer."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from ragchat.events import Citation, Finished, Sources, TextDelta, Usage
from ragchat.wire.moments import Checked
from ragchat_retrieval.values import Span

if TYPE_CHECKING:
    from ragchat.citations import Annotation
    from ragchat.wire.moments import WireEvent

_BETWEEN = "\n\n"


class Rounds:
    """Takes the events of one call after the other; each call begins with its `Sources`.

    To its reader they are one text, the rounds with a blank line between them, and places count in
    all of it. Tokens are added up, and sources that stay as they are come once.
    """

    def __init__(self) -> None:
        self._sources: Sources | None = None
        self._usage = Usage()
        self._lengths: dict[int, int] = {}
        self._begins: dict[int, int] = {}

    def feed(self, event: WireEvent) -> list[WireEvent]:
        """Takes the next event and returns what the reader is to see of it."""
        match event:
            case Sources():
                known, self._sources = self._sources, event
                self._begins = {}
                return [] if event == known else [event]
            case TextDelta():
                between = self._between(event.choice)
                self._lengths[event.choice] += len(event.text)
                return [*between, event]
            case Usage():
                self._usage = _added(self._usage, event)
                return [self._usage]
            case Citation():
                between = self._between(event.choice)
                return [*between, _moved(event, self._begins[event.choice])]
            case Finished() | Checked():
                return [_moved(event, self._begins.get(event.choice, 0))]
        return [event]

    def _between(self, choice: int) -> list[WireEvent]:
        """Begins the text of a round; returns what parts it from the text before."""
        if choice in self._begins:
            return []
        said = self._lengths.get(choice, 0)
        between: list[WireEvent] = [TextDelta(choice, _BETWEEN)] if said else []
        self._lengths[choice] = self._begins[choice] = said + (len(_BETWEEN) if said else 0)
        return between


def _added(one: Usage, other: Usage) -> Usage:
    more = asdict(other)
    sums = {
        name: tokens if more[name] is None else (tokens or 0) + more[name]
        for name, tokens in asdict(one).items()
    }
    return Usage(**sums)


def _moved(event: Citation | Finished | Checked, by: int) -> Citation | Finished | Checked:
    match event:
        case Citation():
            return replace(event, start=event.start + by, end=event.end + by)
        case Finished():
            annotations = tuple(_annotated(one, by) for one in event.annotations)
            return replace(event, annotations=annotations)
        case Checked(verification=found):
            claims = tuple(
                replace(claim, span=Span(claim.span.start + by, claim.span.end + by))
                for claim in found.claims
            )
            return replace(event, verification=replace(found, claims=claims))


def _annotated(annotation: Annotation, by: int) -> Annotation:
    cited = annotation["url_citation"]
    start, end = cited["start_index"] + by, cited["end_index"] + by
    return {**annotation, "url_citation": {**cited, "start_index": start, "end_index": end}}
