"""Asking the topics of a test collection as a conversation would, and judging what answers cite.

A topic may be the last turn of a conversation. How well its history is used is measured against
the turn alone and, where the collection has one, against a person's stand-alone rewrite.

Answers are judged by their citations: a claim that cites a document is right if the document was
judged relevant. Whether it says what the document says is for `ragchat.verify`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ragchat.citations import Citations
from ragchat.citations.claims import claims_of
from ragchat.conversation import ConversationQuery
from ragchat.extractive import extractive_answer
from ragchat.transforms import HistoryExpansionTransformer
from ragchat_retrieval.errors import InvalidCollection
from ragchat_retrieval.evaluation.citing import CitationEvaluation, CitedAnswer
from ragchat_retrieval.evaluation.collection import json_rows
from ragchat_retrieval.lexical import DEFAULT_ANALYZER
from ragchat_retrieval.stages import call_stage
from ragchat_retrieval.text import clean_query
from ragchat_retrieval.values import Passage

if TYPE_CHECKING:
    import os
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from ragchat_retrieval.evaluation import Topic
    from ragchat_retrieval.evaluation.evaluating import Asker
    from ragchat_retrieval.lexical import Analyzer
    from ragchat_retrieval.ports import Embedder, Retriever
    from ragchat_retrieval.values import Candidate, Query

    Transformer = Callable[[ConversationQuery], Query | Awaitable[Query]]

QUESTION = "question"
HISTORY = "history expansion"
LAST_TURN = "last turn"
REWRITE = "rewrite"
"""The ways of asking, as reports call them; `REWRITE` is also the queries' field."""


_ANY = Passage("any")
"""Stands where only numbers matter."""


def in_conversation(transformer: Transformer | None = None) -> Asker:
    """Returns what asks a topic with its history, as a `Preparer` would.

    Args:
        transformer: Makes one query of a conversation; None is `HistoryExpansionTransformer()`.
    """
    chosen: Transformer = transformer or HistoryExpansionTransformer()

    async def ask(topic: Topic) -> Query:
        query: Query = await call_stage(chosen, ConversationQuery(topic.query, topic.history))
        return query.bounded_by(topic.query)

    return ask


def last_turn(topic: Topic) -> Query:
    """Asks the question as it stands, without its history."""
    return topic.query


def rewritten(topic: Topic) -> Query:
    """Asks the rewrite of a person, where the topic has one."""
    text = topic.fields.get(REWRITE)
    if not isinstance(text, str) or not clean_query(text):
        return topic.query
    return replace(topic.query, text=text)


def ways_of_asking(
    topics: Sequence[Topic], transformer: Transformer | None = None
) -> dict[str, Asker]:
    """Returns the ways of asking that topics allow for, the one that a `Preparer` takes first.

    Args:
        topics: Those of one collection.
        transformer: As for `in_conversation`.
    """
    if not any(topic.history for topic in topics):
        return {QUESTION: last_turn}
    ways: dict[str, Asker] = {HISTORY: in_conversation(transformer), LAST_TURN: last_turn}
    if any(isinstance(topic.fields.get(REWRITE), str) for topic in topics):
        ways[REWRITE] = rewritten
    return ways


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """An answer to a topic, made anywhere."""

    text: str
    """With markers such as ``[1]``."""

    documents: Mapping[int, Sequence[str]] = field(hash=False)
    """Ids of the documents that each number stands for."""


def citation_metrics(
    answers: Mapping[str, GivenAnswer],
    topics: Sequence[Topic],
    *,
    analyzer: Analyzer = DEFAULT_ANALYZER,
    system: str = "answers",
) -> CitationEvaluation:
    """Returns what the citations of answers are worth against the judgments of their topics.

    Args:
        answers: By topic id; one for each topic.
        topics: What was asked, with the documents that were judged relevant.
        analyzer: Analysis of words, which tells what is a claim; that of the index.
        system: What to call the maker of the answers.

    Raises:
        InvalidSetting: There is no topic, or two share an id.
        InvalidRun: There is not exactly one answer per topic.
    """
    cited = {id_: _cited(answer, analyzer) for id_, answer in answers.items()}
    return CitationEvaluation(topics=tuple(topics), answers=cited, system=system)


def _cited(answer: GivenAnswer, analyzer: Analyzer) -> CitedAnswer:
    numbers = Citations(dict.fromkeys(answer.documents, _ANY))
    claims = claims_of(answer.text, numbers.find(answer.text), analyzer)
    return CitedAnswer(
        tuple(
            tuple(
                dict.fromkeys(
                    id_
                    for mention in claim.mentions
                    for number in mention.numbers
                    for id_ in answer.documents[number]
                )
            )
            for claim in claims
        ),
        unknown=sum(len(mention.unknown) for claim in claims for mention in claim.mentions),
    )


async def extractive_answers(
    retriever: Retriever,
    topics: Sequence[Topic],
    *,
    ask: Asker = last_turn,
    embedder: Embedder | None = None,
    analyzer: Analyzer = DEFAULT_ANALYZER,
    on_progress: Callable[[float], object] | None = None,
) -> dict[str, GivenAnswer]:
    """Answers topics in the documents' own words, as ``ragchat ask`` does without a chat model.

    Args:
        retriever: Finds the evidence.
        topics: What to answer.
        ask: Makes a topic's query.
        embedder: As for `extractive_answer`.
        analyzer: Analysis of words; that of the index.
        on_progress: Hears floats 0 … 1, never falling.

    Raises:
        RetrievalError: A search or the embedder failed.
    """
    answers: dict[str, GivenAnswer] = {}
    for topic in topics:
        query: Query = await call_stage(ask, topic)
        found: Sequence[Candidate] = await call_stage(retriever, query)
        answer = await extractive_answer(query, found, embedder=embedder, analyzer=analyzer)
        owners = (candidate.passage.document_id or candidate.passage.id for candidate in found)
        documents = {number: (owner,) for number, owner in enumerate(owners, 1)}
        answers[topic.id] = GivenAnswer(answer.text, documents)
        if on_progress is not None:
            on_progress(len(answers) / len(topics))
    return answers


def load_answers(path: str | os.PathLike[str]) -> dict[str, GivenAnswer]:
    """Reads answers: JSON lines of ``{"_id", "answer", "citations": {"1": ["document id"]}}``.

    Raises:
        InvalidCollection: The file is missing or malformed, or an id occurs twice.
    """
    file = Path(path)
    if not file.is_file():
        raise InvalidCollection(str(file), "no such file")
    answers: dict[str, GivenAnswer] = {}
    for line, row in json_rows(file):
        id_, text, cited = row.get("_id"), row.get("answer"), row.get("citations", {})
        if not isinstance(id_, str) or not isinstance(text, str) or not isinstance(cited, dict):
            raise InvalidCollection(str(file), "is no answer with its citations", line=line)
        if id_ in answers:
            raise InvalidCollection(str(file), "an id occurs twice", line=line)
        documents: dict[int, tuple[str, ...]] = {}
        for number, ids in cited.items():
            listed = [ids] if isinstance(ids, str) else ids
            whole = isinstance(listed, list) and all(isinstance(entry, str) for entry in listed)
            if not (number.isascii() and number.isdecimal() and int(number) > 0 and whole):
                raise InvalidCollection(str(file), "a citation is malformed", line=line)
            documents[int(number)] = tuple(listed)
        answers[id_] = GivenAnswer(text, documents)
    return answers
