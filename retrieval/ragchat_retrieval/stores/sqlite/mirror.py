"""The search arrays of one corpus, kept current with the file.

The file is the truth. A mirror starts from the arrays saved beside it, follows the change log up
to the state that a reader sees, and is built anew when there is nothing to start from, when the log
does not reach back, or when the saved arrays are damaged. So it never matters if they are there.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ragchat_retrieval.engine import DamagedIndex, Engine, load, release, save
from ragchat_retrieval.errors import StoreUnavailable
from ragchat_retrieval.stores.sqlite.lanes import NAME
from ragchat_retrieval.stores.sqlite.reading import keys_of, read_batch, runs, term_names

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

    from ragchat_retrieval.engine import Snapshot
    from ragchat_retrieval.stores.sqlite.state import CorpusState
    from ragchat_retrieval.stores.sqlite.writing import Written

_log = logging.getLogger("ragchat")

FORMAT = 1
"""Version of the stamp on saved arrays."""

_CHUNK = 50_000
"""Passages read at once when building anew."""

_LAG = 200
"""Writes after which saved arrays are worth replacing, however small the writes were."""

_GROWTH = 20_000
"""Changed passages after which the arrays are saved before the store is closed."""


class Point(NamedTuple):
    """A state that a corpus was in, told apart from all others."""

    uuid: str
    revision: int
    stamp: int


class _Current(NamedTuple):
    """A snapshot, and which state of the file it equals."""

    uuid: str
    revision: int
    stamp: int
    snapshot: Snapshot
    terms: int
    """Terms whose names the engine knows: ids below this."""

    def equals(self, state: CorpusState) -> bool:
        return (self.uuid, self.revision, self.stamp) == (state.uuid, state.revision, state.stamp)


def arrays_file(folder: Path, uuid: str) -> Path:
    """Returns where the arrays of one life of a corpus are saved."""
    return folder / f"{uuid}.arrays"


class _Outdated(Exception):
    """The change log does not lead from the arrays to the file's state."""


