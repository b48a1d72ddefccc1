"""Annotations of an answer in the shape of OpenAI's ``url_citation``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, TypedDict
from urllib.parse import quote

if TYPE_CHECKING:
    from ragchat_retrieval.values import Passage

_WEB = re.compile(r"https?://[^\s/?#]+(?:[/?#].*)?", re.IGNORECASE)


class URLCitation(TypedDict):
    """Where an answer cites what."""

    start_index: int
    end_index: int
    """End of the half-open range of code points."""

    title: str
    url: str


class Annotation(TypedDict):
    """One entry of a message's ``annotations``."""

    type: Literal["url_citation"]
    url_citation: URLCitation


def annotation(start: int, end: int, passage: Passage) -> Annotation:
    """Returns the annotation of one citation.

    Args:
        start: First code point of the marker in the answer.
        end: The one after its last.
        passage: What is cited.
    """
    return {
        "type": "url_citation",
        "url_citation": {
            "start_index": start,
            "end_index": end,
            "title": title_of(passage),
            "url": url_of(passage),
        },
    }


def title_of(passage: Passage) -> str:
    """Returns the title, or else the source, or else the id of document or passage."""
    named = (passage.title, passage.source, passage.document_id)
    return next((name for name in named if name and name.strip()), passage.id)


def url_of(passage: Passage) -> str:
    """Returns the source if it is an http(s) URL, else `document_address`.

    Blanks behind the host, as names of files have them, are percent-encoded. Any other scheme, such
    as ``javascript:``, never becomes a link, and neither does a source with control characters or
    marks that change the direction of writing.
    """
    source = (passage.source or "").strip()
    is_link = _WEB.fullmatch(source) and source.isprintable()
    return source.replace(" ", "%20") if is_link else document_address(passage)


def document_address(passage: Passage) -> str:
    """Returns an address of ours: ``ragchat:document/{id}#L3-L7``, or ``ragchat:passage/{id}``.

    The id is percent-encoded as UTF-8; the lines are 1-based and inclusive, and left out where the
    passage has none.
    """
    if not passage.document_id:
        return f"ragchat:passage/{_encoded(passage.id)}"
    lines = passage.lines
    fragment = "" if lines is None else f"#L{lines.start}-L{lines.end}"
    return f"ragchat:document/{_encoded(passage.document_id)}{fragment}"


def _encoded(name: str) -> str:
    return quote(name, safe="", errors="replace")
