"""A store in Qdrant."""

from ragchat_retrieval.stores.qdrant.store import QdrantStore

__all__ = ["QdrantStore"]
