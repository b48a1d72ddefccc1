"""A store in OpenSearch: BM25 and k-NN, filters inside both lanes."""

from __future__ import annotations

import importlib.util
import os
import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from ragchat_retrieval.errors import InvalidSetting, MissingExtra
from ragchat_retrieval.served import server_parts
from ragchat_retrieval.stores.manifest_store import ManifestStore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from opensearchpy import AsyncOpenSearch

NAME: Final = "opensearch"
_PORT = 9200
_PREFIX = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class OpenSearchStore(ManifestStore):
    """Keeps a corpus in OpenSearch, for large corpora and many machines.

    Implements `ragchat_retrieval.ports.Store`, whose docstrings say what the methods promise. A
    write is one step for each document, not for the batch (`Capabilities.atomic_batch`). Several
    processes may write different documents at a time; `docs/stores.md` says what else to know.

    Args:
        hosts: Where the nodes are, as ``https://search.example:9200``, one or several.
        corpus: The corpus that this handle reads and writes.
        prefix: Begins the names of the indexes: 1 to 64 of a-z, 0-9, '_' and '-', the first a
            letter or digit.
        exact: Search vectors by comparing all, without the graph (HNSW).
        settings: Of the indexes that are made, such as ``{"number_of_shards": 4}``.
        read_only: Refuse every write.
        client: A client of your own instead of `hosts`, for one event loop; it is not closed here.
        **options: For `opensearchpy.AsyncOpenSearch`, such as ``http_auth`` and ``timeout``
            (seconds, 30 unless given).

    Raises:
        InvalidSetting: A name or address has another form, or not one of `hosts` and `client` is
            given.
        MissingExtra: The extra ``opensearch`` is not installed.
    """

    name = NAME

    def __init__(
        self,
        hosts: str | Sequence[str] | None = None,
        *,
        corpus: str = "default",
        prefix: str = "ragchat",
        exact: bool = False,
        settings: Mapping[str, Any] | None = None,
        read_only: bool = False,
        client: AsyncOpenSearch | None = None,
        **options: Any,
    ) -> None:
        if (hosts is None) == (client is None):
            raise InvalidSetting("hosts", "give either addresses or a client")
        addresses = [hosts] if isinstance(hosts, str) else [*(hosts or ())]
        if client is None and not (addresses and all(map(_is_address, addresses))):
            raise InvalidSetting("hosts", "must be http:// or https:// with a host, without a user")
        if _PREFIX.fullmatch(prefix) is None:
            problem = "must be 1 to 64 of a-z, 0-9, '_' and '-', the first a letter or digit"
            raise InvalidSetting("prefix", problem)
        if any(importlib.util.find_spec(name) is None for name in ("opensearchpy", "aiohttp")):
            raise MissingExtra("opensearch", "OpenSearchStore")
        # Only where it is used: the client takes half a second to import.
        from ragchat_retrieval.stores.opensearch.client import Clients  # noqa: PLC0415 - as above
        from ragchat_retrieval.stores.opensearch.engine import (  # noqa: PLC0415 - as above
            OpenSearchEngine,
        )

        clients = Clients(addresses, client, options)
        engine = OpenSearchEngine(clients, prefix=prefix, exact=exact, settings=settings or {})
        super().__init__(engine, corpus=corpus, read_only=read_only)

    @classmethod
    def from_url(
        cls, url: str, *, corpus: str = "default", read_only: bool = False
    ) -> OpenSearchStore:
        """Returns the store of ``http+opensearch://host:9200/prefix``; ``https+…`` uses TLS.

        What the URL leaves out is taken from the environment: the host from
        ``OPENSEARCH_ADDRESSES`` (hosts or URLs, with commas between), the prefix from
        ``OPENSEARCH_INDEX_PREFIX``. The user is that of ``OPENSEARCH_USERNAME`` and
        ``OPENSEARCH_PASSWORD``, if these are set.

        Raises:
            InvalidSetting: The URL holds more than host, port and prefix, nothing names a host, or
                one of user and password is missing.
        """
        parts = server_parts(url, "http+opensearch://host:port/prefix")
        scheme = parts.scheme.partition("+")[0]
        if parts.netloc:
            has_port = parts.netloc.rpartition("]")[2].rpartition(":")[1]  # after any IPv6 address
            given = [parts.netloc if has_port else f"{parts.netloc}:{_PORT}"]
        else:
            listed = os.environ.get("OPENSEARCH_ADDRESSES", "").split(",")
            given = [address.strip() for address in listed if address.strip()]
        if not given:
            raise InvalidSetting("url", "names no host, and OPENSEARCH_ADDRESSES is not set")
        prefix = parts.path.strip("/") or os.environ.get("OPENSEARCH_INDEX_PREFIX") or "ragchat"
        return cls(
            [address if "://" in address else f"{scheme}://{address}" for address in given],
            corpus=corpus,
            prefix=prefix,
            read_only=read_only,
            **_user(),
        )


def _user() -> dict[str, Any]:
    user = os.environ.get("OPENSEARCH_USERNAME"), os.environ.get("OPENSEARCH_PASSWORD")
    if any(user) and not all(user):
        problem = "OPENSEARCH_USERNAME and OPENSEARCH_PASSWORD must both be set, or neither"
        raise InvalidSetting("url", problem)
    return {"http_auth": user} if all(user) else {}


def _is_address(address: str) -> bool:
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        return False
    plain = not (parts.query or parts.fragment) and parts.username is None and port != 0
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and plain
