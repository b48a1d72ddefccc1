"""Test collections in the form of BEIR: a corpus, queries and judgments in one folder.

``corpus.jsonl`` has ``_id``, ``text`` and perhaps ``title``; ``queries.jsonl`` has ``_id``,
``text`` and any other fields; ``qrels.tsv`` (or ``qrels/test.tsv``) has perhaps a header line and
then query id, document id and grade, separated by tabs. Each may be gzipped (``.gz``). A query may
be the last turn of a conversation: ``messages`` then holds the messages, its own last.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragchat_retrieval.errors import InvalidCollection
from ragchat_retrieval.text import clean_query
from ragchat_retrieval.values import Document, Query

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

TURN = "turn"
"""The segment that conversations have by themselves: ``first`` or ``later``."""

MOST_GRADE = 60
"""Highest grade accepted; the gain 2^grade − 1 of higher ones would drown all others."""

_QRELS_COLUMNS = 3
_DIGIT = re.compile("[0-9]")
_INTEGER = re.compile(r"\s*[+-]?[0-9]{1,9}\s*")


@dataclass(frozen=True, slots=True)
class Topic:
    """A question with the documents that were judged for it."""

    id: str
    query: Query
    grades: Mapping[str, int] = field(hash=False)
    """Grade by document id, at most 60; relevant from 1. At least one is relevant."""

    messages: tuple[Mapping[str, Any], ...] = field(default=(), kw_only=True, hash=False)
    """The conversation, the question last; empty for a question by itself."""

    fields: Mapping[str, Any] = field(default_factory=dict, kw_only=True, hash=False)
    """What else the query's line holds, for segments."""

    @property
    def history(self) -> tuple[Mapping[str, Any], ...]:
        """The messages before the question."""
        return self.messages[:-1]

    @property
    def group(self) -> str:
        """Equal for topics of one conversation: its first message, else the topic's own id.

        Turns of a conversation share their subject, so they are never split between tuning and
        held-out topics, and are drawn together for a confidence interval.
        """
        return json.dumps(self.messages[0], sort_keys=True) if self.messages else self.id

    def segments(self, name: str) -> tuple[str, ...]:
        """Returns the segments of a field that the topic belongs to; ``–`` if it has none."""
        value = self.fields.get(name)
        if value is None and name == TURN and self.messages:
            asked = sum(message.get("role") == "user" for message in self.messages)
            return ("first" if asked <= 1 else "later",)
        values = value if isinstance(value, list | tuple) else [value]
        texts = dict.fromkeys("–" if v is None or v == "" else str(v) for v in values)
        return tuple(texts) or ("–",)


@dataclass(frozen=True, slots=True)
class Collection:
    """A test collection: topics in memory, the corpus read when it is asked for."""

    name: str
    topics: tuple[Topic, ...]
    corpus: Path | None = field(default=None, kw_only=True)
    """File of the documents; None if the folder has none."""

    left_out: int = field(default=0, kw_only=True)
    """Queries without a relevant document, which no ranking could answer."""

    @property
    def conversational(self) -> bool:
        """Whether any question has something before it."""
        return any(topic.history for topic in self.topics)

    def documents(self) -> Iterator[Document]:
        """Yields the documents of the corpus; those without text are left out.

        Raises:
            InvalidCollection: There is no corpus, or a line of it is malformed.
        """
        if self.corpus is None:
            raise InvalidCollection(self.name, "has no corpus")
        seen: set[str] = set()
        for line, row in json_rows(self.corpus):
            text, id_ = (_text(self.corpus, line, row, name) for name in ("text", "_id"))
            if not id_.strip():
                raise InvalidCollection(str(self.corpus), "_id is blank", line=line)
            if id_ in seen:
                raise InvalidCollection(str(self.corpus), "a document id occurs twice", line=line)
            seen.add(id_)
            if text.strip():
                title = row.get("title")
                title = title if isinstance(title, str) and title.strip() else None
                yield Document(id_, text, title=title)

    def first(self, count: int) -> Collection:
        """Returns the collection with its first topics only, for a quick look."""
        return replace(self, topics=self.topics[:count])


