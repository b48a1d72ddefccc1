"""What the routes of one server share, and what a key may reach."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ragchat.augment import ContextualAugmenter
from ragchat.prepare import Preparer
from ragchat.server.completions import Upstream
from ragchat.server.errors import Problem
from ragchat.server.keys import Key
from ragchat.server.limits import Rates, Slots
from ragchat.server.metrics import Metrics
from ragchat.server.rounds import Rounds
from ragchat_retrieval.errors import RagchatError
from ragchat_retrieval.filters import RESERVED_KEYS, Filter
from ragchat_retrieval.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from openai import AsyncOpenAI
    from starlette.requests import Request

    from ragchat.server.keys import KeyRing
    from ragchat.server.settings import ServerSettings
    from ragchat_retrieval.index import HybridIndex
    from ragchat_retrieval.ports import Embedder, Reranker
    from ragchat_retrieval.rerank import Rerank

    MakePreparer = Callable[[HybridIndex], Preparer]

EXTRACTIVE = "ragchat-extractive"
"""Name of the model that answers where no chat model is configured."""

_OPEN = "open"
_REMEMBERED = 10_000
_PATIENCE = 10.0
"""Seconds that loading may take before the server begins."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """What one key reaches: its corpus, and inside it what its scope lets through."""

    name: str
    index: HybridIndex
    scope: Filter
    stamp: Mapping[str, Any]
    """The scope as metadata, for what is written, less what is a field of the document."""

    preparer: Preparer
    """Bound to the scope."""

    reach: str
    """The name with corpus and scope: another one as soon as a key is given others."""


class Service:
    """Everything behind the routes.

    Args:
        index: The index; keys open corpora of its store.
        settings: Limits and the model.
        keys: Who may do what; None lets everybody into the index's own corpus.
        client: The chat model's client; None answers without one.
        make_preparer: Makes the preparer of a corpus; None takes the usual one.
        rerank: The reranker of searches and of the usual preparer.
    """

    def __init__(
        self,
        index: HybridIndex,
        settings: ServerSettings,
        *,
        keys: KeyRing | None,
        client: AsyncOpenAI | None,
        make_preparer: MakePreparer | None,
        rerank: Rerank | Reranker | None,
    ) -> None:
        self.settings = settings
        self.keys = keys
        self.upstream = None if client is None else Upstream(client)
        self.rates = Rates(settings.requests_per_minute)
        self.slots = Slots(settings.max_concurrent, settings.max_running)
        self.rounds = Rounds(settings.max_rounds, settings.max_round_bytes, settings.round_seconds)
        self.metrics = Metrics()
        self.rerank = rerank
        self.index = index
        self._make_preparer = make_preparer or self._usual
        self._tenants: dict[Key | None, Tenant] = {}

    @property
    def model(self) -> str:
        """Name of the model that answers."""
        return self.settings.model or EXTRACTIVE

    async def warm(self) -> None:
        """Asks the index for a word, so that what the first turn would wait for is loaded.

        That is a model for embeddings and a tokenizer, half a second of work; no reranker and no
        chat model is asked. What fails here is told where somebody asks for it.
        """
        preparer = Preparer(
            retriever=self.index.retriever(top_k=1),
            augmenter=ContextualAugmenter(max_context_tokens=self.settings.max_context_tokens),
            policy=Policy(deadline=_PATIENCE),
        )
        message = {"role": "user", "content": "ready"}
        with suppress(RagchatError):
            await preparer.prepare(model=self.model, messages=[message])

    def tenant(self, authorization: str) -> Tenant:
        """Returns what a request may reach.

        Args:
            authorization: The header of that name; empty where there is none.

        Raises:
            Problem: 401: a key is needed, and this is none.
        """
        if self.keys is None:
            return self._tenant(None)
        scheme, _, secret = authorization.partition(" ")
        key = self.keys.find(secret.strip()) if scheme.lower() == "bearer" else None
        if key is None:
            raise Problem(
                401,
                "a valid API key is needed, as in: Authorization: Bearer KEY",
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )
        return self._tenant(key)

    def top_k(self, asked: int | None) -> int:
        """Returns how many passages to find.

        Raises:
            Problem: 400: more than the server gives.
        """
        most = self.settings.max_top_k
        if asked is not None and asked > most:
            raise Problem(400, f"top_k: at most {most}", code="invalid_value", param="top_k")
        return self.settings.top_k if asked is None else asked

    def _tenant(self, key: Key | None) -> Tenant:
        tenant = self._tenants.get(key)
        if tenant is None:
            if len(self._tenants) >= _REMEMBERED:
                self._tenants.clear()
            tenant = self._tenants[key] = self._made(key)
        return tenant

    def _made(self, key: Key | None) -> Tenant:
        index = self.index if key is None else self.index.corpus(key.corpus)
        scope = Filter() if key is None else key.filter
        scoped = {} if key is None else key.scope
        stamp = {name: value for name, value in scoped.items() if name not in RESERVED_KEYS}
        preparer = self._make_preparer(index).with_options(scope=scope)
        name = _OPEN if key is None else f"key {key.name} {key.hash}"
        corpus = "" if key is None else key.corpus
        reach = json.dumps([name, corpus, scope.canonical_bytes().hex()])
        return Tenant(name, index, scope, stamp, preparer, reach)

    def _usual(self, index: HybridIndex) -> Preparer:
        settings = self.settings
        return Preparer(
            retriever=index.retriever(top_k=settings.top_k, rerank=self.rerank),
            augmenter=ContextualAugmenter(max_context_tokens=settings.max_context_tokens),
        )


def service_of(request: Request) -> Service:
    """Returns the service of the app that a request reached."""
    service: Service = request.app.state.ragchat
    return service


def tenant_of(request: Request) -> Tenant:
    """Returns what a request may reach.

    Raises:
        Problem: 401: nobody has looked at its key, so that it reaches nothing.
    """
    tenant: Tenant | None = request.scope.get("ragchat.tenant")
    if tenant is None:
        raise Problem(401, "a valid API key is needed", code="invalid_api_key")
    return tenant


async def embedder_of(index: HybridIndex) -> Embedder | None:
    """Returns an index's embedder, if its passages have vectors."""
    stored = await index.store.identity()
    return None if stored is None or stored.model is None else index.embedder
