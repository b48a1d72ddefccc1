"""Documents: written, read and removed, each inside the corpus and the scope of its key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import unquote_to_bytes

from fastapi import APIRouter, Path, Query, Request, Response
from starlette.convertors import Convertor, register_url_convertor

from ragchat.server.bodies import DocumentBody, read_body
from ragchat.server.documented import body_of, failures
from ragchat.server.errors import Problem
from ragchat.server.service import tenant_of
from ragchat_retrieval.errors import ScopeViolation
from ragchat_retrieval.values import Document

if TYPE_CHECKING:
    from ragchat.server.service import Tenant

router = APIRouter(tags=["documents"])

MAX_ID = 1024
"""Most characters of a document's id."""

_PREFIX = b"/v1/documents/"
_CREATED = 201


class _AnyID(Convertor[str]):
    """The rest of a path, whatever it holds; ``path`` ends at a line feed."""

    regex = r"(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("any_id", _AnyID())

DocumentID = Annotated[str, Path(min_length=1, max_length=MAX_ID)]


@router.get("/v1/documents", responses=failures(400, 401, 429, 503))
async def list_documents(
    request: Request,
    after: Annotated[str, Query(max_length=MAX_ID, description="The last id seen.")] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> dict[str, Any]:
    """Lists ids in ascending order."""
    tenant = tenant_of(request)
    ids = await tenant.index.document_ids(scope=tenant.scope)
    later = [document_id for document_id in ids if document_id > after]
    return {
        "object": "list",
        "data": [{"id": document_id, "object": "document"} for document_id in later[:limit]],
        "has_more": len(later) > limit,
    }


@router.put(
    "/v1/documents/{document_id:any_id}",
    openapi_extra=body_of(DocumentBody),
    responses={
        _CREATED: {"description": "Written for the first time"},
        **failures(400, 401, 404, 408, 409, 413, 415, 429, 503),
    },
)
async def put_document(
    request: Request, response: Response, document_id: DocumentID
) -> dict[str, Any]:
    """Writes a document in place of the one of the same id; the key's scope is stamped on it."""
    tenant, wanted = tenant_of(request), id_of(request, document_id)
    _, body = await read_body(request, DocumentBody)
    metadata = {**body.metadata, **tenant.stamp}
    document = Document(wanted, body.text, title=body.title, source=body.source, metadata=metadata)
    known = await tenant.index.store.hashes([wanted], scope=tenant.scope)
    try:
        report = await tenant.index.ingest(document, scope=tenant.scope)
    except ScopeViolation:
        raise unknown() from None
    created = not known and not report.blank
    if created:
        response.status_code = _CREATED
    return {
        "id": wanted,
        "object": "document",
        "created": created,
        "changed": bool(report.documents or report.deleted),
        "passages": report.passages,
    }


@router.get(
    "/v1/documents/{document_id:any_id}",
    responses=failures(400, 401, 404, 429, 503),
)
async def get_document(
    request: Request,
    document_id: DocumentID,
    start: Annotated[int | None, Query(ge=0, description="First code point of a part.")] = None,
    end: Annotated[int | None, Query(ge=0, description="The one after its last.")] = None,
    around: Annotated[int, Query(ge=0, le=20_000, description="Code points beside it.")] = 1000,
) -> dict[str, Any]:
    """Returns a document; with ``start`` and ``end``, that part and what stands beside it."""
    tenant = tenant_of(request)
    found = await _found(tenant, id_of(request, document_id))
    record: dict[str, Any] = {
        "id": found.id,
        "object": "document",
        "title": found.title,
        "source": found.source,
        "metadata": dict(found.metadata),
        "length": len(found.text),
    }
    if start is None and end is None:
        return {**record, "text": found.text}
    first = min(start or 0, len(found.text))
    last = len(found.text) if end is None else min(end, len(found.text))
    if first > last:
        raise Problem(400, "start: must not be after end", code="invalid_value", param="start")
    return {
        **record,
        "start": first,
        "end": last,
        "before": found.text[max(0, first - around) : first],
        "text": found.text[first:last],
        "after": found.text[last : last + around],
    }


@router.delete(
    "/v1/documents/{document_id:any_id}",
    responses=failures(400, 401, 404, 429, 503),
)
async def delete_document(request: Request, document_id: DocumentID) -> dict[str, Any]:
    """Removes a document."""
    tenant, wanted = tenant_of(request), id_of(request, document_id)
    if not await tenant.index.remove([wanted], scope=tenant.scope):
        raise unknown()
    return {"id": wanted, "object": "document", "deleted": True}


def id_of(request: Request, routed: str) -> str:
    """Returns the id in a path as it was sent: percent-encoded UTF-8, slashes and all.

    The router's own reading puts a replacement for bytes that are no UTF-8, which would make one
    id of many.

    Raises:
        Problem: 400: it is no UTF-8, or blank.
    """
    raw: bytes = request.scope.get("raw_path") or b""
    _, found, rest = raw.partition(b"?")[0].partition(_PREFIX)
    try:
        wanted = unquote_to_bytes(rest).decode() if found else routed
    except UnicodeDecodeError:
        raise Problem(400, "the id is not UTF-8", code="invalid_document_id") from None
    if not wanted.strip() or "\0" in wanted:
        raise Problem(400, "an id must not be blank, nor hold NUL", code="invalid_document_id")
    return wanted


def unknown() -> Problem:
    """Returns the answer for what is not there, or not for this key, which is the same."""
    return Problem(404, "there is no such document", code="document_not_found")


async def _found(tenant: Tenant, document_id: str) -> Document:
    document = await tenant.index.store.document(document_id, scope=tenant.scope)
    if document is None:
        raise unknown()
    return document
