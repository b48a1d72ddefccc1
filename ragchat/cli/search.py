"""``ragchat search``: the ranking, and with ``--explain`` how it came about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from ragchat.cli.options import (
    DEFAULT_CORPUS,
    DEFAULT_INDEX,
    Corpus,
    Filters,
    Index,
    Json,
    NoRerank,
    TopK,
    flag,
    read_filter,
    require_question,
)
from ragchat.cli.output import Face, one_line, plain
from ragchat.cli.records import heading, place
from ragchat.cli.reranking import reranker_from_env
from ragchat.cli.running import is_empty, opened, run
from ragchat.forms import candidate_record, degraded_records
from ragchat_retrieval.fusion import Weighted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from ragchat_retrieval.explain import LaneExplanation
    from ragchat_retrieval.filters import Filter
    from ragchat_retrieval.values import Candidate, Passage

SNIPPET = 240
"""Characters of a passage shown without ``--full``."""

COLUMNS = {"": 2, "fused": 5, "keyword": 18, "vector": 18}
"""The table of lanes: its columns before the passage, with their widths."""

RERANK_WIDTH = 10
"""Characters of the reranker's column, where there is one."""

TABLE_WIDTH = 68
"""Columns of a terminal that the table needs, without that of a reranker."""

LEGEND = "Lanes: rank, BM25 or cosine → share of the fused score."
RERANKED = "Reranker: rank before it, its own score."
SURE = "Reranker: not asked, because the first passage is far ahead."


def search(
    query: Annotated[str, typer.Argument(metavar="QUESTION", help="The question.")],
    *,
    index: Index = DEFAULT_INDEX,
    corpus: Corpus = DEFAULT_CORPUS,
    top_k: TopK = 5,
    filters: Filters = None,
    keyword_weight: Annotated[
        float,
        typer.Option(
            metavar="X", min=0.0, max=1.0, help="Share of the keyword lane; 0 is all vectors."
        ),
    ] = 0.3,
    no_rerank: NoRerank = False,
    explain: Annotated[bool, flag("--explain", "Show lanes, ranks, scores.")] = False,
    full: Annotated[bool, flag("--full", "Show whole passages.")] = False,
    json: Json = False,
) -> None:
    """Find passages."""
    require_question(query)
    face = Face.open(json=json)
    bounds = read_filter(filters)
    work = _search(
        face,
        query,
        index=index,
        corpus=corpus,
        top_k=top_k,
        bounds=bounds,
        fusion=Weighted(keyword=keyword_weight),
        reranked=not no_rerank,
        explain=explain,
        full=full,
    )
    run(work, face)


async def _search(
    face: Face,
    query: str,
    *,
    index: str,
    corpus: str,
    top_k: int,
    bounds: Filter,
    fusion: Weighted,
    reranked: bool,
    explain: bool,
    full: bool,
) -> None:
    async with reranker_from_env(wanted=reranked) as rerank, opened(index, corpus) as opened_index:
        result = await opened_index.search(
            query, top_k=top_k, filter=bounds, fusion=fusion, rerank=rerank, explain=explain
        )
        empty = not result and await is_empty(opened_index)
    if face.json:
        face.document(
            {
                "query": query,
                "results": [candidate_record(n, c) for n, c in enumerate(result, 1)],
                "degraded": degraded_records(result.degraded),
                "seconds": round(result.trace.seconds, 6),
            }
        )
        return
    for degradation in result.degraded:
        face.note(f"{degradation.stage} lane left out: {degradation.reason}")
    if not result:
        face.note(f"corpus {corpus!r} is empty" if empty else "nothing found")
        return
    if explain:
        face.show(ranking_of(result.candidates, face.out.width))
        if rerank is not None and not _reranked(result.candidates):
            face.show(Text(SURE, style="dim"))
        face.line()
    for rank, candidate in enumerate(result, 1):
        show_candidate(face, rank, candidate, full=full)


def show_candidate(face: Face, rank: int, candidate: Candidate, *, full: bool) -> None:
    """Shows one candidate: number, heading, place and text."""
    passage = candidate.passage
    title = Text.assemble((f"{rank:>2}  ", "bold cyan"), (heading(passage), "bold"))
    face.show(title.append(f"  {candidate.score:.3f}", "dim"))
    face.show(Text(place(passage), style="dim"), indent=4)
    face.show(Text(plain(passage.text) if full else _snippet(passage.text)), indent=4)
    face.line()


def _snippet(text: str) -> str:
    line = one_line(text)
    if len(line) <= SNIPPET:
        return line
    return line[:SNIPPET].rsplit(" ", 1)[0] + " …"


def ranking_of(candidates: Sequence[Candidate], width: int) -> RenderableType:
    """Returns what each stage said of each candidate: a table or, where narrow, lines."""
    reranked = _reranked(candidates)
    told = {"rerank": RERANK_WIDTH} if reranked else {}
    legend = Text(f"{LEGEND}\n{RERANKED}" if reranked else LEGEND, style="dim")
    if width < TABLE_WIDTH + sum(columns + 2 for columns in told.values()):
        lines = []
        for rank, candidate in enumerate(candidates, 1):
            names = [*COLUMNS, *told][1:]
            cells = zip(names, _cells(candidate, reranked=reranked), strict=True)
            lines.append(f"{rank}  {heading(candidate.passage)}")
            lines += [f"   {name:<7} {cell}" for name, cell in cells]
        return Group(Text("\n".join(lines)), legend)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    widths = {**COLUMNS, **told}
    for name, columns in widths.items():
        table.add_column(name, no_wrap=True, width=columns)
    room = width - sum(columns + 2 for columns in widths.values())
    table.add_column("passage", no_wrap=True, width=room)
    for rank, candidate in enumerate(candidates, 1):
        passage = Text(_fitted(candidate.passage, room))
        table.add_row(f"{rank:>2}", *_cells(candidate, reranked=reranked), passage)
    return Group(table, legend)


def _reranked(candidates: Sequence[Candidate]) -> bool:
    return any(c.explain is not None and c.explain.rerank is not None for c in candidates)


def _cells(candidate: Candidate, *, reranked: bool) -> list[str]:
    """Returns the fused score, what the lanes said, and the reranker if there was one."""
    explain = candidate.explain
    fused = candidate.score if explain is None else explain.fused_score
    cells = [f"{fused:.3f}", _lane(_keyword(candidate)), _lane(_vector(candidate))]
    if reranked:
        step = None if explain is None else explain.rerank
        cells.append("–" if step is None else f"{step.rank_in:>3}. {step.score:.3f}")
    return cells


def _fitted(passage: Passage, room: int) -> str:
    """Returns what a passage is about in so many characters: its last heading, else its title."""
    text = one_line(passage.headings[-1]) if passage.headings else heading(passage)
    return text if len(text) <= room else text[: room - 1] + "…"


def _keyword(candidate: Candidate) -> LaneExplanation | None:
    return None if candidate.explain is None else candidate.explain.keyword


def _vector(candidate: Candidate) -> LaneExplanation | None:
    return None if candidate.explain is None else candidate.explain.vector


def _lane(said: LaneExplanation | None) -> str:
    """Returns rank, raw score and contribution of a lane in a few characters."""
    if said is None or said.score is None:
        return "–"
    rank = "–" if said.rank is None else f"{said.rank}."
    return f"{rank:>3} {said.score:6.3f} → {said.contribution:.3f}"
