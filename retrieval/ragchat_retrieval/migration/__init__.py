"""Copying an index into another store, or to another embedder, while both are in use."""

from __future__ import annotations

from ragchat_retrieval.migration.migrating import migrate_index
from ragchat_retrieval.migration.report import MigrationReport
from ragchat_retrieval.migration.swapping import swap_indexes

__all__ = ["MigrationReport", "migrate_index", "swap_indexes"]
