"""``ragchat ingest``: folders and files into the index."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ragchat.cli.options import DEFAULT_CORPUS, DEFAULT_INDEX, Corpus, Index, Json
from ragchat.cli.output import Face
from ragchat.cli.running import opened, run

if TYPE_CHECKING:
    from ragchat_retrieval.ingest import IngestReport


def ingest(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Folders and files.")],
    *,
    index: Index = DEFAULT_INDEX,
    corpus: Corpus = DEFAULT_CORPUS,
    json: Json = False,
) -> None:
    """Read folders and files into the index; what is unchanged is skipped."""
    for path in paths:
        if not path.exists():
            raise typer.BadParameter(f"{path}: no such file or folder", param_hint="PATH")
    face = Face.open(json=json)
    run(_ingest(face, paths, index, corpus), face)


async def _ingest(face: Face, paths: list[Path], index: str, corpus: str) -> None:
    from ragchat_retrieval.ingest import IngestReport, ingest_directory  # noqa: PLC0415 - quick help

    report = IngestReport()
    async with opened(index, corpus, create=True) as opened_index:
        for path in paths:
            with face.progress(f"Reading {path.name or path}") as tell:
                report += await ingest_directory(opened_index, path, on_progress=tell)
        notes = (await opened_index.describe()).notes
    if face.json:
        face.document(asdict(report))
        return
    face.line(summary(report))
    for error in report.errors:
        face.note(f"{error.id}: {error.message or error.error}")
    if report.too_long:
        face.note(f"{report.too_long} passages are longer than the embedder's window")
    for note in notes:
        face.note(note)


def summary(report: IngestReport) -> str:
    """Returns a report in one line."""
    parts = [f"{report.documents} documents read into {report.passages} passages"]
    for count, what in (
        (report.skipped, "unchanged"),
        (report.deleted, "removed"),
        (len(report.errors), "not readable"),
    ):
        if count:
            parts.append(f"{count} {what}")
    return ", ".join(parts)
