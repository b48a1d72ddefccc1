"""Citations: markers in answers, and the passages they stand for."""

from __future__ import annotations

from ragchat.citations.annotate import Annotation, URLCitation
from ragchat.citations.citations import Citations, Mention
from ragchat.citations.scanner import Marker, Scanner, scan

__all__ = [
    "Annotation",
    "Citations",
    "Marker",
    "Mention",
    "Scanner",
    "URLCitation",
    "scan",
]
