"""Failing well: which stage may be skipped, how long each may take, what remains of the deadline.

A `Run` is one preparation or one search under a `Policy`. The Preparer starts one and passes it
down in a context variable, so that the retriever inside it shares deadline, trace and degradations;
a search on its own starts a strict one.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar, get_args

from ragchat_retrieval.errors import DeadlineExceeded, InvalidSetting, RagchatError, StageTimeout
from ragchat_retrieval.recording import TraceRecorder
from ragchat_retrieval.telemetry import observer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from ragchat_retrieval.merging import Ranking
    from ragchat_retrieval.ports import Store
    from ragchat_retrieval.recording import Facts, Meter
    from ragchat_retrieval.trace import Operation, StageEvent
    from ragchat_retrieval.values import Candidate

T = TypeVar("T")

StageName = Literal["gate", "transform", "expand", "keyword", "vector", "rerank", "augment"]
_STAGES: tuple[StageName, ...] = get_args(StageName)

_MOST_OF_WHAT_IS_LEFT = 0.5
"""Share of the rest of the deadline that a stage may use up before it is skipped: else one that
hangs, or three by 10 of 30 seconds, would leave no time to search and to write the evidence."""

_log = logging.getLogger("ragchat")
_current: ContextVar[Run | None] = ContextVar("ragchat_run", default=None)
_ends: ContextVar[float] = ContextVar("ragchat_ends", default=math.inf)
"""When the stage around the work here is given up, by the clock of `time.monotonic`."""


@dataclass(frozen=True, slots=True)
class StagePolicy:
    """What one stage may cost and what its failure means.

    Raises:
        InvalidSetting: `on_error` is another word, or the timeout is not positive.
    """

    on_error: Literal["raise", "skip"] = "raise"
    """Whether a failure ends the work, or the work goes on without the stage."""

    timeout: float | None = None
    """Seconds; None takes the policy's own ``timeout``."""

    def __post_init__(self) -> None:
        if self.on_error not in ("raise", "skip"):
            raise InvalidSetting("on_error", "must be 'raise' or 'skip'")
        _check_seconds("timeout", self.timeout)


def _check_seconds(name: str, seconds: object) -> None:
    if seconds is None:
        return
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise InvalidSetting(name, "must be positive, or None for no limit")


