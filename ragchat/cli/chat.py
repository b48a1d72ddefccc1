"""``ragchat chat``: a conversation with the documents, in a terminal or through a pipe."""

from __future__ import annotations

import asyncio
import importlib
import io
import sys
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING

import typer

from ragchat.cli.ask import NO_MODEL
from ragchat.cli.conversing import COMMANDS, Conversation
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
    read_filter,
)
from ragchat.cli.output import Face
from ragchat.cli.reranking import reranker_from_env
from ragchat.cli.running import is_empty, noted, opened, told

if TYPE_CHECKING:
    from ragchat_retrieval.filters import Filter

PROMPT = "> "
READMIT = 2
"""So many passages that earlier answers cited are shown to the model again."""


def chat(
    *,
    index: Index = DEFAULT_INDEX,
    corpus: Corpus = DEFAULT_CORPUS,
    model: Model = None,
    top_k: TopK = 5,
    filters: Filters = None,
    max_context_tokens: MaxContextTokens = 2000,
    no_rerank: NoRerank = False,
    json: Json = False,
) -> None:
    """Talk about the documents; questions come from the terminal, or line by line from stdin.

    A source keeps its number over the whole conversation. With --json, each answer is one line.
    """
    face = Face.open(json=json, lines=True)
    bounds = read_filter(filters)
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    with noted(face), asyncio.Runner() as runner:
        stack = AsyncExitStack()
        with told(face):
            conversation = runner.run(
                _begun(
                    stack,
                    face,
                    index=index,
                    corpus=corpus,
                    model=model or None,
                    top_k=top_k,
                    bounds=bounds,
                    budget=max_context_tokens,
                    reranked=not no_rerank,
                )
            )
        try:
            failed = _talk(face, runner, conversation)
        finally:
            runner.run(stack.aclose())
    if failed:
        raise typer.Exit(1)


async def _begun(
    stack: AsyncExitStack,
    face: Face,
    *,
    index: str,
    corpus: str,
    model: str | None,
    top_k: int,
    bounds: Filter,
    budget: int,
    reranked: bool,
) -> Conversation:
    """Opens what a conversation needs; the stack closes it."""
    from ragchat.augment import ContextualAugmenter  # noqa: PLC0415 - --help stays quick
    from ragchat.citations import CitationLedger  # noqa: PLC0415 - as above
    from ragchat.prepare import Preparer  # noqa: PLC0415 - as above

    rerank = await stack.enter_async_context(reranker_from_env(wanted=reranked))
    opened_index = await stack.enter_async_context(opened(index, corpus))
    if await is_empty(opened_index):
        face.note(f"corpus {corpus!r} is empty")
    preparer = Preparer(
        retriever=opened_index.retriever(top_k=top_k, filter=bounds, rerank=rerank),
        augmenter=ContextualAugmenter(max_context_tokens=budget),
        ledger=CitationLedger(),
        readmit=READMIT,
    )
    return Conversation(face, opened_index, preparer, model)


def _talk(face: Face, runner: asyncio.Runner, conversation: Conversation) -> bool:
    """Takes lines until there are no more; says whether a question of a pipe failed.

    The first Ctrl-C stops an answer, or is a warning; a second one with nothing said in between
    leaves. Through a pipe the first one ends the command.
    """
    by_hand = sys.stdin.isatty() and sys.stdout.isatty()
    if by_hand:
        with suppress(ImportError):  # editing and recall of lines, where the platform has them
            importlib.import_module("readline")
        face.note(f"Ask, or type one of {' '.join(COMMANDS)}.")
    if conversation.model is None:
        face.note(NO_MODEL)
    failed = warned = False
    while True:
        try:
            line = _line(by_hand=by_hand)
            if line is None or line.strip() == "/quit":
                return failed
            warned = False
            with told(face):
                runner.run(conversation.take(line.strip()))
        except KeyboardInterrupt:
            if not by_hand:
                raise
            face.err.line()
            if warned:
                return failed
            warned = True
            face.note("Ctrl-C again leaves.")
        except typer.Exit:
            failed = not by_hand


def _line(*, by_hand: bool) -> str | None:
    """Returns the next line, None at the end."""
    if by_hand:
        try:
            return input(PROMPT)
        except EOFError:
            sys.stdout.write("\n")
            return None
    return sys.stdin.readline() or None
