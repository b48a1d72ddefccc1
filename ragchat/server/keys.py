"""API keys: made once, kept as hashes in a file, each bound to a corpus and a scope.

A key is 256 random bits, so one round of SHA-256 is enough to keep it: there is nothing to guess
that a slow hash would make dearer.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import secrets
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragchat_retrieval.errors import InvalidFilter, InvalidSetting
from ragchat_retrieval.filters import Eq, Filter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_log = logging.getLogger("ragchat.server")

VERSION = 1
PREFIX = "rc-"
MAX_KEY = 512
"""Characters of a key beyond which none is looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """What a key opens."""

    name: str
    """Names it to people; unique in its file."""

    hash: str = field(repr=False)
    """SHA-256 of the key, in hex."""

    corpus: str = "default"
    """The only corpus that it opens."""

    scope: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Metadata that everything read must have and everything written gets."""

    @property
    def filter(self) -> Filter:
        """The scope as a filter."""
        return Filter(*(Eq(name, value) for name, value in self.scope.items()))


def new_key(
    name: str, *, corpus: str = "default", scope: Mapping[str, Any] | None = None
) -> tuple[str, Key]:
    """Makes a key; returns it in clear, this once, and what is kept of it.

    Raises:
        InvalidSetting: The name or the corpus is blank.
        InvalidFilter: The scope is none.
    """
    secret = PREFIX + secrets.token_urlsafe(32)
    key = Key(name=name, hash=_hashed(secret), corpus=corpus, scope=dict(scope or {}))
    _check(key)
    return secret, key


class KeyRing:
    """The keys of a server, by default those of a file that is read again when it changes.

    Args:
        keys: The keys.
    """

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self._keys = {bytes.fromhex(key.hash): key for key in keys}

    @property
    def keys(self) -> tuple[Key, ...]:
        """All keys."""
        return tuple(self._keys.values())

    def find(self, secret: str) -> Key | None:
        """Returns what a key opens, None if there is no such key.

        Every kept hash is compared, each in constant time, so that the time tells nothing.
        """
        given = hashlib.sha256(secret[:MAX_KEY].encode("utf-8", "replace")).digest()
        found: Key | None = None
        for kept, key in self._keys.items():
            if hmac.compare_digest(kept, given):
                found = key
        return found if len(secret) <= MAX_KEY else None


class KeyFile(KeyRing):
    """The keys of a JSON file; a change of the file holds from the next request on.

    Args:
        path: The file.

    Raises:
        InvalidSetting: It cannot be read as one. A running server keeps the keys that it had.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._stamp = _stamp(self._path)
        self._told = False
        super().__init__(load_keys(self._path))

    def find(self, secret: str) -> Key | None:
        """Returns what a key opens, None if there is no such key."""
        try:
            stamp = _stamp(self._path)
            if stamp != self._stamp:
                super().__init__(load_keys(self._path))
                self._stamp = stamp
        except InvalidSetting as error:
            if not self._told:
                _log.warning("the keys stay as they were: %s", error)
            self._told = True
        else:
            self._told = False
        return super().find(secret)


def load_keys(path: Path) -> tuple[Key, ...]:
    """Reads a file of keys.

    Raises:
        InvalidSetting: It is missing, or no such file.
    """
    try:
        form = json.loads(path.read_text("utf-8"))
        if form["version"] != VERSION:
            raise InvalidSetting("keys", f"{path} is of another version than {VERSION}")
        keys = tuple(Key(**entry) for entry in form["keys"])
        for key in keys:
            _check(key)
    except OSError as error:
        raise InvalidSetting("keys", f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, InvalidSetting):
            raise
        raise InvalidSetting("keys", f"{path} is no file of keys") from None
    if len({key.name for key in keys}) != len(keys) or len({key.hash for key in keys}) != len(keys):
        raise InvalidSetting("keys", f"{path} holds a key or a name twice")
    return keys


def save_keys(path: Path, keys: Iterable[Key]) -> None:
    """Writes a file of keys that only its owner can read, in one step."""
    entries = [
        {"name": key.name, "hash": key.hash, "corpus": key.corpus, "scope": dict(key.scope)}
        for key in keys
    ]
    text = json.dumps({"version": VERSION, "keys": entries}, indent=2) + "\n"
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        state = path.stat()
    except OSError as error:
        raise InvalidSetting("keys", f"{path}: {error.strerror}") from None
    return state.st_mtime_ns, state.st_size, state.st_ino


def _hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _check(key: Key) -> None:
    if not key.name.strip() or not key.corpus.strip():
        raise InvalidSetting("keys", "a key's name and corpus must not be blank")
    if len(bytes.fromhex(key.hash)) != hashlib.sha256().digest_size:
        raise InvalidSetting("keys", f"key {key.name!r} has no SHA-256 hash")
    try:
        _ = key.filter
    except InvalidFilter as error:
        raise InvalidSetting("keys", f"the scope of key {key.name!r}: {error}") from None
