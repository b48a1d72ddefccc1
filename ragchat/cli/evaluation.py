"""``ragchat eval``: how good retrieval is on questions with known answers."""

from __future__ import annotations

import asyncio
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from ragchat.cli.ask import semantic
from ragchat.cli.evaluation_view import show_report
from ragchat.cli.evaluation_work import Asked, reranking, searched
from ragchat.cli.options import DEFAULT_CORPUS, Corpus, Json, NoRerank, TopK, flag
from ragchat.cli.output import Face
from ragchat.cli.running import run
from ragchat_retrieval.errors import InvalidSetting

if TYPE_CHECKING:
    from collections.abc import Callable

    from ragchat_retrieval.evaluation import (
        CitationEvaluation,
        Collection,
        Evaluation,
        Metric,
        Report,
    )
    from ragchat_retrieval.evaluation.evaluating import Asker
    from ragchat_retrieval.index import HybridIndex
    from ragchat_retrieval.ports import Retriever

T = TypeVar("T")

EXTRACTIVE = "extractive"
"""Names the answers that need no chat model."""


def evaluate(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH",
            help="Folders with queries.jsonl, qrels.tsv and perhaps corpus.jsonl (BEIR's form; "
            "each may be gzipped). Without a corpus, --index is searched.",
        ),
    ],
    *,
    index: Annotated[
        str | None,
        typer.Option(
            "--index", "-i", metavar="PATH|URL", help="Search this index, not the folder's corpus."
        ),
    ] = None,
    corpus: Corpus = DEFAULT_CORPUS,
    queries: Annotated[str, typer.Option(metavar="NAME", help="Queries file.")] = "queries",
    qrels: Annotated[str, typer.Option(metavar="NAME", help="Judgments file.")] = "qrels",
    documents: Annotated[str, typer.Option(metavar="NAME", help="Corpus file.")] = "corpus",
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            "-m",
            metavar="NAME@K",
            help="ndcg, recall, mrr or precision; may be given several times, the first counts.",
        ),
    ] = None,
    top_k: TopK = 10,
    keyword_weight: Annotated[
        float, typer.Option(metavar="X", min=0.0, max=1.0, help="Share of the keyword lane.")
    ] = 0.3,
    rerank_model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Rerank with this chat model, one call per question, not by RAGCHAT_RERANK_URL.",
        ),
    ] = None,
    no_rerank: NoRerank = False,
    mmr: Annotated[
        float | None,
        typer.Option(metavar="X", min=0.0, max=1.0, help="Diversify: 0 all diversity, 1 none."),
    ] = None,
    per_document: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Most passages of one document.")
    ] = None,
    segment: Annotated[
        str | None,
        typer.Option(metavar="FIELD", help="Also by a field of the queries; turn: first, later."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Only the first questions.")
    ] = None,
    gate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METRIC>=VALUE",
            help="Exit with 1 unless it holds, for every PATH; may be given several times.",
        ),
    ] = None,
    tune: Annotated[
        bool, flag("--tune", "Look for better settings; judged on held-out questions.")
    ] = False,
    answers: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|extractive",
            help="Also judge what answers cite: JSON lines with _id, answer and citations, or the "
            "documents' own sentences.",
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a report with plots.")
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep embeddings here between runs.")
    ] = None,
    json: Json = False,
) -> None:
    """Measure retrieval on questions with known answers, stage by stage."""
    from ragchat_retrieval.evaluation import Gate  # noqa: PLC0415 - --help stays quick

    if no_rerank and rerank_model is not None:
        raise typer.BadParameter(
            "asks for what --no-rerank leaves out", param_hint="--rerank-model"
        )
    gates = tuple(_read(Gate.of, text, "--gate") for text in gate or ())
    if answers is None and any(gate.about_answers for gate in gates):
        raise typer.BadParameter("a metric of citations needs --answers", param_hint="--gate")
    asked = Asked(
        index=index,
        corpus=corpus,
        metrics=_metrics(metric),
        gates=gates,
        top_k=top_k,
        segment=segment,
        keyword_weight=keyword_weight,
        tune=tune,
        cache=cache,
        rerank_model=rerank_model,
        no_rerank=no_rerank,
        mmr=mmr,
        per_document=per_document,
        answers=answers,
    )
    for path in paths:
        if not path.is_dir():
            raise typer.BadParameter(f"{path}: no such folder", param_hint="PATH")
    # What cannot be written shows now, and not when everything has been measured.
    if html is not None and (html.is_dir() or not html.parent.is_dir()):
        raise typer.BadParameter(f"{html}: no file can be there", param_hint="--html")
    face = Face.open(json=json)
    names = {"corpus": documents, "queries": queries, "qrels": qrels}
    run(_evaluate(face, paths, asked, names=names, limit=limit, html=html), face)


def _metrics(given: list[str] | None) -> tuple[Metric, ...]:
    from ragchat_retrieval.evaluation import DEFAULT_METRICS, Metric  # noqa: PLC0415 - quick help

    return tuple(_read(Metric.of, text, "--metric") for text in given or ()) or DEFAULT_METRICS


def _read(reader: Callable[[str], T], text: str, option: str) -> T:
    try:
        return reader(text)
    except InvalidSetting as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


