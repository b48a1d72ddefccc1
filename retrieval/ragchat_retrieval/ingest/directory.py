"""Reading a folder into an index, so that the index mirrors the folder.

There is no checkpoint file, since the index is the checkpoint: every batch is written atomically
with the fingerprint of each document, and a second run skips what is there unchanged. A run that
was killed is resumed by running it again.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ragchat_retrieval.chunking.formats import FORMATS
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.filters import Filter
from ragchat_retrieval.ingest.duplicates import Duplicates, deduplicated
from ragchat_retrieval.ingest.files import (
    Listing,
    Selection,
    SourceFile,
    list_files,
)
from ragchat_retrieval.ingest.reading import ROOT_KEY, FileReader
from ragchat_retrieval.ingest.records import BATCH_DOCUMENTS, records, write
from ragchat_retrieval.ingest.report import IngestError, IngestReport
from ragchat_retrieval.ingest.suffixes import SuffixSplitters
from ragchat_retrieval.values import MAX_DOCUMENT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from ragchat_retrieval.chunking.documents import DocumentSplitter
    from ragchat_retrieval.ingest.reading import MetadataFor
    from ragchat_retrieval.ingest.records import OnError, Sink
    from ragchat_retrieval.options import FilterLike
    from ragchat_retrieval.ports import Splitter, Store
    from ragchat_retrieval.values import Document

    Progress = Callable[[float], object]
    SplitterFor = Callable[[PurePosixPath], Splitter | None]

MAX_FILES = 100_000
"""Default limit of files in one folder."""

_REMOVED_AT_ONCE = 500

_PATIENCE = 60.0
"""Seconds after which a file is read again instead of waiting for what is stored of it."""

_NOT_INSTALLED = '%d files need an extra to be read: pip install "ragchat-toolkit[documents]"'

_log = logging.getLogger("ragchat")


class IngestTarget(Protocol):
    """What is asked of an index; `HybridIndex` has it."""

    @property
    def store(self) -> Store:
        """Gives single documents back."""
        ...

    @property
    def splitter(self) -> Splitter:
        """The index's own splitter."""
        ...

    async def ingest(
        self,
        *documents: Document,
        splitter: Splitter | None = None,
        scope: FilterLike = None,
        on_progress: Progress | None = None,
    ) -> IngestReport:
        """Writes documents in one atomic step; skips those that are there unchanged."""
        ...

    async def remove(
        self, ids: Collection[str] | str | None = None, *, scope: FilterLike = None
    ) -> int:
        """Removes documents and returns how many there were."""
        ...

    async def document_ids(self, *, scope: FilterLike = None) -> Sequence[str]:
        """Returns all document ids in ascending order."""
        ...


