"""``POST /v1/search``: ranked passages."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from ragchat.forms import candidate_record, degraded_records
from ragchat.server.bodies import SearchBody, read_body
from ragchat.server.documented import body_of, failures
from ragchat.server.service import service_of, tenant_of

router = APIRouter(tags=["search"])


@router.post(
    "/v1/search",
    openapi_extra=body_of(SearchBody),
    responses=failures(400, 401, 408, 409, 413, 415, 429, 503, 504),
)
async def search(request: Request) -> dict[str, Any]:
    """Finds passages."""
    service, tenant = service_of(request), tenant_of(request)
    _, body = await read_body(request, SearchBody)
    result = await tenant.index.search(
        body.query,
        top_k=service.top_k(body.top_k),
        filter=body.filter,
        scope=tenant.scope,
        rerank=service.rerank,
        explain=body.explain,
    )
    return {
        "object": "list",
        "data": [candidate_record(rank, found) for rank, found in enumerate(result, 1)],
        "degraded": degraded_records(result.degraded),
        "seconds": round(result.trace.seconds, 6),
    }
