"""What becomes of duplicates on their way into an index: told of, left out, or marked."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from ragchat_retrieval.duplicates import NEAR_BITS, DuplicateFinder
from ragchat_retrieval.embedders.checks import embed_checked, naming
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.ingest.report import IngestReport
from ragchat_retrieval.stages import call_stage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ragchat_retrieval.duplicates import Duplicate
    from ragchat_retrieval.ingest.records import Sink
    from ragchat_retrieval.ports import Embedder
    from ragchat_retrieval.values import Document

DUPLICATE_KEY = "duplicate_of"
"""Metadata key by which ``group`` marks a document that repeats another one."""


@dataclass(frozen=True, slots=True)
class Duplicates:
    """How duplicates are found within one run, and what becomes of them.

    The first document of a group, in the order in which they are read, is always written.

    Raises:
        InvalidSetting: The action is no such word, a number lies outside its range, or a cosine is
            given without an embedder or the other way round.
    """

    action: Literal["report", "drop", "group"] = "report"
    """``report`` writes all and tells; ``drop`` writes the first of each group; ``group`` writes
    all and marks the others with ``duplicate_of``, so that
    ``filter=Filter(NotExists("duplicate_of"))`` finds one of each."""

    bits: int | None = field(default=NEAR_BITS, kw_only=True)
    """Most differing bits of two simhashes, 0 … 15; None finds the same words alone."""

    cosine: float | None = field(default=None, kw_only=True)
    """Least cosine of two documents' vectors, above 0; None compares no vectors."""

    embedder: Embedder | None = field(default=None, kw_only=True)
    """Embeds each document once more, as a whole as far as its window goes, for `cosine`."""

    def __post_init__(self) -> None:
        if self.action not in {"report", "drop", "group"}:
            raise InvalidSetting("duplicates", 'must be "report", "drop" or "group"')
        if (self.cosine is None) != (self.embedder is None):
            raise InvalidSetting("cosine", "goes with an embedder, and an embedder with it")
        DuplicateFinder(bits=self.bits, cosine=self.cosine)


def deduplicated(
    sink: Sink,
    settings: Duplicates,
    *,
    on_drop: Callable[[Document], object] | None = None,
) -> Sink:
    """Returns a sink that sees to duplicates before it hands documents on.

    What it has seen belongs to this sink: make a new one for each run. For `records`::

        sink = deduplicated(lambda batch: index.ingest(*batch), Duplicates("drop"))
        await records(rows, decode, sink)

    Args:
        sink: As for `records`; not called for a batch of which nothing is left.
        settings: How.
        on_drop: Hears each document that is left out.
    """
    finder = DuplicateFinder(bits=settings.bits, cosine=settings.cosine)

    async def write(documents: Sequence[Document]) -> IngestReport:
        vectors = None
        if settings.embedder is not None:
            texts = [document.text for document in documents]
            with naming([document.id for document in documents]):
                vectors = await embed_checked(settings.embedder, texts, "passage")
        kept: list[Document] = []
        found: list[Duplicate] = []
        for place, document in enumerate(documents):
            duplicate = finder.look(document, None if vectors is None else vectors[place])
            if duplicate is not None:
                found.append(duplicate)
            if duplicate is None or settings.action == "report":
                kept.append(document)
            elif settings.action == "group":
                mark = {**document.metadata, DUPLICATE_KEY: duplicate.of}
                kept.append(replace(document, metadata=mark))
            elif on_drop is not None:
                on_drop(document)
        report = IngestReport(duplicates=tuple(found))
        if kept:
            written = await call_stage(sink, kept)
            report += IngestReport(documents=len(kept)) if written is None else written
        return report

    return write
