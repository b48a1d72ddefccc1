"""Text out of PDF, DOCX, PPTX, HTML and EPUB, through pypdf and markitdown.

Pages are joined by form feeds, so that a page's number can be told from a place in the text.
"""

from __future__ import annotations

import codecs
import io
import re
import zipfile
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from ragchat_retrieval.errors import (
    DocumentTooLarge,
    InvalidDocument,
    MissingExtra,
    RagchatError,
)
from ragchat_retrieval.onnx import import_quietly
from ragchat_retrieval.tokens import repair

if TYPE_CHECKING:
    from collections.abc import Iterator

Format = Literal["pdf", "docx", "pptx", "html", "epub"]
"""What can be read."""

FORMATS: dict[str, Format] = {
    ".pdf": "pdf",
    ".docx": "docx",
    ".pptx": "pptx",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".epub": "epub",
}
"""Format by suffix of a file's name."""

PAGE_BREAK = "\f"

_PACKED = frozenset({"docx", "pptx", "epub"})
_UNPACKED = 512 * 1024 * 1024
"""Bytes that an archive may unpack to, 512 MiB: a small file can hold many gigabytes of nothing."""

_MARKUP = frozenset({".xml", ".rels", ".html", ".xhtml", ".htm", ".opf", ".ncx"})
_UNPACKED_MARKUP = 128 * 1024 * 1024
"""Bytes of markup in it, 128 MiB: readers make a tree of it, which takes several times as much."""

_MOST_PAGES = 20_000
_SLIDE = re.compile(r"\s*<!-- Slide number: \d+ -->\n?")
_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_WESTERN = "cp1252"
_READ_AS = {
    "utf-8": "utf-8",
    "utf-16": "utf-8",
    "ascii": _WESTERN,
    "iso8859-1": _WESTERN,
    "iso8859-9": "cp1254",
}
"""What a page is in that says it is in one of these, by the names of Python's codecs.

https://encoding.spec.whatwg.org/#names-and-labels
"""

_UNNAMED = [
    *(f"cp{number}" for number in range(1250, 1258)),
    *("cp874", "koi8_r", "cp932", "euc_jp", "gb18030", "big5", "cp949"),
]
"""What a page may be in that names nothing; rarer ones would be guessed more often than met."""

_CONVERTERS = {
    "docx": "DocxConverter",
    "pptx": "PptxConverter",
    "html": "HtmlConverter",
    "epub": "EpubConverter",
}


@dataclass(frozen=True, slots=True)
class ScannedPage:
    """A page without a text layer, for an `OCR`."""

    number: int
    """From 1."""

    data: bytes
    """A PDF of this one page."""


class OCR(Protocol):
    """Reads pages that are pictures. A plain function of this shape will do; none is bundled."""

    def __call__(self, page: ScannedPage, /) -> str:
        """Returns the page's text, blank if there is none. Called in a worker thread."""
        ...


@dataclass(frozen=True, slots=True)
class Extracted:
    """What a file says."""

    text: str
    title: str | None = None
    """What the file itself gives as its title."""

    pages: int | None = None
    """How many pages or slides; None for a format without them."""

    without_text: int = 0
    """Pages on which there is no text, even after OCR."""


def is_installed() -> bool:
    """Says whether the extra ``documents`` is there."""
    return find_spec("pypdf") is not None and find_spec("markitdown") is not None


def extract(data: bytes, form: Format, *, ocr: OCR | None, document_id: str) -> Extracted:
    """Returns the text of a file.

    Args:
        data: The whole file.
        form: What it is.
        ocr: Reads the pages of a PDF that have no text layer.
        document_id: Labels errors.

    Raises:
        MissingExtra: The extra ``documents`` is not installed.
        DocumentTooLarge: The archive unpacks to more than 512 MiB, or its markup to more than 128,
            or there are over 20,000 pages.
        InvalidDocument: It is encrypted, damaged, or no such file.
        Exception: What `ocr` raises.
    """
    if form not in get_args(Format):
        raise InvalidDocument("is of no known format", document_id=document_id)
    if not is_installed():
        raise MissingExtra("documents", f"reading {form}")
    if form == "pdf":
        return _pdf(data, ocr, document_id)
    with _typed(form, document_id):
        if form in _PACKED:
            _check_archive(data, document_id)
        converted = _converted(data, form)
    text, title = _clean(converted.markdown), _label(converted.title)
    if form != "pptx":
        return Extracted(text.replace(PAGE_BREAK, "\n").strip(), title)
    slides = [slide.replace(PAGE_BREAK, "\n").strip() for slide in _SLIDE.split(text)[1:]]
    empty = sum(not slide for slide in slides)
    return Extracted(f"\n{PAGE_BREAK}\n".join(slides), title, len(slides), empty)


