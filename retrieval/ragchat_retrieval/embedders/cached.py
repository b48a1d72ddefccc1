"""A bounded cache in front of any embedder, in a file or in memory."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ragchat_retrieval.embedders.checks import embed_checked, known_dimension, without_blanks
from ragchat_retrieval.embedders.vectorfile import VectorFile, damaged
from ragchat_retrieval.errors import EmbeddingError, InvalidSetting
from ragchat_retrieval.kinds import check_embedder

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.ports import Embedder, EmbeddingKind

_AT_ONCE = 1024
"""Texts embedded between two writes, so that little is lost if a later one fails."""

_FORWARDED = frozenset({"count_tokens", "legibility", "max_tokens"})
_TOLERANCE = 1e-3


class CachedEmbedder:
    """Remembers vectors by model, dimension, kind and a hash of the text; never the text itself.

    Only texts it does not know go to the inner embedder, each once a call. Safe for concurrent
    tasks, and a file for several processes. The oldest entries go first when it is full.

    Args:
        inner: The embedder. It stays the caller's to close.
        path: The cache file, opened when it is first used; None keeps the cache in memory.
        max_entries: Vectors kept at most, 1 or more. A vector of 384 numbers takes about 1.6 kB.

    Raises:
        InvalidSetting: `max_entries` is less than 1, or `inner` is no embedder.
    """

    def __init__(
        self,
        inner: Embedder,
        path: str | os.PathLike[str] | None = None,
        *,
        max_entries: int = 1_000_000,
    ) -> None:
        check_embedder("inner", inner)
        if max_entries < 1:
            raise InvalidSetting("max_entries", "must be 1 or more")
        self._inner = inner
        self._file = VectorFile(None if path is None else Path(path), max_entries=max_entries)
        self._prefix = f"{inner.model}\0{inner.dimension}\0"
        self._seen = 0

    def __repr__(self) -> str:
        return f"CachedEmbedder({self._inner!r})"

    if not TYPE_CHECKING:  # with it, a type checker would accept any name

        def __getattr__(self, name: str) -> object:
            """Offers what the inner embedder tells of its model beside the rest, if it does."""
            if name in _FORWARDED:
                return getattr(self._inner, name)
            problem = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(problem, name=name, obj=self)

    @property
    def model(self) -> str:
        """The inner embedder's."""
        return self._inner.model

    @property
    def dimension(self) -> int:
        """The inner embedder's; where it does not know yet, that of the vectors found so far."""
        return self._inner.dimension or self._seen

    def unwrap(self) -> Embedder:
        """Returns the inner embedder."""
        return self._inner

    async def prepare(self) -> None:
        """Learns the dimension from the inner embedder, if it is not known yet."""
        if not self.dimension:
            await known_dimension(self._inner)

    async def embed(
        self, texts: Sequence[str], kind: EmbeddingKind = "query"
    ) -> NDArray[np.float32]:
        """Returns float32 [len(texts), dimension], rows L2-normalised; zeros for blank texts.

        Raises:
            EmbeddingError: The inner embedder failed.
            NotAStore: The cache file is something else.
            StoreUnavailable: The cache file is damaged, busy or cannot be opened.
            StoreClosed: After `aclose`.
        """

        async def work(wanted: Sequence[str]) -> NDArray[np.float32]:
            return await self._embed(wanted, kind)

        return await without_blanks(texts, work, dimension=lambda: self.dimension)

    async def aclose(self) -> None:
        """Closes the cache file; closing twice is no error."""
        await asyncio.to_thread(self._file.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _embed(self, texts: Sequence[str], kind: EmbeddingKind) -> NDArray[np.float32]:
        keys = {text: self._key(text, kind) for text in texts}
        found = await asyncio.to_thread(self._file.get, list(keys.values()))
        known = {text: _row(found[key]) for text, key in keys.items() if key in found}
        if not _agree(known, self.dimension):
            known = {}
        await self._learn(known, texts, keys, kind)
        if not _agree(known, self.dimension):
            # The model has changed the length of its vectors under the same name.
            known = {}
            await self._learn(known, texts, keys, kind)
        self._seen = len(known[texts[0]])
        return np.stack([known[text] for text in texts])

    async def _learn(
        self,
        known: dict[str, NDArray[np.float32]],
        texts: Sequence[str],
        keys: Mapping[str, bytes],
        kind: EmbeddingKind,
    ) -> None:
        """Embeds what is not known yet, adding it to `known` and to the file."""
        missing = [text for text in keys if text not in known]
        for start in range(0, len(missing), _AT_ONCE):
            some = missing[start : start + _AT_ONCE]
            try:
                rows = dict(zip(some, await embed_checked(self._inner, some, kind), strict=True))
            except EmbeddingError as error:
                if error.position is not None:
                    error.position = texts.index(some[error.position])
                raise
            entries = {keys[text]: _blob(row) for text, row in rows.items()}
            await asyncio.to_thread(self._file.put, entries)
            known.update(rows)

    def _key(self, text: str, kind: EmbeddingKind) -> bytes:
        data = f"{self._prefix}{kind}\0{text}".encode("utf-8", "surrogatepass")
        return hashlib.sha256(data).digest()


def _agree(rows: Mapping[str, NDArray[Any]], dimension: int) -> bool:
    """Says whether all rows have one length, and that of the embedder where it is known."""
    return len({len(row) for row in rows.values()} | ({dimension} if dimension else set())) <= 1


def _blob(row: NDArray[np.float32]) -> bytes:
    return row.astype("<f4").tobytes()


def _row(blob: bytes) -> NDArray[np.float32]:
    if not blob or len(blob) % 4:
        raise damaged()
    row = np.frombuffer(blob, dtype="<f4").astype(np.float32)
    if not abs(float(np.linalg.norm(row.astype(np.float64))) - 1.0) < _TOLERANCE:
        raise damaged()
    return row
