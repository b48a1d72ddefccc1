"""How ``ragchat ask --verify`` shows what supports an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from ragchat.cli.output import one_line
from ragchat.cli.records import place
from ragchat.forms import degraded_records, range_record

if TYPE_CHECKING:
    from ragchat.citations import CheckedClaim, Citations, Support, Verification
    from ragchat.citations.verification import Status
    from ragchat.cli.output import Face

_STYLES: dict[Status, str] = {
    "supported": "green",
    "weak": "yellow",
    "unsupported": "bold red",
    "unknown": "bold red",
    "uncited": "yellow",
}


def show_verification(face: Face, verification: Verification, citations: Citations) -> None:
    """Shows each claim with its status, and under it the closest sentence of each passage cited."""
    face.line()
    for claim in verification.claims:
        status = Text(f"{claim.status:<12}", style=_STYLES[claim.status])
        face.show(Text.assemble(status, one_line(claim.text)))
        for support in claim.supports:
            where = f"[{support.citation}] {support.level}, {place(citations[support.citation])}"
            face.show(Text(where, style="dim"), indent=4)
            if support.sentence:
                face.show(Text(one_line(support.sentence), style="dim italic"), indent=8)
    found = [
        f"{len(claims):,} {status}" for status in _STYLES if (claims := verification.having(status))
    ]
    face.line(", ".join(found) or "the answer claims nothing", "bold")


def verification_record(verification: Verification) -> dict[str, Any]:
    """Returns a verification as JSON values."""
    return {
        "supported": verification.supported,
        "unknown_citations": list(verification.unknown),
        "claims": [_claim_record(claim) for claim in verification.claims],
        "degraded": degraded_records(verification.degraded),
    }


def _claim_record(claim: CheckedClaim) -> dict[str, Any]:
    return {
        "text": claim.text,
        "span": range_record(claim.span),
        "status": claim.status,
        "level": claim.level,
        "score": claim.score,
        "supports": [_support_record(support) for support in claim.supports],
        "best": None if claim.best is None else _support_record(claim.best),
        "unknown_citations": list(claim.unknown),
    }


def _support_record(support: Support) -> dict[str, Any]:
    return {
        "citation": support.citation,
        "level": support.level,
        "score": support.score,
        "lead": support.lead,
        "sentence": support.sentence,
        "span": range_record(support.span),
    }
