"""Remembering what a splitter made of a document."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.metadata import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ragchat_retrieval.ports import Splitter
    from ragchat_retrieval.values import Document, Passage


class CachedSplitter:
    """Gives the passages of an unchanged document without splitting it again.

    An index skips unchanged documents by itself; this is for those that are split for several
    indexes, or again and again while settings are compared, by a splitter that costs something. The
    memory holds passages, of the documents that were asked for last. Safe to use from any thread;
    a copy in another process begins empty.

    Args:
        inner: The splitter.
        max_entries: Documents remembered at most, 1 or more.

    Raises:
        InvalidSetting: `max_entries` is less than 1.
    """

    def __init__(self, inner: Splitter, *, max_entries: int = 1000) -> None:
        if max_entries < 1:
            raise InvalidSetting("max_entries", "must be 1 or more")
        self._inner = inner
        self._max_entries = max_entries
        self._known: OrderedDict[str, tuple[Passage, ...]] = OrderedDict()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"CachedSplitter({self._inner!r})"

    def __reduce__(self) -> tuple[Callable[..., CachedSplitter], tuple[Splitter, int]]:
        return _remade, (self._inner, self._max_entries)

    @property
    def name(self) -> str:
        """The inner splitter's: the passages are the same."""
        return self._inner.name

    def unwrap(self) -> Splitter:
        """Returns the inner splitter."""
        return self._inner

    def split(self, document: Document) -> Sequence[Passage]:
        """Returns the passages of a document, in order."""
        key = self._key(document)
        known = self._find(key)
        return self._keep(key, self._inner.split(document)) if known is None else known

    async def asplit(self, document: Document) -> Sequence[Passage]:
        """As `split`; a splitter that has to wait is awaited, another one works in a thread."""
        key = self._key(document)
        known = self._find(key)
        if known is not None:
            return known
        waiting = getattr(self._inner, "asplit", None)
        if waiting is None:
            return self._keep(key, await asyncio.to_thread(self._inner.split, document))
        return self._keep(key, await waiting(document))

    def _find(self, key: str) -> tuple[Passage, ...] | None:
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
            return known

    def _keep(self, key: str, passages: Sequence[Passage]) -> tuple[Passage, ...]:
        kept = tuple(passages)
        with self._lock:
            self._known[key] = kept
            self._known.move_to_end(key)
            while len(self._known) > self._max_entries:
                self._known.popitem(last=False)
        return kept

    def _key(self, document: Document) -> str:
        labels = [self.name, document.id, document.digest, document.title, document.source]
        whole = json.dumps([*labels, encode(document.metadata)])
        return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()


def _remade(inner: Splitter, max_entries: int) -> CachedSplitter:
    return CachedSplitter(inner, max_entries=max_entries)
