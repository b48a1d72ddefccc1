"""A store in OpenSearch."""

from ragchat_retrieval.stores.opensearch.store import OpenSearchStore

__all__ = ["OpenSearchStore"]
