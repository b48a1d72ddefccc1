"""Records from any source become documents, in batches; bad ones are reported."""

from __future__ import annotations

import asyncio
import threading

import pytest

from ragchat_retrieval.errors import (
    DocumentNotUTF8,
    DuplicateDocumentID,
    EmbeddingError,
    InvalidMetadata,
    InvalidSetting,
    InvalidText,
    InvalidVector,
    StoreUnavailable,
)
from ragchat_retrieval.ingest import IngestError, IngestReport, records
from ragchat_retrieval.values import Document


class Sink:
    """Keeps what it is given; refuses some documents by id."""

    def __init__(self, *, refused=(), error=None):
        self.batches = []
        self.refused = refused
        self.error = error

    async def __call__(self, documents):
        if self.error is not None:
            raise self.error
        for document in documents:
            if document.id in self.refused:
                raise InvalidVector("zero", document_id=document.id)
        self.batches.append([document.id for document in documents])


def decode(record):
    return Document(f"d{record}", f"text {record}")


async def stream(items):
    for item in items:
        yield item


@pytest.mark.parametrize("kind", [list, iter, stream])
async def test_documents_go_to_the_sink_in_order_and_in_batches(kind):
    sink = Sink()
    report = await records(kind(range(5)), decode, sink, batch=2)
    assert sink.batches == [["d0", "d1"], ["d2", "d3"], ["d4"]]
    assert report == IngestReport(documents=5)


async def test_a_batch_is_bounded_by_its_characters_too():
    sink = Sink()
    await records(range(4), decode, sink, batch_characters=10)
    assert sink.batches == [["d0", "d1"], ["d2", "d3"]]


async def test_no_record_means_no_call_of_the_sink():
    sink = Sink()
    assert await records([], decode, sink) == IngestReport()
    assert sink.batches == []


async def test_a_record_may_be_none_or_many_documents():
    sink = Sink()
    report = await records(
        range(4), lambda record: (decode(f"{record}{i}") for i in range(record)), sink
    )
    assert sink.batches == [["d10", "d20", "d21", "d30", "d31", "d32"]]
    assert report.documents == 6
    assert await records([1], lambda record: None, sink) == IngestReport()


async def test_decoding_runs_in_a_worker_thread_and_the_sink_does_not():
    threads = {}

    def reading(record):
        threads["decode"] = threading.get_ident()
        return decode(record)

    async def sink(documents):
        threads["sink"] = threading.get_ident()

    await records([1], reading, sink)
    assert threads["sink"] == threading.get_ident() != threads["decode"]


async def test_a_sync_sink_is_accepted_and_its_report_counts():
    report = await records(
        range(3), decode, lambda documents: IngestReport(1, passages=7, skipped=2), batch=3
    )
    assert report == IngestReport(documents=1, passages=7, skipped=2)


async def test_only_one_batch_is_decoded_ahead():
    decoded = []

    def noting(record):
        decoded.append(record)
        return decode(record)

    async def sink(documents):
        seen.append(len(decoded))

    seen = []
    await records(range(6), noting, sink, batch=2)
    assert seen == [2, 4, 6]


async def test_a_run_that_is_cancelled_ends_with_the_record_that_it_is_at():
    """Ctrl-C waits for what is read: for one file, and not for a whole batch of them."""
    decoded, begun, gate = [], threading.Event(), threading.Event()

    def slowly(record):
        decoded.append(record)
        begun.set()
        assert gate.wait(30)
        return decode(record)

    run = asyncio.create_task(records(range(9), slowly, Sink()))
    await asyncio.to_thread(begun.wait, 30)
    run.cancel()
    await asyncio.wait([run])
    gate.set()
    await asyncio.get_running_loop().shutdown_default_executor()
    assert run.cancelled()
    assert decoded == [0]


# Bad records


def sometimes(record):
    if record == 1:
        raise DocumentNotUTF8(3, document_id="r1")
    if record == 2:
        raise KeyError("secret content")
    if record == 3:
        raise PermissionError(13, "Permission denied", "/secret/path")
    if record == 4:
        return Document("d4", "o\x00er")
    if record == 5:
        return Document("d5", "x", metadata={"bad key": 1})
    if record == 6:
        return "text"
    return decode(record)


