"""The command line ``ragchat``: ingest, search, ask, eval, stats, embed, remove, reset, demo."""

from __future__ import annotations

from ragchat.cli.entry import main

__all__ = ["main"]
