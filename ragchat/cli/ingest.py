"""``ragchat ingest``: folders and files into the index, once or whenever they change."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ragchat.cli.options import (
    DEFAULT_CORPUS,
    DEFAULT_INDEX,
    SCALARS,
    Corpus,
    Index,
    Json,
    flag,
    read_metadata,
)
from ragchat.cli.output import Face, counted
from ragchat.cli.running import opened, path_of, run
from ragchat_retrieval.errors import InvalidSetting

if TYPE_CHECKING:
    from ragchat_retrieval.index import HybridIndex
    from ragchat_retrieval.ingest import IngestReport
    from ragchat_retrieval.lexical import Analyzer
    from ragchat_retrieval.metadata import Metadata


class OnDuplicate(StrEnum):
    """What becomes of a document that repeats an earlier one."""

    REPORT = "report"
    DROP = "drop"
    GROUP = "group"


Repeated = Annotated[
    OnDuplicate | None,
    typer.Option(
        help="Look for documents that repeat an earlier one: report them, drop them, or group them "
        "by a mark, duplicate_of, in their metadata."
    ),
]
Watch = Annotated[bool, flag("--watch", "Go on and read again whenever a file changes.")]

_NAMED = 3
"""Documents that a note names."""


@dataclass(frozen=True, slots=True)
class _Job:
    paths: list[Path]
    url: str
    corpus: str
    root: str | None
    metadata: Metadata
    duplicates: OnDuplicate | None
    analyzer: Analyzer | None
    emptied: bool = field(kw_only=True)
    moved: bool = field(kw_only=True)
    watch: bool = field(kw_only=True)


def ingest(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH", help="Folders and files.")],
    *,
    watch: Watch = False,
    duplicates: Repeated = None,
    index: Index = DEFAULT_INDEX,
    corpus: Corpus = DEFAULT_CORPUS,
    root: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="First part of the ids; else the folder's own name."),
    ] = None,
    meta: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Metadata of every document, for --filter; may be given several times. Another "
            f"ingest of the folder writes its own in their place. {SCALARS}",
        ),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The texts' language, by its English name, for stemming and stop words; none for "
            "neither. An index keeps that of its first document, else english.",
        ),
    ] = None,
    emptied: Annotated[
        bool, flag("--emptied", "It is no mistake that nothing is left to read; remove the rest.")
    ] = False,
    moved: Annotated[
        bool, flag("--moved", "The folder was elsewhere; take over its documents.")
    ] = False,
    json: Json = False,
) -> None:
    """Read folders and files into the index; what is unchanged is skipped.

    A file that cannot be read keeps nobody from reading the others; the exit code is then 1.

    With --watch it stops on Ctrl-C; --json then prints one line of JSON each time.
    """
    for path in paths:
        if not path.exists():
            raise typer.BadParameter(f"{path}: no such file or folder", param_hint="PATH")
    if root is not None and len(paths) > 1:
        raise typer.BadParameter("names one folder, not several", param_hint="--root")
    face = Face.open(json=json, lines=watch)
    job = _Job(
        paths,
        index,
        corpus,
        root,
        read_metadata(meta, "--meta"),
        duplicates,
        None if language is None else _analyzer(language),
        emptied=emptied,
        moved=moved,
        watch=watch,
    )
    try:
        run(_ingest(face, job), face)
    except KeyboardInterrupt:
        if not watch:
            raise


def _analyzer(language: str) -> Analyzer:
    from ragchat_retrieval.lexical import Analyzer  # noqa: PLC0415 - --help stays quick

    try:
        return Analyzer(None if language == "none" else language)
    except InvalidSetting as error:
        raise typer.BadParameter(str(error), param_hint="--language") from None


async def _ingest(face: Face, job: _Job) -> None:
    async with opened(job.url, job.corpus, create=True, analyzer=job.analyzer) as index:
        if not job.watch:
            report = await _read(face, job, index)
            notes = (await index.describe()).notes
            if face.json:
                face.document(asdict(report))
            else:
                _tell(face, report, notes)
            if report.errors:
                raise typer.Exit(1)
            return
        from ragchat.cli.watch import changes  # noqa: PLC0415 - an extra's package

        first = True
        async for _ in changes(job.paths, but=path_of(job.url)):
            report = await _read(face, job, index)
            if face.json:
                face.document(asdict(report))
            elif first or _is_news(report):
                _tell(face, report, (await index.describe()).notes if first else ())
            if first:
                face.note("watching for changes; Ctrl-C stops")
            first = False


async def _read(face: Face, job: _Job, index: HybridIndex) -> IngestReport:
    from ragchat_retrieval.ingest import (  # noqa: PLC0415 - quick help
        Duplicates,
        IngestReport,
        ingest_directory,
    )

    looked_for = None if job.duplicates is None else Duplicates(job.duplicates.value)
    report = IngestReport()
    for path in job.paths:
        if job.watch and not path.exists():
            continue  # a file may go and come back
        with face.progress(f"Reading {path.name or path}") as tell:
            report += await ingest_directory(
                index,
                path,
                root=job.root,
                metadata=job.metadata,
                emptied=job.emptied,
                moved=job.moved,
                duplicates=looked_for,
                on_progress=tell,
            )
    return report


def _is_news(report: IngestReport) -> bool:
    return bool(report.documents or report.deleted or report.errors)


def _tell(face: Face, report: IngestReport, notes: tuple[str, ...]) -> None:
    face.line(summary(report))
    for error in report.errors:
        told = error.message or error.error
        face.note(told if repr(error.id) in told else f"{error.id}: {told}")
    for duplicate in report.duplicates:
        face.note(f"{duplicate.id} repeats {duplicate.of} ({duplicate.kind})")
    if report.too_long:
        some = ", ".join(report.too_long_in[:_NAMED])
        more = ", …" if len(report.too_long_in) > _NAMED else ""
        face.note(
            f"{counted(report.too_long, 'passage')} longer than the embedder's window: "
            f"vectors do not see their end ({some}{more})"
        )
    if report.pages_without_text:
        face.note(f"{counted(report.pages_without_text, 'page')} without text, such as scans")
    for note in notes:
        face.note(note)


def summary(report: IngestReport) -> str:
    """Returns a report in one line."""
    documents, passages = counted(report.documents, "document"), counted(report.passages, "passage")
    parts = [f"{documents} read into {passages}"]
    for count, what in (
        (report.skipped, "unchanged"),
        (report.deleted, "removed"),
        (report.blank, "without text"),
        (len(report.duplicates), "repeated"),
        (len(report.errors), "not readable"),
    ):
        if count:
            parts.append(f"{count} {what}")
    return ", ".join(parts)
