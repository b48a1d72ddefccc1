"""The stored form of citations: JSON with a version."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ragchat.errors import InvalidCitations
from ragchat_retrieval.errors import RetrievalError
from ragchat_retrieval.metadata import decode, encode
from ragchat_retrieval.values import Lines, Passage, Span

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1
"""Version of the form; a reader refuses any other."""

_TEXTS = ("text", "id", "document_id", "digest")
_OPTIONAL_TEXTS = ("title", "source", "corpus")
_FIELDS = frozenset(field.name for field in fields(Passage))


def dumped(passages: Mapping[int, Passage], **more: object) -> str:
    """Returns numbered passages as JSON text, without loss, with other members beside them."""
    stored = [{"number": number, **_stored(passage)} for number, passage in passages.items()]
    form = {"version": VERSION, **more, "citations": stored}
    return json.dumps(form, separators=(",", ":"))


def load_form(text: str | bytes) -> dict[str, Any]:
    """Reads the outer object of what `dumped` wrote.

    Raises:
        InvalidCitations: The text is of another version, or nothing of ours.
    """
    try:
        form = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidCitations("stored citations are no JSON") from None
    if not isinstance(form, dict) or "version" not in form:
        raise InvalidCitations("stored citations have no version")
    version = form["version"]
    if type(version) is not int or version != VERSION:
        raise InvalidCitations(f"stored citations are of another version than {VERSION}")
    return form


def load_entries(form: dict[str, Any]) -> dict[int, Passage]:
    """Reads the numbered passages of a form.

    Raises:
        InvalidCitations: They are damaged.
    """
    entries = form.get("citations")
    if not isinstance(entries, list):
        raise InvalidCitations("stored citations are damaged")
    loaded: dict[int, Passage] = {}
    for entry in entries:
        number, passage = _loaded(entry)
        if number in loaded:
            raise InvalidCitations(f"citation {number} is stored twice")
        loaded[number] = passage
    return loaded


def _stored(passage: Passage) -> dict[str, Any]:
    kept: dict[str, Any] = {
        field.name: getattr(passage, field.name)
        for field in fields(Passage)
        if field.name != "metadata" and getattr(passage, field.name) != field.default
    }
    if passage.metadata:
        kept["metadata"] = json.loads(encode(passage.metadata))
    return kept


def _loaded(entry: object) -> tuple[int, Passage]:
    damaged = InvalidCitations("stored citations are damaged")
    if not isinstance(entry, dict) or not entry.keys() <= _FIELDS | {"number"}:
        raise damaged
    given: dict[str, Any] = dict(entry)
    number = given.pop("number", None)
    metadata = given.pop("metadata", {})
    valid = (
        "text" in given
        and all(
            isinstance(given[name], str) for name in (*_TEXTS, *_OPTIONAL_TEXTS) if name in given
        )
        and all(type(given[name]) is int for name in ("page", "ordinal") if name in given)
        and all(_is_pair(given[name]) for name in ("lines", "span") if name in given)
        and _is_texts(given.get("headings", []))
        and type(number) is int
    )
    if not valid:
        raise damaged
    pairs = {"lines": Lines, "span": Span}
    given |= {name: kind(*given[name]) for name, kind in pairs.items() if name in given}
    try:
        return number, Passage(metadata=decode(json.dumps(metadata)), **given)
    except RetrievalError:
        raise damaged from None


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and [type(item) for item in value] == [int, int]


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
