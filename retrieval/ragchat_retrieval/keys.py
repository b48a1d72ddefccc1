"""One name for one value: a digest that equal values share and different ones do not.

It serves as the key of what was computed from values. What has no value of its own to tell, such as
a function or an open file, has no key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from datetime import date, time
from enum import Enum
from typing import Any

import numpy as np

from ragchat_retrieval.filters import Filter

_PLAIN = (bool, int, float, date, time, type(None))
"""Types whose ``repr`` tells type and value; a `datetime` is a `date`."""


def key_of(*values: object) -> bytes | None:
    """Returns a key of values, 32 bytes; None if one of them has none.

    The kinds of containers do not count (a tuple is the list of its items), while ``1``, ``1.0``
    and ``True`` differ. Objects of SDKs are read by their ``model_dump()``.
    """
    digest = hashlib.sha256()
    try:
        _feed(digest.update, values)
    except (_Unkeyable, RecursionError):
        return None
    return digest.digest()


class _Unkeyable(Exception):
    """A value with no content to tell."""


def _feed(put: Callable[[bytes], object], value: Any) -> None:  # noqa: ANN401 - any value
    if (plain := _plain(value)) is not None:
        _mark(put, *plain)
    elif isinstance(value, Mapping):
        items = sorted((_inner(key), _inner(item)) for key, item in value.items())
        _mark(put, b"m", b"".join(key + item for key, item in items))
    elif isinstance(value, Sequence):
        _mark(put, b"l", str(len(value)).encode())
        for item in value:
            _feed(put, item)
    elif isinstance(value, AbstractSet):
        _mark(put, b"t", b"".join(sorted(map(_inner, value))))
    else:
        kind = type(value)
        _mark(put, b"o", f"{kind.__module__}.{kind.__qualname__}".encode())
        _feed(put, _content(value))


def _plain(value: Any) -> tuple[bytes, bytes] | None:  # noqa: ANN401 - any value
    """Returns the kind and the bytes of a value that holds no others."""
    if isinstance(value, str):
        return b"s", value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes):
        return b"b", value
    if isinstance(value, Enum):
        return b"e", f"{type(value).__qualname__}.{value.name}".encode()
    if isinstance(value, _PLAIN):
        return b"p", repr(value).encode()
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return b"a", f"{value.dtype.str}{value.shape}".encode() + value.tobytes()
    return None


def _mark(put: Callable[[bytes], object], kind: bytes, data: bytes) -> None:
    """Feeds data with its kind and length, so that no two values run together."""
    put(b"%s%d:" % (kind, len(data)))
    put(data)


def _inner(value: object) -> bytes:
    digest = hashlib.sha256()
    _feed(digest.update, value)
    return digest.digest()


def _content(value: Any) -> object:  # noqa: ANN401 - any object
    if isinstance(value, type):
        raise _Unkeyable
    if isinstance(value, Filter):
        return value.canonical_bytes()
    if is_dataclass(value):
        return {f.name: getattr(value, f.name) for f in fields(value) if f.compare}
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump()
    raise _Unkeyable
