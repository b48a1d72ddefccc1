"""Opening an index by path or URL."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from ragchat_retrieval.embedders.environment import embedder_from_env
from ragchat_retrieval.embedders.hashing import HashingEmbedder
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.index import HybridIndex
from ragchat_retrieval.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType

    from ragchat_retrieval.lexical import Analyzer
    from ragchat_retrieval.ports import Embedder, Splitter, Store

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)  # two letters: C:\ is a path
_OPTIONS = re.compile(r"[a-z_]+=[A-Za-z0-9_-]*(&[a-z_]+=[A-Za-z0-9_-]*)*")
QUICKSTART_DIMENSION = 256


class Opening:
    """An index about to be opened: ``async with`` it, or ``await`` it and close it yourself."""

    def __init__(self, index: HybridIndex) -> None:
        self._index = index

    async def _open(self) -> HybridIndex:
        try:
            await self._index.store.identity()  # the first touch: a wrong file or URL fails here
        except BaseException:
            await self._index.aclose()
            raise
        return self._index

    def __await__(self) -> Generator[None, None, HybridIndex]:
        return self._open().__await__()

    async def __aenter__(self) -> HybridIndex:
        return await self._open()

    if not TYPE_CHECKING:  # a type checker knows what there is

        def __getattr__(self, name: str) -> NoReturn:
            """Says of a method of the index what has to come before it."""
            raise AttributeError(
                f"no {name!r} before the index is open: index = await open_index(…), or async with"
            )

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._index.aclose()


class _Opened(HybridIndex):
    """An index whose embedder nobody else knows, and which therefore closes it."""

    async def aclose(self) -> None:
        try:
            await super().aclose()
        finally:
            close = getattr(self.embedder, "aclose", None)
            if close is not None:
                await close()


def open_index(
    url: str | os.PathLike[str],
    *,
    corpus: str = "default",
    embedder: Embedder | Literal["env"] | None = "env",
    splitter: Splitter | None = None,
    analyzer: Analyzer | None = None,
    read_only: bool = False,
) -> Opening:
    """Opens an index, creating it if need be.

    Args:
        url: A path such as ``kb.sqlite`` (one file, no service), ``postgresql://…`` (the extra
            ``postgres``), ``qdrant://host:6333`` (the extra ``qdrant``; ``qdrant+https://…`` for
            TLS), ``http+opensearch://host:9200`` or ``https+opensearch://…`` (the extra
            ``opensearch``), ``chroma://host:8000`` or ``chroma+https://…`` (the extra ``chroma``),
            or ``memory://``. A path may end in ``?vectors=hnsw`` or ``?vectors=int8`` (see
            `SQLiteStore`), ``memory://`` in the latter.
        corpus: Name of the corpus inside the store.
        embedder: ``"env"`` takes what the environment names, else the local model if its extra is
            installed, else none (keyword search); None is none.
            One from the environment is closed with the index.
        splitter: Cuts documents; None takes the profile recommended for the embedder.
        analyzer: Analyses words, in the language of the texts; None takes over the one that the
            corpus was written with, else English.
        read_only: Refuse every write.

    Returns:
        An async context manager that is also awaitable; nothing is opened before.

    Raises:
        InvalidSetting: The URL's scheme names no store, an option is unknown, a store in memory is
            to be read-only, or something is of another kind than it must be.
        MissingExtra: The store's extra is not installed.
        NotAStore: On entering: the file or schema exists and is something else.
        StoreUnavailable: On entering: the server cannot be reached.
    """
    if not isinstance(url, str | os.PathLike):
        raise InvalidSetting("url", f"must be a path or a URL, not {type(url).__name__}")
    store = _store(os.fspath(url), corpus=corpus, read_only=read_only)
    if embedder == "env":
        named = embedder_from_env()
        return Opening(_Opened(store, embedder=named, splitter=splitter, analyzer=analyzer))
    return Opening(HybridIndex(store, embedder=embedder, splitter=splitter, analyzer=analyzer))


def in_memory(dim: int = QUICKSTART_DIMENSION) -> HybridIndex:
    """Returns an index in memory with the hashing embedder: for examples and tests.

    No extra, key or network is needed. The hashing embedder knows shared words, not meaning.

    Args:
        dim: Dimension of its vectors.
    """
    return HybridIndex(MemoryStore(), embedder=HashingEmbedder(dim))


def quickstart() -> HybridIndex:
    """Returns `in_memory` with 256 dimensions: a first try, by shared words and not by meaning."""
    return in_memory(QUICKSTART_DIMENSION)


def _store(url: str, *, corpus: str, read_only: bool) -> Store:
    scheme = scheme_of(url)
    url, options = split_options(url)
    if scheme == "memory":
        if read_only:
            raise InvalidSetting("read_only", "a store in memory is empty until it is written")
        return MemoryStore(corpus=corpus, vectors=_vectors(options))
    if scheme in {"postgresql", "postgres"}:
        from ragchat_retrieval.stores.postgres import PostgresStore  # noqa: PLC0415 - as below

        return PostgresStore(url, corpus=corpus, read_only=read_only)
    if scheme in {"qdrant", "qdrant+https"}:
        from ragchat_retrieval.stores.qdrant import QdrantStore  # noqa: PLC0415 - as below

        return QdrantStore.from_url(url, corpus=corpus, read_only=read_only)
    if scheme in {"http+opensearch", "https+opensearch"}:
        from ragchat_retrieval.stores.opensearch import (  # noqa: PLC0415 - as below
            OpenSearchStore,
        )

        return OpenSearchStore.from_url(url, corpus=corpus, read_only=read_only)
    if scheme in {"chroma", "chroma+https"}:
        from ragchat_retrieval.stores.chroma import ChromaStore  # noqa: PLC0415 - as below

        return ChromaStore.from_url(url, corpus=corpus, read_only=read_only)
    if scheme:
        known = (
            "a path, postgresql://, qdrant://, http+opensearch://, https+opensearch://, "
            "chroma:// or memory://"
        )
        problem = f"no store for scheme {scheme!r}; use {known}"
        raise InvalidSetting("url", problem)
    from ragchat_retrieval.stores.sqlite import SQLiteStore  # noqa: PLC0415 - only where it is used

    return SQLiteStore(url, corpus=corpus, read_only=read_only, vectors=_vectors(options))


def scheme_of(url: str) -> str:
    """Returns the scheme of a URL in lower case; a path has none."""
    return match[1].lower() if (match := _SCHEME.match(url)) else ""


def split_options(url: str) -> tuple[str, dict[str, str]]:
    """Parts the URL of an embedded store, or a path, from options such as ``?vectors=hnsw``.

    A question mark that nothing of that form follows is part of the path. URLs of servers stay
    whole.
    """
    before, mark, after = url.rpartition("?")
    if scheme_of(url) not in {"", "memory"} or not mark or not _OPTIONS.fullmatch(after):
        return url, {}
    return before, dict(pair.split("=", 1) for pair in after.split("&"))


def _vectors(options: dict[str, str]) -> Any:  # noqa: ANN401 - the store checks the word
    """Returns how vectors are to be searched, for the store to check."""
    if unknown := sorted(options.keys() - {"vectors"}):
        raise InvalidSetting("url", f"has no option {unknown[0]!r}; it has vectors")
    return options.get("vectors", "float32")
