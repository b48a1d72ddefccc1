"""Events as JSON: the plain form that ``events.schema.json`` describes."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ragchat.citations.annotate import title_of, url_of
from ragchat.events import (
    Citation,
    Finished,
    ReasoningDelta,
    RefusalDelta,
    Sources,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from ragchat.forms import degraded_records, range_record
from ragchat.wire.moments import Checked, Failure
from ragchat_retrieval.trace import StageEvent

if TYPE_CHECKING:
    from ragchat.citations import CheckedClaim, Support
    from ragchat.wire.moments import WireEvent
    from ragchat_retrieval.values import Candidate, Passage

_TEXTS = {TextDelta: "text", RefusalDelta: "refusal", ReasoningDelta: "reasoning"}


def wire_form(event: WireEvent | Failure) -> dict[str, Any]:  # noqa: PLR0911 - one for each kind
    """Returns an event as JSON data, with its ``type`` first.

    Metadata of passages is left out: it may hold what is not for every reader.
    """
    match event:
        case TextDelta() | RefusalDelta() | ReasoningDelta():
            return {"type": _TEXTS[type(event)], "choice": event.choice, "text": event.text}
        case Citation():
            return _citation(event)
        case StageEvent():
            return {"type": "stage", **asdict(event)}
        case Sources():
            return _sources(event)
        case ToolCallDelta():
            return _tool_call(event)
        case Usage():
            return {"type": "usage", **asdict(event)}
        case Finished():
            return {
                "type": "finished",
                "choice": event.choice,
                "finish_reason": event.finish_reason,
                "annotations": list(event.annotations),
            }
        case Checked():
            return _verification(event)
        case Failure():
            return {"type": "error", **asdict(event)}


def _citation(event: Citation) -> dict[str, Any]:
    mention = event.mention
    return {
        "type": "citation",
        "choice": event.choice,
        "start": event.start,
        "end": event.end,
        "marker": mention.marker,
        "numbers": list(mention.numbers),
        "unknown": list(mention.unknown),
        "foreign": mention.foreign,
    }


def _tool_call(event: ToolCallDelta) -> dict[str, Any]:
    return {
        "type": "tool_call",
        "choice": event.choice,
        "index": event.index,
        "id": event.id,
        "kind": event.type,
        "name": event.name,
        "arguments": event.arguments,
    }


def _sources(event: Sources) -> dict[str, Any]:
    ranks = {
        candidate.passage.id: (rank, candidate)
        for rank, candidate in reversed([*enumerate(event.retrieved, start=1)])
    }
    presented = [
        _passage(passage, number, *ranks.get(passage.id, (None, None)))
        for number, passage in event.presented.items()
    ]
    shown = {passage.id for passage in event.presented.values()}
    cut = [
        _passage(candidate.passage, None, rank, candidate)
        for rank, candidate in enumerate(event.retrieved, start=1)
        if candidate.passage.id not in shown
    ]
    return {
        "type": "sources",
        "passages": [*presented, *cut],
        "degraded": degraded_records(event.degraded),
        "skipped": event.skipped,
    }


def _passage(
    passage: Passage, number: int | None, rank: int | None, candidate: Candidate | None
) -> dict[str, Any]:
    url = url_of(passage)
    explain = None if candidate is None or candidate.explain is None else candidate.explain
    return {
        "number": number,
        "rank": rank,
        "score": None if candidate is None else candidate.score,
        "id": passage.id,
        "document_id": passage.document_id,
        "label": title_of(passage),
        "title": passage.title,
        "source": passage.source,
        "url": None if url.startswith("ragchat:") else url,
        "headings": list(passage.headings),
        "page": passage.page,
        "lines": range_record(passage.lines),
        "span": range_record(passage.span),
        "corpus": passage.corpus,
        "text": passage.text,
        "explain": None if explain is None else asdict(explain),
    }


def _verification(event: Checked) -> dict[str, Any]:
    found = event.verification
    return {
        "type": "verification",
        "choice": event.choice,
        "supported": found.supported,
        "claims": [_claim(claim) for claim in found.claims],
        "degraded": degraded_records(found.degraded),
    }


def _claim(claim: CheckedClaim) -> dict[str, Any]:
    return {
        "start": claim.span.start,
        "end": claim.span.end,
        "text": claim.text,
        "status": claim.status,
        "level": claim.level,
        "score": claim.score,
        "verdict": claim.verdict,
        "unknown": list(claim.unknown),
        "supports": [_support(support) for support in claim.supports],
        "best": None if claim.best is None else _support(claim.best),
    }


def _support(support: Support) -> dict[str, Any]:
    return {
        "number": support.citation,
        "level": support.level,
        "score": support.score,
        "lead": support.lead,
        "sentence": support.sentence,
        "span": range_record(support.span),
    }
