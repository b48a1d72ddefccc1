"""``ragchat remove`` and ``ragchat reset``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ragchat.cli.options import DEFAULT_CORPUS, DEFAULT_INDEX, Corpus, Index, Json, flag
from ragchat.cli.output import Face, counted
from ragchat.cli.running import opened, require, run, shown


def remove(
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Document ids.")] = None,
    *,
    source: Annotated[
        str | None,
        typer.Option(metavar="SOURCE", help="Remove every document of this source instead."),
    ] = None,
    index: Index = DEFAULT_INDEX,
    corpus: Corpus = DEFAULT_CORPUS,
    json: Json = False,
) -> None:
    """Remove documents by id or by source; unknown ones are no error."""
    if bool(ids) == (source is not None):
        raise typer.BadParameter("give either document ids or --source")
    face = Face.open(json=json)

    async def work() -> None:
        require(index)
        async with opened(index, corpus, create=True) as opened_index:
            count = await opened_index.remove(ids or None, source=source)
        if face.json:
            face.document({"removed": count})
        else:
            face.line(f"removed {counted(count, 'document')}")

    run(work(), face)


def reset(
    *,
    yes: Annotated[bool, flag("--yes", "Do not ask.")] = False,
    index: Index = DEFAULT_INDEX,
    corpus: Corpus = DEFAULT_CORPUS,
    json: Json = False,
) -> None:
    """Empty a corpus, so that it can be written with other settings."""
    face = Face.open(json=json)
    if not yes:
        if not sys.stdin.isatty() or json:
            raise typer.BadParameter("say --yes to empty the corpus", param_hint="--yes")
        question = f"Remove everything from corpus {corpus!r} of {shown(index)}?"
        typer.confirm(question, abort=True, err=True)

    async def work() -> None:
        require(index)
        async with opened(index, corpus, create=True) as opened_index:
            before = (await opened_index.describe()).documents
            await opened_index.reset()
        if face.json:
            face.document({"removed": before})
        else:
            face.line(f"emptied; it held {counted(before, 'document')}")

    run(work(), face)
