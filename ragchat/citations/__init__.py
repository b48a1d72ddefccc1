"""Citations: markers in answers, and the passages they stand for."""

from __future__ import annotations

from ragchat.citations.annotate import Annotation, URLCitation
from ragchat.citations.citations import Citations, Mention
from ragchat.citations.judge import ClaimJudge
from ragchat.citations.ledger import CitationLedger
from ragchat.citations.renumber import Renumbered
from ragchat.citations.scanner import Marker, Scanner, scan
from ragchat.citations.stream import (
    CitationMode,
    CitationStream,
    Emitted,
    LinkMaker,
    Placed,
    markdown_link,
)
from ragchat.citations.verification import CheckedClaim, Support, Verification
from ragchat.citations.verify import verify

__all__ = [
    "Annotation",
    "CheckedClaim",
    "CitationLedger",
    "CitationMode",
    "CitationStream",
    "Citations",
    "ClaimJudge",
    "Emitted",
    "LinkMaker",
    "Marker",
    "Mention",
    "Placed",
    "Renumbered",
    "Scanner",
    "Support",
    "URLCitation",
    "Verification",
    "markdown_link",
    "scan",
    "verify",
]
