"""``ragchat stats``: what an index is and holds."""

from __future__ import annotations

from glob import escape
from typing import TYPE_CHECKING, Any

from rich.table import Table

from ragchat.cli.options import DEFAULT_CORPUS, DEFAULT_INDEX, Corpus, Index, Json
from ragchat.cli.output import Face, one_line
from ragchat.cli.running import opened, path_of, run, shown

if TYPE_CHECKING:
    from pathlib import Path

_UNITS = ("bytes", "kB", "MB", "GB", "TB")


def stats(
    *,
    index: Index = DEFAULT_INDEX,
    corpus: Corpus = DEFAULT_CORPUS,
    json: Json = False,
) -> None:
    """Say what an index holds."""
    face = Face.open(json=json)
    run(_stats(face, index, corpus), face)


async def _stats(face: Face, index: str, corpus: str) -> None:
    async with opened(index, corpus) as opened_index:
        known = await opened_index.describe()
        corpora = list(await opened_index.store.corpora())
    path = path_of(index)
    stored = known.identity
    record: dict[str, Any] = {
        "index": shown(index),
        "store": known.store,
        "corpus": known.corpus,
        "corpora": corpora,
        "documents": known.documents,
        "passages": known.passages,
        "vectors": known.vectors,
        "vector_search": known.vector_search,
        "analyzer": stored and stored.analyzer,
        "embedding_model": stored and stored.model,
        "dimension": stored and stored.dimension,
        "embedder": known.embedder,
        "splitter": known.splitter,
        "bytes": None if path is None else size_on_disk(path),
        "notes": list(known.notes),
    }
    if face.json:
        face.document(record)
        return
    model = record["embedding_model"]
    if model is not None:
        model = f"{model}, {record['dimension']} dimensions"
    rows = {
        "index": record["index"],
        "store": known.store,
        "corpus": _among(known.corpus, corpora),
        "documents": f"{known.documents:,}",
        "passages": f"{known.passages:,}",
        "vectors": f"{known.vectors:,}"
        + (f" ({known.vector_search})" if known.vector_search else ""),
        "written with": model or ("nothing yet" if stored is None else "keywords only"),
        "analysis": record["analyzer"] or "nothing yet",
        "embedder now": known.embedder or "none",
        "splitter": known.splitter,
        "on disk": "–" if record["bytes"] is None else _readable(record["bytes"]),
    }
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, one_line(value))
    face.show(table)
    for note in known.notes:
        face.note(note)


def _among(corpus: str, corpora: list[str]) -> str:
    """Returns a corpus with the others of its store, if there are some."""
    if set(corpora) <= {corpus}:
        return corpus
    return f"{corpus} ({'of' if corpus in corpora else 'not among'} {', '.join(corpora)})"


def size_on_disk(path: Path) -> int:
    """Returns the bytes of an index's file and of what lies derived beside it."""
    total = 0
    for found in path.parent.glob(f"{escape(path.name)}*"):
        files = [found] if found.is_file() else found.rglob("*")
        total += sum(file.stat().st_size for file in files if file.is_file())
    return total


def _readable(size: float) -> str:
    unit = 0
    while size >= 1000 and unit < len(_UNITS) - 1:  # noqa: PLR2004 - SI units
        size, unit = size / 1000, unit + 1
    return f"{size:.0f} {_UNITS[unit]}" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"
