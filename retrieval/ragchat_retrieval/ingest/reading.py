"""From files to documents."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, cast

from ragchat_retrieval.chunking.documents import FORMAT_KEY, FOUND_KEYS, WITHOUT_TEXT_KEY
from ragchat_retrieval.chunking.formats import FORMATS
from ragchat_retrieval.chunking.markdown import first_heading
from ragchat_retrieval.errors import (
    DocumentNotUTF8,
    DocumentTooLarge,
    InvalidDocument,
    MissingExtra,
)
from ragchat_retrieval.ingest.files import is_record_file
from ragchat_retrieval.values import Document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

    from ragchat_retrieval.chunking.documents import DocumentSplitter
    from ragchat_retrieval.ingest.files import SourceFile

    MetadataFor = Callable[[PurePosixPath], Mapping[str, Any]]

MARKDOWN_SUFFIXES = frozenset({".md", ".markdown", ".mdx"})

ROOT_KEY = "ingest_root"
"""Metadata key that tells which folder a document was read from, without naming it."""

DIGEST_KEY = "ingest_digest"
"""Metadata key of a hash of the file that a document was read from, where reading takes long."""

_READING = 1
"""Raised when files are read in another way, so that they are read again."""

_REPORTED_LINES = 20
"""Bad lines of one file that are reported one by one; the rest is one entry with their number."""

_CHUNK = 1024 * 1024


class FileReader:
    """Turns files into documents. For one thread at a time.

    Args:
        root: Name of the root: the first part of every id.
        given: The folder as the user gave it: the first part of every source.
        mark: Value of `ROOT_KEY`.
        alone: There is one file, which was named itself.
        max_bytes: Most bytes of a document.
        metadata: Metadata for all documents, or a function of a file's path below the root.
        documents: Reads PDF, DOCX and the like; None reads HTML as it is and leaves out the others.
        stored: Gives what the index has of an id. To read a PDF takes long, so that the text of an
            unchanged one comes from there.
    """

    def __init__(
        self,
        root: str,
        given: Path,
        *,
        mark: str,
        alone: bool,
        max_bytes: int,
        metadata: Mapping[str, Any] | MetadataFor | None,
        documents: DocumentSplitter | None = None,
        stored: Callable[[str], Document | None] | None = None,
    ) -> None:
        self._root = root
        self._given = given
        self._mark = mark
        self._alone = alone
        self._max_bytes = max_bytes
        self._metadata = metadata
        self._documents = documents
        self._stored = stored
        self._finished = 0
        self._stream: BinaryIO | None = None
        self.seen: set[str] = set()
        """Ids of all documents met."""

        self.unread: set[str] = set()
        """Ids of files that were not read to their end: nothing can be said of what they lack."""

        self.unreadable = 0
        """Files left out because what reads them is not installed."""

        self.pages_without_text = 0

    @property
    def position(self) -> int:
        """Bytes read so far: of all finished files, and of one that is being read by lines."""
        return self._finished + (0 if self._stream is None else self._stream.tell())

    def source(self, file: SourceFile) -> str:
        """Returns a file's path as the user would write it."""
        return str(self._given / file.name)

    def documents(self, file: SourceFile) -> Iterator[Document | Exception]:
        """Yields the documents of a file, and errors for lines that are none.

        Raises:
            InvalidDocument: The file is no text, or too large.
            MissingExtra: It is the only one, and what reads it is not installed.
            OSError: It cannot be read.
        """
        file_id = f"{self._root}/{file.name}"
        self.unread.add(file_id)
        given = self._metadata
        metadata = given(PurePosixPath(file.name)) if callable(given) else given or {}
        # The mark comes last: it guards other folders' documents, so nobody may forge it.
        values = {**metadata, ROOT_KEY: self._mark}
        try:
            form = FORMATS.get(PurePosixPath(file.name).suffix.lower())
            if is_record_file(file.name):
                yield from self._lines(file, file_id, values)
            elif self._documents is None and form not in {None, "html"}:
                if self._alone:  # it was named, and is not one of many in a folder
                    raise MissingExtra("documents", f"reading {form}")
                self.unreadable += 1
            else:
                self.seen.add(file_id)
                yield self._whole(file, file_id, values)
                self.unread.discard(file_id)
        finally:
            self._finished += file.size

    def _whole(self, file: SourceFile, file_id: str, metadata: Mapping[str, Any]) -> Document:
        path = PurePosixPath(file.name)
        if self._documents is not None and path.suffix.lower() in FORMATS:
            return self._paged(file, file_id, metadata, self._documents)
        with file.path.open("rb") as stream:
            document = Document.from_reader(
                stream,
                id=file_id,
                source=self.source(file),
                metadata=metadata,
                limit=self._max_bytes,
            )
        heading = None
        if path.suffix.lower() in MARKDOWN_SUFFIXES:
            heading = first_heading(document.text)
        return replace(document, title=heading or path.name)

    def _paged(
        self,
        file: SourceFile,
        file_id: str,
        metadata: Mapping[str, Any],
        documents: DocumentSplitter,
    ) -> Document:
        with file.path.open("rb") as stream:
            data = stream.read(self._max_bytes + 1)
        values = {**metadata, DIGEST_KEY: f"{_READING}:{hashlib.sha256(data).hexdigest()[:32]}"}
        document = self._unchanged(file_id, values, documents)
        if document is None:
            document = documents.read(
                io.BytesIO(data),
                PurePosixPath(file.name).suffix,
                id=file_id,
                metadata=values,
                limit=self._max_bytes,
            )
        self.pages_without_text += document.metadata.get(WITHOUT_TEXT_KEY, 0)
        title = document.title
        if title is None and document.metadata[FORMAT_KEY] != "pdf":
            title = first_heading(document.text)
        return replace(
            document, title=title or PurePosixPath(file.name).name, source=self.source(file)
        )

    def _unchanged(
        self, file_id: str, values: Mapping[str, Any], documents: DocumentSplitter
    ) -> Document | None:
        """Returns what the index has of a file whose bytes are the same; None to read it."""
        known = None if self._stored is None else self._stored(file_id)
        if known is None or known.metadata.get(DIGEST_KEY) != values[DIGEST_KEY]:
            return None
        found = {key: known.metadata[key] for key in FOUND_KEYS if key in known.metadata}
        if FORMAT_KEY not in found or (documents.ocr is not None and found.get(WITHOUT_TEXT_KEY)):
            return None
        return replace(known, metadata={**values, **found})

    def _lines(
        self, file: SourceFile, file_id: str, metadata: Mapping[str, Any]
    ) -> Iterator[Document | Exception]:
        bad = 0
        with file.path.open("rb") as raw:
            self._stream = raw
            try:
                for number, line in _bounded_lines(_unpacked(raw, file.name), self._max_bytes):
                    try:
                        yield self._record(file, file_id, number, line, metadata)
                    except InvalidDocument as error:
                        bad += 1
                        if bad <= _REPORTED_LINES:
                            yield error
            except (EOFError, zlib.error):
                raise InvalidDocument("is a damaged archive", document_id=file_id) from None
            finally:
                self._stream = None
        if bad > _REPORTED_LINES:
            more = bad - _REPORTED_LINES
            yield InvalidDocument(f"{more} more lines are no documents", document_id=file_id)
        if not bad:
            self.unread.discard(file_id)

    def _record(
        self,
        file: SourceFile,
        file_id: str,
        number: int,
        line: bytes | None,
        metadata: Mapping[str, Any],
    ) -> Document:
        """Returns the document of one line; None stands for a line that is too long."""
        where = f"line {number}"
        if line is None:
            raise DocumentTooLarge(self._max_bytes, document_id=f"{file_id}, {where}")
        try:
            value = json.loads(line.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise DocumentNotUTF8(error.start, document_id=f"{file_id}, {where}") from None
        except (ValueError, RecursionError):
            raise InvalidDocument("is not JSON", document_id=file_id, field=where) from None
        if not isinstance(value, dict):
            raise InvalidDocument("is no JSON object", document_id=file_id, field=where)
        key, text = value.get("_id", value.get("id")), value.get("text")
        if isinstance(key, int) and not isinstance(key, bool):
            key = str(key)
        if not (isinstance(key, str) and key.strip() and isinstance(text, str)):
            raise InvalidDocument("has no id or no text", document_id=file_id, field=where)
        title, own = value.get("title"), value.get("metadata")
        if not (isinstance(title, str | None) and isinstance(own, Mapping | None)):
            problem = "its title is no text, or its metadata no object"
            raise InvalidDocument(problem, document_id=file_id, field=where)
        document = Document(
            f"{file_id}#{key}",
            text,
            title=(title or "").strip() or None,
            source=self.source(file),
            metadata={**metadata, **(own or {}), ROOT_KEY: self._mark},
        )
        self.seen.add(document.id)
        return document


def _unpacked(raw: BinaryIO, name: str) -> BinaryIO:
    if name.lower().endswith(".gz"):
        return cast("BinaryIO", gzip.GzipFile(fileobj=raw))
    return raw


def _bounded_lines(stream: BinaryIO, limit: int) -> Iterator[tuple[int, bytes | None]]:
    """Yields the lines that are not blank, with their numbers; None for one over the limit."""
    number = 0
    while line := stream.readline(limit + 1):
        number += 1
        if len(line) > limit and not line.endswith(b"\n"):
            while (rest := stream.readline(_CHUNK)) and not rest.endswith(b"\n"):
                pass
            yield number, None
        elif line.strip():
            yield number, line
