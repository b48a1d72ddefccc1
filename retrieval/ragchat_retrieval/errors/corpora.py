"""What stands in the way of measuring a corpus, or of moving it."""

from __future__ import annotations

from typing import ClassVar

from ragchat_retrieval.errors.base import RetrievalError


class InvalidCollection(RetrievalError, ValueError):
    """A test collection's files are missing or cannot be read.

    Attributes:
        path: The file or folder.
        line: 1-based line of the file, where one is at fault.
    """

    def __init__(self, path: str, problem: str, *, line: int | None = None) -> None:
        super().__init__(f"{path}{'' if line is None else f', line {line}'}: {problem}")
        self.path = path
        self.line = line


class InvalidRun(RetrievalError, ValueError):
    """A run does not rank exactly the topics that are judged.

    Attributes:
        missing: How many topics it leaves out.
        unknown: How many of its topics are not judged.
    """

    def __init__(self, missing: int, unknown: int) -> None:
        super().__init__(f"the run leaves out {missing} topics and has {unknown} unknown ones")
        self.missing = missing
        self.unknown = unknown


class MigrationError(RetrievalError):
    """A corpus was not copied into another, or not rightly."""


class MigrationTargetInUse(MigrationError):
    """The corpus to copy into holds documents that the other one has not.

    Attributes:
        documents: How many.
    """

    def __init__(self, documents: int) -> None:
        super().__init__(
            f"the new corpus holds documents that the old one has not ({documents:,}); "
            "prune=True (--prune) removes them"
        )
        self.documents = documents


class MigrationMismatch(MigrationError):
    """Verification found that the new corpus does not say what the old one says.

    Attributes:
        problems: What differs, a sentence each, with ids and without content.
    """

    explanation: ClassVar[str] = "the new corpus differs"

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__(f"{self.explanation}: {'; '.join(problems)}")
        self.problems = problems


class MigrationSourceChanging(MigrationMismatch):
    """The old corpus was written anew before each verification of the copy was done.

    Nothing is known to be wrong with what was copied, and it stays.
    """

    retryable = True
    explanation = (
        "the old corpus is written faster than its changes are copied; "
        "stop its writers, or run it again when they write less; so far the new one differs"
    )