async def _evaluate(
    face: Face,
    paths: list[Path],
    asked: Asked,
    *,
    names: dict[str, str],
    limit: int | None,
    html: Path | None,
) -> None:
    from ragchat_retrieval.evaluation import html_report, load_collection  # noqa: PLC0415 - as above

    # All are read before the first is searched: a mistake in the last shows at once.
    collections = [load_collection(path, **names) for path in paths]
    reports = []
    for collection in collections:
        chosen = collection if limit is None else collection.first(limit)
        report = await _report(face, chosen, asked)
        reports.append(report)
        if not face.json:
            show_report(face, report)
    if html is not None:
        await asyncio.to_thread(html.write_text, html_report(reports), "utf-8")
    passed = all(report.passed for report in reports)
    if face.json:
        face.document({"passed": passed, "collections": [report.to_json() for report in reports]})
    elif html is not None:
        face.note(f"report written to {html}")
    if not passed:
        raise typer.Exit(1)


async def _report(face: Face, collection: Collection, asked: Asked) -> Report:
    from ragchat.evaluation import ways_of_asking  # noqa: PLC0415 - --help stays quick
    from ragchat_retrieval.evaluation import Report, evaluate, tune  # noqa: PLC0415 - as above
    from ragchat_retrieval.fusion import RRF, Weighted  # noqa: PLC0415 - as above

    weight = Weighted(keyword=asked.keyword_weight)
    async with reranking(asked) as rerank, searched(face, collection, asked) as index:
        retriever = index.retriever(
            top_k=asked.top_k,
            fusion=weight,
            rerank=rerank,
            mmr=asked.mmr,
            per_document=asked.per_document,
        )
        evaluations: dict[str, Evaluation] = {}
        ways = ways_of_asking(collection.topics)
        for way, ask in ways.items():
            with face.progress(f"{collection.name}: {way}") as tell:
                evaluations[way] = await evaluate(
                    retriever,
                    collection.topics,
                    metrics=asked.metrics,
                    fusions={
                        "RRF": RRF(),
                        "not completed": Weighted(weight.keyword, complete=False),
                    },
                    ask=ask,
                    on_progress=tell,
                )
        first = evaluations[next(iter(ways))]
        for gate in asked.gates:
            if not gate.about_answers:
                gate.check(first)  # one of a ranking that there is not shows before the tuning
        tuning = None
        if asked.tune:
            with face.progress(f"{collection.name}: tuning") as tell:
                tuning = await tune(
                    index,
                    collection.topics,
                    metric=asked.metrics[0],
                    keyword=weight.keyword,
                    rerank=rerank,
                    top_k=asked.top_k,
                    ask=next(iter(ways.values())),
                    on_progress=tell,
                )
        citations = None
        if asked.answers is not None:
            citations = await _citations(
                face,
                collection,
                asked.answers,
                index=index,
                retriever=retriever,
                ask=next(iter(ways.values())),
            )
        ids = set(await index.document_ids())
        described = await index.describe()
    return Report(
        collection=collection.name,
        evaluations=evaluations,
        documents=described.documents,
        settings={
            "date": datetime.now(tz=UTC).date().isoformat(),
            "store": described.store,
            "embedder": described.embedder or "none",
            "splitter": described.splitter,
            "keyword weight": f"{weight.keyword:g}",
            "top k": str(asked.top_k),
            "reranker": asked.rerank_model or ("none" if rerank is None else repr(rerank.scorer)),
            "python": platform.python_version(),
        },
        notes=(*_notes(collection, ids), *described.notes),
        segment=asked.segment,
        gates=tuple(gate.check(first, citations) for gate in asked.gates),
        tuning=tuning,
        citations=citations,
    )


async def _citations(
    face: Face,
    collection: Collection,
    answers: str,
    *,
    index: HybridIndex,
    retriever: Retriever,
    ask: Asker,
) -> CitationEvaluation:
    """Judges the citations of the answers that were asked for."""
    from ragchat.evaluation import citation_metrics, extractive_answers, load_answers  # noqa: PLC0415 - as above

    if answers == EXTRACTIVE:
        with face.progress(f"{collection.name}: answering") as tell:
            given = await extractive_answers(
                retriever,
                collection.topics,
                ask=ask,
                embedder=await semantic(index),
                analyzer=index.analyzer,
                on_progress=tell,
            )
    else:
        asked = {topic.id for topic in collection.topics}
        loaded = await asyncio.to_thread(load_answers, answers)
        given = {id_: answer for id_, answer in loaded.items() if id_ in asked}
    name = EXTRACTIVE if answers == EXTRACTIVE else Path(answers).name
    return citation_metrics(given, collection.topics, analyzer=index.analyzer, system=name)


def _notes(collection: Collection, ids: set[str]) -> list[str]:
    """Returns what a reader of the figures should know of the questions."""
    notes = []
    if collection.left_out:
        notes.append(f"{collection.left_out} queries without a relevant document are left out")
    relevant = {
        id_ for topic in collection.topics for id_, grade in topic.grades.items() if grade > 0
    }
    if missing := len(relevant - ids):
        notes.append(f"{missing} of {len(relevant)} relevant documents are not in the index")
    return notes
