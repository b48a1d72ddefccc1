"""The demo's texts and its conversation; played by ``ragchat demo``."""

from __future__ import annotations

from ragchat.demo.content import CORPUS, EVIDENCE_TOKENS, QUESTIONS, default_index, pages

__all__ = ["CORPUS", "EVIDENCE_TOKENS", "QUESTIONS", "default_index", "pages"]
