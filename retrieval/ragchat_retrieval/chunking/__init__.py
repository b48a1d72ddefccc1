"""Splitters: from a document to passages with exact spans and lines."""

from __future__ import annotations

from ragchat_retrieval.chunking.headings import HeadingSplitter
from ragchat_retrieval.chunking.profile import Profile, recommended_profile
from ragchat_retrieval.chunking.sentences import sentence_spans
from ragchat_retrieval.chunking.text import ParagraphSplitter, TextSplitter, WholeText

__all__ = [
    "HeadingSplitter",
    "ParagraphSplitter",
    "Profile",
    "TextSplitter",
    "WholeText",
    "recommended_profile",
    "sentence_spans",
]