SKIP = StagePolicy("skip")
RAISE = StagePolicy("raise")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Deadline, timeouts and failure rule per stage.

    The defaults let enhancements (gate, transform, expand, vector, rerank) be skipped, visibly, and
    let evidence (keyword, augment) fail loudly. A stage that may be skipped gets at most half of
    what is left of the deadline, however long its timeout, so that what may not be has time too.

    Raises:
        InvalidSetting: A time is not positive, or a stage's rule is no `StagePolicy`.
    """

    deadline: float | None = 30.0
    """Seconds for everything before the answer call; None is no limit."""

    timeout: float | None = 10.0
    """Seconds for one run of one stage; None is no limit."""

    gate: StagePolicy = SKIP
    transform: StagePolicy = SKIP
    expand: StagePolicy = SKIP
    keyword: StagePolicy = RAISE
    vector: StagePolicy = SKIP
    rerank: StagePolicy = SKIP
    augment: StagePolicy = RAISE

    def __post_init__(self) -> None:
        for name in _STAGES:
            rule: object = getattr(self, name)
            if not isinstance(rule, StagePolicy):
                raise InvalidSetting(name, f"must be a StagePolicy, not {type(rule).__name__}")
        _check_seconds("deadline", self.deadline)
        _check_seconds("timeout", self.timeout)

    @classmethod
    def strict(cls, *, deadline: float | None = 30.0, timeout: float | None = 10.0) -> Policy:
        """Returns a policy under which every failure raises."""
        return cls(deadline=deadline, timeout=timeout, **dict.fromkeys(_STAGES, RAISE))

    def with_deadline(self, deadline: float | None) -> Policy:
        """Returns a copy with another deadline."""
        return replace(self, deadline=deadline)

    def stage(self, name: StageName) -> StagePolicy:
        """Returns the rule of one stage."""
        rule: StagePolicy = getattr(self, name)
        return rule


_STRICT = Policy.strict()
"""The rules of a search on its own."""


class Watcher(Protocol):
    """Sees the orders that a search goes through, for evaluation; it changes nothing."""

    def lanes(self, ranking: Ranking, store: Store) -> None:
        """Sees the lanes of a search and their fusion, before any passage is read."""
        ...

    def step(self, stage: str, candidates: Sequence[Candidate]) -> None:
        """Sees the order after a step that was asked for: ``reranked``, ``diversified``."""
        ...


class Run:
    """One preparation or search: its policy, its clock, its record.

    Args:
        policy: The rules.
        on_stage: Hears every stage start and end.
        watcher: Sees the orders in between.
        record: Goes on with the record of the run around it; None begins one.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        on_stage: Callable[[StageEvent], object] | None = None,
        watcher: Watcher | None = None,
        record: TraceRecorder | None = None,
    ) -> None:
        self.policy = policy
        self.watcher = watcher
        self.record = TraceRecorder(on_stage, observer()) if record is None else record
        self._ends = None if policy.deadline is None else time.monotonic() + policy.deadline

    @property
    def remaining(self) -> float | None:
        """Seconds until the deadline, possibly negative; None without one."""
        return None if self._ends is None else self._ends - time.monotonic()

    async def stage(
        self,
        name: StageName,
        work: Callable[[], Awaitable[T]],
        *,
        fallback: Callable[[], T] | None = None,
        instead: str = "",
        spent: float = 0.0,
        count: Callable[[T], dict[str, int]] | None = None,
    ) -> T:
        """Runs one stage under its timeout and the deadline.

        Args:
            name: The stage; its rule comes from the policy.
            work: Starts the work; called once.
            fallback: Gives the result of a skipped stage. Without one, a failure raises whatever
                the rule says.
            instead: What the fallback does, for the degradation; empty if it does nothing.
            spent: Seconds of the stage's timeout that an earlier try of the same work has used.
            count: Numbers of the result worth tracing.

        Returns:
            The work's result, or the fallback's if the stage was skipped.

        Raises:
            DeadlineExceeded: The request's time is used up and the stage may not be skipped.
            StageTimeout: The stage's own time is used up and it may not be skipped.
            BaseException: What the work raised, if the stage may not be skipped.
        """
        rule = self.policy.stage(name)
        skippable = fallback is not None and rule.on_error == "skip"
        try:
            with self.record.stage(name, failure="skipped" if skippable else "failed") as counts:
                own = self.policy.timeout if rule.timeout is None else rule.timeout
                if skippable:
                    own = self._leaving_time(own, spent)
                result = await self._bounded(name, own, work, spent)
                if count is not None:
                    counts.update(count(result))
                return result
        except Exception as error:
            if fallback is None or not skippable:
                raise
            self.skip(name, error, instead=instead)
            return fallback()

    async def whole(
        self,
        name: str,
        work: Callable[[], Awaitable[T]],
        *,
        count: Callable[[T], dict[str, int]] | None = None,
        facts: Facts | None = None,
        content: Callable[[T], Facts] | None = None,
    ) -> T:
        """Runs work that has stages of its own under the deadline alone, and times it.

        Args:
            name: What the trace calls it.
            work: Starts the work; called once.
            count: Numbers of the result worth tracing.
            facts: What an observer is told at the start.
            content: What one that wants content is told of the result.

        Raises:
            DeadlineExceeded: The request's time is used up.
            BaseException: What the work raised.
        """
        with self.record.stage(name, facts=facts) as counts:
            result = await self._bounded(name, None, work)
            if count is not None:
                counts.update(count(result))
            if content is not None and self.record.captures:
                self.record.tell(content(result))
            return result

    def skip(self, name: str, error: Exception, *, instead: str = "") -> None:
        """Records that a stage was skipped because of an error, and logs a warning.

        Args:
            name: The stage.
            error: Why.
            instead: What stood in for it; empty if nothing did.
        """
        # The message of a foreign error may quote a prompt or a key, so only our own are repeated.
        reason = type(error).__name__
        if isinstance(error, RagchatError):
            reason = f"{reason}: {error}"
        if instead:
            reason = f"{reason}; {instead} instead"
        self.record.degrade(name, reason)
        _log.warning("stage %s skipped (%s)", name, reason)

    def _leaving_time(self, own: float | None, spent: float) -> float | None:
        """Returns the seconds of a stage that may be skipped, so that others have time left."""
        if self.remaining is None:
            return own
        share = spent + self.remaining * _MOST_OF_WHAT_IS_LEFT
        return share if own is None else min(own, share)

    async def _bounded(
        self, name: str, own: float | None, work: Callable[[], Awaitable[T]], spent: float = 0.0
    ) -> T:
        remaining = self.remaining
        if remaining is not None and remaining <= 0:
            raise DeadlineExceeded(name, self.policy.deadline or 0.0)
        if own is not None and own <= spent:
            raise StageTimeout(name, own)
        if own is not None and (remaining is None or own - spent < remaining):
            return await bounded(work, own - spent, partial(StageTimeout, name, own))
        late = partial(DeadlineExceeded, name, self.policy.deadline or 0.0)
        return await bounded(work, remaining, late)


