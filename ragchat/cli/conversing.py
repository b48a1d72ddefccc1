"""The turns of ``ragchat chat``: what is asked, answered, and told of it on request."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from rich.text import Text

from ragchat.cli.ask import converse, extract, note_doubts, show_footnotes
from ragchat.cli.output import one_line
from ragchat.cli.tracing import trace_tree
from ragchat.forms import degraded_records, passage_record, query_record

if TYPE_CHECKING:
    from ragchat.cli.output import Face
    from ragchat.prepare import Preparer
    from ragchat.prepared import Retrieval
    from ragchat_retrieval.index import HybridIndex

COMMANDS = {
    "/sources": "the passages behind the last answer, by number",
    "/trace": "how the last answer came about: queries, what ran, and for how long",
    "/history": "the conversation so far",
    "/new": "begin anew",
    "/help": "these commands",
    "/quit": "leave (also Ctrl-D)",
}

_COMMAND = re.compile(r"/[a-z]*")


class Conversation:
    """A conversation with an index.

    A turn that fails or is stopped is no part of it.

    Args:
        face: Where everything is shown.
        index: What the answers are taken from.
        preparer: Prepares each turn; with a ledger.
        model: The chat model; None answers with the documents' own sentences.
    """

    def __init__(
        self, face: Face, index: HybridIndex, preparer: Preparer, model: str | None
    ) -> None:
        self.model = model
        self._face = face
        self._index = index
        self._fresh = self._preparer = preparer
        self._messages: list[dict[str, Any]] = []
        self._last: Retrieval | None = None

    async def take(self, line: str) -> None:
        """Answers a question, or does what a command says; a blank line does nothing."""
        if not line:
            return
        if not _COMMAND.fullmatch(line):
            await self._answer(line)
        elif line == "/new":
            self._preparer, self._messages, self._last = self._fresh, [], None
        elif self._face.json:
            self._face.note(f"{line} shows nothing with --json")
        else:
            self._show(line)

    async def _answer(self, question: str) -> None:
        face = self._face
        messages = [*self._messages, {"role": "user", "content": question}]
        chosen = {} if self.model is None else {"model": self.model}
        prepared = await self._preparer.prepare(messages=messages, **chosen)
        retrieval = prepared.retrieval
        if self.model is None:
            text, finish_reason = await extract(prepared, self._index), None
            if not face.json:
                face.line(text)
        else:
            answer = await converse(face, prepared)
            text, finish_reason = answer.text, answer.finish_reason
        cited = retrieval.citations.cited(text)
        self._messages = [*messages, {"role": "assistant", "content": text}]
        self._last = retrieval
        if retrieval.ledger is not None:
            self._preparer = self._preparer.with_options(ledger=retrieval.ledger.cite(cited))
        if face.json:
            sources = [{"number": n, **passage_record(p)} for n, p in sorted(cited.items())]
            face.document(
                {
                    "question": question,
                    "answer": text,
                    "finish_reason": finish_reason,
                    "model": self.model,
                    "extractive": self.model is None,
                    "sources": sources,
                    "queries": [query_record(query) for query in retrieval.queries],
                    "degraded": degraded_records(retrieval.degraded),
                }
            )
            return
        if cited:
            face.line()
            show_footnotes(face, cited)
        note_doubts(face, retrieval.citations, text)
        face.line()
        face.out.file.flush()

    def _show(self, command: str) -> None:
        face, last = self._face, self._last
        if command == "/help":
            for name, meaning in COMMANDS.items():
                face.show(Text.assemble((f"{name:<10}", "bold"), meaning))
        elif command not in COMMANDS:
            face.note(f"there is no command {command}; /help lists them")
        elif last is None:
            face.note("nothing has been asked yet")
        elif command == "/history":
            for message in self._messages:
                mark = ">" if message["role"] == "user" else " "
                face.line(f"{mark} {message['content']}")
        elif command == "/sources":
            show_footnotes(face, last.citations)
            if not last.citations:
                face.note("nothing was found for the last question")
        else:
            show_trace(face, last)
        face.out.file.flush()


def show_trace(face: Face, retrieval: Retrieval) -> None:
    """Shows the queries of a preparation, what ran, and what was left out."""
    for query in retrieval.queries:
        face.line(f"query: {one_line(query.text)}")
        for context in query.context:
            weights = f"lexical {context.lexical:.2f}, semantic {context.semantic:.2f}"
            face.show(Text(f"with ({weights}): {one_line(context.text)}", style="dim"), indent=2)
    face.show(trace_tree(retrieval.trace))
    for degradation in retrieval.degraded:
        face.note(f"{degradation.stage} was left out: {degradation.reason}")
    if retrieval.skipped is not None:
        face.note(f"nothing was searched: {retrieval.skipped}")
