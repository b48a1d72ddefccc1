"""The blocking face: the classes that do I/O, with methods that return results.

Everything runs on one background event loop per process, so it works in scripts, in notebooks
beside a running loop, in threads, and in servers that fork. Context variables are carried in, and
Ctrl-C stops the work. Callbacks such as `on_progress` are called in the background thread.
"""

from __future__ import annotations

from ragchat.sync.chat import (
    PreparedEvents,
    PreparedRequest,
    PreparedStream,
    Preparer,
    verify,
)
from ragchat.sync.index import (
    HybridIndex,
    ingest_directory,
    migrate_index,
    open_index,
    swap_indexes,
)
from ragchat.sync.running import run

__all__ = [
    "HybridIndex",
    "PreparedEvents",
    "PreparedRequest",
    "PreparedStream",
    "Preparer",
    "ingest_directory",
    "migrate_index",
    "open_index",
    "run",
    "swap_indexes",
    "verify",
]
