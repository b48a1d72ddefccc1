"""One turn of a conversation from question to checked answer, as events."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from ragchat.access import checked_create
from ragchat.citations import verify
from ragchat.events import EventFold
from ragchat.extractive import NO_SUPPORT, extractive_answer
from ragchat.wire.moments import Checked
from ragchat_retrieval.tasks import ended

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from ragchat.access import Foreign
    from ragchat.citations import Citations, Verification
    from ragchat.events import Answers, Event
    from ragchat.extractive import ExtractiveAnswer
    from ragchat.prepare import Preparer
    from ragchat.prepared import PreparedRequest
    from ragchat.wire.moments import WireEvent
    from ragchat_retrieval.trace import StageEvent
    from ragchat_retrieval.values import Query

    Check = Callable[[str, Citations], Awaitable[Verification]]
    Extract = Callable[[str | Query, Citations], Awaitable[ExtractiveAnswer]]


async def turn(
    preparer: Preparer,
    create: Callable[..., Foreign] | None,
    request: object = None,
    /,
    *,
    check: Check | None = verify,
    extract: Extract = extractive_answer,
    **params: Any,
) -> AsyncGenerator[WireEvent]:
    """Prepares a request, streams the answer, and checks its citations.

    Yields the start and end of every stage while they happen, then `Sources` and the events of the
    answer, then one `Checked` for each choice that has text. Close it (``aclose``) to stop: what is
    running is cancelled, and the chat model's stream is closed. The preparer's own ``on_stage``
    hears the stages too.

    Args:
        preparer: Makes the prompt.
        create: Answers, as for `PreparedRequest.events`; with None the answer is made of sentences
            of the evidence.
        request: What ``chat.completions.create`` takes, as a mapping or a pydantic model.
        check: Checks an answer against the passages presented; None leaves it out. Give
            ``functools.partial(ragchat.verify, embedder=…)`` to check by meaning too.
        extract: Answers without ``create``; give ``functools.partial(ragchat.extractive_answer,
            embedder=…)`` to choose sentences by meaning too.
        **params: The request as keyword arguments, ``messages`` among them.

    Raises:
        Exception: As for `Preparer.prepare`; errors of the answer call arrive as they are.
        InvalidSetting: Before anything is prepared: ``create`` is no function.
    """
    if create is not None:
        checked_create(create)
    folding = EventFold()
    preparing = _Preparing(preparer)
    async with aclosing(preparing.stages(request, params)) as stages:
        async for stage in stages:
            yield stage
    prepared = preparing.prepared
    answered = _extracted(prepared, extract) if create is None else _streamed(prepared, create)
    async with aclosing(answered) as events:
        async for event in events:
            folding.add(event)
            yield event
    if check is not None:
        for checked in await _checks(folding.answers, check):
            yield checked


class _Preparing:
    """Prepares a request in a task of its own, so that its stages can be heard meanwhile."""

    prepared: PreparedRequest
    """Set when `stages` has ended."""

    def __init__(self, preparer: Preparer) -> None:
        self._heard: asyncio.Queue[StageEvent | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._preparer = preparer

    async def stages(self, request: object, params: dict[str, Any]) -> AsyncGenerator[StageEvent]:
        """Yields the start and the end of every stage when it happens."""
        preparer = self._preparer.with_options(on_stage=self._hear)
        work = asyncio.create_task(preparer.prepare(request, **params))
        work.add_done_callback(lambda _: self._heard.put_nowait(None))
        try:
            while (event := await self._heard.get()) is not None:
                yield event
            self.prepared = await work
        finally:
            await ended(work)

    def _hear(self, event: StageEvent) -> None:
        self._loop.call_soon_threadsafe(self._heard.put_nowait, event)
        if self._preparer.on_stage is not None:
            self._preparer.on_stage(event)


async def _streamed(
    prepared: PreparedRequest, create: Callable[..., Foreign]
) -> AsyncGenerator[Event]:
    async with prepared.events(create) as events:
        async for event in events:
            yield event


async def _extracted(prepared: PreparedRequest, extract: Extract) -> AsyncGenerator[Event]:
    """Answers with sentences of the evidence, read as any other reply is."""
    reader = prepared.reader()
    for event in reader.start():
        yield event
    citations, queries = prepared.retrieval.citations, prepared.retrieval.queries
    asked = queries[0] if queries else prepared.question
    text = (await extract(asked, citations)).text if citations else NO_SUPPORT
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    for event in [*reader.feed({"choices": [choice]}), *reader.finish()]:
        yield event


async def _checks(answers: Answers, check: Check) -> list[Checked]:
    if answers.sources is None or not answers.sources.presented:
        return []
    presented = answers.sources.presented
    texts = [(answer.choice, answer.content) for answer in answers.choices if answer.content]
    return [Checked(choice, await check(text, presented)) for choice, text in texts]
