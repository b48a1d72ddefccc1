"""The columnar search engine under the memory store and the SQLite store."""

from ragchat_retrieval.engine.batch import Batch, Postings
from ragchat_retrieval.engine.coded import Coded
from ragchat_retrieval.engine.files import (
    DamagedIndex,
    load,
    read_arrays,
    save,
    write_arrays,
)
from ragchat_retrieval.engine.graph import Graph, Hnsw, Stopped
from ragchat_retrieval.engine.inverting import Inverted
from ragchat_retrieval.engine.snapshot import Found, Mask, Snapshot
from ragchat_retrieval.engine.writer import Engine
from ragchat_retrieval.pages import release

__all__ = [
    "Batch",
    "Coded",
    "DamagedIndex",
    "Engine",
    "Found",
    "Graph",
    "Hnsw",
    "Inverted",
    "Mask",
    "Postings",
    "Snapshot",
    "Stopped",
    "load",
    "read_arrays",
    "release",
    "save",
    "write_arrays",
]
