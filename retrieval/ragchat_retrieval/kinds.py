"""Telling at the door what is not of the kind that is needed.

A port is a protocol, so that nothing else tells a store from its path or an embedder from its name
before one of its methods is called, far from where it was given.
"""

from __future__ import annotations

from ragchat_retrieval.errors import InvalidSetting


def check_store(name: str, given: object) -> None:
    """Refuses what is no store."""
    kind = "a store, such as SQLiteStore(path), which open_index(path) makes an index of"
    _check(name, given, kind, "corpus_name", "replace")


def check_embedder(name: str, given: object) -> None:
    """Refuses what is no embedder."""
    _check(name, given, "an embedder, such as LocalEmbedder()", "model", "embed")


def check_splitter(name: str, given: object) -> None:
    """Refuses what is no splitter."""
    _check(name, given, "a splitter, such as TextSplitter()", "name", "split")


def check_fusion(name: str, given: object) -> None:
    """Refuses what is no fusion."""
    _check(name, given, "a fusion, such as Weighted() or RRF()", "lanes", "fuse")


def check_index(name: str, given: object) -> None:
    """Refuses what is no index, one that is still to be opened included."""
    kind = "an index, such as `async with open_index(path)` gives, or .index of a blocking one"
    _check(name, given, kind, "store", "ingest")


def check_callable(name: str, given: object, kind: str) -> None:
    """Refuses what cannot be called.

    Args:
        name: The argument.
        given: What was given for it.
        kind: What is needed, as in "must be …".

    Raises:
        InvalidSetting: It cannot.
    """
    if not callable(given):
        _refuse(name, given, kind)


def _check(name: str, given: object, kind: str, *wanted: str) -> None:
    if isinstance(given, type) or not all(hasattr(given, each) for each in wanted):
        _refuse(name, given, kind)


def _refuse(name: str, given: object, kind: str) -> None:
    what = f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__
    raise InvalidSetting(name, f"must be {kind}, not {what}")
