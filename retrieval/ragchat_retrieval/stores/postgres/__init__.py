"""Documents, postings and vectors in PostgreSQL with pgvector."""

from ragchat_retrieval.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
