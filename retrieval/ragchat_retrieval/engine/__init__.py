"""The columnar search engine under the memory store and the SQLite store."""

from ragchat_retrieval.engine.batch import Batch, Postings
from ragchat_retrieval.engine.files import DamagedIndex, load, save
from ragchat_retrieval.engine.snapshot import Found, Mask, Snapshot
from ragchat_retrieval.engine.writer import Engine

__all__ = [
    "Batch",
    "DamagedIndex",
    "Engine",
    "Found",
    "Mask",
    "Postings",
    "Snapshot",
    "load",
    "save",
]
