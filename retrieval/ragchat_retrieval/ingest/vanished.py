"""Which documents of an index come from a folder, and which of them are there no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.ingest.reading import ROOT_KEY
from ragchat_retrieval.ingest.report import IngestReport

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ragchat_retrieval.filters import Filter
    from ragchat_retrieval.index import HybridIndex
    from ragchat_retrieval.ingest.place import Place
    from ragchat_retrieval.ingest.reading import FileReader

_REMOVED_AT_ONCE = 500


async def check_root(index: HybridIndex, place: Place, scope: Filter) -> None:
    """Refuses a root name under which documents of another folder are stored.

    Raises:
        InvalidSetting: They are.
    """
    prefix = place.root + "/"
    for document_id in await index.document_ids(scope=scope):
        if not document_id.startswith(prefix):
            continue
        document = await index.store.document(document_id, scope=scope)
        mark = None if document is None else document.metadata.get(ROOT_KEY)
        if document is None or mark is None:
            continue  # not read from a folder
        if mark != place.mark:
            raise InvalidSetting(
                "root",
                f"{place.root!r} holds documents of another folder than {place.label!r}, such "
                f"as {document.source!r}; choose another root, or say that the folder has moved",
            )
        return


async def vanished(
    index: HybridIndex, place: Place, reader: FileReader, scope: Filter, *, moved: bool
) -> list[str]:
    """Returns the ids of those documents of a folder that its reader has not met."""
    prefix = place.root + "/"
    gone = []
    for document_id in await index.document_ids(scope=scope):
        if not document_id.startswith(prefix) or document_id in reader.seen:
            continue
        if _is_of(document_id, reader.unread):
            continue
        document = await index.store.document(document_id, scope=scope)
        mark = None if document is None else document.metadata.get(ROOT_KEY)
        if mark == place.mark or (moved and mark is not None):
            gone.append(document_id)
    return gone


async def remove(index: HybridIndex, document_ids: Sequence[str], scope: Filter) -> IngestReport:
    """Removes documents, many at a time."""
    removed = 0
    for start in range(0, len(document_ids), _REMOVED_AT_ONCE):
        some = document_ids[start : start + _REMOVED_AT_ONCE]
        removed += await index.remove(ids=some, scope=scope)
    return IngestReport(deleted=removed)


def _is_of(document_id: str, files: Collection[str]) -> bool:
    """Says whether a document is one of these files or a line of one."""
    if document_id in files:
        return True
    # A file's name may hold the mark too, so every one may be the one before the line's id.
    position = document_id.find("#")
    while position >= 0:
        if document_id[:position] in files:
            return True
        position = document_id.find("#", position + 1)
    return False
