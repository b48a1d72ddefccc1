"""``ragchat demo``: a conversation over bundled texts, every step of it shown."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ragchat.cli.ask import converse, extract
from ragchat.cli.options import Json, Model
from ragchat.cli.output import Face
from ragchat.cli.running import run
from ragchat.demo import CORPUS, EVIDENCE_TOKENS, QUESTIONS, default_index, pages
from ragchat.forms import candidate_record, degraded_records, passage_record, query_record

if TYPE_CHECKING:
    from ragchat.prepare import Preparer
    from ragchat.prepared import PreparedRequest
    from ragchat_retrieval.index import HybridIndex
    from ragchat_retrieval.ingest import IngestReport
    from ragchat_retrieval.values import Candidate

CORPUS_NAME = "demo"
"""The corpus inside the index, so that an index of the user's own is not touched."""

TOP_K = 5


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of the conversation as it was played."""

    question: str
    prepared: PreparedRequest
    answer: str
    alone: Candidate | None
    """The best hit for the question without its conversation; None in the first turn."""

    @property
    def tokens(self) -> int:
        """Tokens of the evidence block."""
        augmented = self.prepared.retrieval.trace.of("augment")
        return sum(timing.counts.get("tokens", 0) for timing in augmented)


def demo(
    *,
    index: Annotated[
        Path | None,
        typer.Option("--index", "-i", metavar="PATH", help="Where to keep the demo's index."),
    ] = None,
    model: Model = None,
    json: Json = False,
) -> None:
    """Play a conversation over bundled texts and show how each answer comes about."""
    face = Face.open(json=json)
    run(_demo(face, index or default_index(), model or None), face)


async def _demo(face: Face, path: Path, model: str | None) -> None:
    from ragchat.augment import ContextualAugmenter  # noqa: PLC0415 - --help stays quick
    from ragchat.cli.demo_view import show_index, show_turn  # noqa: PLC0415 - as above
    from ragchat.prepare import Preparer  # noqa: PLC0415 - as above
    from ragchat_retrieval.opening import open_index  # noqa: PLC0415 - as above

    began = time.perf_counter()
    path.parent.mkdir(parents=True, exist_ok=True)
    async with open_index(path, corpus=CORPUS_NAME) as opened_index:
        report = await fill(face, opened_index)
        known = await opened_index.describe()
        if not face.json:
            show_index(face, known, report, time.perf_counter() - began, path)
        preparer = Preparer(
            retriever=opened_index.retriever(top_k=TOP_K, explain=True),
            augmenter=ContextualAugmenter(max_context_tokens=EVIDENCE_TOKENS),
        )
        messages: list[dict[str, Any]] = []
        turns = []
        for number, question in enumerate(QUESTIONS, 1):
            turn = await play(
                face, opened_index, preparer, messages, question=question, model=model
            )
            turns.append(turn)
            if not face.json:
                show_turn(face, number, turn, model)
    if face.json:
        face.document(
            {
                "documents": known.documents,
                "passages": known.passages,
                "vectors": known.vectors,
                "unchanged": report.skipped,
                "model": model,
                "turns": [turn_record(turn) for turn in turns],
            }
        )


async def fill(face: Face, index: HybridIndex) -> IngestReport:
    """Brings the demo's corpus up to date: unchanged files are skipped."""
    from ragchat_retrieval.ingest import IngestReport, ingest_directory  # noqa: PLC0415 - as above

    stored = await index.store.identity()
    if stored is not None and stored != index.identity:
        await index.reset()  # written with another embedder; everything is read again
    report = IngestReport()
    for root, folder in (("demo", CORPUS), ("docs", pages())):
        if folder is not None:
            with face.progress(f"Reading {root}") as tell:
                report += await ingest_directory(
                    index, folder, root=root, moved=True, on_progress=tell
                )
    return report


async def play(
    face: Face,
    index: HybridIndex,
    preparer: Preparer,
    messages: list[dict[str, Any]],
    *,
    question: str,
    model: str | None,
) -> Turn:
    """Plays one turn and adds it to the messages."""
    alone = list(await index.search(question, top_k=1)) if messages else []
    messages.append({"role": "user", "content": question})
    chosen = {} if model is None else {"model": model}
    prepared = await preparer.prepare(messages=messages, **chosen)
    if model is None:
        answer = await extract(prepared, index)
    else:
        answer = (await converse(Face(face.out, face.err, json=True), prepared)).text
    messages.append({"role": "assistant", "content": answer})
    return Turn(question, prepared, answer, alone[0] if alone else None)


def turn_record(turn: Turn) -> dict[str, Any]:
    """Returns a turn as JSON values."""
    retrieval = turn.prepared.retrieval
    return {
        "question": turn.question,
        "queries": [query_record(query) for query in retrieval.queries],
        "candidates": [candidate_record(n, c) for n, c in enumerate(retrieval.candidates, 1)],
        "sources": [
            {"number": number, **passage_record(passage)}
            for number, passage in retrieval.citations.items()
        ],
        "evidence_tokens": turn.tokens,
        "answer": turn.answer,
        "without_conversation": turn.alone and passage_record(turn.alone.passage),
        "degraded": degraded_records(retrieval.degraded),
    }
