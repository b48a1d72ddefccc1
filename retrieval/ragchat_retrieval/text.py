"""The text policy, one for every store.

NUL and lone surrogates cannot be kept by every engine: PostgreSQL refuses NUL, SQLite's own text
functions cut at it, and a lone surrogate has no UTF-8 form. In a document they are a typed error
before anything is written; in a query they become spaces. Everything else is stored as given.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ragchat_retrieval.errors import InvalidText

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from typing import Any

    from ragchat_retrieval.values import Document, Passage

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def clean_query(text: str) -> str:
    """Returns a query's text with NUL and lone surrogates as spaces, then trimmed."""
    return (text if is_storable(text) else _UNSTORABLE.sub(" ", text)).strip()


def is_storable(value: str) -> bool:
    """Says whether every store can keep a text: it holds no NUL and no lone surrogate."""
    if value.isascii():
        return "\x00" not in value
    if "\x00" in value:
        return False
    try:
        value.encode()  # several times faster than looking for surrogates
    except UnicodeEncodeError:
        return False
    return True


def corpus_prefix(corpus: str) -> str:
    """Returns what ids of a corpus begin with where several corpora are read together.

    It ends in the only ``/`` that it holds, so that no two corpora share an id: a ``/`` or ``%`` of
    the name is written as in URLs.
    """
    return corpus.replace("%", "%25").replace("/", "%2F") + "/"


def check_text(value: str, *, document_id: str | None, field: str) -> None:
    """Refuses a text that some store could not keep.

    Args:
        value: The text of one field.
        document_id: The document it belongs to, named in the error.
        field: The field, named in the error.

    Raises:
        InvalidText: The text holds NUL or a lone surrogate.
    """
    if not is_storable(value):
        problem = "NUL" if "\x00" in value else "a lone surrogate"
        raise InvalidText(f"holds {problem}", document_id=document_id, field=field)


def check_document(document: Document, passages: Collection[Passage] = ()) -> None:
    """Refuses a document, or passages of it, with a text that some store could not keep.

    Checked are ids, titles, sources, texts, headings, and every string inside metadata.

    Raises:
        InvalidText: Names the document and the first field at fault, such as ``text``,
            ``metadata.team`` or ``passages[3].title``.
    """
    if is_storable("".join(_all_texts(document, passages))):
        return
    owner = document.id
    for field, value in _texts(document):
        check_text(value, document_id=owner, field=field)
    for position, passage in enumerate(passages):
        where = f"passages[{position}]"
        check_text(passage.document_id, document_id=owner, field=f"{where}.document_id")
        # Passages usually share the document's metadata object, which is checked by now.
        shared = passage.metadata is document.metadata
        for field, value in _texts(passage, skip_metadata=shared):
            check_text(value, document_id=owner, field=f"{where}.{field}")
        for heading in passage.headings:
            check_text(heading, document_id=owner, field=f"{where}.headings")


def _all_texts(document: Document, passages: Iterable[Passage]) -> list[str]:
    """Returns what `_texts` yields of a document and its passages, and their headings."""
    texts = [document.id, document.text, document.title or "", document.source or ""]
    texts += _inside(document.metadata)
    for p in passages:
        text = "" if p.text == document.text else p.text  # as in a document of one passage
        texts += (p.id, p.document_id, text, p.title or "", p.source or "", *p.headings)
        if p.metadata != document.metadata:
            texts += _inside(p.metadata)
    return texts


def _inside(metadata: Mapping[str, Any]) -> list[str]:
    """Returns every string in the values of metadata; its keys are plain."""
    kept = [value for value in metadata.values() if isinstance(value, (str, dict, list))]
    return [text for value in kept for text in _strings(value)]


def _texts(item: Document | Passage, *, skip_metadata: bool = False) -> Iterator[tuple[str, str]]:
    yield "id", item.id
    yield "text", item.text
    if item.title is not None:
        yield "title", item.title
    if item.source is not None:
        yield "source", item.source
    if not skip_metadata:
        for key, value in item.metadata.items():
            for text in _strings(value):
                yield f"metadata.{key}", text


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)
