"""Which splitter suits a file, by its suffix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from ragchat_retrieval.chunking.code import CodeSplitter
from ragchat_retrieval.chunking.documents import DocumentSplitter
from ragchat_retrieval.chunking.formats import FORMATS, is_installed
from ragchat_retrieval.chunking.headings import HeadingSplitter
from ragchat_retrieval.chunking.profile import DEFAULT_PROFILE
from ragchat_retrieval.chunking.tables import TableSplitter
from ragchat_retrieval.chunking.text import TextSplitter
from ragchat_retrieval.ingest.files import CODE_SUFFIXES, DELIMITED_SUFFIXES
from ragchat_retrieval.ingest.reading import MARKDOWN_SUFFIXES

if TYPE_CHECKING:
    from pathlib import PurePosixPath

    from ragchat_retrieval.ports import Splitter


@dataclass(frozen=True, slots=True)
class SuffixSplitters:
    """The splitters that a suffix chooses."""

    markdown: HeadingSplitter
    code: CodeSplitter
    rows: TableSplitter
    documents: DocumentSplitter | None
    """None if the extra is not installed."""

    @classmethod
    def beside(cls, own: Splitter, documents: DocumentSplitter | None) -> Self:
        """Returns splitters with the size of the index's own splitter, where it has one.

        Args:
            own: The index's splitter.
            documents: Taken as it is; None makes one if its extra is installed.
        """
        size, overlap, count = DEFAULT_PROFILE.size, DEFAULT_PROFILE.overlap, None
        if isinstance(own, TextSplitter | HeadingSplitter):
            size, overlap, count = own.size, own.overlap, own.count
        if documents is None and is_installed():
            documents = DocumentSplitter(size, overlap, count=count)
        return cls(
            HeadingSplitter(size, count=count),
            CodeSplitter(size, count=count),
            TableSplitter(size, count=count, form="delimited"),
            documents,
        )

    def of(self, path: PurePosixPath) -> Splitter | None:
        """Returns the splitter for a file; None is the index's own."""
        suffix = path.suffix.lower()
        if suffix in MARKDOWN_SUFFIXES:
            return self.markdown
        if suffix in CODE_SUFFIXES:
            return self.code
        if suffix in DELIMITED_SUFFIXES:
            return self.rows
        return self.documents if suffix in FORMATS else None
