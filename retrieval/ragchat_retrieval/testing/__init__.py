"""Shipped test kit: contract suites for adapters, conformance cases, and working doubles."""

from __future__ import annotations

from ragchat_retrieval.testing.filter_cases import FILTER_CASES, HOSTILE_KEYS, FilterCase

__all__ = ["FILTER_CASES", "HOSTILE_KEYS", "FilterCase"]
