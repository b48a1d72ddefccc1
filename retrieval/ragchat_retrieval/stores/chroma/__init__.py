"""A store in Chroma."""

from ragchat_retrieval.stores.chroma.store import ChromaStore

__all__ = ["ChromaStore"]
