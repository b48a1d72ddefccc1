"""The mirrors of all corpora of a file in this process, and the folder they are saved in."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ragchat_retrieval.stores.sqlite.mirror import Mirror
from ragchat_retrieval.stores.sqlite.reading import read_state

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection

    from ragchat_retrieval.stores.sqlite.database import Database

_DRAFT_AGE = 3600.0
"""Seconds after which nobody is still writing a draft of saved arrays."""


class Mirrors:
    """One `Mirror` per corpus, made on demand.

    Args:
        database: The file; one in memory or for reading only saves nothing.
        mapped: As for a `Mirror`.
    """

    def __init__(self, database: Database, *, mapped: bool = False) -> None:
        self._read_only = database.read_only
        self._mapped = mapped
        self.folder = None if database.in_memory else Path(f"{database.path}.index").absolute()
        """Where arrays are saved; None if they are not."""

        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._mirrors: dict[str, Mirror] = {}
        self._written: set[str] = set()

    def __getitem__(self, corpus: str) -> Mirror:
        with self._lock:
            if self._pid != os.getpid():  # a fork may have copied a mirror half-way through a write
                self._mirrors.clear()
                self._written.clear()
                self._pid = os.getpid()
            mirror = self._mirrors.get(corpus)
            if mirror is None:
                mirror = self._mirrors[corpus] = Mirror(
                    self.folder, writes=not self._read_only, mapped=self._mapped
                )
            return mirror

    def note_write(self, corpus: str) -> None:
        """Remembers that this process wrote a corpus, so that its arrays are saved at the end."""
        with self._lock:
            self._written.add(corpus)

    def written(self) -> list[str]:
        """Returns the corpora that this process wrote, ascending."""
        with self._lock:
            return sorted(self._written)

    def save(self, connection: sqlite3.Connection, corpus: str, *, always: bool = False) -> None:
        """Brings the arrays of a corpus up to the file and saves them; see `Mirror.save`."""
        state = read_state(connection, corpus)
        if state is not None and self.folder is not None:
            mirror = self[corpus]
            mirror.snapshot(connection, state)
            mirror.save(always=always)

    def save_all(self, connection: sqlite3.Connection) -> None:
        """Saves the arrays of every corpus that this process wrote or searched, where that pays."""
        if self.folder is None or self._read_only:
            return
        with self._lock:
            searched = list(self._mirrors.values())
        for corpus in self.written():
            self.save(connection, corpus)
        for mirror in searched:
            mirror.save()
        _sweep_drafts(self.folder)

    def swap(self, corpus: str, other: str) -> None:
        """Lets two corpora that were exchanged take their arrays along."""
        mine, theirs = self[corpus], self[other]
        with self._lock:
            self._mirrors |= {corpus: theirs, other: mine}
            self._written |= {corpus, other}

    def remove(self, corpus: str, uuid: str) -> None:
        """Forgets a life of a corpus that has ended, with what was saved of it."""
        self[corpus].forget()
        if self.folder is not None:
            for path in self.folder.glob(f"{uuid}.*"):
                _unlink(path)

    def sweep(self, corpus: str, *, keep: Collection[str]) -> None:
        """Removes what is saved of a corpus, and leftovers; corpora of the uuids `keep` stay."""
        self[corpus].forget()
        if self.folder is None or not self.folder.is_dir():
            return
        for path in self.folder.iterdir():
            if path.stem not in keep:  # a draft's stem is longer than a uuid
                _unlink(path)


def _sweep_drafts(folder: Path) -> None:
    """Removes what processes left that were killed while saving."""
    if folder.is_dir():
        for path in folder.glob("*.tmp"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _DRAFT_AGE:
                    path.unlink()


def _unlink(path: Path) -> None:
    # Another process may have it open, or may have been faster; it is in nobody's way.
    with contextlib.suppress(OSError):
        path.unlink()
