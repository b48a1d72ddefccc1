"""``ragchat ingest``: folders and files into the index."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ragchat.cli.options import DEFAULT_CORPUS, DEFAULT_INDEX, Corpus, Index, Json
from ragchat.cli.output import Face, counted
from ragchat.cli.running import opened, run

if TYPE_CHECKING:
    from ragchat_retrieval.ingest import IngestReport


def ingest(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH", help="Folders and files.")],
    *,
    index: Index = DEFAULT_INDEX,
    corpus: Corpus = DEFAULT_CORPUS,
    root: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="First part of the ids; else the folder's own name."),
    ] = None,
    moved: Annotated[
        bool, typer.Option("--moved", help="The folder was elsewhere; take over its documents.")
    ] = False,
    json: Json = False,
) -> None:
    """Read folders and files into the index; what is unchanged is skipped."""
    for path in paths:
        if not path.exists():
            raise typer.BadParameter(f"{path}: no such file or folder", param_hint="PATH")
    if root is not None and len(paths) > 1:
        raise typer.BadParameter("names one folder, not several", param_hint="--root")
    face = Face.open(json=json)
    run(_ingest(face, paths, index, corpus, root=root, moved=moved), face)


async def _ingest(
    face: Face, paths: list[Path], index: str, corpus: str, *, root: str | None, moved: bool
) -> None:
    from ragchat_retrieval.ingest import IngestReport, ingest_directory  # noqa: PLC0415 - quick help

    report = IngestReport()
    async with opened(index, corpus, create=True) as opened_index:
        for path in paths:
            with face.progress(f"Reading {path.name or path}") as tell:
                report += await ingest_directory(
                    opened_index, path, root=root, moved=moved, on_progress=tell
                )
        notes = (await opened_index.describe()).notes
    if face.json:
        face.document(asdict(report))
        return
    face.line(summary(report))
    for error in report.errors:
        told = error.message or error.error
        face.note(told if repr(error.id) in told else f"{error.id}: {told}")
    if report.too_long:
        face.note(
            f"{counted(report.too_long, 'passage')} longer than the embedder's window: "
            "vectors do not see their end"
        )
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
        (len(report.errors), "not readable"),
    ):
        if count:
            parts.append(f"{count} {what}")
    return ", ".join(parts)
