"""The embedded store: one SQLite file, searched through arrays that are derived from it."""

from __future__ import annotations

import asyncio
import copy
from typing import TYPE_CHECKING, TypeVar

from ragchat_retrieval.ports import Capabilities, StoreCounts
from ragchat_retrieval.stores.checks import check_write, checked_name
from ragchat_retrieval.stores.sqlite import reading, writing
from ragchat_retrieval.stores.sqlite.asking import FileLanes
from ragchat_retrieval.stores.sqlite.database import Database
from ragchat_retrieval.stores.sqlite.lanes import NAME
from ragchat_retrieval.stores.sqlite.mirrors import Mirrors
from ragchat_retrieval.stores.sqlite.nearest import Standing, nearest_of

if TYPE_CHECKING:
    import os
    import sqlite3
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ragchat_retrieval.engine import Hnsw
    from ragchat_retrieval.filters import Filter
    from ragchat_retrieval.ports import Identity
    from ragchat_retrieval.stores.sqlite.nearest import VectorKeeping
    from ragchat_retrieval.stores.sqlite.state import CorpusState
    from ragchat_retrieval.stores.sqlite.writing import Written
    from ragchat_retrieval.values import Document, Passage, Revision

T = TypeVar("T")


class SQLiteStore(FileLanes):
    """Keeps documents, passages, analysed terms and vectors in one SQLite file.

    The file is the truth and may be backed up by itself. Searching works on columnar arrays that
    are kept in the folder ``<file>.index`` beside it and follow every write, of this or another
    process; deleting the folder costs the time to build them again, and nothing else. Any number
    of processes may read while one writes; writers wait for each other up to `timeout`. The file
    must lie on a local disk.

    A process that is killed leaves the old or the new revision of a document. After a loss of power
    the last writes may be missing, whole (``PRAGMA synchronous = NORMAL``).

    Args:
        path: The file, created on first use; or ``:memory:`` for a private database.
        corpus: The corpus to work with.
        read_only: Refuse writes, and create no file. The file must exist.
        timeout: Seconds to wait while another process writes.
        vectors: How vectors are searched; the file keeps them as they are, and scores are exact in
            any case. ``float32`` compares all. ``int8`` finds the same in a quarter of the memory.
            ``hnsw``, or an `Hnsw` of your own, follows a graph of near neighbours: for large
            corpora, and may miss a few of the best. It is up to who searches, not to the file.

    Raises:
        MissingExtra: The extra ``hnsw`` is needed and not installed.
        InvalidSetting: A setting cannot work. The file itself is first looked at when it is used;
            then `NotAStore` says that it is something else, `StoreUnavailable` that it is damaged,
            missing or busy.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        corpus: str = "default",
        read_only: bool = False,
        timeout: float = 30.0,
        vectors: VectorKeeping | Hnsw = "float32",
    ) -> None:
        self._db = Database(path, read_only=read_only, timeout=timeout)
        self._mirrors = Mirrors(self._db, mapped=vectors != "float32")
        self._nearest = nearest_of(vectors, self._mirrors.folder, writes=not read_only)
        self._corpus = checked_name(corpus)

    @property
    def name(self) -> str:
        """``sqlite``."""
        return NAME

    @property
    def path(self) -> str:
        """The file."""
        return self._db.path

    @property
    def capabilities(self) -> Capabilities:
        """Everything: both lanes, filters inside each, atomic batches, reset."""
        return Capabilities()

    @property
    def corpus_name(self) -> str:
        """The corpus this handle reads and writes."""
        return self._corpus

    def corpus(self, name: str) -> SQLiteStore:
        """Returns a handle on another corpus of the same file; closing one closes all."""
        handle = copy.copy(self)
        handle._corpus = checked_name(name)  # noqa: SLF001 - of our own class
        return handle

    # --- writing ---

    async def replace(
        self,
        revisions: Sequence[Revision],
        *,
        identity: Identity,
        scope: Filter,
        expected: Mapping[str, str] | None = None,
    ) -> None:
        """Makes these revisions the only ones of their documents; see `ports.Store.replace`."""
        given = tuple(revisions)
        await self._write(
            lambda c: (
                writing.replace_documents(
                    c, self._corpus, given, identity=identity, scope=scope, expected=expected
                )
                if given
                else None
            ),
            before=lambda: check_write(given, identity=identity, scope=scope, store=NAME),
        )

    async def delete(self, document_ids: Collection[str], *, scope: Filter) -> int:
        """Removes documents and returns how many there were; unknown ids are no error."""
        ids = tuple(document_ids)
        return await self._delete(
            lambda c, corpus: [
                found for found in reading.documents_by_id(c, corpus, ids, scope) if found.visible
            ]
        )

    async def delete_by_source(self, source: str, *, scope: Filter) -> int:
        """Removes every document of a source and returns how many there were."""
        return await self._delete(
            lambda c, corpus: reading.documents_by_source(c, corpus, source, scope)
        )

    async def reset(self) -> None:
        """Removes everything from the corpus, identity included."""
        await self._clear(drop=False)

    async def drop_corpus(self) -> None:
        """Removes this corpus with everything in it."""
        await self._clear(drop=True)

    async def swap_corpus(self, other: str, *, expected: int | None = None) -> None:
        """Exchanges this corpus and another; see `ports.SwappableStore`.

        The arrays of both are saved, so that no process has to build them anew.
        """
        names = (self._corpus, checked_name(other))
        if names[0] == names[1]:
            return

        def follow(_: object) -> None:
            self._mirrors.swap(*names)
            self._nearest.swap(*names)

        await self._db.write(
            lambda c: writing.swap_corpora(c, names, expected=expected), after=follow
        )
        for name in names:
            await self._save(name)

    async def repair(self) -> None:
        """Checks the whole file, then counts this corpus and builds its arrays anew.

        Words that occur nowhere any more are forgotten; until then each takes a row in the file.

        Raises:
            StoreUnavailable: The file is damaged.
        """
        await self._db.read(reading.check_integrity)

        def follow(others: Collection[str]) -> None:
            self._mirrors.sweep(self._corpus, keep=others)
            self._nearest.forget(self._corpus)

        await self._db.write(lambda c: writing.renew(c, self._corpus), after=follow)
        await self._save(self._corpus)

    # --- reading ---

    async def identity(self) -> Identity | None:
        """Returns what the corpus was written with; None before the first write and after reset."""
        state = await self._state()
        return state.identity if state else None

    async def revision(self) -> int:
        """Returns a counter that every write of the corpus raises."""

        def work(connection: sqlite3.Connection) -> int:
            state = reading.read_state(connection, self._corpus)
            return reading.first_revision(connection) if state is None else state.revision

        return await self._db.read(work, at_once=work)

    async def corpora(self) -> Sequence[str]:
        """Returns the names of all corpora that were written, in ascending order."""
        return await self._db.read(reading.corpus_names)

    async def ids(self, *, scope: Filter) -> Sequence[str]:
        """Returns all passage ids in ascending order."""
        if not scope:
            return await self._of_corpus(reading.passage_ids, [])
        return await super().ids(scope=scope)

    async def document_ids(self, *, scope: Filter) -> Sequence[str]:
        """Returns all document ids in ascending order."""
        return await self._of_corpus(lambda c, key: reading.document_ids(c, key, scope), [])

    async def document(self, document_id: str, *, scope: Filter) -> Document | None:
        """Returns a document with its text, or None."""
        return await self._of_corpus(
            lambda c, key: reading.document(c, key, document_id, scope), None
        )

    async def neighbours(
        self, document_id: str, ordinal: int, n: int, *, scope: Filter
    ) -> Sequence[Passage]:
        """Returns the passages at ordinals ``ordinal − n … ordinal + n``, in order."""
        around = (ordinal - n, ordinal + n)
        return await self._of_corpus(
            lambda c, key: reading.neighbours(c, key, document_id, around, scope), []
        )

    async def hashes(
        self, document_ids: Collection[str] | None = None, *, scope: Filter
    ) -> Mapping[str, str]:
        """Returns the fingerprints of the known ones among these documents; None means all."""
        wanted = None if document_ids is None else tuple(document_ids)
        return await self._of_corpus(lambda c, key: reading.hashes(c, key, wanted, scope), {})

    async def count(self, *, scope: Filter) -> StoreCounts:
        """Returns how much the corpus holds."""
        if not scope:
            return reading.stored_counts(await self._state())

        def work(connection: sqlite3.Connection) -> StoreCounts | None:
            state = reading.read_state(connection, self._corpus)
            if state is None:
                return StoreCounts(0, 0, 0)
            snapshot, revision = self._mirrors[self._corpus].snapshot(connection, state)
            if revision != state.revision:
                return None
            documents = reading.document_ids(connection, state.key, scope)
            rows = snapshot.live_rows(snapshot.mask(scope))
            return StoreCounts(len(documents), len(rows), int(snapshot.has_vector(rows).sum()))

        while (counts := await self._db.read(work)) is None:  # a writer overtook this reader
            pass
        return counts

    # --- closing ---

    async def aclose(self) -> None:
        """Saves what is derived if that is worth it, and closes the file for all handles.

        With ``hnsw`` this waits for a graph that is being made, or that became due by what was
        written, unless it could not be saved.
        """
        await self._db.close(self._finish)
        await asyncio.shield(asyncio.to_thread(self._nearest.close))

    # --- parts ---

    async def _state(self) -> CorpusState | None:
        def work(connection: sqlite3.Connection) -> CorpusState | None:
            return reading.read_state(connection, self._corpus)

        return await self._db.read(work, at_once=work)

    async def _write(
        self,
        work: Callable[[sqlite3.Connection], Written | None],
        *,
        before: Callable[[], object] = lambda: None,
    ) -> Written | None:
        mirror = self._mirrors[self._corpus]

        def follow(written: Written | None) -> None:
            if written is not None:
                mirror.follow(written)
                self._mirrors.note_write(self._corpus)

        written = await self._db.write(work, before=before, after=follow)
        self._save_growth(mirror)
        return written

    async def _save(self, corpus: str) -> None:
        await self._db.read(lambda c: self._mirrors.save(c, corpus, always=True))

    def _finish(self, connection: sqlite3.Connection) -> None:
        self._mirrors.save_all(connection)
        for corpus in self._mirrors.written():
            state = reading.read_state(connection, corpus)
            if state is not None and state.vectors:
                snapshot, point = self._mirrors[corpus].at(connection, state)
                self._nearest.prepare(Standing(corpus, connection, state, snapshot, point))

    async def _delete(
        self, find: Callable[[sqlite3.Connection, int], Sequence[reading.DocumentKey]]
    ) -> int:
        def work(connection: sqlite3.Connection) -> Written | None:
            state = reading.read_state(connection, self._corpus)
            if state is None:
                return None
            found = find(connection, state.key)
            return writing.delete_documents(connection, self._corpus, found)

        written = await self._write(work)
        return 0 if written is None else written.documents

    async def _clear(self, *, drop: bool) -> None:
        def forget(state: CorpusState | None) -> None:
            if state is not None:
                self._mirrors.remove(self._corpus, state.uuid)
                self._nearest.forget(self._corpus)

        await self._db.write(
            lambda c: writing.clear_corpus(c, self._corpus, drop=drop), after=forget
        )
