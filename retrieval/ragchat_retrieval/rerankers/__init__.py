"""Rerankers that ask a server."""

from __future__ import annotations

from ragchat_retrieval.rerankers.http import HttpReranker
from ragchat_retrieval.rerankers.shapes import Shape

__all__ = ["HttpReranker", "Shape"]
