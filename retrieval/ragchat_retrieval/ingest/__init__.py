"""Ingestion: reading sources into an index, and the report of it."""

from __future__ import annotations

from ragchat_retrieval.ingest.directory import ingest_directory
from ragchat_retrieval.ingest.duplicates import Duplicates, deduplicated
from ragchat_retrieval.ingest.records import records
from ragchat_retrieval.ingest.report import IngestError, IngestReport

__all__ = [
    "Duplicates",
    "IngestError",
    "IngestReport",
    "deduplicated",
    "ingest_directory",
    "records",
]
