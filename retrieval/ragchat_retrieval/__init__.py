"""Retrieval core: documents, filters, stores, hybrid search, fusion. Knows nothing of chat."""
