"""A store in Chroma: vectors only, for those who run it already."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

from ragchat_retrieval.errors import InvalidSetting, MissingExtra
from ragchat_retrieval.ports import Capabilities
from ragchat_retrieval.served import server_parts
from ragchat_retrieval.stores.chroma.client import NAME, Clients
from ragchat_retrieval.stores.chroma.engine import ChromaEngine
from ragchat_retrieval.stores.manifest_store import ManifestStore

_PORT = 8000
_FORM = "chroma://host:port/prefix"
_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class ChromaStore(ManifestStore):
    """Keeps a corpus in a Chroma server. There is no keyword lane.

    Implements `ragchat_retrieval.ports.Store`, whose docstrings say what the methods promise,
    except that `search_text` finds nothing (`Capabilities.keyword`). A write is one step for each
    document, not for the batch (`Capabilities.atomic_batch`).

    Args:
        url: Where Chroma is, as ``http://localhost:8000``.
        corpus: The corpus that this handle reads and writes.
        prefix: Begins the names of the collections: 1 to 64 of A-Z, a-z, 0-9, '_' and '-'.
        read_only: Refuse every write.
        **options: For `chromadb.AsyncHttpClient`, such as ``headers`` and ``tenant``.

    Raises:
        InvalidSetting: The URL or a name has another form.
        MissingExtra: The extra ``chroma`` is not installed.
    """

    name = NAME
    capabilities = Capabilities(atomic_batch=False, keyword=False)

    def __init__(
        self,
        url: str,
        *,
        corpus: str = "default",
        prefix: str = "ragchat",
        read_only: bool = False,
        **options: Any,
    ) -> None:
        parts = server_parts(url, "http://host:port")
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise InvalidSetting("url", "must be http://host:port")
        if _PREFIX.fullmatch(prefix) is None:
            raise InvalidSetting("prefix", "must be 1 to 64 of A-Z, a-z, 0-9, '_' and '-'")
        if importlib.util.find_spec("chromadb") is None:
            raise MissingExtra("chroma", "ChromaStore")
        where = {
            "host": parts.hostname,
            "port": parts.port or _PORT,
            "ssl": parts.scheme == "https",
        }
        super().__init__(
            ChromaEngine(Clients({**where, **options}), prefix), corpus=corpus, read_only=read_only
        )

    @classmethod
    def from_url(cls, url: str, *, corpus: str = "default", read_only: bool = False) -> ChromaStore:
        """Returns the store of ``chroma://host:8000/prefix``; ``chroma+https://`` uses TLS.

        Raises:
            InvalidSetting: The URL has no host, or holds more than host, port and prefix.
        """
        parts = server_parts(url, _FORM)
        if not parts.hostname:
            raise InvalidSetting("url", f"must be {_FORM}")
        scheme = "https" if parts.scheme.endswith("+https") else "http"
        return cls(
            f"{scheme}://{parts.netloc}",
            corpus=corpus,
            prefix=parts.path.strip("/") or "ragchat",
            read_only=read_only,
        )
