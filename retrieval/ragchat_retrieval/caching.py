"""`cached`: a stage that remembers what it answered.

It is a wrapper like any other: a transformer, an expander, a reranker or a whole retriever goes in,
the same kind of stage comes out. The key is everything that the stage is given, and the stage
itself: the conversation, the question with its filter and scope, the candidates. So nothing crosses
a scope, and another model or prompt, being another stage, has a cache of its own.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ragchat_retrieval.errors import DeadlineExceeded, InvalidSetting, StageTimeout
from ragchat_retrieval.keys import key_of
from ragchat_retrieval.policy import current_run, lasting
from ragchat_retrieval.recording import degradations
from ragchat_retrieval.stages import call_stage
from ragchat_retrieval.tasks import ended
from ragchat_retrieval.trace import Degradation, Trace
from ragchat_retrieval.values import SearchResult

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

_FORWARDED = frozenset(
    {
        "admits",
        "current",
        "data_source",
        "lanes",
        "rerank_defaults",
        "revision",
        "semantic",
        "stage",
        "top_k",
    }
)
"""What stages declare of themselves."""

_FROM_CACHE = "{} from the cache"


def cached(
    stage: Callable[..., Any],
    *,
    size: int = 1024,
    ttl: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> CachedStage:
    """Returns a stage that remembers the answers of another one.

    Equal calls at the same time are one call; it goes on as long as anybody waits for it, and ends
    when nobody does. Errors are never remembered, nor is an answer from which something was left
    out. What has no key (see `keys.key_of`) is asked each time.

    A retriever over one index or several forgets everything when one of them changes, whichever
    process changed it, at the price of asking the stores for their revisions at each call. Other
    retrievers cannot tell when their index changes: give them a `ttl`.

    Args:
        stage: Any async or sync stage whose answer follows from its arguments.
        size: Answers kept at most, 1 or more; those not used for longest go first.
        ttl: Seconds that an answer is good for; None is for ever.
        clock: Tells the time in seconds.

    Raises:
        InvalidSetting: `size` or `ttl` is out of range, or there is no `ttl` for a pipeline, a
            fallback or a federation over a retriever that cannot tell when its index changes.
    """
    return CachedStage(stage, size=size, ttl=ttl, clock=clock)


class CachedStage:
    """A stage with a memory; see `cached`. Safe for concurrent tasks, loops and threads."""

    def __init__(
        self,
        stage: Callable[..., Any],
        *,
        size: int = 1024,
        ttl: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not callable(stage):
            raise InvalidSetting("stage", "must be callable")
        if type(size) is not int or size < 1:
            raise InvalidSetting("size", "must be an integer, 1 or more")
        if ttl is not None and not ttl > 0:
            raise InvalidSetting("ttl", "must be positive, or None for no limit")
        self._revision: Callable[[], Any] | None = getattr(stage, "revision", None)
        if ttl is None and self._revision is None and hasattr(stage, "revision"):
            raise InvalidSetting("ttl", "is needed: the retriever cannot tell of changes")
        self._stage = stage
        self._size = size
        self._ttl = ttl
        self._clock = clock
        self._lock = threading.Lock()
        self._answers: OrderedDict[bytes, _Answer] = OrderedDict()
        self._seen: object = None
        self._flights: dict[tuple[int, bytes, Hashable], _Flight] = {}
        self.hits = 0
        """Calls that were answered from memory, or by a call that was under way."""

        self.misses = 0
        """Calls that were passed on."""

    def __repr__(self) -> str:
        return f"cached({self._stage!r})"

    if not TYPE_CHECKING:  # with it, a type checker would accept any name

        def __getattr__(self, name: str) -> object:
            """Declares what the stage inside declares."""
            if name in _FORWARDED:
                return getattr(self._stage, name)
            problem = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(problem, name=name, obj=self)

    def __len__(self) -> int:
        return len(self._answers)

    def __bool__(self) -> bool:
        return True

    def clear(self) -> None:
        """Forgets everything."""
        with self._lock:
            self._answers.clear()

    def unwrap(self) -> Callable[..., Any]:
        """Returns the stage inside."""
        return self._stage

    async def __call__(self, *args: Any) -> Any:  # noqa: ANN401 - what the stage gives
        """Answers from memory, or asks the stage.

        Raises:
            BaseException: What the stage raised, or its index's store when asked for its revision.
        """
        key = key_of(args)
        if key is None:
            self.misses += 1
            return await call_stage(self._stage, *args)
        revision = await self._current()
        found = self._recall(key, revision)
        if found is None:
            return await self._asked(key, revision, args)
        self._hit()
        return _again(found.value)

    async def _current(self) -> Hashable:
        """Returns the revision of the index, where there is one."""
        return None if self._revision is None else await call_stage(self._revision)

    def _recall(self, key: bytes, revision: Hashable) -> _Answer | None:
        with self._lock:
            self._turn_to(revision)
            answer = self._answers.get(key)
            if answer is None:
                return None
            if answer.revision != revision or answer.until <= self._clock():
                del self._answers[key]
                return None
            self._answers.move_to_end(key)
            return answer

    def _turn_to(self, revision: Hashable) -> None:
        """Forgets what was found in an index that has changed since."""
        if revision != self._seen:
            self._answers.clear()
            self._seen = revision

    def _keep(self, key: bytes, revision: Hashable, value: object) -> None:
        until = float("inf") if self._ttl is None else self._clock() + self._ttl
        with self._lock:
            self._turn_to(revision)
            self._answers[key] = _Answer(value, revision, until)
            self._answers.move_to_end(key)
            while len(self._answers) > self._size:
                self._answers.popitem(last=False)

    async def _asked(self, key: bytes, revision: Hashable, args: tuple[Any, ...]) -> object:
        """Asks the stage, together with whoever asks the same meanwhile."""
        name = (id(asyncio.get_running_loop()), key, revision)
        while True:
            flight = self._flights.get(name)
            leads = flight is None
            if flight is None:
                self.misses += 1
                flight = self._flights[name] = _Flight()
                flight.task = asyncio.create_task(self._fly(name, flight, args), context=lasting())
                flight.task.add_done_callback(_looked_at)
            flight.waiting += 1
            try:
                value = await asyncio.shield(flight.task)
            except (DeadlineExceeded, StageTimeout):
                if leads:
                    raise
                continue  # it was the other's time that was up
            finally:
                flight.waiting -= 1
                if not flight.waiting and not flight.task.done():
                    self._land(name, flight)
                    await ended(flight.task)
            if leads:
                return value
            self._hit(flight.degraded)
            return _again(value)

    async def _fly(
        self, name: tuple[int, bytes, Hashable], flight: _Flight, args: tuple[Any, ...]
    ) -> object:
        _, key, revision = name
        try:
            with degradations() as left_out:
                value: object = await call_stage(self._stage, *args)
            flight.degraded = left_out
            whole = not left_out and not getattr(value, "degraded", ())
            if whole and await self._current() == revision:
                self._keep(key, revision, _again(value))
            return value
        finally:
            self._land(name, flight)

    def _land(self, name: tuple[int, bytes, Hashable], flight: _Flight) -> None:
        if self._flights.get(name) is flight:
            del self._flights[name]

    def _hit(self, degraded: list[Degradation] | None = None) -> None:
        self.hits += 1
        run = current_run()
        if run is not None:
            run.record.note(_FROM_CACHE.format(_label(self._stage)))
            for degradation in degraded or ():
                run.record.degrade(degradation.stage, degradation.reason)


class _Answer(NamedTuple):
    value: object
    revision: Hashable
    until: float


class _Flight:
    """A call that is under way."""

    __slots__ = ("degraded", "task", "waiting")

    task: asyncio.Task[object]

    def __init__(self) -> None:
        self.waiting = 0
        self.degraded: list[Degradation] = []


def _again(value: object) -> object:
    """Returns an answer for another caller: a list of its own, no costs that were another's."""
    if isinstance(value, SearchResult):
        return replace(value, trace=Trace(notes=(_FROM_CACHE.format("search"),)))
    return list(value) if type(value) is list else value


def _looked_at(task: asyncio.Task[object]) -> None:
    """Marks an error as seen, which nobody may be waiting for any more."""
    if not task.cancelled():
        task.exception()


def _label(stage: object) -> str:
    return getattr(stage, "__name__", type(stage).__name__)
