"""Reading a folder into an index, so that the index mirrors the folder.

There is no checkpoint file, since the index is the checkpoint: every batch is written atomically
with the fingerprint of each document, and a second run skips what is there unchanged. A run that
was killed is resumed by running it again.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

from ragchat_retrieval.chunking.formats import FORMATS
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.filters import Filter
from ragchat_retrieval.ingest.duplicates import Duplicates, deduplicated
from ragchat_retrieval.ingest.files import Selection
from ragchat_retrieval.ingest.place import listing_of, locate
from ragchat_retrieval.ingest.reading import FileReader
from ragchat_retrieval.ingest.records import BATCH_DOCUMENTS, records, write
from ragchat_retrieval.ingest.report import IngestError, IngestReport
from ragchat_retrieval.ingest.suffixes import SuffixSplitters
from ragchat_retrieval.ingest.vanished import check_root, remove, vanished
from ragchat_retrieval.kinds import check_index
from ragchat_retrieval.stages import check_listener
from ragchat_retrieval.values import MAX_DOCUMENT_BYTES

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ragchat_retrieval.chunking.documents import DocumentSplitter
    from ragchat_retrieval.index import HybridIndex
    from ragchat_retrieval.ingest.files import Listing
    from ragchat_retrieval.ingest.place import Place
    from ragchat_retrieval.ingest.reading import MetadataFor
    from ragchat_retrieval.ingest.records import OnError, Sink
    from ragchat_retrieval.options import FilterLike
    from ragchat_retrieval.ports import Splitter
    from ragchat_retrieval.values import Document

    Progress = Callable[[float], object]
    SplitterFor = Callable[[PurePosixPath], Splitter | None]

MAX_FILES = 100_000
"""Default limit of files in one folder."""

_PATIENCE = 60.0
"""Seconds after which a file is read again instead of waiting for what is stored of it."""

_NOT_INSTALLED = '%d %s an extra to be read: pip install "ragchat-toolkit[documents]"'

_log = logging.getLogger("ragchat")


async def ingest_directory(
    index: HybridIndex,
    path: str | os.PathLike[str],
    *,
    root: str | None = None,
    glob: str | Sequence[str] = (),
    exclude: str | Sequence[str] = (),
    follow_gitignore: bool = True,
    max_bytes: int = MAX_DOCUMENT_BYTES,
    max_files: int = MAX_FILES,
    batch: int = BATCH_DOCUMENTS,
    splitter_for: SplitterFor | None = None,
    documents: DocumentSplitter | None = None,
    metadata: Mapping[str, Any] | MetadataFor | None = None,
    duplicates: Duplicates | Literal["report", "drop", "group"] | None = None,
    scope: FilterLike = None,
    remove_vanished: bool = True,
    emptied: bool = False,
    moved: bool = False,
    known_as: str | None = None,
    on_error: OnError = "report",
    on_progress: Progress | None = None,
) -> IngestReport:
    """Makes an index mirror the text files and documents of a folder.

    A file is one document: id ``root/path/below.md``, title from its first Markdown heading or its
    name, source the path as given. A JSON-lines file (``.jsonl``, ``.jsonl.gz``, ``.ndjson``) is
    one document a line, an object with ``_id`` or ``id``, ``text``, and optionally ``title`` and
    ``metadata`` (the form of BEIR's corpora); its ids are ``root/path/below.jsonl#id``.

    Files are read in the order of their paths, in a worker thread, batch by batch. Text (UTF-8) is
    read, that is, files whose suffix is in `TEXT_SUFFIXES` or that `glob` names, and with the extra
    ``documents`` PDF, DOCX, PPTX, HTML and EPUB; without it, HTML is read as it stands, and a
    warning tells how many of the others were left out; for a single file it is an error. Hidden
    files are not read, and links are not followed out of the folder; see
    `ragchat_retrieval.ingest.files`.

    The folder is remembered in each document's metadata, under ``ingest_root``, as a hash of its
    real path. Another folder with the same root name is refused, and only documents read from this
    folder are ever removed.

    Args:
        index: Where to.
        path: The folder, or a single file, which is read as if its folder held nothing else and
            removes nothing.
        root: Name of the root, without ``/``; None takes the folder's own name.
        glob: Patterns in ``.gitignore`` syntax of which a file must match one, such as ``*.md`` or
            ``guide/**``. They replace the list of suffixes.
        exclude: Patterns of files and folders to leave out.
        follow_gitignore: Leave out what ``.gitignore`` files say.
        max_bytes: Most bytes of a document; larger ones are reported.
        max_files: Most files; with more, nothing is read.
        batch: Most documents written in one step.
        splitter_for: Chooses the splitter by a file's path below the root; None, or None as its
            answer, goes by the suffix: `HeadingSplitter` for Markdown, `CodeSplitter` for code,
            `TableSplitter` for CSV and TSV, `documents` for what it reads, all with the size of the
            index's own splitter, which is for the rest.
        documents: Reads and splits PDF, DOCX and the like, for instance with an ``ocr``; None takes
            a `DocumentSplitter` if its extra is installed.
        metadata: Metadata for all documents, or a function of a file's path below the root. That of
            a line in a JSON-lines file is added and wins.
        duplicates: Look for files and lines that repeat an earlier one, in the order of their
            paths, and report, drop or mark them; see `Duplicates`. One that is dropped counts as
            vanished, if it was there.
        scope: As for `HybridIndex.ingest`; nothing outside it is seen or removed.
        remove_vanished: Remove documents of this folder that this call did not meet, because the
            file is gone or is no longer selected. Nothing is removed if a part of the folder could
            not be walked, or of a file that could not be read.
        emptied: It is no mistake that there is no file to read any more, so that all documents of
            this folder are to be removed. Otherwise they stay and an error is reported: a folder
            looks empty too where a disk is not mounted or a glob fits nothing.
        moved: The folder was at another place before: take over its documents.
        known_as: A name that stands for the folder's path, in sources and where it is remembered:
            for a folder that is only a copy of something, such as an upload.
        on_error: ``report`` lists bad files and goes on; ``raise`` stops at the first. Batches
            written before stay.
        on_progress: Hears floats 0 … 1, never falling, 1.0 last.

    Returns:
        The sum of all batches.

    Raises:
        InvalidSetting: A setting cannot work; nothing is at `path`; the root name belongs to
            another folder; there are too many files; `on_progress` is async.
        RetrievalError: The index failed.
    """
    check_index("index", index)
    check_listener("on_progress", on_progress)
    selection = Selection(
        glob=_patterns(glob),
        exclude=_patterns(exclude),
        follow_gitignore=follow_gitignore,
        max_files=_positive("max_files", max_files),
        suffixes=frozenset(FORMATS),
    )
    splitters = SuffixSplitters.beside(index.splitter, documents)
    place = await asyncio.to_thread(locate, Path(path), root, known_as)
    bounds = Filter.of(scope)
    tell = _Monotone(on_progress)
    tell(0.0)
    if not moved:
        await check_root(index, place, bounds)
    listing = await asyncio.to_thread(listing_of, place, selection)
    reader = FileReader(
        place.root,
        place.given,
        mark=place.mark,
        alone=place.single is not None,
        max_bytes=_positive("max_bytes", max_bytes),
        metadata=metadata,
        documents=splitters.documents,
        stored=_stored(index, bounds),
    )
    total = max(1, sum(file.size for file in listing.files))

    async def sink(documents: Sequence[Document]) -> IngestReport:
        done = min(1.0, reader.position / total)
        report = IngestReport()
        for splitter, group in _by_splitter(documents, place.given, splitters, splitter_for):
            report += await write(
                group, _writer(index, splitter, bounds, tell.towards(done)), on_error=on_error
            )
        tell(done)
        return report

    report = _unwalked(listing, place, on_error)
    report += await records(
        listing.files,
        reader.documents,
        _deduplicated(sink, duplicates, reader),
        label=reader.source,
        batch=batch,
        on_error=on_error,
    )
    report += IngestReport(pages_without_text=reader.pages_without_text)
    if reader.unreadable:
        need = "file needs" if reader.unreadable == 1 else "files need"
        _log.warning(_NOT_INSTALLED, reader.unreadable, need)
    if remove_vanished and place.single is None and not listing.errors:
        gone = await vanished(index, place, reader, bounds, moved=moved)
        if listing.files or emptied:
            report += await remove(index, gone, bounds)
        elif gone:
            report += _emptied(len(gone), place, on_error)
    tell.finish()
    return report


class _Monotone:
    """Passes progress on, never falling, and 1.0 only at the end."""

    def __init__(self, listener: Progress | None) -> None:
        self._listener = listener
        self._last = -1.0

    def __call__(self, share: float) -> None:
        if self._listener is not None and self._last < share < 1.0:
            self._last = share
            self._listener(share)

    def towards(self, share: float) -> Progress:
        """Returns a listener that maps 0 … 1 to what lies between now and `share`."""
        begin = max(0.0, self._last)
        return lambda part: self(begin + (share - begin) * part)

    def finish(self) -> None:
        """Tells 1.0."""
        if self._listener is not None:
            self._listener(1.0)


def _stored(index: HybridIndex, scope: Filter) -> Callable[[str], Document | None]:
    """Returns a way to ask for a stored document from the thread that reads files."""
    loop = asyncio.get_running_loop()

    def ask(document_id: str) -> Document | None:
        asked = index.store.document(document_id, scope=scope)
        answer = asyncio.run_coroutine_threadsafe(asked, loop)
        try:
            return answer.result(_PATIENCE)
        except TimeoutError:
            answer.cancel()
            return None

    return ask


def _deduplicated(
    sink: Sink,
    duplicates: Duplicates | Literal["report", "drop", "group"] | None,
    reader: FileReader,
) -> Sink:
    if duplicates is None:
        return sink
    settings = duplicates if isinstance(duplicates, Duplicates) else Duplicates(duplicates)
    return deduplicated(sink, settings, on_drop=lambda document: reader.seen.discard(document.id))


def _unwalked(listing: Listing, place: Place, on_error: OnError) -> IngestReport:
    """Returns a report of what could not be looked at."""
    if listing.errors and on_error == "raise":
        raise listing.errors[0][1]
    return IngestReport(
        errors=tuple(
            IngestError.of(str(place.given / name), error) for name, error in listing.errors
        )
    )


def _emptied(count: int, place: Place, on_error: OnError) -> IngestReport:
    """Returns a report of a folder in which there is nothing any more."""
    error = InvalidSetting(
        "path",
        f"holds no file to read, and what is stored of it stays as it is ({count}); if that is no "
        "mistake, say that it was emptied",
    )
    if on_error == "raise":
        raise error
    return IngestReport(errors=(IngestError.of(str(place.given), error),))


def _by_splitter(
    documents: Iterable[Document],
    given: Path,
    splitters: SuffixSplitters,
    splitter_for: SplitterFor | None,
) -> list[tuple[Splitter | None, list[Document]]]:
    """Groups documents by the splitter that their files' paths choose; None is the index's own."""
    groups: dict[str, tuple[Splitter | None, list[Document]]] = {}
    for document in documents:
        path = PurePosixPath(Path(document.source or "").relative_to(given).as_posix())
        splitter = None if splitter_for is None else splitter_for(path)
        if splitter is None:
            splitter = splitters.of(path)
        name = "" if splitter is None else splitter.name
        groups.setdefault(name, (splitter, []))[1].append(document)
    return list(groups.values())


def _writer(
    index: HybridIndex, splitter: Splitter | None, scope: Filter, on_progress: Progress
) -> Sink:
    async def ingest(documents: Sequence[Document]) -> IngestReport:
        return await index.ingest(
            *documents, splitter=splitter, scope=scope, on_progress=on_progress
        )

    return ingest


def _patterns(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _positive(name: str, value: int) -> int:
    if value < 1:
        raise InvalidSetting(name, "must be at least 1")
    return value
