"""What a server says of itself: models, health, metrics, and what its page needs to know."""

from __future__ import annotations

import asyncio
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response

from ragchat.citations import verify
from ragchat.extractive import extractive_answer
from ragchat.server.bodies import AnswerBody, read_body
from ragchat.server.documented import STREAMED, body_of, failures
from ragchat.server.errors import Problem
from ragchat.server.service import EXTRACTIVE, embedder_of, service_of, tenant_of
from ragchat.server.streaming import EventStream
from ragchat.wire import EventEncoder, turn
from ragchat.wire.encoding import written
from ragchat_retrieval.errors import RagchatError

if TYPE_CHECKING:
    from ragchat.server.service import Tenant

router = APIRouter()

_PATIENCE = 5.0
"""Seconds for the store to show that it is there."""

_EXAMPLES = 3
_LOOKED_AT = 12
"""Documents that are looked at for example questions."""


@router.head("/healthz", include_in_schema=False)
@router.get("/healthz", tags=["server"])
async def healthy() -> dict[str, str]:
    """Says that the process answers."""
    return {"status": "ok"}


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz", tags=["server"], responses=failures(503))
async def ready(request: Request) -> dict[str, str]:
    """Says that the store answers."""
    try:
        async with asyncio.timeout(_PATIENCE):
            await service_of(request).index.store.revision()
    except (RagchatError, TimeoutError):
        raise Problem(503, "the store does not answer", code="not_ready") from None
    return {"status": "ready"}


@router.get("/metrics", tags=["server"], responses=failures(401, 429), response_class=Response)
async def metrics(request: Request) -> Response:
    """Counts and timings for Prometheus."""
    service = service_of(request)
    service.metrics.running.set(service.slots.running)
    return Response(service.metrics.text(), media_type=service.metrics.content_type)


@router.get("/v1/models", tags=["chat"], responses=failures(401, 429))
async def models(request: Request) -> dict[str, Any]:
    """Lists the only model: the configured one, or what answers without one."""
    return {"object": "list", "data": [_model(service_of(request).model)]}


@router.get("/v1/models/{model:path}", tags=["chat"], responses=failures(401, 404, 429))
async def model(request: Request, model: str) -> dict[str, Any]:
    """Describes the model of this name."""
    known = service_of(request).model
    if model != known:
        raise Problem(404, "there is no such model here", code="model_not_found", param="model")
    return _model(known)


@router.get("/v1/ragchat/info", tags=["page"], responses=failures(401, 429, 503))
async def info(request: Request) -> dict[str, Any]:
    """Tells a page what it can ask: the corpus, the model, limits, example questions."""
    service, tenant = service_of(request), tenant_of(request)
    known = await tenant.index.describe(scope=tenant.scope)
    settings = service.settings
    return {
        "version": version("ragchat-toolkit"),
        "model": service.model,
        "extractive": service.model == EXTRACTIVE,
        "documents": known.documents,
        "passages": known.passages,
        "vectors": known.vectors,
        "notes": list(known.notes),
        "examples": await _examples(tenant),
        "limits": {
            "body_bytes": settings.max_body_bytes,
            "messages": settings.max_messages,
            "top_k": settings.max_top_k,
            "upload_bytes": settings.max_upload_bytes,
            "upload_files": settings.max_upload_files,
        },
    }


@router.post(
    "/v1/ragchat/answer",
    tags=["page"],
    openapi_extra=body_of(AnswerBody),
    responses={**STREAMED, **failures(400, 401, 408, 413, 415, 429)},
    response_model=None,
)
async def answer(request: Request) -> Response:
    """Answers one turn as the events of ``ragchat.wire``, with every stage while it happens."""
    service, tenant = service_of(request), tenant_of(request)
    raw, body = await read_body(request, AnswerBody)
    if len(body.messages) > service.settings.max_messages:
        raise Problem(400, "messages: too many", code="too_many_messages", param="messages")
    preparer = tenant.preparer.with_options(filter=body.filter, top_k=service.top_k(body.top_k))
    means: dict[str, Any] = {
        "embedder": await embedder_of(tenant.index),
        "analyzer": tenant.index.analyzer,
        "on_error": "skip",
    }
    check, extract = partial(verify, **means), partial(extractive_answer, **means)
    create = None if service.upstream is None else service.upstream.chunks
    params = {"model": service.model, "messages": raw["messages"]}
    encoder = EventEncoder()
    settings = service.settings
    return EventStream(
        written(turn(preparer, create, params, check=check, extract=extract), encoder),
        heartbeat=settings.heartbeat,
        stall=settings.stall_timeout,
        headers=encoder.headers,
    )


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "ragchat"}


async def _examples(tenant: Tenant) -> list[str]:
    """Returns questions that the documents can be asked: their own, else about their titles."""
    ids = await tenant.index.document_ids(scope=tenant.scope)
    step = max(1, len(ids) // _LOOKED_AT)
    asked: dict[str, None] = {}
    about: dict[str, None] = {}
    for document_id in ids[::step][:_LOOKED_AT]:
        first = await tenant.index.store.neighbours(document_id, 0, 8, scope=tenant.scope)
        for passage in first:
            headings = [heading.strip() for heading in passage.headings]
            asked |= dict.fromkeys(heading for heading in headings if heading.endswith("?"))
        if first and (title := (first[0].title or "").strip()):
            about[f"What is said about {title}?"] = None
    return [*asked, *about][:_EXAMPLES]
