"""``POST /v1/chat/completions``: the OpenAI API with evidence in front of the model."""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response

from ragchat.errors import EmptyResponse
from ragchat.extractive import NO_SUPPORT, extractive_answer
from ragchat.server.annotating import Annotator, about, annotated
from ragchat.server.bodies import ChatBody, ChatOptions, read_body
from ragchat.server.completions import chunks_of, completion
from ragchat.server.documented import STREAMED, body_of, failures
from ragchat.server.errors import Problem, problem_of
from ragchat.server.server_sent import END, event
from ragchat.server.service import embedder_of, service_of, tenant_of
from ragchat.server.streaming import EventStream
from ragchat.wire.encoding import json_bytes
from ragchat_retrieval.tasks import ended

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Coroutine

    from ragchat.access import Foreign
    from ragchat.prepared import PreparedRequest, PreparedStream
    from ragchat.server.completions import Batch, Create
    from ragchat.server.service import Service, Tenant

router = APIRouter(tags=["chat"])

_BROKEN = "the chat model's stream ended before its answer did"


@router.post(
    "/v1/chat/completions",
    openapi_extra=body_of(ChatBody),
    responses={**STREAMED, **failures(400, 401, 408, 413, 415, 429, 502, 503, 504)},
    response_model=None,
)
async def complete(request: Request) -> Response:
    """Answers a chat request from the documents, whole or streamed."""
    service, tenant = service_of(request), tenant_of(request)
    raw, body = await read_body(request, ChatBody)
    most = service.settings.max_messages
    if len(body.messages) > most:
        raise Problem(400, f"messages: at most {most}", code="too_many_messages", param="messages")
    options = body.ragchat or ChatOptions()
    params = {name: value for name, value in raw.items() if name != "ragchat"}
    params["model"] = service.model
    if body.stream:
        usage = (body.stream_options or {}).get("include_usage") is True
        opening = _opened(service, tenant, params, options, usage=usage)
        return await _streamed(service, opening, first=options.sources_event)
    prepared = await _prepared(service, tenant, params, options)
    answer = await prepared.call(_calling(service, tenant, prepared))
    return Response(json_bytes(annotated(answer, prepared)), media_type="application/json")


async def _prepared(
    service: Service, tenant: Tenant, params: dict[str, Any], options: ChatOptions
) -> PreparedRequest:
    top_k = service.top_k(options.top_k)
    preparer = tenant.preparer.with_options(filter=options.filter, top_k=top_k)
    fingerprints = partial(tenant.index.store.hashes, scope=tenant.scope)
    with service.metrics.preparing.time():
        return await service.rounds.prepare(
            preparer, params, fingerprints, owner=tenant.reach, options=[options.filter, top_k]
        )


def _head() -> dict[str, Any]:
    return {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time())}


def _calling(service: Service, tenant: Tenant, prepared: PreparedRequest) -> Create:
    """Returns what answers whole: the chat model, or else the documents' own sentences."""
    if service.upstream is not None:
        return service.upstream.call

    async def extract(**_: Any) -> dict[str, Any]:
        return completion(await _sentences(tenant, prepared), service.model, _head())

    return extract


def _streaming(
    service: Service, tenant: Tenant, prepared: PreparedRequest, *, usage: bool
) -> Create:
    """Returns what answers in batches of chunks, as `_calling`."""
    if service.upstream is not None:
        return service.upstream.stream

    async def extract(**_: Any) -> AsyncIterator[Batch]:
        text = await _sentences(tenant, prepared)
        return _once(chunks_of(text, service.model, _head(), usage=usage))

    return extract


async def _once(batch: Batch) -> AsyncIterator[Batch]:
    yield batch


async def _sentences(tenant: Tenant, prepared: PreparedRequest) -> str:
    retrieval, index = prepared.retrieval, tenant.index
    if not retrieval.citations:
        return NO_SUPPORT
    asked = retrieval.queries[0] if retrieval.queries else prepared.question
    embedder = await embedder_of(index)
    answer = await extractive_answer(
        asked,
        retrieval.citations,
        embedder=embedder,
        on_error="skip",
        analyzer=index.analyzer,
    )
    return answer.text


