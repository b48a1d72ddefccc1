"""Where a folder is, what it is called, and what is in it."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.ingest.files import Listing, Selection, SourceFile, list_files


@dataclass(frozen=True, slots=True)
class Place:
    """Where a folder is and what it is called."""

    root: str
    given: Path
    """As the user wrote it."""

    real: Path
    single: str | None
    """Name of the only file to read."""

    known_as: str | None = None
    """What stands for the path, where it is only a copy's."""

    @property
    def label(self) -> str:
        """Names it to people."""
        return str(self.real) if self.known_as is None else self.known_as

    @property
    def mark(self) -> str:
        """Tells folders apart without naming them: a hash of the real path, or of its name."""
        if self.known_as is None:
            return _hash(os.fsencode(self.real))
        return _hash(self.known_as.encode("utf-8", "surrogatepass"))


def _hash(known: bytes) -> str:
    return hashlib.sha256(known).hexdigest()[:16]


def locate(path: Path, root: str | None, known_as: str | None) -> Place:
    """Looks where a folder, or a single file, is.

    Raises:
        InvalidSetting: Nothing is there, or the name cannot be that of a root.
    """
    if not path.exists():
        raise InvalidSetting("path", f"there is no file or folder {str(path)!r}")
    folder, single = (path, None) if path.is_dir() else (path.parent, path.name)
    real = folder.resolve()
    name = real.name if root is None else root
    if not name.strip() or "/" in name:
        raise InvalidSetting("root", "must be a name without a slash, and not blank")
    given = folder if known_as is None else Path(known_as)
    return Place(name, given, real, single, known_as)


def listing_of(place: Place, selection: Selection) -> Listing:
    """Walks the folder, or looks at the single file.

    Raises:
        InvalidSetting: The file is no regular one, or has gone; there are too many files.
    """
    if place.single is None:
        return list_files(place.real, selection)
    path = (place.real / place.single).resolve()
    try:
        state = path.stat()
    except FileNotFoundError:
        state = None
    if state is None or not stat.S_ISREG(state.st_mode):
        # To read from a pipe might never end.
        raise InvalidSetting("path", f"{str(place.given / place.single)!r} is no regular file")
    return Listing((SourceFile(path, place.single, state.st_size),), ())
