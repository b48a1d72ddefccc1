"""The roots of the tree, and what can go wrong anywhere."""

from __future__ import annotations

from typing import Any


class RagchatError(Exception):
    """Root of everything this library raises on purpose.

    Attributes:
        retryable: Whether the same call may succeed later without a change.
    """

    retryable: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Passes to another process whole; by default it would be made anew of its message."""
        return _restored, (type(self), self.args), self.__dict__


def _restored(kind: type[RagchatError], args: tuple[Any, ...]) -> RagchatError:
    error = kind.__new__(kind)
    error.args = args
    return error


class RetrievalError(RagchatError):
    """Root of the errors of the retrieval core."""


class InvalidSetting(RetrievalError, ValueError):
    """A constructor argument or a search option has a value that cannot work.

    Attributes:
        name: The argument's name.
    """

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.name = name


class MissingExtra(RetrievalError, ImportError):
    """An optional dependency is missing.

    Attributes:
        extra: The extra that brings it, as in ``pip install "ragchat-toolkit[extra]"``.
    """

    def __init__(self, extra: str, what: str) -> None:
        super().__init__(f'{what} needs an extra: pip install "ragchat-toolkit[{extra}]"')
        self.extra = extra


class DeadlineExceeded(RetrievalError, TimeoutError):
    """The request's deadline passed.

    Attributes:
        stage: The stage that was running or about to run.
        deadline: The whole deadline in seconds.
    """

    def __init__(self, stage: str, deadline: float) -> None:
        super().__init__(f"deadline of {deadline:g} s exceeded in stage {stage!r}")
        self.stage = stage
        self.deadline = deadline


class StageTimeout(RetrievalError, TimeoutError):
    """A stage exceeded its own timeout.

    Attributes:
        stage: The stage.
        timeout: Its limit in seconds.
    """

    retryable = True

    def __init__(self, stage: str, timeout: float) -> None:
        super().__init__(f"stage {stage!r} exceeded its timeout of {timeout:g} s")
        self.stage = stage
        self.timeout = timeout