async def ingest_directory(
    index: IngestTarget,
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
    warning tells how many of the others were left out. Hidden files are not read, and links are not
    followed out of the folder; see `ragchat_retrieval.ingest.files`.

    The folder is remembered in each document's metadata, under ``ingest_root``, as a hash of its
    real path. Another folder with the same root name is refused, and only documents read from this
    folder are ever removed.

    Args:
        index: Where to; a `HybridIndex`.
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
            another folder; there are too many files.
        RetrievalError: The index failed.
    """
    selection = Selection(
        glob=_patterns(glob),
        exclude=_patterns(exclude),
        follow_gitignore=follow_gitignore,
        max_files=_positive("max_files", max_files),
        suffixes=frozenset(FORMATS),
    )
    splitters = SuffixSplitters.beside(index.splitter, documents)
    place = await asyncio.to_thread(_locate, Path(path), root, known_as)
    bounds = Filter.of(scope)
    tell = _Monotone(on_progress)
    tell(0.0)
    if not moved:
        await _check_root(index, place, bounds)
    listing = await asyncio.to_thread(_listing, place, selection)
    reader = FileReader(
        place.root,
        place.given,
        mark=place.mark,
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
        _log.warning(_NOT_INSTALLED, reader.unreadable)
    if remove_vanished and place.single is None and not listing.errors:
        report += await _remove_vanished(index, place, reader, bounds, moved=moved)
    tell.finish()
    return report


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a folder is and what it is called."""

    root: str
    given: Path
    """As the user wrote it."""

    real: Path
    single: str | None
    """Name of the only file to read."""

    known_as: str | None = None
    """What stands for the path, where it is only a copy's."""

    @property
    def label(self) -> str:
        """Names it to people."""
        return str(self.real) if self.known_as is None else self.known_as

    @property
    def mark(self) -> str:
        """Tells folders apart without naming them: a hash of the real path, or of its name."""
        known = os.fsencode(self.real) if self.known_as is None else self.known_as.encode()
        return hashlib.sha256(known).hexdigest()[:16]


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


def _locate(path: Path, root: str | None, known_as: str | None) -> _Place:
    if not path.exists():
        raise InvalidSetting("path", f"there is no file or folder {str(path)!r}")
    folder, single = (path, None) if path.is_dir() else (path.parent, path.name)
    real = folder.resolve()
    name = real.name if root is None else root
    if not name.strip() or "/" in name:
        raise InvalidSetting("root", "must be a name without a slash, and not blank")
    given = folder if known_as is None else Path(known_as)
    return _Place(name, given, real, single, known_as)


def _listing(place: _Place, selection: Selection) -> Listing:
    if place.single is None:
        return list_files(place.real, selection)
    path = (place.real / place.single).resolve()
    return Listing((SourceFile(path, place.single, path.stat().st_size),), ())


def _stored(index: IngestTarget, scope: Filter) -> Callable[[str], Document | None]:
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


def _unwalked(listing: Listing, place: _Place, on_error: OnError) -> IngestReport:
    """Returns a report of what could not be looked at."""
    if listing.errors and on_error == "raise":
        raise listing.errors[0][1]
    return IngestReport(
        errors=tuple(
            IngestError.of(str(place.given / name), error) for name, error in listing.errors
        )
    )


async def _check_root(index: IngestTarget, place: _Place, scope: Filter) -> None:
    """Refuses a root name under which documents of another folder are stored."""
    prefix = place.root + "/"
    for document_id in await index.document_ids(scope=scope):
        if not document_id.startswith(prefix):
            continue
        document = await index.store.document(document_id, scope=scope)
        mark = None if document is None else document.metadata.get(ROOT_KEY)
        if document is None or mark is None:
            continue  # not read from a folder
        if mark != place.mark:
            raise InvalidSetting(
                "root",
                f"{place.root!r} holds documents of another folder than {place.label!r}, such "
                f"as {document.source!r}; choose another root, or say that the folder has moved",
            )
        return


async def _remove_vanished(
    index: IngestTarget, place: _Place, reader: FileReader, scope: Filter, *, moved: bool
) -> IngestReport:
    prefix = place.root + "/"
    gone = []
    for document_id in await index.document_ids(scope=scope):
        if not document_id.startswith(prefix) or document_id in reader.seen:
            continue
        if _is_of(document_id, reader.unread):
            continue
        document = await index.store.document(document_id, scope=scope)
        mark = None if document is None else document.metadata.get(ROOT_KEY)
        if mark == place.mark or (moved and mark is not None):
            gone.append(document_id)
    removed = 0
    for start in range(0, len(gone), _REMOVED_AT_ONCE):
        removed += await index.remove(ids=gone[start : start + _REMOVED_AT_ONCE], scope=scope)
    return IngestReport(deleted=removed)


def _is_of(document_id: str, files: Collection[str]) -> bool:
    """Says whether a document is one of these files or a line of one."""
    if document_id in files:
        return True
    # A file's name may hold the mark too, so every one may be the one before the line's id.
    position = document_id.find("#")
    while position >= 0:
        if document_id[:position] in files:
            return True
        position = document_id.find("#", position + 1)
    return False


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
    index: IngestTarget, splitter: Splitter | None, scope: Filter, on_progress: Progress
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
