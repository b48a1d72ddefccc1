"""Making one index hold what another one holds, while the other stays in use."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ragchat_retrieval.errors import (
    InvalidSetting,
    MigrationMismatch,
    MigrationSourceChanging,
    MigrationTargetInUse,
)
from ragchat_retrieval.identity import check_identity
from ragchat_retrieval.kinds import check_index
from ragchat_retrieval.migration.copying import EVERYTHING, Copying
from ragchat_retrieval.migration.report import MigrationReport
from ragchat_retrieval.migration.verifying import Comparison, compared
from ragchat_retrieval.stages import check_listener

if TYPE_CHECKING:
    from collections.abc import Callable

    from ragchat_retrieval.index import HybridIndex

BATCH_DOCUMENTS: Final = 64
"""Documents per write: what a stopped run does again at most."""

_ROUNDS: Final = 10
"""Rounds of catching up with an index that is written all the time."""

_COPY_SHARE: Final = 0.95
"""Part of the progress that copying is; verification is the rest."""


async def migrate_index(
    old: HybridIndex,
    new: HybridIndex,
    *,
    batch: int = BATCH_DOCUMENTS,
    on_progress: Callable[[float], object] | None = None,
    verify: bool = True,
    prune: bool = False,
) -> MigrationReport:
    """Copies all documents of an index into another store, or to another embedder.

    The old index may be searched and written all the while. Documents, passages and fingerprints
    are copied as they are; texts are analysed again. Vectors are copied if the new index has no
    embedder or the same one, else the passages are embedded. What the new index has already, by its
    fingerprints, is skipped: so a stopped run goes on where it was, and running it again catches
    up with what was written since. The fingerprints of both are held in memory.

    Args:
        old: What is copied. It is only read.
        new: An empty index, or one that an earlier run began to fill. Nobody else writes it.
        batch: Documents per write.
        on_progress: Hears floats 0 … 1, never falling, 1.0 last.
        verify: Compare counts and all fingerprints, a sample of documents with their passages and
            vectors, and search for a sample of passages in each lane.
        prune: Remove documents that only the new index has, also those it had before this run.

    Returns:
        What was done, and up to which revision of the old index the new one is complete.

    Raises:
        InvalidSetting: `batch` is below 1, the two are one, one is no index, or `on_progress` is
            async.
        IdentityMismatch: The new corpus was written with something else.
        MigrationTargetInUse: The new corpus holds documents that the old one has not.
        MigrationMismatch: Verification found a difference: while the old index was not written, or
            in documents that were not.
        MigrationSourceChanging: It found some each time, and all may be what was written to the old
            index meanwhile; what was copied stays.
        EmbeddingError: The new embedder failed; what was written before stays.
    """
    check_index("old", old)
    check_index("new", new)
    check_listener("on_progress", on_progress)
    if batch < 1:
        raise InvalidSetting("batch", "must be at least 1")
    if old.store is new.store:
        raise InvalidSetting("new", "is the old index itself")
    tell = _Rising(on_progress)
    identity = await new.heir(old)
    check_identity(await new.store.identity(), identity, store=new.store.name, writing=True)
    theirs = await old.store.identity()
    same = theirs is not None and (identity.model, identity.dimension) == (
        theirs.model,
        theirs.dimension,
    )
    keeps = identity.model is not None and (same or new.embedder is None)
    run = _Run(Copying(old, new, identity, keeps), batch, tell)
    report = await run.catch_up(MigrationReport(), prune=prune)
    if verify:
        report = await run.verified(report)
    tell(1.0)
    return report


class _Rising:
    """Tells a progress that never falls."""

    def __init__(self, on_progress: Callable[[float], object] | None) -> None:
        self._tell = on_progress
        self._told = -1.0

    def __call__(self, share: float) -> None:
        if share > self._told:
            self._told = share
            if self._tell is not None:
                self._tell(share)


class _Run:
    """One migration: rounds of comparing fingerprints and copying what differs."""

    def __init__(self, copying: Copying, batch: int, tell: Callable[[float], object]) -> None:
        self.copying = copying
        self._batch = batch
        self._tell = tell

    async def catch_up(self, report: MigrationReport, *, prune: bool) -> MigrationReport:
        """Copies until nothing differs, or until what differs is only what was written last."""
        old, new = self.copying.old.store, self.copying.new.store
        for number in range(_ROUNDS):
            revision = await old.revision()
            wanted = await old.hashes(scope=EVERYTHING)
            known = await new.hashes(scope=EVERYTHING)
            stale = [i for i in sorted(wanted) if known.get(i) != wanted[i]]
            gone = known.keys() - wanted.keys()
            if gone and not number and not prune:
                raise MigrationTargetInUse(len(gone))
            if not report.revision:
                report = replace(report, skipped=len(wanted) - len(stale))
            report = await self._round(report, stale, sorted(gone))
            report = replace(report, revision=revision)
            if not stale and not gone:
                break
        return report

    async def verified(self, report: MigrationReport) -> MigrationReport:
        """Compares the two, again where the old one was written meanwhile."""
        found = Comparison()
        for _ in range(_ROUNDS):
            earlier, found = found, await compared(self.copying, list(found.suspects))
            if not found.differences:
                return replace(report, verified=True)
            if await self.copying.old.store.revision() == report.revision:
                raise MigrationMismatch(found.problems)
            if lasting := found.lasting(earlier):
                raise MigrationMismatch(lasting)
            report = await self.catch_up(report, prune=True)  # what differs may be news
        raise MigrationSourceChanging(found.problems)

    async def _round(
        self, report: MigrationReport, stale: list[str], gone: list[str]
    ) -> MigrationReport:
        self._tell(0.0)
        if gone:
            removed = await self.copying.remove(gone)
            report = replace(report, removed=report.removed + removed)
        for start in range(0, len(stale), self._batch):
            done = await self.copying.copy(stale[start : start + self._batch])
            report = replace(
                report,
                documents=report.documents + done.documents,
                passages=report.passages + done.passages,
                kept_vectors=report.kept_vectors + done.kept_vectors,
                embedded=report.embedded + done.embedded,
            )
            self._tell(_COPY_SHARE * min(1.0, (start + self._batch) / len(stale)))
        return report
