"""Reading any source into an index: a source of records, a decoder, a sink.

Decoding runs in a worker thread, one batch at a time, and only one batch is in memory. A batch is
handed to the sink when it is full, so that a run that was stopped has kept what it had handed over.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Iterable
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from ragchat_retrieval.errors import (
    DuplicateDocumentID,
    EmbeddingError,
    InvalidDocument,
    InvalidSetting,
    InvalidVector,
)
from ragchat_retrieval.ingest.report import IngestError, IngestReport
from ragchat_retrieval.kinds import check_callable
from ragchat_retrieval.stages import call_stage
from ragchat_retrieval.text import check_document
from ragchat_retrieval.values import Document

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    OnError = Literal["report", "raise"]
    Sink = Callable[[Sequence[Document]], Awaitable[IngestReport | None] | IngestReport | None]
    Outcome = tuple[str, object]

R = TypeVar("R")

BATCH_DOCUMENTS = 64
BATCH_CHARACTERS = 1_000_000
"""A batch is full at this many documents or characters, whichever comes first."""


async def records(
    source: Iterable[R] | AsyncIterable[R],
    decode: Callable[[R], object],
    sink: Sink,
    *,
    label: Callable[[R], str] | None = None,
    batch: int = BATCH_DOCUMENTS,
    batch_characters: int = BATCH_CHARACTERS,
    on_error: OnError = "report",
) -> IngestReport:
    """Turns the records of a source into documents and hands them to a sink in batches.

    For rows of a database, messages of a queue, pages of an API, and so on::

        await records(
            rows, lambda row: Document(row.key, row.body), lambda batch: index.ingest(*batch)
        )

    Args:
        source: The records, in an iterable of either kind. What it raises itself stops the run.
        decode: Sync, called in a worker thread. Returns a `Document`, None for a record that is
            none, or an iterable of documents, such as a generator. An exception among them reports
            a part that is none; one that is raised ends its record.
        sink: Writes a batch, a list of documents. Returns an `IngestReport`, or None, which counts
            the documents. Async or sync.
        label: Names a record in an error; None numbers them from 1, as in ``record 1``.
        batch: Most documents of a batch.
        batch_characters: A batch with this many characters of text is full.
        on_error: ``report`` keeps going and lists what could not be ingested; ``raise`` stops at
            the first. An error of the sink that names none of its documents always stops: it is no
            fault of a record.

    Returns:
        The sum of the sink's reports, with the errors of all records. A document id that occurs a
        second time is an error, and the first one stands.

    Raises:
        InvalidSetting: `batch` or `batch_characters` is below 1, `on_error` is neither word, or
            `decode` or `sink` cannot be called.
    """
    for name, value in (("batch", batch), ("batch_characters", batch_characters)):
        if value < 1:
            raise InvalidSetting(name, "must be at least 1")
    if on_error not in {"report", "raise"}:
        raise InvalidSetting("on_error", 'must be "report" or "raise"')
    check_callable("decode", decode, "callable with a record")
    check_callable("sink", sink, "callable with a list of documents")
    intake = _Intake(decode, label, batch, batch_characters, on_error)
    report = IngestReport()
    try:
        async for outcomes in _streams(source, intake):
            while await asyncio.to_thread(intake.fill, outcomes):
                report += await write(intake.take(), sink, on_error=on_error)
    finally:
        intake.stop()
    if documents := intake.take():
        report += await write(documents, sink, on_error=on_error)
    return report + IngestReport(errors=tuple(intake.errors))


async def write(documents: Sequence[Document], sink: Sink, *, on_error: OnError) -> IngestReport:
    """Hands documents to a sink; those that it refuses by id are left out and reported.

    Args:
        documents: With distinct ids.
        sink: As for `records`.
        on_error: As for `records`.
    """
    errors: list[IngestError] = []
    while documents:
        try:
            report = await call_stage(sink, documents)
        except (InvalidDocument, InvalidVector, EmbeddingError) as error:
            remaining = [d for d in documents if d.id != error.document_id]
            if on_error == "raise" or len(remaining) == len(documents):
                raise
            errors.append(IngestError.of(error.document_id or "", error))
            documents = remaining
        else:
            counted = IngestReport(documents=len(documents)) if report is None else report
            return counted + IngestReport(errors=tuple(errors))
    return IngestReport(errors=tuple(errors))


class _Intake(Generic[R]):
    """The batch that is being filled, with what went wrong on the way."""

    def __init__(
        self,
        decode: Callable[[R], object],
        label: Callable[[R], str] | None,
        batch: int,
        characters: int,
        on_error: OnError,
    ) -> None:
        self.errors: list[IngestError] = []
        self._decode = decode
        self._label = label
        self._limits = (batch, characters)
        self._on_error = on_error
        self._number = 0
        self._stopped = False
        self._seen: set[str] = set()
        self._documents: list[Document] = []
        self._characters = 0

    def outcomes(self, source: Iterable[R]) -> Iterator[Outcome]:
        """Yields what the records decode to, each with its record's label."""
        for record in source:
            self._number += 1
            name = f"record {self._number}" if self._label is None else self._label(record)
            try:
                for item in _items(self._decode(record)):
                    yield name, item
            except Exception as error:  # noqa: BLE001 - whatever it is, the next record may be good
                yield name, error

    def fill(self, outcomes: Iterator[Outcome]) -> bool:
        """Takes documents until the batch is full (True) or there are no more (False)."""
        for name, item in outcomes:
            try:
                self._add(item)
            except Exception as error:
                if self._on_error == "raise":
                    raise
                self.errors.append(IngestError.of(name, error))
            if len(self._documents) >= self._limits[0] or self._characters >= self._limits[1]:
                return True
            if self._stopped:
                break
        return False

    def stop(self) -> None:
        """Lets a thread that is filling a batch end after its record: nobody waits any more."""
        self._stopped = True

    def take(self) -> list[Document]:
        """Returns the batch and begins the next one."""
        taken, self._documents, self._characters = self._documents, [], 0
        return taken

    def _add(self, item: object) -> None:
        if isinstance(item, Exception):
            raise item
        if not isinstance(item, Document):
            raise InvalidDocument(f"decoded to {type(item).__name__}, which is no document")
        check_document(item)
        if item.id in self._seen:
            raise DuplicateDocumentID(item.id, store="source")
        self._seen.add(item.id)
        self._documents.append(item)
        self._characters += len(item.text)


async def _streams(
    source: Iterable[R] | AsyncIterable[R], intake: _Intake[R]
) -> AsyncIterable[Iterator[Outcome]]:
    if isinstance(source, AsyncIterable):
        async for record in source:
            yield intake.outcomes([record])
    else:
        yield intake.outcomes(source)


def _items(decoded: object) -> Iterable[object]:
    if decoded is None:
        return ()
    # A document is not iterable, a string is: it is no document and reported as such.
    if isinstance(decoded, Iterable) and not isinstance(decoded, str | bytes):
        return decoded
    return (decoded,)