@dataclass(frozen=True, slots=True)
class _Opened:
    """A stream that the model's server has accepted."""

    prepared: PreparedRequest
    stream: PreparedStream[Batch]
    begun: asyncio.Future[Batch | None]
    """Its first chunks."""

    async def aclose(self) -> None:
        """Closes it, wherever it is."""
        self.begun.cancel()
        await self.stream.aclose()


async def _opened(
    service: Service, tenant: Tenant, params: dict[str, Any], options: ChatOptions, *, usage: bool
) -> _Opened:
    """Prepares a request and waits until the model's server has accepted it.

    Raises:
        Exception: What refused it, as it came.
    """
    prepared = await _prepared(service, tenant, params, options)
    create = _streaming(service, tenant, prepared, usage=usage)
    decided, accepted = asyncio.Event(), asyncio.Event()

    async def opening(**params: Any) -> Foreign:
        upstream = await create(**params)
        accepted.set()
        decided.set()
        return upstream

    stream = prepared.stream(opening)
    begun = asyncio.ensure_future(anext(stream, None))
    begun.add_done_callback(lambda _: decided.set())
    opened = _Opened(prepared, stream, begun)
    try:
        await decided.wait()
        if not accepted.is_set():
            begun.result()
    except BaseException:
        await opened.aclose()
        raise
    return opened


async def _streamed(
    service: Service, opened: Coroutine[Any, Any, _Opened], *, first: bool
) -> Response:
    """Returns the response as soon as the model's server has accepted the request.

    Until then what refuses it keeps its status. Where that takes longer than the client is left in
    silence, in whichever stage of preparing or at a model that thinks, the answer begins without
    it: then comments come, and a refusal comes as an event.
    """
    settings = service.settings
    opening = asyncio.create_task(opened)

    async def close() -> None:
        try:
            await ended(opening)
        finally:
            if not opening.cancelled() and opening.exception() is None:
                await opening.result().aclose()

    try:
        await asyncio.wait([opening], timeout=settings.heartbeat)
        if opening.done():
            opening.result()  # raises what refused it
    except BaseException:
        await close()
        raise
    pieces = _pieces(service, opening, first=first)
    return EventStream(
        pieces, heartbeat=settings.heartbeat, stall=settings.stall_timeout, closing=close
    )


async def _pieces(
    service: Service, opening: asyncio.Future[_Opened], *, first: bool
) -> AsyncGenerator[bytes]:
    """Yields the body of a streamed answer."""
    try:
        opened = await opening
        annotator = Annotator(opened.prepared.retrieval)
        async with opened.stream as batches:
            if first:
                yield event(json_bytes(_sources(service, opened.prepared)))
            batch = await opened.begun
            if batch is None or batch[0] == END:
                raise EmptyResponse("the chat model's stream was empty")  # noqa: TRY301 - one way
            yield _written(annotator.feed(batch))
            async for batch in batches:
                yield _written(annotator.feed(batch))
        if not annotator.whole:
            raise Problem(502, _BROKEN, code="upstream")  # noqa: TRY301 - one way
    except Exception as error:  # noqa: BLE001 - the answer has begun: it must say so itself
        upstream = service.upstream
        problem = problem_of(error, key="" if upstream is None else upstream.key)
        yield event(json_bytes(problem.body))
        return
    yield _written([*annotator.finish(), END])


def _sources(service: Service, prepared: PreparedRequest) -> dict[str, Any]:
    """Returns the chunk without choices that tells the sources."""
    return {
        **_head(),
        "object": "chat.completion.chunk",
        "model": service.model,
        "choices": [],
        "ragchat": about(prepared.retrieval),
    }


def _written(batch: Batch) -> bytes:
    return b"".join(map(event, batch))
