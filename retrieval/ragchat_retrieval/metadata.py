"""Metadata: an immutable mapping that every store can keep and filter.

Keys match the filters' key pattern and are not reserved. Values are None, bools, integers within
±2^53, finite floats, strings, aware datetimes of the years 0001 to 9999 UTC, and lists and maps of
the same. Keys of inner maps are any strings. Tuples become lists, and a datetime keeps its wall
clock and offset but not the name of its zone, so that a value reads the same from every store.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, NoReturn, Self

from ragchat_retrieval.comparison import plain_scalar
from ragchat_retrieval.errors import InvalidMetadata
from ragchat_retrieval.filters import KEY_PATTERN, RESERVED_KEYS

MAX_DEPTH = 32
"""Most levels of lists and maps inside one value."""

MAX_VALUES = 100_000
"""Most values inside one value; shared lists, as YAML aliases make them, count each time."""

# Tags of the stored form. Inner maps that would be mistaken for one are wrapped in the second.
_DATETIME = "$datetime"
_MAP = "$map"

_EXACT = frozenset({str, int, bool, type(None)})
"""Types whose equal values are the same in every respect."""

_REMEMBERED = 1024
"""Distinct metadata after which a write's are taken to be all different."""

# Made once: `json.dumps` makes an encoder at each call with options.
_write = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode


def _read_only(*_args: Any, **_kwargs: Any) -> NoReturn:
    raise TypeError("metadata is read-only")


class FrozenList(list[Any]):
    """A list inside metadata; equal to a plain list, and read-only."""

    __slots__ = ()

    append = clear = extend = insert = pop = remove = reverse = sort = _read_only
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _read_only

    def __copy__(self) -> FrozenList:
        return self

    def __deepcopy__(self, _memo: object) -> FrozenList:
        return self

    def __reduce__(self) -> tuple[type[FrozenList], tuple[list[Any]]]:
        return (type(self), (list(self),))


class FrozenMap(dict[str, Any]):
    """A map inside metadata; equal to a plain dict, and read-only."""

    __slots__ = ()

    clear = pop = popitem = setdefault = update = _read_only
    __setitem__ = __delitem__ = __ior__ = _read_only

    def __copy__(self) -> FrozenMap:
        return self

    def __deepcopy__(self, _memo: object) -> FrozenMap:
        return self

    def __reduce__(self) -> tuple[type[FrozenMap], tuple[dict[str, Any]]]:
        return (type(self), (dict(self),))


class Metadata(FrozenMap):
    """A checked deep copy of a mapping. ``Metadata(metadata)`` is that very object.

    Args:
        mapping: What to copy.
        document_id: The document it belongs to, named in errors.

    Raises:
        InvalidMetadata: A key or value lies outside what is described above.
    """

    __slots__ = ()

    def __new__(
        cls, mapping: Mapping[str, Any] | None = None, *, document_id: str | None = None
    ) -> Self:
        """Returns the mapping itself if it is metadata already."""
        del document_id
        return mapping if isinstance(mapping, cls) else super().__new__(cls)

    def __init__(
        self, mapping: Mapping[str, Any] | None = None, *, document_id: str | None = None
    ) -> None:
        if mapping is self or mapping is None:
            return
        if not isinstance(mapping, Mapping):
            raise InvalidMetadata("not a mapping", document_id=document_id, field="metadata")
        super().__init__(_checked(mapping, document_id))


def encode(metadata: Mapping[str, Any]) -> str:
    """Returns metadata as JSON text without loss; the order of keys makes no difference."""
    given = Metadata(metadata)
    if _EXACT.issuperset(map(type, given.values())):
        return _write(given)
    return _write({key: _tagged(value) for key, value in given.items()})


def sameness(metadata: Mapping[str, Any]) -> object:
    """Returns what is equal for two metadata only if `encode` gives one text for them."""
    kinds = tuple(map(type, metadata.values()))
    return (kinds, *metadata.items()) if _EXACT.issuperset(kinds) else encode(metadata)


class MetadataTexts:
    """Encodes metadata, each once while there are few: documents often carry the same."""

    def __init__(self) -> None:
        self._known: dict[object, str] = {}

    def __call__(self, metadata: Mapping[str, Any]) -> str:
        """Returns `encode` of metadata."""
        if len(self._known) == _REMEMBERED:
            return encode(metadata)
        key = sameness(metadata)
        text = self._known.get(key)
        if text is None:
            text = self._known[key] = key if isinstance(key, str) else encode(metadata)
        return text


def are_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Says whether `encode` gives one text for two metadata, mostly without making it."""
    if one is other or not (one or other):
        return True
    if one != other:
        return False
    # Equal maps may still differ in type: True, 1 and 1.0 are equal to Python and not to filters.
    if all(type(value) is type(other[key]) in _EXACT for key, value in one.items()):
        return True
    return encode(one) == encode(other)


def decode(text: str) -> Metadata:
    """Returns the metadata that `encode` made a text of.

    Raises:
        InvalidMetadata: The text is no such encoding.
    """
    try:
        stored = {key: _untagged(value) for key, value in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise InvalidMetadata("stored metadata is damaged", field="metadata") from None
    return Metadata(stored)


def _checked(mapping: Mapping[Any, Any], document_id: str | None) -> Iterator[tuple[str, object]]:
    for key, value in mapping.items():
        if not isinstance(key, str) or KEY_PATTERN.fullmatch(key) is None:
            problem = "a key is 1 to 128 of A-Z, a-z, 0-9, '_' and '-'"
            raise InvalidMetadata(problem, document_id=document_id, field="metadata")
        field = f"metadata.{key}"
        if key in RESERVED_KEYS:
            problem = "the key is reserved for a field of the passage"
            raise InvalidMetadata(problem, document_id=document_id, field=field)
        try:
            frozen = _frozen(value, MAX_DEPTH, itertools.count(1))
        except ValueError as error:
            raise InvalidMetadata(str(error), document_id=document_id, field=field) from None
        yield str.__str__(key), frozen


def _frozen(value: object, depth: int, count: Iterator[int]) -> object:
    if next(count) > MAX_VALUES:
        raise ValueError(f"more than {MAX_VALUES} values")
    if not isinstance(value, Mapping | list | tuple):
        return plain_scalar(value)
    if depth == 0:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    if not isinstance(value, Mapping):
        return FrozenList(_frozen(inner, depth - 1, count) for inner in value)
    if not all(isinstance(key, str) for key in value):
        raise ValueError("a key of an inner map must be a string")
    return FrozenMap(
        {str.__str__(key): _frozen(inner, depth - 1, count) for key, inner in value.items()}
    )


def _tagged(value: object) -> object:
    if isinstance(value, datetime):
        return {_DATETIME: value.isoformat()}
    if isinstance(value, list):
        return [_tagged(inner) for inner in value]
    if isinstance(value, dict):
        inner = {key: _tagged(member) for key, member in value.items()}
        return {_MAP: inner} if len(inner) == 1 and inner.keys() & {_DATETIME, _MAP} else inner
    return value


def _untagged(value: object) -> object:
    if isinstance(value, list):
        return [_untagged(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {_DATETIME}:
        return datetime.fromisoformat(value[_DATETIME])
    members = value[_MAP] if value.keys() == {_MAP} else value
    return {key: _untagged(inner) for key, inner in members.items()}
