"""``ragchat ask``: an answer with its sources, by a chat model or in the documents' own words."""

from __future__ import annotations

import json as json_
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from ragchat.cli.checking import show_verification, verification_record
from ragchat.cli.options import (
    DEFAULT_CORPUS,
    DEFAULT_INDEX,
    Corpus,
    Filters,
    Index,
    Json,
    MaxContextTokens,
    Model,
    NoRerank,
    TopK,
    flag,
    read_filter,
    require_question,
)
from ragchat.cli.output import Face
from ragchat.cli.records import heading, place
from ragchat.cli.reranking import reranker_from_env
from ragchat.cli.running import CommandFailed, is_empty, opened, run
from ragchat.cli.tracing import trace_record, trace_tree
from ragchat.forms import degraded_records, passage_record, query_record
from ragchat_retrieval.errors import RagchatError

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Mapping

    from ragchat.citations import Citations, Verification
    from ragchat.events import Event
    from ragchat.prepared import PreparedRequest
    from ragchat_retrieval.filters import Filter
    from ragchat_retrieval.index import HybridIndex
    from ragchat_retrieval.ports import Embedder
    from ragchat_retrieval.values import Passage

NO_MODEL = (
    "no chat model is configured (--model or RAGCHAT_MODEL): "
    "answers are the documents' own sentences"
)

ENDINGS = {
    "length": "the answer is not whole: the model stopped at its length limit",
    "content_filter": "the answer is not whole: the provider's content filter stopped it",
    None: "the answer may not be whole: its stream ended without saying why",
}
"""What to say of an answer that ended for another reason than being finished."""


def ask(
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="The question.")],
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
    model: Model = None,
    top_k: TopK = 5,
    filters: Filters = None,
    max_context_tokens: MaxContextTokens = 2000,
    verify: Annotated[
        bool, flag("--verify", "Also show for each sentence what supports it.")
    ] = False,
    trace: Annotated[
        bool, flag("--trace", "Also show what ran, for how long, and what it took.")
    ] = False,
    no_rerank: NoRerank = False,
    json: Json = False,
) -> None:
    """Answer a question from the documents, each claim with its source."""
    require_question(question)
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
        check=verify,
        trace=trace,
        reranked=not no_rerank,
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
    check: bool,
    trace: bool,
    reranked: bool,
) -> None:
    from ragchat.augment import ContextualAugmenter  # noqa: PLC0415 - --help stays quick
    from ragchat.prepare import Preparer  # noqa: PLC0415 - as above

    async with reranker_from_env(wanted=reranked) as rerank, opened(index, corpus) as opened_index:
        preparer = Preparer(
            retriever=opened_index.retriever(top_k=top_k, filter=bounds, rerank=rerank),
            augmenter=ContextualAugmenter(max_context_tokens=budget),
        )
        chosen = {} if model is None else {"model": model}
        prepared = await preparer.prepare(messages=messages, **chosen)
        if not prepared.retrieval.candidates and await is_empty(opened_index):
            face.note(f"corpus {corpus!r} is empty")
        if model is None:
            answer = Answer(await extract(prepared, opened_index), None)
            if not face.json:
                face.line(answer.text)
        else:
            answer = await converse(face, prepared)
        checked = await verified(answer.text, prepared, opened_index) if check else None
    show_sources(face, prepared, answer, model, checked, trace=trace)


async def semantic(index: HybridIndex) -> Embedder | None:
    """Returns the index's embedder, if its passages have vectors."""
    return index.embedder if (await index.describe()).vectors else None


async def verified(text: str, prepared: PreparedRequest, index: HybridIndex) -> Verification:
    """Checks an answer against the passages that its prompt presented."""
    from ragchat.citations import verify  # noqa: PLC0415 - --help stays quick

    return await verify(
        text,
        prepared.retrieval.citations,
        embedder=await semantic(index),
        on_error="skip",
        analyzer=index.analyzer,
    )


async def extract(prepared: PreparedRequest, index: HybridIndex) -> str:
    """Returns the answer that the evidence's own sentences give."""
    from ragchat.extractive import extractive_answer  # noqa: PLC0415 - --help stays quick

    retrieval = prepared.retrieval
    query = retrieval.queries[0] if retrieval.queries else prepared.question
    answer = await extractive_answer(
        query,
        retrieval.citations,
        embedder=await semantic(index),
        on_error="skip",
        analyzer=index.analyzer,
    )
    return answer.text


@dataclass(frozen=True, slots=True)
class Answer:
    """What a chat model answered."""

    text: str
    finish_reason: str | None
    """Why it ended, as the API says; None if it did not say."""


