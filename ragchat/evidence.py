"""Encoding passages as one evidence block that nothing inside can close or imitate.

Both encodings are lean: title and source stand once per document, and later passages of a document
refer to the number of its first one.
"""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic_core import to_json

from ragchat.marks import mark_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ragchat_retrieval.values import Passage

Encoding = Literal["json", "fenced"]

# Escaped inside JSON strings: what could begin or end a tag, an entity or a comment, what some
# readers take for a line's end, and lone surrogates, which no UTF-8 body can carry.
_MARKUP = "<>&"
_UNSAFE = re.compile("[\u2028\u2029\ud800-\udfff]")
_LIKE_REFERENCE = re.compile(r"as\b\W*\d", re.IGNORECASE)
_SURROGATES = re.compile("[\ud800-\udfff]")

_MARK_DIGITS = 3  # one token, which every heading repeats


@dataclass(frozen=True, slots=True)
class Evidence:
    """One passage as it will be presented."""

    number: int
    """Its citation number, from 1."""

    passage: Passage
    content: str
    """The passage's text as the formatter rendered it."""


def encode(evidence: Sequence[Evidence], encoding: Encoding) -> str:
    """Returns the evidence block in one of the two encodings."""
    return encode_json(evidence) if encoding == "json" else encode_fenced(evidence)


def encode_json(evidence: Sequence[Evidence]) -> str:
    r"""Returns a JSON array between ``<evidence>`` tags.

    An object is ``{"citation", "source", "title", "content"}``; unknown ones are left out. A later
    passage of a document has ``"same_document_as": n`` in place of source and title. Titles,
    sources and contents are exact after decoding. ``<``, ``>`` and ``&`` are written as
    ``\u003c``, ``\u003e`` and ``\u0026``, so that no content can hold a tag or an entity.
    """
    entries: list[dict[str, object]] = []
    for item, first in _with_first_of_document(evidence):
        entry: dict[str, object] = {"citation": item.number}
        if first is not item:
            entry["same_document_as"] = first.number
        else:
            named = {"source": item.passage.source, "title": item.passage.title}
            entry |= {name: value for name, value in named.items() if value}
        entry["content"] = item.content
        entries.append(entry)
    return f"<evidence>\n{_escaped(_compact(entries))}\n</evidence>"


def encode_fenced(evidence: Sequence[Evidence]) -> str:
    """Returns plain text between fences whose mark occurs in no content; see `ragchat.marks`.

    The block begins with ``<<<mark`` and ends with ``mark>>>``. Each passage begins with a line
    ``mark [n] title | source``, or ``mark [n] as [m]`` for a later passage of the document of
    ``[m]``. Titles and sources lose their line breaks, and stand in quotation marks where they read
    like such a reference; contents are exact, but for lone surrogates.
    """
    items = []
    for item, first in _with_first_of_document(evidence):
        if first is not item:
            label = f" as [{first.number}]"
        else:
            named = (_one_line(name) for name in (item.passage.title, item.passage.source) if name)
            label = "".join(
                f" {name}" for name in [_label(" | ".join(filter(None, named)))] if name
            )
        items.append((f" [{item.number}]{label}\n", _SURROGATES.sub("\ufffd", item.content)))
    mark = mark_for("".join(itertools.chain.from_iterable(items)), digits=_MARK_DIGITS)
    body = "".join(f"{mark}{head}{content}\n" for head, content in items)
    return f"<<<{mark}\n{body}{mark}>>>"


def _with_first_of_document(evidence: Sequence[Evidence]) -> Iterator[tuple[Evidence, Evidence]]:
    """Pairs each item with the first one of its document, as far as there is something to share."""
    firsts: dict[tuple[str, str | None, str | None], Evidence] = {}
    for item in evidence:
        passage = item.passage
        if passage.title or passage.source:
            key = (passage.document_id, passage.title, passage.source)
            yield item, firsts.setdefault(key, item)
        else:
            yield item, item


def _label(named: str) -> str:
    """Returns a title and source that nobody can take for those of another passage."""
    return f'"{named}"' if _LIKE_REFERENCE.match(named) else named


def _compact(entries: Sequence[object]) -> str:
    """Writes JSON without blanks."""
    try:
        return to_json(entries).decode()  # a quarter of the time of the `json` module
    except ValueError:  # a lone surrogate, which has no UTF-8 form
        return json.dumps(entries, ensure_ascii=False, separators=(",", ":"))


def _escaped(written: str) -> str:
    for mark in _MARKUP:
        written = written.replace(mark, _code(mark))
    if written.isascii():  # most often, and looking for the others takes longest
        return written
    return _UNSAFE.sub(lambda match: _code(match[0]), written)


def _code(character: str) -> str:
    return f"\\u{ord(character):04x}"


def _one_line(name: str) -> str:
    return _SURROGATES.sub("\ufffd", " ".join(name.split()))
