"""Checking and reading what a helper model said. Pure; no input makes it slow or lets it guess.

`reply_text` takes the text out of a response or raises a typed error; `clean_text` and `wordings`
take the answer out of the text, and so does `ragchat.json_search.first_json`; `distinct` sifts
several.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ragchat.access import Foreign, read, reader
from ragchat.errors import (
    EmptyModelOutput,
    FilteredModelOutput,
    MissingModelOutput,
    RefusedModelOutput,
    TruncatedModelOutput,
)
from ragchat.json_search import first_json, first_object
from ragchat_retrieval.text import clean_query

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_TAGS = "think|thinking|reasoning"
_BLOCK_OPENS = re.compile(f"<({_TAGS})>", re.IGNORECASE)
_BLOCK_ENDS = re.compile(f"</({_TAGS})>", re.IGNORECASE)
# An end without a beginning stands on a line of its own or ends one; elsewhere it is a quotation.
_LONE_END = re.compile(
    rf"(?:\A|\n)[ \t]*</(?:{_TAGS})>|</(?:{_TAGS})>(?=[ \t]*(?:\n|\Z))", re.IGNORECASE
)
_ROUNDS = 8
_LONGEST = 8_000
"""Characters that a query or a passage made of a short question may have: two pages."""

_MOST_TIMES = 4
"""How many times as long as a long question it may be, as a translation is."""

_LABEL = re.compile(
    r"""\A[*_#\s]*
    (?:(?:sure|certainly|okay|ok)[,!.]?\s+)?
    (?:here(?:\s+is|'s|\u2019s)\s+)?
    (?:(?:the|a|an|your|my)\s+)?
    (?:(?:rewritten|rephrased|reformulated|revised|improved|optimi[sz]ed|compressed|condensed
        |stand-?\s?alone|self-contained|follow-?\s?up|translated|search|final|new|hypothetical
        |expanded)\s+){0,3}
    (?:query|question|translation(?:\s+(?:in|into|to)\s+\w+)?
        |passage|answer|output|result|text|rewrite|wording|variant|variation|alternative)
    (?:\s*\#?\d{1,2})?[*_]*\s*[:\uff1a][*_]*\s*""",
    re.IGNORECASE | re.VERBOSE,
)
_QUOTES = {
    '"': '"',
    "'": "'",
    "`": "`",
    "\u201c": "\u201d",
    "\u2018": "\u2019",
    "\u201e": "\u201c",
    "\u00ab": "\u00bb",
    "\u300c": "\u300d",
    "\u300e": "\u300f",
}
_BULLET = re.compile(
    r"""\A(?:[-*+\u2013\u2022\u2023\u25aa]\s+
    |[(\[\uff08]?\d{1,3}(?:[)\]\u3001\uff09\uff0e]\s*|\.(?:\s+|(?=[^\x00-\x7f\d])))
    |\*\*\d{1,3}[.)]\*\*\s*)""",
    re.VERBOSE,
)
_JSON = re.compile(
    r"""^[ \t]*(?:[{\[]\s*["{\[\]}]|\{\s*['\u2018\u201c]\w+['\u2019\u201d]\s*:
    |(?:null|None|true|false)\Z)""",
    re.MULTILINE | re.VERBOSE,
)


def reply_text(response: Foreign, *, model: str | None = None) -> str:
    """Returns the text of a response's first choice, without reasoning.

    Args:
        response: A ``chat.completion`` as an SDK object or a mapping.
        model: Names the model in errors.

    Raises:
        MissingModelOutput: There is no response, choice, message or text.
        FilteredModelOutput: The finish reason is ``content_filter``.
        RefusedModelOutput: The message holds a refusal.
        TruncatedModelOutput: The finish reason is ``length``.
        EmptyModelOutput: The text is blank, or is reasoning alone.
    """
    choices = read(response, "choices")
    if not choices or not isinstance(choices, (list, Sequence)):
        raise MissingModelOutput(model=model)
    choice = reader(choices[0])
    finish_reason, said = choice("finish_reason"), reader(choice("message"))
    if finish_reason == "content_filter":
        raise FilteredModelOutput(model=model)
    if finish_reason == "refusal" or said("refusal"):
        raise RefusedModelOutput(model=model)
    if finish_reason == "length":
        raise TruncatedModelOutput(model=model)
    content = said("content")
    if not isinstance(content, str) and isinstance(content, Sequence):
        texts = [part if isinstance(part, str) else read(part, "text") for part in content]
        content = "".join(text for text in texts if isinstance(text, str))
    if not isinstance(content, str):
        raise MissingModelOutput(model=model)
    text = strip_reasoning(content).strip()
    if not text:
        raise EmptyModelOutput(model=model)
    return text


def strip_reasoning(text: str) -> str:
    """Returns `text` without ``<think>`` blocks.

    A block at the head of the text that never ends is all of it. An end without a beginning, as
    from chat templates that open the block themselves, takes everything before it.
    """
    if "<" not in text:
        return text
    kept: list[str] = []
    position = 0
    while opening := _BLOCK_OPENS.search(text, position):
        ending = _BLOCK_ENDS.search(text, opening.end())
        if ending is None:
            if not text[: opening.start()].strip():
                return ""
            break
        kept.append(text[position : opening.start()])
        position = ending.end()
    rest = "".join([*kept, text[position:]])
    lone_ends = [ending.end() for ending in _LONE_END.finditer(rest)]
    return rest[lone_ends[-1] :] if lone_ends else rest


def clean_text(text: str) -> str:
    """Returns the bare answer: no reasoning, no fence, label or quotes around it. May be empty."""
    cleaned = strip_reasoning(text).strip()
    for _ in range(_ROUNDS):
        previous = cleaned
        cleaned = _unquote(_LABEL.sub("", _unfence(cleaned), count=1).strip())
        if cleaned == previous:
            break
    return cleaned


def _unfence(text: str) -> str:
    """Returns the content of the code fence that `text` begins with, or `text` without one."""
    if not text.startswith(("```", "~~~")):
        return text
    fence = text[: len(text) - len(text.lstrip(text[0]))]
    info, newline, body = text[len(fence) :].partition("\n")
    if not newline:
        return info.removesuffix(fence).strip()
    return f"\n{body}".partition(f"\n{fence}")[0].strip()


def _unquote(text: str) -> str:
    closing = _QUOTES.get(text[:1])
    if closing is None or len(text) < 2 or text[-1] != closing:  # noqa: PLR2004 - a pair of quotes
        return text
    inner = text[1:-1]
    if text[0] in inner or closing in inner:
        return text
    return inner.strip()


def begins_json(text: str, *, anywhere: bool = False) -> bool:
    """Says whether JSON begins `text`, or what a small model takes for it, whole or broken.

    Args:
        text: What a model said; ``null`` and its like count where nothing follows.
        anywhere: Whether a later line may begin it, too.
    """
    return bool(_JSON.search(text) if anywhere else _JSON.match(text))


def is_overlong(answer: str, asked: str) -> bool:
    """Says whether an answer is nonsense, being far longer than the question it is made of."""
    return len(answer) > max(_LONGEST, _MOST_TIMES * len(asked))


def distinct(texts: Iterable[str], original: str) -> Iterator[str]:
    """Yields bare texts that differ from the original and from each other in their words.

    Those that are far longer than the original are left out.
    """
    seen = {_sameness(original)}
    for text in texts:
        cleaned = clean_query(clean_text(text))
        fits = cleaned and not is_overlong(cleaned, original)
        if fits and (key := _sameness(cleaned)) not in seen:
            seen.add(key)
            yield cleaned


def _sameness(text: str) -> str:
    return " ".join(text.casefold().split())


def texts_in(items: Iterable[object]) -> Iterator[str]:
    """Yields the texts of a list that a model wrote, those in objects included."""
    for item in items:
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            yield from (value for value in item.values() if isinstance(value, str))


def wordings(reply: str) -> list[str]:
    """Returns the wordings that a reply lists: as JSON, else one per line."""
    said = first_json(reply)
    found = list(texts_in(said)) if isinstance(said, list) else []
    if not found:
        members = said if isinstance(said, dict) else first_object(reply)
        lists = (value for value in members.values() if isinstance(value, list))
        found = list(texts_in(next(lists, ())))
    return found or ([] if begins_json(reply, anywhere=True) else lines(reply))


def lines(text: str) -> list[str]:
    """Returns the items of a list written as lines: trimmed, without bullets, numbers and quotes.

    Lines without a letter or a digit are dropped. Where some lines are numbered or bulleted, the
    others are remarks and dropped too, as is a first line that ends with a colon.
    """
    stripped = [line.strip() for line in _unfence(strip_reasoning(text).strip()).splitlines()]
    written = [line for line in stripped if line and not line.startswith(("```", "~~~"))]
    marked = [line for line in written if _BULLET.match(line)]
    if not marked and len(written) > 1 and written[0].endswith((":", "\uff1a")):
        written = written[1:]
    items = (_unquote(_BULLET.sub("", line, count=1).strip()) for line in marked or written)
    return [item for item in items if any(map(str.isalnum, item))]
