"""``ragchat migrate``: an index into another store, or to another embedder."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from ragchat.cli.options import DEFAULT_CORPUS, Json, flag
from ragchat.cli.output import Face, counted
from ragchat.cli.running import require, require_room, run
from ragchat_retrieval.errors import CorpusChanged

if TYPE_CHECKING:
    from collections.abc import Callable

    from ragchat_retrieval.index import HybridIndex
    from ragchat_retrieval.migration import MigrationReport

_TRIES = 10
"""How often to catch up again before a swap, with an index that is being written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    old: str
    new: str
    corpus: str
    to: str
    batch: int
    keep_vectors: bool
    prune: bool
    verify: bool
    swap: bool


def migrate(
    old: Annotated[str, typer.Argument(metavar="OLD", help="The index to copy: path or URL.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The index to copy into.")],
    *,
    corpus: Annotated[
        str, typer.Option(metavar="NAME", help="The corpus in OLD.")
    ] = DEFAULT_CORPUS,
    to: Annotated[
        str | None, typer.Option(metavar="NAME", help="The corpus in NEW; else of the same name.")
    ] = None,
    keep_vectors: Annotated[
        bool,
        flag(
            "--keep-vectors",
            "Copy the vectors whatever embedder is set; else another one embeds anew.",
        ),
    ] = False,
    prune: Annotated[bool, flag("--prune", "Remove documents from NEW that OLD has not.")] = False,
    no_verify: Annotated[bool, flag("--no-verify", "Do not compare the two at the end.")] = False,
    swap: Annotated[
        bool,
        flag("--swap", "Let the two corpora, of one store, change names in the end."),
    ] = False,
    batch: Annotated[int, typer.Option(metavar="N", min=1, help="Documents per write.")] = 64,
    json: Json = False,
) -> None:
    """Copy an index into another store or to another embedder; run again to go on or catch up.

    OLD may be searched and written meanwhile.
    """
    target = corpus if to is None else to
    if (old, corpus) == (new, target):
        raise typer.BadParameter("OLD and NEW are one index; name a corpus with --to")
    if swap and old != new:
        raise typer.BadParameter("OLD and NEW must be one store", param_hint="--swap")
    face = Face.open(json=json)
    job = _Job(
        old=old,
        new=new,
        corpus=corpus,
        to=target,
        batch=batch,
        keep_vectors=keep_vectors,
        prune=prune,
        verify=not no_verify,
        swap=swap,
    )
    run(_migrate(face, job), face)


async def _migrate(face: Face, job: _Job) -> None:
    from ragchat_retrieval.opening import open_index  # noqa: PLC0415 - --help stays quick

    require(job.old)
    require_room(job.new)
    async with (
        open_index(job.old, corpus=job.corpus, embedder=None, read_only=not job.swap) as source,
        open_index(job.new, corpus=job.to, embedder=None if job.keep_vectors else "env") as target,
    ):
        with face.progress("Copying") as tell:
            report = await _copied(job, source, target, tell)
    if face.json:
        face.document({**asdict(report), "swapped": job.swap})
        return
    face.line(summary(report))
    if job.swap:
        face.line(f"corpus {job.corpus!r} is the new one, {job.to!r} the former one")


async def _copied(
    job: _Job, source: HybridIndex, target: HybridIndex, tell: Callable[[float], object]
) -> MigrationReport:
    """Copies, and swaps if asked; with what is written in between it catches up first."""
    from ragchat_retrieval.migration import (  # noqa: PLC0415 - as above
        migrate_index,
        swap_indexes,
    )

    report, prune, verify = None, job.prune, job.verify
    for tries in range(1, _TRIES + 1):
        done = await migrate_index(
            source, target, batch=job.batch, on_progress=tell, verify=verify, prune=prune
        )
        report = done if report is None else _joined(report, done)
        if not job.swap:
            break
        try:
            await swap_indexes(source, target, expected=report.revision)
        except CorpusChanged:
            if tries == _TRIES:
                raise
            tell, prune, verify = _quiet, True, False  # a short way from here: make it quick
        else:
            break
    assert report is not None  # noqa: S101 - there is one try at least
    return report


def _joined(first: MigrationReport, later: MigrationReport) -> MigrationReport:
    return replace(
        later,
        documents=first.documents + later.documents,
        passages=first.passages + later.passages,
        kept_vectors=first.kept_vectors + later.kept_vectors,
        embedded=first.embedded + later.embedded,
        removed=first.removed + later.removed,
        skipped=first.skipped,
        verified=first.verified,
    )


def _quiet(share: float) -> None:
    del share


def summary(report: MigrationReport) -> str:
    """Returns a report in one line."""
    documents, passages = counted(report.documents, "document"), counted(report.passages, "passage")
    parts = [f"copied {documents} with {passages}"]
    for count, what in (
        (report.kept_vectors, "vectors kept"),
        (report.embedded, "embedded"),
        (report.skipped, "there already"),
        (report.removed, "removed"),
    ):
        if count:
            parts.append(f"{count:,} {what}")
    return ", ".join([*parts, "verified" if report.verified else "not verified"])
