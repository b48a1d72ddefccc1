"""Reading and splitting office documents, web pages and books."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ragchat_retrieval.chunking.build import build_passages
from ragchat_retrieval.chunking.formats import (
    FORMATS,
    OCR,
    PAGE_BREAK,
    extract,
    page_spans,
)
from ragchat_retrieval.chunking.headings import section_spans
from ragchat_retrieval.chunking.lines import LineIndex
from ragchat_retrieval.chunking.markdown import sections
from ragchat_retrieval.chunking.measure import Measure, TokenCounter, check_size
from ragchat_retrieval.chunking.packing import PROSE, pack, pieces
from ragchat_retrieval.errors import DocumentTooLarge, InvalidDocument
from ragchat_retrieval.values import MAX_DOCUMENT_BYTES, Document, Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import BinaryIO

    from ragchat_retrieval.values import Passage

FORMAT_KEY = "document_format"
PAGES_KEY = "document_pages"
WITHOUT_TEXT_KEY = "pages_without_text"
FOUND_KEYS = (FORMAT_KEY, PAGES_KEY, WITHOUT_TEXT_KEY)
"""Metadata keys that `DocumentSplitter.read` sets."""


@dataclass(frozen=True, slots=True)
class DocumentSplitter:
    """Reads PDF, DOCX, PPTX, HTML and EPUB files, and cuts what was read.

    `read` makes a `Document` of a file; it needs the extra ``documents``. Its text is plain for a
    PDF and Markdown for the others, with a form feed between pages or slides. `split` never cuts
    across pages and gives each passage its ``page``; a page of a PDF is cut as by `TextSplitter`,
    the others as by `HeadingSplitter`. Any other document is taken for Markdown.

    Raises:
        InvalidSetting: `size` is below 1, or `overlap` is negative or not below `size`.
    """

    size: int = 512
    """Most tokens of a passage."""

    overlap: int = 64
    """Most tokens repeated from the passage before on the same page; 0 repeats none."""

    count: TokenCounter | None = field(default=None, kw_only=True)
    """Measures a text in tokens; None counts exactly in ``o200k_base``."""

    ocr: OCR | None = field(default=None, kw_only=True)
    """Reads the pages of a PDF that have no text layer; without it they are counted."""

    def __post_init__(self) -> None:
        check_size(self.size, self.overlap)

    @property
    def name(self) -> str:
        """Policy and settings, such as ``document:512/64``, with a counter of the caller's."""
        return f"document:{self.size}/{self.overlap}{Measure(self.count).suffix}"

    def read(
        self,
        stream: BinaryIO,
        suffix: str,
        *,
        id: str,
        title: str | None = None,
        source: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        limit: int = MAX_DOCUMENT_BYTES,
    ) -> Document:
        """Reads a whole file as one document.

        The format is kept in the metadata as ``document_format``, and for pages or slides their
        number as ``document_pages`` and that of pages on which no text was found as
        ``pages_without_text``.

        Args:
            stream: The file, opened for bytes.
            suffix: Its suffix, such as ``.pdf``; see `FORMATS`.
            id: The document's id.
            title: Its title; None takes what the file gives as its title.
            source: Where it came from.
            metadata: Its metadata.
            limit: Most bytes of the file.

        Raises:
            MissingExtra: The extra ``documents`` is not installed.
            DocumentTooLarge: The file is larger than `limit`, or unpacks to too much.
            InvalidDocument: It is encrypted, damaged, or no such file.
        """
        form = FORMATS.get(suffix.lower())
        if form is None:
            raise InvalidDocument("is of no known format", document_id=id)
        data = stream.read(limit + 1)
        if len(data) > limit:
            raise DocumentTooLarge(limit, document_id=id)
        found = extract(data, form, ocr=self.ocr, document_id=id)
        values = {**(metadata or {}), FORMAT_KEY: form}
        if found.pages is not None:
            values |= {PAGES_KEY: found.pages, WITHOUT_TEXT_KEY: found.without_text}
        return Document(id, found.text, title=title or found.title, source=source, metadata=values)

    def split(self, document: Document) -> list[Passage]:
        """Returns the passages of a document, in order; a blank document has none."""
        text, lines = document.text, LineIndex(document.text)
        plain = document.metadata.get(FORMAT_KEY) == "pdf"
        paged = PAGE_BREAK in text or PAGES_KEY in document.metadata
        spans: list[tuple[Span, tuple[str, ...]]] = []
        pages: list[int] = []
        for page, (start, end) in enumerate(page_spans(text), start=1):
            found = self._plain(text, start, end) if plain else self._markdown(text, start, end)
            spans += found
            pages += [page] * (len(spans) - len(pages))
        passages = build_passages(document, spans, lines=lines)
        if not paged:
            return passages
        return [replace(p, page=page) for p, page in zip(passages, pages, strict=True)]

    def _plain(self, text: str, start: int, end: int) -> Iterator[tuple[Span, tuple[str, ...]]]:
        measure = Measure(self.count)
        parts = pieces(text, start, end, PROSE, size=self.size, measure=measure)
        for span in pack(text, parts, size=self.size, overlap=self.overlap, count=measure.one):
            yield span, ()

    def _markdown(self, text: str, start: int, end: int) -> Iterator[tuple[Span, tuple[str, ...]]]:
        page = text[start:end]
        for section in sections(page):
            for span, headings in section_spans(
                page, section, size=self.size, overlap=self.overlap, measure=Measure(self.count)
            ):
                yield Span(span.start + start, span.end + start), headings
