"""What an ingestion did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from ragchat_retrieval.errors import RagchatError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ragchat_retrieval.duplicates import Duplicate
    from ragchat_retrieval.values import Revision


@dataclass(frozen=True, slots=True)
class IngestError:
    """One record that could not be ingested."""

    id: str
    """The file's path as given, or the document's id where there is one."""

    error: str
    """Class name of the error, such as ``DocumentNotUTF8``."""

    message: str = ""
    """What was wrong, without content; empty for errors that are not ours."""

    @classmethod
    def of(cls, name: str, error: Exception) -> Self:
        """Returns the entry for an error. A foreign error's message is not repeated.

        Args:
            name: The record at fault. What cannot be printed in it is escaped.
            error: What it raised.
        """
        message = ""
        if isinstance(error, RagchatError):
            message = str(error)
        elif isinstance(error, OSError):
            message = error.strerror or ""
        printable = name.encode("utf-8", "backslashreplace").decode()
        return cls(printable, type(error).__name__, message)


MOST_NAMED = 10
"""Documents that a report names for one thing which a person may want to look at."""


@dataclass(frozen=True, slots=True)
class IngestReport:
    """Counts of one ingestion; reports add up with ``+``."""

    documents: int = 0
    """Documents written."""

    passages: int = 0
    """Passages written."""

    skipped: int = 0
    """Documents found unchanged."""

    deleted: int = 0
    """Documents removed, because they are gone or have no passages any more."""

    errors: tuple[IngestError, ...] = ()
    """Records that could not be ingested, in the order in which they were met."""

    too_long: int = 0
    """Passages longer than the embedder's window; their end is invisible to the vector lane."""

    blank: int = 0
    """Documents that gave no passages, because there is no text in them; they are not stored."""

    duplicates: tuple[Duplicate, ...] = ()
    """Documents that repeat an earlier one of the run, where duplicates were looked for."""

    pages_without_text: int = 0
    """Pages of documents in which no text was found, such as scans."""

    too_long_in: tuple[str, ...] = ()
    """Ids of the first documents with passages that are `too_long`, at most 10."""

    @classmethod
    def of(cls, revisions: Sequence[Revision]) -> IngestReport:
        """Counts what was written with these revisions; one without passages writes nothing."""
        sizes = [len(revision.passages) for revision in revisions if revision.passages]
        return cls(documents=len(sizes), passages=sum(sizes))

    def __add__(self, other: IngestReport) -> IngestReport:
        return IngestReport(
            documents=self.documents + other.documents,
            passages=self.passages + other.passages,
            skipped=self.skipped + other.skipped,
            deleted=self.deleted + other.deleted,
            errors=self.errors + other.errors,
            too_long=self.too_long + other.too_long,
            blank=self.blank + other.blank,
            duplicates=self.duplicates + other.duplicates,
            pages_without_text=self.pages_without_text + other.pages_without_text,
            too_long_in=named(self.too_long_in + other.too_long_in),
        )


def named(document_ids: Sequence[str]) -> tuple[str, ...]:
    """Returns the first different ones of these, as many as a report names."""
    return tuple(dict.fromkeys(document_ids))[:MOST_NAMED]
