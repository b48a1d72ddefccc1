"""``ragchat ask``: an answer with its sources, by a chat model or in the documents' own words."""

from __future__ import annotations

import json as json_
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from ragchat.cli.options import (
    DEFAULT_CORPUS,
    DEFAULT_INDEX,
    Corpus,
    Filters,
    Index,
    Json,
    TopK,
    read_filter,
)
from ragchat.cli.output import Face
from ragchat.cli.records import degraded_records, heading, passage_record, place, query_record
from ragchat.cli.running import CommandFailed, opened, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ragchat.prepared import PreparedRequest
    from ragchat_retrieval.filters import Filter
    from ragchat_retrieval.index import HybridIndex

NO_MODEL = (
    "no chat model is configured (--model or RAGCHAT_MODEL): these are the documents' own sentences"
)


def ask(
    question: Annotated[str, typer.Argument(help="The question.")],
    *,
    index: Index = DEFAULT_INDEX,
    corpus: Corpus = DEFAULT_CORPUS,
    history: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Earlier messages, a JSON list as chat completions take it; - is stdin.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(envvar="RAGCHAT_MODEL", metavar="NAME", help="The chat model."),
    ] = None,
    top_k: TopK = 5,
    filters: Filters = None,
    max_context_tokens: Annotated[
        int, typer.Option(min=1, help="Most tokens of evidence in the prompt.")
    ] = 2000,
    json: Json = False,
) -> None:
    """Answer a question from the documents, each claim with its source."""
    face = Face.open(json=json)
    messages = [*read_history(history), {"role": "user", "content": question}]
    bounds = read_filter(filters)
    work = _ask(
        face,
        messages,
        index=index,
        corpus=corpus,
        model=model or None,
        top_k=top_k,
        bounds=bounds,
        budget=max_context_tokens,
    )
    run(work, face)


def read_history(path: Path | None) -> list[dict[str, Any]]:
    """Returns the messages of a history file.

    Raises:
        typer.BadParameter: It is neither a JSON list of messages nor an object with ``messages``.
    """
    if path is None:
        return []
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text("utf-8")
        value = json_.loads(text)
    except (OSError, ValueError) as error:
        problem = error.strerror if isinstance(error, OSError) else "not JSON in UTF-8"
        raise typer.BadParameter(f"{path}: {problem}", param_hint="--history") from None
    messages = value.get("messages") if isinstance(value, dict) else value
    if not isinstance(messages, list) or not all(
        isinstance(message, dict) and isinstance(message.get("role"), str) for message in messages
    ):
        problem = f"{path}: not a list of messages with a role each"
        raise typer.BadParameter(problem, param_hint="--history")
    return messages


async def _ask(
    face: Face,
    messages: list[dict[str, Any]],
    *,
    index: str,
    corpus: str,
    model: str | None,
    top_k: int,
    bounds: Filter,
    budget: int,
) -> None:
    from ragchat.augment import ContextualAugmenter  # noqa: PLC0415 - --help stays quick
    from ragchat.prepare import Preparer  # noqa: PLC0415 - as above

    async with opened(index, corpus) as opened_index:
        preparer = Preparer(
            retriever=opened_index.retriever(top_k=top_k, filter=bounds),
            augmenter=ContextualAugmenter(max_context_tokens=budget),
        )
        chosen = {} if model is None else {"model": model}
        prepared = await preparer.prepare(messages=messages, **chosen)
        if model is None:
            answer = await extract(prepared, opened_index)
            if not face.json:
                face.line(answer)
        else:
            answer = await converse(face, prepared)
    show_sources(face, prepared, answer, model)


async def extract(prepared: PreparedRequest, index: HybridIndex) -> str:
    """Returns the answer that the evidence's own sentences give."""
    from ragchat.extractive import extractive_answer  # noqa: PLC0415 - --help stays quick

    retrieval = prepared.retrieval
    query = retrieval.queries[0] if retrieval.queries else prepared.question
    semantic = index.embedder if (await index.describe()).vectors else None
    answer = await extractive_answer(
        query, retrieval.citations, embedder=semantic, analyzer=index.analyzer
    )
    return answer.text


async def converse(face: Face, prepared: PreparedRequest) -> str:
    """Streams the chat model's answer to stdout and returns it.

    Raises:
        CommandFailed: The model said nothing.
    """
    from openai import AsyncOpenAI  # noqa: PLC0415 - only where a model is asked

    parts: list[str] = []
    async with AsyncOpenAI() as client, prepared.stream(client.chat.completions.create) as chunks:
        texts = text_of(chunks)
        with face.waiting("Waiting for the model"):
            piece = await anext(texts, "")
        while piece:
            parts.append(piece)
            if not face.json:
                face.write(piece)
            piece = await anext(texts, "")
    answer = "".join(parts)
    if not answer.strip():
        raise CommandFailed("the chat model answered with no text")
    if not face.json:
        face.write("\n")
    return answer


async def text_of(chunks: AsyncIterator[Any]) -> AsyncIterator[str]:
    """Yields the non-empty texts of the first choice."""
    async for chunk in chunks:
        for choice in chunk.choices:
            if choice.index == 0 and choice.delta is not None and choice.delta.content:
                yield choice.delta.content


def show_sources(face: Face, prepared: PreparedRequest, answer: str, model: str | None) -> None:
    """Shows the sources that an answer cites, or the whole as JSON."""
    retrieval = prepared.retrieval
    citations = retrieval.citations
    cited = citations.cited(answer)
    unknown = sorted({n for mention in citations.find(answer) for n in mention.unknown})
    if face.json:
        face.document(
            {
                "question": prepared.question,
                "answer": answer,
                "model": model,
                "extractive": model is None,
                "sources": [
                    {"number": number, "cited": number in cited, **passage_record(passage)}
                    for number, passage in citations.items()
                ],
                "unknown_citations": unknown,
                "queries": [query_record(query) for query in retrieval.queries],
                "degraded": degraded_records(retrieval.degraded),
                "note": NO_MODEL if model is None else None,
            }
        )
        return
    if cited:
        face.line()
    for number, passage in sorted(cited.items()):
        face.line(f"[{number}] {heading(passage)}", "bold")
        face.show(Text(place(passage), style="dim"), indent=4)
    if unknown:
        face.note(f"the answer cites {unknown}: no such source")
    if model is None:
        face.note(NO_MODEL)
