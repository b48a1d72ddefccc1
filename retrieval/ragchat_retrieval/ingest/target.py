"""What reading a folder asks of an index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from ragchat_retrieval.ingest.report import IngestReport
    from ragchat_retrieval.options import FilterLike
    from ragchat_retrieval.ports import Splitter, Store
    from ragchat_retrieval.values import Document

    Progress = Callable[[float], object]


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