async def test_bad_records_are_reported_without_content_and_the_rest_goes_on():
    sink = Sink()
    report = await records(range(9), sometimes, sink, label=lambda record: f"r{record}")
    assert sink.batches == [["d0", "d7", "d8"]]
    assert [(error.id, error.error) for error in report.errors] == [
        ("r1", "DocumentNotUTF8"),
        ("r2", "KeyError"),
        ("r3", "PermissionError"),
        ("r4", "InvalidText"),
        ("r5", "InvalidMetadata"),
        ("r6", "InvalidDocument"),
    ]
    messages = [error.message for error in report.errors]
    assert messages[:3] == ["document 'r1', text: not UTF-8 at byte 3", "", "Permission denied"]
    assert "secret" not in "".join(messages)


async def test_records_without_a_label_are_numbered():
    report = await records(range(3), sometimes, Sink())
    assert [error.id for error in report.errors] == ["record 2", "record 3"]


async def test_a_part_of_a_record_can_be_bad_alone():
    sink = Sink()
    parts = [decode(1), ValueError("bad line"), decode(2)]
    report = await records([parts], lambda record: record, sink)
    assert sink.batches == [["d1", "d2"]]
    assert report.errors == (IngestError("record 1", "ValueError"),)


async def test_documents_before_a_failure_in_the_same_record_are_kept():
    def breaking(record):
        yield decode(1)
        raise EOFError

    sink = Sink()
    report = await records(["r"], breaking, sink)
    assert (sink.batches, report.errors[0].error) == ([["d1"]], "EOFError")


async def test_a_repeated_id_is_an_error_and_the_first_stands():
    sink = Sink()
    report = await records([1, 2, 1, 3], decode, sink, batch=2)
    assert sink.batches == [["d1", "d2"], ["d3"]]
    assert [error.error for error in report.errors] == ["DuplicateDocumentID"]


async def test_a_document_that_the_sink_refuses_is_left_out_of_its_batch():
    sink = Sink(refused={"d1", "d3"})
    report = await records(range(5), decode, sink)
    assert sink.batches == [["d0", "d2", "d4"]]
    assert report.documents == 3
    assert [(error.id, error.error) for error in report.errors] == [
        ("d1", "InvalidVector"),
        ("d3", "InvalidVector"),
    ]


async def test_a_batch_of_which_nothing_is_left_is_not_written():
    sink = Sink(refused={"d1"})
    report = await records([1], decode, sink)
    assert (sink.batches, report.documents, len(report.errors)) == ([], 0, 1)


@pytest.mark.parametrize(
    ("record", "error"),
    [(1, DocumentNotUTF8), (2, KeyError), (4, InvalidText), (5, InvalidMetadata)],
)
async def test_the_first_bad_record_stops_the_run_if_asked(record, error):
    sink = Sink()
    with pytest.raises(error):
        await records([0, 7, record, 8], sometimes, sink, batch=2, on_error="raise")
    assert sink.batches == [["d0", "d7"]]


async def test_a_repeated_or_refused_document_stops_the_run_if_asked():
    with pytest.raises(DuplicateDocumentID):
        await records([1, 1], decode, Sink(), on_error="raise")
    with pytest.raises(InvalidVector):
        await records([1], decode, Sink(refused={"d1"}), on_error="raise")


@pytest.mark.parametrize(
    "error",
    [
        StoreUnavailable("busy"),
        EmbeddingError("down", model="m"),
        InvalidVector("no document of this batch", document_id="other"),
    ],
)
async def test_a_failure_of_the_sink_is_no_fault_of_a_record(error):
    with pytest.raises(type(error)) as caught:
        await records([1], decode, Sink(error=error))
    assert caught.value is error


async def test_a_failure_of_the_source_stops_the_run():
    def source():
        yield 1
        raise ConnectionError

    sink = Sink()
    with pytest.raises(ConnectionError):
        await records(source(), decode, sink, batch=1)
    assert sink.batches == [["d1"]]


@pytest.mark.parametrize(
    "settings", [{"batch": 0}, {"batch_characters": 0}, {"on_error": "ignore"}]
)
async def test_settings_that_cannot_work_are_refused(settings):
    with pytest.raises(InvalidSetting) as caught:
        await records([1], decode, Sink(), **settings)
    assert caught.value.name == next(iter(settings))


# Reports


def test_reports_add_up():
    first = IngestReport(1, 2, 3, 4, (IngestError("a", "E"),), 5, 6)
    second = IngestReport(10, 20, 30, 40, (IngestError("b", "E"),), 50, 60)
    assert first + second == IngestReport(
        11, 22, 33, 44, (IngestError("a", "E"), IngestError("b", "E")), 55, 66
    )
    assert first + IngestReport() == first


def test_a_name_that_cannot_be_printed_is_escaped():
    assert IngestError.of("a\udcff.md", KeyError("x")) == IngestError("a\\udcff.md", "KeyError")