def _pdf(data: bytes, ocr: OCR | None, document_id: str) -> Extracted:
    pypdf: Any = import_module("pypdf")
    with _typed("pdf", document_id):
        reader = pypdf.PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise InvalidDocument("is encrypted", document_id=document_id)
        count = len(reader.pages)
        title = None if reader.metadata is None else _label(reader.metadata.title)
    if count > _MOST_PAGES:
        problem = f"has {count} pages, more than {_MOST_PAGES}"
        raise InvalidDocument(problem, document_id=document_id)
    texts = []
    for number in range(count):
        with _typed("pdf", document_id):
            text = _clean(reader.pages[number].extract_text()).replace(PAGE_BREAK, "\n").strip()
        if not text and ocr is not None:
            with _typed("pdf", document_id):
                page = ScannedPage(number + 1, _one_page(pypdf, reader.pages[number]))
            text = _clean(ocr(page)).replace(PAGE_BREAK, "\n").strip()
        texts.append(text)
    empty = sum(not text for text in texts)
    return Extracted(f"\n{PAGE_BREAK}\n".join(texts), title, count, empty)


def _one_page(pypdf: Any, page: object) -> bytes:  # noqa: ANN401 - a module
    writer = pypdf.PdfWriter()
    writer.add_page(page)
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def _converted(data: bytes, form: Format) -> Any:  # noqa: ANN401 - of markitdown
    # The converters alone: the class around them loads a model that guesses what we know.
    converters: Any = import_quietly("markitdown.converters")
    info: Any = import_module("markitdown").StreamInfo
    options: dict[str, Any] = {"strict": True} if form == "html" else {}
    stream = io.BytesIO(_in_utf8(data) if form == "html" else data)
    return getattr(converters, _CONVERTERS[form])().convert(
        stream, info(extension=f".{form}"), **options
    )


def _in_utf8(page: bytes) -> bytes:
    """Returns a web page in UTF-8, as a browser would read it.

    Beautiful Soup overlooks a mark of UTF-16, takes a page of UTF-8 with a stray byte for one of
    another encoding, in which every letter beyond ASCII is a wrong one, and ISO 8859 at its word,
    which has no typographic quotes. Other encodings that a page names are left to it.
    """
    for mark, encoding in _MARKS.items():
        if page.startswith(mark):
            return page[len(mark) :].decode(encoding, "replace").encode()
    dammit: Any = import_module("bs4.dammit")
    named = dammit.EncodingDetector.find_declared_encoding(page, is_html=True)
    if named is None:
        encoding = "utf-8" if _is_utf8(page) else _guessed(page)
        return page.decode(encoding, "replace").encode()
    try:
        known = _READ_AS.get(codecs.lookup(named).name)
    except LookupError:
        return page
    return page if known is None else page.decode(known, "replace").encode()


def _is_utf8(page: bytes) -> bool:
    try:
        page.decode()
    except UnicodeDecodeError:
        return False
    return True


def _guessed(page: bytes) -> str:
    """Returns what a page is in that names no encoding: the Western one if no other fits better."""
    reader: Any = import_module("charset_normalizer")
    found = reader.from_bytes(page, cp_isolation=_UNNAMED)
    best = found.best()
    western = [each for each in found if _WESTERN in (each.encoding, *each.could_be_from_charset)]
    if best is None or any(each.coherence >= best.coherence for each in western):
        return _WESTERN
    return str(best.encoding)


def _check_archive(data: bytes, document_id: str) -> None:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = archive.infolist()
    markup = [e for e in entries if PurePosixPath(e.filename).suffix.lower() in _MARKUP]
    for some, limit in ((markup, _UNPACKED_MARKUP), (entries, _UNPACKED)):
        if sum(entry.file_size for entry in some) > limit:
            raise DocumentTooLarge(limit, document_id=document_id)


class _typed:  # noqa: N801 - a context manager, used like a function
    """Turns what a reader raises into an `InvalidDocument` with its class, not its words."""

    def __init__(self, form: str, document_id: str) -> None:
        self._form = form
        self._id = document_id

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, RagchatError):
            problem = f"cannot be read as {self._form} ({type(error).__name__})"
            raise InvalidDocument(problem, document_id=self._id) from error


def _clean(text: str) -> str:
    """Returns text without NUL, lone surrogates and bare carriage returns."""
    return repair(text).replace("\0", " ").replace("\r\n", "\n").replace("\r", "\n")


def _label(title: object) -> str | None:
    if not isinstance(title, str):
        return None
    return " ".join(_clean(title).split()) or None


def page_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yields where each page begins and ends, without the form feeds between them."""
    start = 0
    while (end := text.find(PAGE_BREAK, start)) >= 0:
        yield start, end
        start = end + 1
    yield start, len(text)