class Mirror:
    """The arrays of one corpus in this process. Safe to use from any thread.

    Args:
        folder: Where saved arrays are; None keeps them in memory only.
        writes: Whether this process may save arrays.
        mapped: Whether arrays that were saved replace those in memory.
    """

    def __init__(self, folder: Path | None, *, writes: bool, mapped: bool = False) -> None:
        self._folder = folder
        self._writes = writes
        self._mapped = mapped
        self._lock = threading.Lock()
        self._engine = Engine()
        self._current: _Current | None = None
        self._saved: tuple[str, int] | None = None
        self._changed = 0
        self._save_is_due = False

    def snapshot(self, connection: sqlite3.Connection, state: CorpusState) -> tuple[Snapshot, int]:
        """Returns the arrays at `state`, or at a later revision of the same life of the corpus.

        Args:
            connection: In the read transaction in which `state` was read.
            state: The state of the file.

        Returns:
            The snapshot and its revision.
        """
        snapshot, point = self.at(connection, state)
        return snapshot, point.revision

    def at(self, connection: sqlite3.Connection, state: CorpusState) -> tuple[Snapshot, Point]:
        """As `snapshot`, with the state that the arrays equal."""
        current = self._current
        if not _is_current(current, state):
            with self._lock:
                current = self._current
                if not _is_current(current, state):
                    current = self._current = self._catch_up(connection, state)
        assert current is not None  # noqa: S101 - a state is never current without arrays
        return current.snapshot, Point(current.uuid, current.revision, current.stamp)

    @property
    def latest(self) -> Snapshot | None:
        """The arrays as they are; the file may have moved on."""
        current = self._current
        return None if current is None else current.snapshot

    def current(self, state: CorpusState) -> Snapshot | None:
        """Returns the arrays if they are at `state` or later already, else None; never waits."""
        current = self._current
        return current.snapshot if current is not None and _is_current(current, state) else None

    def follow(self, written: Written) -> None:
        """Applies a write of this process that was committed, if the arrays stand just before it.

        The write stands whatever happens here; the next reader builds anew what could not follow.
        """
        with self._lock:
            current = self._current
            if current is None and written.before.is_new:
                self._engine = Engine()
                current = _current(written.before, self._engine.snapshot, 0)
            if current is None or not current.equals(written.before):
                return
            self._current = None
            names = written.names or {}
            try:
                self._engine.name_terms(names)
                snapshot = self._engine.apply(
                    add=written.added, remove_keys=written.removed.tolist()
                )
            except Exception as error:  # noqa: BLE001 - the caller's write is committed and no failure
                _log.warning("search arrays could not follow a write (%s)", type(error).__name__)
                return
            self._current = _current(written.after, snapshot, current.terms + len(names))
            self._changed += len(written.removed)
            self._changed += 0 if written.added is None else len(written.added)

    def forget(self) -> None:
        """Drops the arrays from memory; the next reader starts from the saved ones or the file."""
        with self._lock:
            self._current = None

    def asks_for_saving(self) -> bool:
        """Says, once, that so much was written that the arrays should be saved soon.

        Once, because a save of large arrays takes a while and searches go on meanwhile.
        """
        current = self._current
        if current is None or self._folder is None or not self._writes or self._save_is_due:
            return False
        self._save_is_due = self._changed > max(_GROWTH, current.snapshot.live // 2)
        return self._save_is_due

    def save(self, *, always: bool = False) -> None:
        """Writes the arrays beside the file, if that spares the next process enough work.

        Saved arrays are a convenience: if they cannot be written, the log says so and that is all.
        """
        with self._lock:
            try:
                self._save(always=always)
            finally:
                self._save_is_due = False

    def _is_worth_saving(self, current: _Current) -> bool:
        if self._saved is None or self._saved[0] != current.uuid:
            return current.snapshot.live > 0
        behind = current.revision - self._saved[1]
        return behind > _LAG or self._changed > current.snapshot.live // 20

    # --- under the lock ---

    def _save(self, *, always: bool) -> None:
        current = self._current
        if current is None or self._folder is None or not self._writes:
            return
        if not always and not self._is_worth_saving(current):
            return
        stamp = {
            "format": FORMAT,
            "uuid": current.uuid,
            "revision": current.revision,
            "stamp": current.stamp,
            "terms": current.terms,
        }
        try:
            self._folder.mkdir(exist_ok=True)
            save(self._engine, arrays_file(self._folder, current.uuid), stamp=stamp)
        except OSError as error:
            _log.warning("search arrays not saved (%s)", type(error).__name__)
            self._changed = 0  # tried again when the store is closed, not at every search
            return
        if self._mapped:
            self._map(current.uuid, stamp)
        # Saving made the arrays compact; the older ones need not stay in memory.
        self._current = current._replace(snapshot=self._engine.snapshot)
        self._saved = (current.uuid, current.revision)
        self._changed = 0

    def _map(self, uuid: str, stamp: dict[str, object]) -> None:
        """Goes on with what was just saved, unless another process was faster."""
        assert self._folder is not None  # noqa: S101 - it was saved there
        with contextlib.suppress(DamagedIndex):
            engine, found = load(arrays_file(self._folder, uuid))
            if found == stamp:
                self._engine = engine
                for block in engine.snapshot.matrix.blocks:
                    release(block)

    def _catch_up(self, connection: sqlite3.Connection, state: CorpusState) -> _Current:
        current = self._current
        # What fails half-way must not be taken for a state of the file.
        self._current = None
        if current is None or current.uuid != state.uuid:
            current = self._load(state)
        if current is not None:
            try:
                return self._extend(connection, state, current)
            except (_Outdated, ValueError):
                _log.debug("search arrays are built anew")
        return self._build(connection, state)

    def _load(self, state: CorpusState) -> _Current | None:
        if self._folder is None:
            return None
        try:
            engine, stamp = load(arrays_file(self._folder, state.uuid))
        except DamagedIndex:
            return None
        if stamp.get("format") != FORMAT or stamp.get("uuid") != state.uuid:
            return None
        self._engine = engine
        if self._mapped:
            for block in engine.snapshot.matrix.blocks:
                release(block)
        self._saved = (state.uuid, stamp["revision"])
        self._changed = 0
        return _Current(
            state.uuid, stamp["revision"], stamp["stamp"], engine.snapshot, stamp["terms"]
        )

    def _extend(
        self, connection: sqlite3.Connection, state: CorpusState, current: _Current
    ) -> _Current:
        """Applies what the change log says came after `current`."""
        if current.equals(state):
            return current
        entries = connection.execute(
            "SELECT revision, stamp, added_from, added_to, removed FROM changes "
            "WHERE corpus = ? AND revision >= ? ORDER BY revision",
            (state.key, current.revision),
        ).fetchall()
        if (
            not entries
            or entries[0][:2] != (current.revision, current.stamp)
            or entries[-1][:2] != (state.revision, state.stamp)
        ):
            raise _Outdated
        later = entries[1:]
        names = term_names(connection, state.key, current.terms)
        self._engine.name_terms(names)
        removed = np.concatenate([np.frombuffer(entry[4], dtype="<i8") for entry in later])
        batch = read_batch(
            connection, state, [entry[2:4] for entry in later if entry[2:4] != (0, 0)]
        )
        snapshot = self._engine.apply(
            add=batch if len(batch) else None, remove_keys=removed.tolist()
        )
        self._changed += len(removed) + len(batch)
        extended = _current(state, snapshot, current.terms + len(names))
        if not _agrees(extended, state):
            raise _Outdated
        return extended

    def _build(self, connection: sqlite3.Connection, state: CorpusState) -> _Current:
        self._engine = engine = Engine()
        self._saved = None
        names = term_names(connection, state.key, 0)
        engine.name_terms(names)
        keys = keys_of(connection, state.key)
        for start in range(0, len(keys), _CHUNK):
            part = keys[start : start + _CHUNK]
            engine.apply(add=read_batch(connection, state, runs(part)))
        self._changed = len(keys)
        built = _current(state, engine.snapshot, len(names))
        if not _agrees(built, state):
            raise StoreUnavailable("the file's counts disagree; repair() may help", store=NAME)
        return built


def _is_current(current: _Current | None, state: CorpusState) -> bool:
    return current is not None and current.uuid == state.uuid and current.revision >= state.revision


def _agrees(current: _Current, state: CorpusState) -> bool:
    counts = (current.snapshot.live, current.snapshot.vectors)
    return counts == (state.passages, state.vectors)


def _current(state: CorpusState, snapshot: Snapshot, terms: int) -> _Current:
    return _Current(state.uuid, state.revision, state.stamp, snapshot, terms)
