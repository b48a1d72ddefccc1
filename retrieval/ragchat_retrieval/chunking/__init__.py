"""Splitters: from a document to passages with exact spans and lines."""

from __future__ import annotations

from ragchat_retrieval.chunking.build import build_passages
from ragchat_retrieval.chunking.cached import CachedSplitter
from ragchat_retrieval.chunking.code import CodeSplitter
from ragchat_retrieval.chunking.documents import DocumentSplitter
from ragchat_retrieval.chunking.formats import OCR, ScannedPage
from ragchat_retrieval.chunking.headings import HeadingSplitter
from ragchat_retrieval.chunking.profile import Profile, recommended_profile
from ragchat_retrieval.chunking.semantic import SemanticSplitter
from ragchat_retrieval.chunking.sentences import sentence_spans
from ragchat_retrieval.chunking.tables import TableSplitter
from ragchat_retrieval.chunking.text import ParagraphSplitter, TextSplitter, WholeText
from ragchat_retrieval.chunking.windows import SentenceSplitter

__all__ = [
    "OCR",
    "CachedSplitter",
    "CodeSplitter",
    "DocumentSplitter",
    "HeadingSplitter",
    "ParagraphSplitter",
    "Profile",
    "ScannedPage",
    "SemanticSplitter",
    "SentenceSplitter",
    "TableSplitter",
    "TextSplitter",
    "WholeText",
    "build_passages",
    "recommended_profile",
    "sentence_spans",
]
