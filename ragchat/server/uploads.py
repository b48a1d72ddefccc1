"""``POST /v1/documents``: files, read as `ingest_directory` reads a folder."""

from __future__ import annotations

import asyncio
import errno
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException

from ragchat.server.documented import STREAMED, failures
from ragchat.server.documents import unknown
from ragchat.server.errors import Problem, problem_of
from ragchat.server.service import service_of, tenant_of
from ragchat.server.streaming import EventStream
from ragchat.wire.encoding import json_bytes, server_sent
from ragchat_retrieval.chunking.formats import FORMATS, is_installed
from ragchat_retrieval.errors import InvalidDocument, MissingExtra, ScopeViolation
from ragchat_retrieval.filters import Filter
from ragchat_retrieval.ingest import IngestError, IngestReport, ingest_directory
from ragchat_retrieval.ingest.files import Selection, list_files
from ragchat_retrieval.tasks import ended

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from ragchat.server.service import Tenant

router = APIRouter(tags=["documents"])

ROOT = "uploads"
"""First part of the ids, where the request names none."""

_MOST_NAME = 255
_UNKNOWN_KIND = "this kind of file is not read here"
_NAME_ERRORS = {errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EILSEQ}
_FORM = {
    "type": "object",
    "required": ["file"],
    "properties": {
        "file": {"type": "array", "items": {"type": "string", "format": "binary"}},
        "root": {"type": "string", "description": "First part of the ids."},
    },
}


@router.post(
    "/v1/documents",
    openapi_extra={
        "requestBody": {"required": True, "content": {"multipart/form-data": {"schema": _FORM}}}
    },
    responses={**STREAMED, **failures(400, 401, 404, 408, 409, 413, 415, 429, 503)},
    response_model=None,
)
async def upload(request: Request) -> Response:
    """Reads files; the id of each is the root and its name, which may be a path.

    With ``Accept: text/event-stream`` the progress is sent while it is made, then the report.
    """
    service, tenant = service_of(request), tenant_of(request)
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise Problem(415, "files come as multipart/form-data", code="unsupported_media_type")
    folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="ragchat-upload-"))
    try:
        root = await _received(request, folder, service.settings.max_upload_files)
        if "text/event-stream" not in request.headers.get("accept", ""):
            report = await _read(tenant, folder, root, lambda _: None)
            return Response(json_bytes(_record(report)), media_type="application/json")
    except BaseException:
        await _removed(folder)
        raise
    settings = service.settings
    pieces = _told(tenant, folder, root)
    return EventStream(
        pieces,
        heartbeat=settings.heartbeat,
        stall=settings.stall_timeout,
        closing=lambda: _removed(folder),
    )


async def _received(request: Request, folder: Path, most: int) -> str:
    """Puts the files of a form into a folder and returns the root that the form names.

    Raises:
        Problem: 400: the form is broken, holds no file or too many, or a name leads out of it.
    """
    try:
        async with request.form(max_files=most, max_fields=16) as form:
            files = [each for name, each in form.multi_items() if isinstance(each, UploadFile)]
            if not files:
                raise Problem(400, "file: there is none", code="invalid_value", param="file")
            for file in files:
                target = folder / _name(file.filename or "")
                await asyncio.to_thread(_write, target, file)
            root = form.get("root", ROOT)
            if isinstance(root, str):
                root.encode()
    except MultiPartException as error:
        raise Problem(400, error.message, code="invalid_form") from None
    except UnicodeError:  # the client names the charset, and some give what is no text
        raise Problem(400, "the form's names are no text", code="invalid_form") from None
    if not isinstance(root, str) or not root.strip() or "/" in root or "\0" in root:
        raise Problem(400, "root: must be a name", code="invalid_value", param="root")
    return root


def _name(given: str) -> PurePosixPath:
    """Returns a file's path inside an upload.

    Raises:
        Problem: 400: it would lead out, or is no name.
    """
    path = PurePosixPath(given.replace("\\", "/"))
    drive = PureWindowsPath(given).drive
    bad = path.is_absolute() or not path.parts or "\0" in given or drive
    if bad or any(part == ".." or len(part.encode()) > _MOST_NAME for part in path.parts):
        raise Problem(400, "file: its name must be a path below the root", param="file")
    return path


def _write(target: Path, file: UploadFile) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as written:
            shutil.copyfileobj(file.file, written)
    except OSError as error:
        if error.errno not in _NAME_ERRORS:
            raise
        taken = "file: a name is taken, or too long"
        raise Problem(400, taken, code="invalid_value", param="file") from None


async def _removed(folder: Path) -> None:
    await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def _read(
    tenant: Tenant, folder: Path, root: str, tell: Callable[[float], object]
) -> IngestReport:
    try:
        left_out = await asyncio.to_thread(_left_out, folder, root)
        report = await ingest_directory(
            tenant.index,
            folder,
            root=root,
            known_as=root,
            follow_gitignore=False,
            metadata=tenant.stamp,
            scope=tenant.scope,
            remove_vanished=False,
            on_progress=tell,
        )
        return report + left_out
    except ScopeViolation as error:
        raise await _outside(tenant, error.document_id or "") from None
    finally:
        await _removed(folder)


def _left_out(folder: Path, root: str) -> IngestReport:
    """Returns an error for each file that is not read: whoever sends one by name is told so."""
    real = folder.resolve()
    selection = Selection(suffixes=frozenset(FORMATS), follow_gitignore=False)
    taken = {file.path for file in list_files(real, selection).files}
    errors = []
    for path in sorted(path for path in real.rglob("*") if path.is_file()):
        name = f"{root}/{path.relative_to(real).as_posix()}"
        form = FORMATS.get(path.suffix.lower(), "html")
        if path not in taken:
            errors.append(IngestError(name, InvalidDocument.__name__, _UNKNOWN_KIND))
        elif form != "html" and not is_installed():
            errors.append(IngestError.of(name, MissingExtra("documents", f"reading {form}")))
    return IngestReport(errors=tuple(errors))


async def _outside(tenant: Tenant, document_id: str) -> Problem:
    """Returns the answer for a document that must not be written.

    A document that stands there outside the scope is unknown here, whatever the new one says.
    """
    store = tenant.index.store
    mine = await store.hashes([document_id], scope=tenant.scope)
    if not mine and await store.hashes([document_id], scope=Filter()):
        return unknown()
    problem = "file: the metadata of a record contradict the key's scope"
    return Problem(400, problem, code="outside_scope", param="file")


async def _told(tenant: Tenant, folder: Path, root: str) -> AsyncGenerator[bytes]:
    """Yields the progress, then the report or what went wrong."""
    shares: asyncio.Queue[float | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def tell(share: float) -> None:
        loop.call_soon_threadsafe(shares.put_nowait, share)

    work = asyncio.create_task(_read(tenant, folder, root, tell))
    work.add_done_callback(lambda _: shares.put_nowait(None))
    try:
        while (share := await shares.get()) is not None:
            yield server_sent({"share": round(share, 4)}, name="progress")
        try:
            report = await work
        except Exception as error:  # noqa: BLE001 - the answer has begun: it must say so itself
            yield server_sent(problem_of(error).body, name="error")
        else:
            yield server_sent(_record(report), name="report")
    finally:
        await ended(work)


def _record(report: IngestReport) -> dict[str, Any]:
    return {"object": "ingestion", **asdict(report)}