async def converse(face: Face, prepared: PreparedRequest) -> Answer:
    """Streams the chat model's answer to stdout and returns it.

    Raises:
        CommandFailed: The model said nothing, or the key cannot be sent.
    """
    from openai import AsyncOpenAI  # noqa: PLC0415 - only where a model is asked

    key = os.environ.get("OPENAI_API_KEY", "")
    if not (key.isascii() and key.isprintable()):
        raise CommandFailed("OPENAI_API_KEY holds a character that no request can carry")
    said: list[str] = []
    finish_reason: str | None = None
    async with AsyncOpenAI() as client, prepared.events(client.chat.completions.create) as events:
        pieces = pieces_of(events)
        try:
            with face.waiting("Waiting for the model"):
                piece = await following(pieces)
            while piece is not None:
                said.append(piece.text)
                finish_reason = piece.finish_reason or finish_reason
                if piece.text and not face.json:
                    face.write(piece.text)
                piece = await following(pieces)
        finally:
            if any(said) and not face.json:
                face.write("\n")
    text = "".join(said)
    if not text.strip():
        raise CommandFailed("the chat model answered with no text")
    if finish_reason in ENDINGS:
        face.note(ENDINGS[finish_reason])
    return Answer(text, finish_reason)


async def following(pieces: AsyncIterator[Answer]) -> Answer | None:
    """Returns the next piece, None at the end.

    Raises:
        CommandFailed: The stream broke. The client lets errors of its own parts through here.
    """
    from openai import OpenAIError  # noqa: PLC0415 - only where a model is asked

    try:
        return await anext(pieces, None)
    except (OpenAIError, RagchatError):
        raise
    except Exception as error:
        raise CommandFailed(f"chat model: its stream broke ({type(error).__name__})") from error


async def pieces_of(events: AsyncIterable[Event]) -> AsyncIterator[Answer]:
    """Yields what each event adds to the first choice: its text or refusal, and how it ends."""
    from ragchat.events import Finished, RefusalDelta, TextDelta  # noqa: PLC0415 - as above

    async for event in events:
        match event:
            case TextDelta(choice=0, text=text) | RefusalDelta(choice=0, text=text):
                yield Answer(text, None)
            case Finished(choice=0, finish_reason=reason):
                yield Answer("", reason)


def show_footnotes(face: Face, passages: Mapping[int, Passage]) -> None:
    """Shows what each number stands for, and where it is."""
    for number, passage in sorted(passages.items()):
        face.line(f"[{number}] {heading(passage)}", "bold")
        face.show(Text(place(passage), style="dim"), indent=4)


def note_doubts(face: Face, citations: Citations, text: str) -> None:
    """Says so where an answer cites what there is not, or nothing of what it was given."""
    if unknown := unknown_numbers(citations, text):
        face.note(f"the answer cites {unknown}: no such source")
    elif citations and not citations.cited(text):
        face.note("the answer cites none of its sources")


def unknown_numbers(citations: Citations, text: str) -> list[int]:
    """Returns the numbers that an answer cites and no source has, ascending."""
    return sorted({n for mention in citations.find(text) for n in mention.unknown})


def show_sources(
    face: Face,
    prepared: PreparedRequest,
    answer: Answer,
    model: str | None,
    checked: Verification | None = None,
    *,
    trace: bool = False,
) -> None:
    """Shows the sources that an answer cites, what supports it and what ran, or all as JSON."""
    retrieval = prepared.retrieval
    citations = retrieval.citations
    cited = citations.cited(answer.text)
    if face.json:
        face.document(
            {
                "question": prepared.question,
                "answer": answer.text,
                "finish_reason": answer.finish_reason,
                "model": model,
                "extractive": model is None,
                "sources": [
                    {"number": number, "cited": number in cited, **passage_record(passage)}
                    for number, passage in citations.items()
                ],
                "unknown_citations": unknown_numbers(citations, answer.text),
                "verification": None if checked is None else verification_record(checked),
                "queries": [query_record(query) for query in retrieval.queries],
                "degraded": degraded_records(retrieval.degraded),
                "trace": trace_record(retrieval.trace) if trace else None,
                "note": NO_MODEL if model is None else None,
            }
        )
        return
    if cited:
        face.line()
    show_footnotes(face, cited)
    if checked is not None:
        show_verification(face, checked, citations)
    if trace:
        face.line()
        face.show(trace_tree(retrieval.trace))
    note_doubts(face, citations, answer.text)
    if model is None:
        face.note(NO_MODEL)
