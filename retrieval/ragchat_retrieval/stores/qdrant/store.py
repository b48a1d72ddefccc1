"""A store in Qdrant: dense and sparse vectors, filters inside both lanes."""

from __future__ import annotations

import importlib.util
import os
import re
from typing import TYPE_CHECKING, Any, Final

from ragchat_retrieval.errors import InvalidSetting, MissingExtra
from ragchat_retrieval.served import server_parts
from ragchat_retrieval.stores.manifest_store import ManifestStore

if TYPE_CHECKING:
    from qdrant_client import AsyncQdrantClient

NAME: Final = "qdrant"
_PORT = 6333
_FORM = "qdrant://host:port/prefix"
_PREFIX = re.compile(r"[A-Za-z0-9_-]{1,64}")


class QdrantStore(ManifestStore):
    """Keeps a corpus in Qdrant, for large corpora and many machines.

    Implements `ragchat_retrieval.ports.Store`, whose docstrings say what the methods promise. A
    write is one step for each document, not for the batch (`Capabilities.atomic_batch`). Several
    processes may write different documents at a time; `docs/stores.md` says what else to know.

    Args:
        url: Where Qdrant is, as ``http://localhost:6333``, or ``:memory:`` for the client's own
            store, which is slow and for tests.
        corpus: The corpus that this handle reads and writes.
        prefix: Begins the names of the collections: 1 to 64 of A-Z, a-z, 0-9, '_' and '-'.
        exact: Search vectors by comparing all, without the graph (HNSW).
        read_only: Refuse every write.
        client: A client of your own instead of `url`, for one event loop; it is not closed here.
        **options: For `qdrant_client.AsyncQdrantClient`, such as ``api_key`` and ``timeout``.

    Raises:
        InvalidSetting: A name has another form, or not one of `url` and `client` is given.
        MissingExtra: The extra ``qdrant`` is not installed.
    """

    name = NAME

    def __init__(
        self,
        url: str | None = None,
        *,
        corpus: str = "default",
        prefix: str = "ragchat",
        exact: bool = False,
        read_only: bool = False,
        client: AsyncQdrantClient | None = None,
        **options: Any,
    ) -> None:
        if (url is None) == (client is None):
            raise InvalidSetting("url", "give either a URL or a client")
        if _PREFIX.fullmatch(prefix) is None:
            raise InvalidSetting("prefix", "must be 1 to 64 of A-Z, a-z, 0-9, '_' and '-'")
        if importlib.util.find_spec("qdrant_client") is None:
            raise MissingExtra("qdrant", "QdrantStore")
        # Only where it is used: the client takes half a second to import.
        from ragchat_retrieval.stores.qdrant.client import Clients  # noqa: PLC0415 - as above
        from ragchat_retrieval.stores.qdrant.engine import QdrantEngine  # noqa: PLC0415 - as above

        clients = Clients(url, client, options)
        super().__init__(
            QdrantEngine(clients, prefix=prefix, exact=exact), corpus=corpus, read_only=read_only
        )

    @classmethod
    def from_url(cls, url: str, *, corpus: str = "default", read_only: bool = False) -> QdrantStore:
        """Returns the store of ``qdrant://host:6333/prefix``; ``qdrant+https://`` uses TLS.

        The prefix may be left out. The API key is that of ``QDRANT_API_KEY``, if that is set.

        Raises:
            InvalidSetting: The URL has no host, or holds more than host, port and prefix.
        """
        parts = server_parts(url, _FORM)
        prefix = parts.path.strip("/") or "ragchat"
        if not parts.hostname:
            raise InvalidSetting("url", f"must be {_FORM}")
        scheme = "https" if parts.scheme.endswith("+https") else "http"
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        key = os.environ.get("QDRANT_API_KEY")
        options: dict[str, Any] = {"api_key": key} if key else {}
        return cls(
            f"{scheme}://{host}:{parts.port or _PORT}",
            corpus=corpus,
            prefix=prefix,
            read_only=read_only,
            **options,
        )