async def bounded(
    work: Callable[[], Awaitable[T]], seconds: float | None, late: Callable[[], Exception]
) -> T:
    """Runs work for at most so many seconds.

    Args:
        work: Starts it; called once.
        seconds: None is no limit.
        late: Makes what is raised when they are over.

    Raises:
        Exception: What `late` made.
        BaseException: What the work raised, its own `TimeoutError` included.
    """
    if seconds is None:
        return await work()
    scope = asyncio.timeout(seconds)
    token = _ends.set(min(_ends.get(), time.monotonic() + seconds))
    try:
        async with scope:
            return await work()
    except TimeoutError:
        if not scope.expired():
            raise
        raise late() from None
    finally:
        _ends.reset(token)


@contextmanager
def running(run: Run) -> Iterator[Run]:
    """Makes `run` the current one for everything called inside."""
    token = _current.set(run)
    try:
        yield run
    finally:
        _current.reset(token)


def current_run() -> Run | None:
    """Returns the run that a caller further up has started, if any."""
    return _current.get()


def time_left() -> float:
    """Returns the seconds until the stage around the caller or its run is given up.

    Possibly negative; infinite without a limit.
    """
    run = _current.get()
    left = None if run is None else run.remaining
    return min(_ends.get() - time.monotonic(), math.inf if left is None else left)


def lasting() -> Context:
    """Returns the caller's context for work that may outlast the stage in which it begins."""
    context = copy_context()
    context.run(_ends.set, math.inf)
    return context


def started(policy: Policy | None) -> Run:
    """Returns the run to work in: a given policy's own, else the caller's, else a strict one."""
    current = current_run()
    if policy is None:
        return current or Run(_STRICT)
    if current is None:
        return Run(policy)
    return Run(policy, watcher=current.watcher, record=current.record)


async def carried(
    run: Run,
    name: str,
    work: Callable[[], Awaitable[T]],
    *,
    count: Callable[[T], dict[str, int]] | None = None,
    facts: Facts | None = None,
    content: Callable[[T], Facts] | None = None,
) -> T:
    """Does work inside a run, which the stages further down then find as the current one.

    A run that was started for this work alone also bounds it as a whole by its deadline.

    Args:
        run: What `started` returned.
        name: What the trace calls the work.
        work: Starts the work; called once.
        count: As for `Run.whole`, and so are the others.
        facts: What an observer is told at the start.
        content: What one that wants content is told of the result.

    Raises:
        DeadlineExceeded: The run was started here, and its time is used up.
        BaseException: What the work raised.
    """
    if run is current_run():
        return await work()
    with running(run):
        return await run.whole(name, work, count=count, facts=facts, content=content)


def model_call(
    operation: Operation, model: str, *, items: int = 1, provider: str | None = None
) -> AbstractContextManager[Meter]:
    """Records a call of a model in the current run, and shows it to an observer in any case.

    Args:
        operation: What is asked of the model.
        model: Its name.
        items: Texts or passages; 1 for a chat.
        provider: Whose API it is, where that is known.
    """
    run = current_run()
    record = TraceRecorder(observer=observer()) if run is None else run.record
    return record.call(operation, model, items=items, provider=provider)