def load_collection(
    path: str | os.PathLike[str],
    *,
    corpus: str = "corpus",
    queries: str = "queries",
    qrels: str = "qrels",
) -> Collection:
    """Reads topics and judgments of a folder, and finds its corpus.

    Args:
        path: The folder.
        corpus: Name of the corpus file without ``.jsonl``; it may be missing.
        queries: Name of the queries file without ``.jsonl``.
        qrels: Name of the judgments file without ``.tsv``. The default also finds
            ``qrels/test.tsv``; ``qrels/train`` names another split of BEIR's layout.

    Returns:
        The collection, named like the folder; topics in the order of the queries file.

    Raises:
        InvalidCollection: A file is missing or malformed, or no topic remains.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise InvalidCollection(str(folder), "no such folder")
    asked = _required(folder, f"{queries}.jsonl")
    judged = _found(folder, f"{qrels}.tsv")
    if judged is None and qrels == "qrels":
        judged = _found(folder, "qrels/test.tsv")
    if judged is None:
        raise InvalidCollection(str(folder), f"has no {qrels}.tsv or {qrels}.tsv.gz")
    grades = _judgments(judged)
    topics: dict[str, Topic] = {}
    rows = 0
    for line, row in json_rows(asked):
        rows += 1
        topic = _topic(asked, line, row, grades)
        if topic is None:
            continue
        if topic.id in topics:
            raise InvalidCollection(str(asked), "a query id occurs twice", line=line)
        topics[topic.id] = topic
    if not topics:
        raise InvalidCollection(str(folder), "no query has a relevant document")
    return Collection(
        folder.resolve().name,
        tuple(topics.values()),
        corpus=_found(folder, f"{corpus}.jsonl"),
        left_out=rows - len(topics),
    )


def _topic(
    path: Path, line: int, row: Mapping[str, Any], judgments: Mapping[str, Mapping[str, int]]
) -> Topic | None:
    """Returns the topic of a line; None if nothing is relevant to it or it asks nothing."""
    id_ = _text(path, line, row, "_id")
    text = clean_query(_text(path, line, row, "text"))
    grades = judgments.get(id_, {})
    if not text or not any(grade > 0 for grade in grades.values()):
        return None
    messages = row.get("messages") or []
    if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        raise InvalidCollection(str(path), "messages is no list of messages", line=line)
    other = {k: v for k, v in row.items() if k not in {"_id", "text", "messages"}}
    return Topic(id_, Query(text), grades, messages=tuple(messages), fields=other)


def _judgments(path: Path) -> dict[str, dict[str, int]]:
    grades: dict[str, dict[str, int]] = {}
    for line, text in _lines(path):
        if not text.strip():
            continue
        cells = text.rstrip("\r\n").split("\t")
        if line == 1 and not _DIGIT.search("".join(cells[2:]) or cells[-1]):
            continue  # the header
        if len(cells) != _QRELS_COLUMNS:
            # TREC's form has four: what would be read as the grade is its document id.
            raise InvalidCollection(str(path), "not three columns", line=line)
        if not _INTEGER.fullmatch(cells[2]):
            raise InvalidCollection(str(path), "the grade is no integer", line=line)
        grade = int(cells[2])
        if grade > MOST_GRADE:
            raise InvalidCollection(str(path), f"a grade exceeds {MOST_GRADE}", line=line)
        grades.setdefault(cells[0], {})[cells[1]] = grade
    return grades


def json_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the objects of a JSON lines file, gzipped or not, with their lines from 1.

    Raises:
        InvalidCollection: A line is no JSON object, or the file no UTF-8 or no whole gzip file.
    """
    for line, text in _lines(path):
        if not text.strip():
            continue
        try:
            row = json.loads(text)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise InvalidCollection(str(path), "no JSON object", line=line)
        yield line, row


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the lines of a file, gzipped or not, with their numbers from 1."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="\n") as stream:
            yield from enumerate(stream, start=1)
    except UnicodeDecodeError:
        raise InvalidCollection(str(path), "is not UTF-8") from None
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise InvalidCollection(str(path), "is no whole gzip file") from None


def _text(path: Path, line: int, row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str):
        raise InvalidCollection(str(path), f"{name} is no text", line=line)
    return value


def _found(folder: Path, name: str) -> Path | None:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    return None


def _required(folder: Path, name: str) -> Path:
    path = _found(folder, name)
    if path is None:
        raise InvalidCollection(str(folder), f"has no {name} or {name}.gz")
    return path
