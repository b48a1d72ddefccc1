"""How the demo looks: labelled sections, side by side with their labels where there is room."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from ragchat.cli.ask import NO_MODEL
from ragchat.cli.output import one_line, plain
from ragchat.cli.records import heading, place
from ragchat.cli.search import ranking_of
from ragchat.demo import EVIDENCE_TOKENS, QUESTIONS

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ragchat.cli.demo import Turn
    from ragchat.cli.output import Face
    from ragchat_retrieval.description import IndexDescription
    from ragchat_retrieval.ingest import IngestReport
    from ragchat_retrieval.values import ContextText, Passage

LABEL = 10
"""Columns of the labels."""

CONTEXT = (
    "Earlier turns join the search, each at its weight in either lane; "
    "“at most” is less the closer a turn is to the question."
)

LEAST_SHOWN = 30
"""Characters of a turn that are shown however narrow the terminal is."""


def show_index(
    face: Face, known: IndexDescription, report: IngestReport, seconds: float, path: Path
) -> None:
    """Shows what was read and what the index holds."""
    vectors = f"{known.vectors} with vectors" if known.vectors else "keywords only"
    face.line("A conversation over bundled texts, and every step behind its answers.", "bold")
    face.line(
        f"{known.documents} documents, {known.passages} passages, {vectors}: "
        f"{report.documents} read, {report.skipped} unchanged, in {seconds:.1f} s. "
        f"The index is kept in {path}.",
        "dim",
    )
    for note in known.notes:
        face.note(note)


def show_turn(face: Face, number: int, turn: Turn, model: str | None) -> None:
    """Shows one turn from the question to what its first citation stands for."""
    retrieval = turn.prepared.retrieval
    face.line()
    face.show(Rule(f"Turn {number} of {len(QUESTIONS)}", style="cyan"))
    section(face, "User", Text(turn.question, style="bold"))
    for query in retrieval.queries[:1]:
        room = face.out.width - LABEL
        lines = [Text(plain(query.text)), *(_context(context, room) for context in query.context)]
        section(face, "Query", Text("\n").join(lines))
        if query.context and number == 2:  # noqa: PLR2004 - where it is first seen
            section(face, "", Text(CONTEXT, style="dim"))
    section(face, "Ranking", ranking_of(retrieval.candidates, face.out.width - LABEL))
    if turn.alone is not None:
        alone = f"Without the conversation the first would be: {heading(turn.alone.passage)}"
        section(face, "", Text(alone, style="dim"))
    section(face, "Evidence", _evidence(turn))
    section(face, "Answer", Text(plain(turn.answer), style="bold green"))
    if model is None and number == 1:
        section(face, "", Text(NO_MODEL[0].upper() + NO_MODEL[1:] + ".", style="dim"))
    for cited, passage in list(retrieval.citations.cited(turn.answer).items())[:1]:
        section(face, f"[{cited}]", _source(face, passage))
    for degradation in retrieval.degraded:
        face.note(f"{degradation.stage} left out: {degradation.reason}")


def section(face: Face, label: str, body: RenderableType) -> None:
    """Shows a labelled part; the label stands above where the terminal is narrow."""
    if label:
        face.line()
    if not face.wide:
        if label:
            face.line(label, "cyan")
        face.show(body, indent=2)
        return
    grid = Table.grid(padding=0)
    grid.add_column(width=LABEL, style="cyan", no_wrap=True)
    grid.add_column(ratio=1)
    grid.add_row(Text(label), body)
    face.show(grid)


def _context(context: ContextText, room: int) -> Text:
    """Returns a turn with its weights, shortened so that both fit into `room` columns."""
    weights = []
    if context.lexical:
        weights.append(f"keywords × {context.lexical:.2f}")
    if context.semantic:
        damped = " at most" if context.damp else ""
        weights.append(f"meaning × {context.semantic:.2f}{damped}")
    said = ", ".join(weights)
    text = one_line(context.text)
    most = max(LEAST_SHOWN, room - len(said) - len("+ “ …”  "))
    shown = text if len(text) <= most else text[:most].rsplit(" ", 1)[0] + " …"
    return Text.assemble(("+ ", "cyan"), f"“{shown}”", (f"  {said}", "dim"))


def _evidence(turn: Turn) -> Text:
    """Returns how much of the ranking went into the prompt, and what did not fit."""
    retrieval = turn.prepared.retrieval
    used, found = len(retrieval.citations), len(retrieval.candidates)
    said = Text(f"{used} of {found} passages, {turn.tokens} of {EVIDENCE_TOKENS} tokens")
    inside = {passage.id for _, passage in retrieval.citations.items()}
    for rank, candidate in enumerate(retrieval.candidates, 1):
        if candidate.passage.id not in inside:
            said.append(f"\nNo room for {rank}, {heading(candidate.passage)}", "dim")
    return said


def _source(face: Face, passage: Passage) -> Text:
    """Returns a passage with its place, its lines joined to paragraphs and wrapped anew."""
    width = face.out.width - (LABEL if face.wide else 2) - 2
    lines = [Text(heading(passage), style="bold"), Text(_place(passage), style="dim")]
    for paragraph in plain(passage.text).strip().split("\n\n"):
        text = paragraph if paragraph.startswith(("|", "-")) else " ".join(paragraph.split())
        wrapped = Text(text).wrap(face.out, width)
        lines += [Text.assemble(("│ ", "cyan"), line) for line in wrapped]
    return Text("\n").join(lines)


def _place(passage: Passage) -> str:
    """Returns a place relative to the current folder if it lies below, else to its root's name."""
    here = f"{Path.cwd()}{os.sep}"
    if not (passage.source or "").startswith(here):
        return place(replace(passage, source=None))
    return place(passage).removeprefix(here)
