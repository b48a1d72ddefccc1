"""The embedded default: one SQLite file."""

from ragchat_retrieval.stores.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore"]
