"""``ragchat embed``: vectors for passages that have none."""

from __future__ import annotations

from ragchat.cli.options import DEFAULT_CORPUS, DEFAULT_INDEX, Corpus, Index, Json
from ragchat.cli.output import Face, counted
from ragchat.cli.running import CommandFailed, opened, require, run
from ragchat_retrieval.embedders.local import is_installed


def embed(
    *,
    index: Index = DEFAULT_INDEX,
    corpus: Corpus = DEFAULT_CORPUS,
    json: Json = False,
) -> None:
    """Give vectors to passages that have none; a stopped run goes on where it was."""
    face = Face.open(json=json)
    run(_embed(face, index, corpus), face)


async def _embed(face: Face, index: str, corpus: str) -> None:
    require(index)
    async with opened(index, corpus, create=True) as opened_index:
        if opened_index.embedder is None:
            install = 'pip install "ragchat-toolkit[local]", or set RAGCHAT_EMBEDDING_URL'
            cause = "RAGCHAT_EMBEDDING_PROVIDER is none" if is_installed() else install
            raise CommandFailed(f"no embedder: {cause}")
        with face.progress("Embedding") as tell:
            given = await opened_index.embed(on_progress=tell)
        model = opened_index.embedder.model
    if face.json:
        face.document({"embedded": given, "model": model})
    else:
        face.line(f"embedded {counted(given, 'passage')} with {model}")
