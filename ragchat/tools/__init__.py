"""Retrieval as tools that a chat model calls by itself."""

from __future__ import annotations

from ragchat.tools.rag import RagTools, ToolResult

__all__ = ["RagTools", "ToolResult"]
