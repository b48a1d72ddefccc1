"""`create_app`: the server as an ASGI application, to run or to mount in another."""

from __future__ import annotations

from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Match, Route
from starlette.staticfiles import StaticFiles

from ragchat import wire
from ragchat.server import about, chat, documents, search, uploads
from ragchat.server.bodies import invalid
from ragchat.server.errors import Problem
from ragchat.server.guard import Guard
from ragchat.server.service import Service
from ragchat.server.settings import ServerSettings
from ragchat_retrieval.kinds import check_index

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from openai import AsyncOpenAI
    from starlette.requests import Request

    from ragchat.server.keys import KeyRing
    from ragchat.server.service import MakePreparer
    from ragchat_retrieval.index import HybridIndex
    from ragchat_retrieval.ports import Reranker
    from ragchat_retrieval.rerank import Rerank

PAGE = Path(__file__).parent / "static"
COMPONENT = Path(wire.__file__).parent / "static"

_ROUTES = (chat, search, uploads, documents, about)
_CODES = {404: "not_found", 405: "method_not_allowed"}


def create_app(
    index: HybridIndex,
    settings: ServerSettings | None = None,
    *,
    keys: KeyRing | None = None,
    client: AsyncOpenAI | None = None,
    make_preparer: MakePreparer | None = None,
    rerank: Rerank | Reranker | None = None,
) -> FastAPI:
    """Returns the server's application.

    Args:
        index: The documents. It stays the caller's, open as long as the application serves.
        settings: Limits, and the chat model's name.
        keys: Who may do what, such as a `KeyFile`; None lets everybody read and write the index's
            own corpus.
        client: Asks the chat model; it stays the caller's. With None and a model in the settings,
            one is made that reads ``OPENAI_BASE_URL`` and ``OPENAI_API_KEY``, and closed when the
            application's lifespan ends.
        make_preparer: Makes the preparer of a corpus; the key's scope is added to it. None takes
            model-free conversation expansion, hybrid search and the default augmenter.
        rerank: The reranker of searches and of that preparer.

    Raises:
        InvalidSetting: `index` is none.
    """
    check_index("index", index)
    settings = settings or ServerSettings()
    own = _client() if client is None and settings.model is not None else None
    asked = None if settings.model is None else client or own
    service = Service(
        index,
        settings,
        keys=keys,
        client=asked,
        make_preparer=make_preparer,
        rerank=rerank,
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        if own is not None:
            await own.close()

    app = FastAPI(
        title="ragchat",
        summary="Chat completions with evidence, behind the OpenAI API.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.ragchat = service
    for routes in _ROUTES:
        app.include_router(routes.router)
    app.mount("/static/page", StaticFiles(directory=PAGE), name="page files")
    app.mount("/static/component", StaticFiles(directory=COMPONENT), name="component")
    app.mount("/", StaticFiles(directory=PAGE, html=True), name="page")
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_middleware(Guard, service=service)
    if settings.cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors,
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=["*"],  # clients have many of their own, and none is trusted
            expose_headers=["retry-after", "retry-after-ms", "x-should-retry"],
        )
    return app


def _client() -> AsyncOpenAI:
    from openai import AsyncOpenAI  # noqa: PLC0415 - only where a model is asked

    return AsyncOpenAI()


async def _refused(request: Request, error: Exception) -> NoReturn:
    """Hands what the router refuses to the guard, which gives every error its shape."""
    if not isinstance(error, HTTPException):
        raise error
    status, detail = error.status_code, str(error.detail)
    headers = {name.lower(): value for name, value in (error.headers or {}).items()}
    if status in _CODES:
        # The page's files, which are looked through for whatever no route takes, know no routes.
        allowed = _allowed(request)
        status = HTTPStatus.METHOD_NOT_ALLOWED if allowed else HTTPStatus.NOT_FOUND
        detail, headers = status.phrase, {"allow": ", ".join(allowed)} if allowed else {}
    raise Problem(status, detail, code=_CODES.get(status), headers=headers)


def _allowed(request: Request) -> list[str]:
    """Returns the methods of all routes of a path; the router names those of one."""
    allowed: set[str] = set()
    for route in (route for routes in _ROUTES for route in routes.router.routes):
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            allowed |= route.methods or set()
    return sorted(allowed)


async def _invalid(_: Request, error: Exception) -> NoReturn:
    """As `_refused`, for parameters that are none."""
    if not isinstance(error, RequestValidationError):
        raise error
    raise invalid(error.errors())
