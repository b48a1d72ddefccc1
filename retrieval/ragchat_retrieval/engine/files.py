"""One engine state in one file, opened as memory-mapped arrays.

The file holds a magic word, the arrays one after another at multiples of 64 bytes, a directory of
them as JSON, and a trailer that says where the directory is and what its checksum is. The trailer
comes last, so that a file cut short has none.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from ragchat_retrieval.engine.columns import Columns, Values
from ragchat_retrieval.engine.growing import Growing
from ragchat_retrieval.engine.matrix import Matrix
from ragchat_retrieval.engine.segment import Segment
from ragchat_retrieval.engine.snapshot import Snapshot
from ragchat_retrieval.engine.strings import StringTable, Vocabulary
from ragchat_retrieval.engine.writer import Engine

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import BinaryIO

    from numpy.typing import NDArray

_MAGIC = b"ragchat1"
_TRAILER = struct.Struct("<QQQ8s")
_ALIGNMENT = 64
_PAGE = 4096
_STRINGS = ("text", "offsets", "hashes", "order")


class DamagedIndex(Exception):
    """A saved engine is missing, truncated, damaged or of another format. Rebuild it."""


def save(engine: Engine, path: Path, *, stamp: Mapping[str, Any]) -> None:
    """Writes the current state of an engine to one file, atomically (temporary file and rename).

    Compacts the engine first. Payloads are not saved. The file is not forced to disk: one that a
    loss of power has torn does not open.

    Args:
        engine: The engine; must not be written to meanwhile.
        path: The file; replaced if it exists.
        stamp: JSON values that `load` gives back, such as the revision of the store.
    """
    write_arrays(path, _arrays(engine.compact()), stamp=stamp)


def load(path: Path) -> tuple[Engine, dict[str, Any]]:
    """Opens a saved engine. Arrays are mapped, not copied; later writes stay in memory.

    All checksums are checked, at the speed of memory where the file is in the system's cache.

    Returns:
        The engine and the stamp.

    Raises:
        DamagedIndex: The file is missing, truncated, damaged or of another format.
    """
    arrays, stamp = read_arrays(path)
    try:
        return Engine(_snapshot(arrays)), stamp
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedIndex(f"cannot use {path}: {type(error).__name__}") from None


def write_arrays(
    path: Path, arrays: Mapping[str, Sequence[NDArray[Any]]], *, stamp: Mapping[str, Any]
) -> None:
    """Writes named arrays to one file, atomically, as `save` does for an engine.

    Args:
        path: The file; replaced if it exists.
        arrays: Each in parts that are joined along the first axis; at least one.
        stamp: JSON values that `read_arrays` gives back.
    """
    draft = path.with_name(f"{path.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
    try:
        with draft.open("wb") as file:
            _write(file, arrays, stamp)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def read_arrays(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Opens what `write_arrays` wrote. Arrays are mapped, not copied; checksums are checked.

    Returns:
        The arrays and the stamp.

    Raises:
        DamagedIndex: The file is missing, truncated, damaged or of another format.
    """
    try:
        with Path(path).open("rb") as file:
            data = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
        return _read(data)
    except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
        raise DamagedIndex(f"cannot use {path}: {type(error).__name__}") from None


def _write(
    file: BinaryIO, arrays: Mapping[str, Sequence[NDArray[Any]]], stamp: Mapping[str, Any]
) -> None:
    file.write(_MAGIC)
    directory = {}
    for name, parts in arrays.items():
        file.write(bytes(-file.tell() % _ALIGNMENT))
        start = file.tell()
        sums = []
        for part in parts:
            whole = np.ascontiguousarray(part)
            file.write(whole.data.cast("B") if whole.size else b"")
            sums.append(_checksum(whole))
        shape = [sum(len(part) for part in parts), *parts[0].shape[1:]]
        directory[name] = [parts[0].dtype.str, shape, start, [len(part) for part in parts], sums]
    text = json.dumps({"arrays": directory, "stamp": dict(stamp)}).encode()
    start = file.tell()
    file.write(text)
    file.write(_TRAILER.pack(start, len(text), crc32(text), _MAGIC))


def _read(data: NDArray[np.uint8]) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    start, length, expected, magic = _TRAILER.unpack(data[-_TRAILER.size :].tobytes())
    text = data[start : start + length].tobytes()
    end = start + length + _TRAILER.size
    if magic != _MAGIC or data[:8].tobytes() != _MAGIC or end != len(data):
        raise ValueError("no saved engine of this format")
    if crc32(text) != expected:
        raise ValueError("damaged directory")
    directory = json.loads(text)
    arrays = {}
    for name, (dtype, shape, first, lengths, sums) in directory["arrays"].items():
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        array = data[first : first + size].view(dtype).reshape(shape)
        low = 0
        for count, checksum in zip(lengths, sums, strict=True):
            if _checksum(array[low : low + count]) != checksum:
                raise ValueError("damaged array")
            low += count
        arrays[name] = array
    return arrays, directory["stamp"]


def _checksum(array: NDArray[Any]) -> int:
    """Returns the CRC-32 of the sums of each page's words.

    As fast as memory, and sensitive to any changed bit, any page that is missing, zero or
    misplaced.
    """
    data = array.reshape(-1).view(np.uint8) if array.size else np.zeros(0, np.uint8)
    pages = len(data) // _PAGE
    words = data[: pages * _PAGE].view(np.uint64).reshape(pages, _PAGE // 8)
    return crc32(data[pages * _PAGE :].tobytes(), crc32(words.sum(axis=1).tobytes()))


def _arrays(snapshot: Snapshot) -> dict[str, list[NDArray[Any]]]:
    segment = snapshot.segments[0] if snapshot.segments else None
    names, term_ids = snapshot.vocabulary.table()
    matrix = snapshot.matrix
    arrays: dict[str, list[NDArray[Any]]] = {
        "keys": [snapshot.all_keys],
        "lengths": [snapshot.lengths],
        "vocabulary.ids": [term_ids],
        "vocabulary.named": [np.array([snapshot.vocabulary.named])],
        "matrix.positions": [matrix.positions],
        "matrix.rows": [matrix.rows],
        "matrix.largest": [np.array([matrix.largest])],
    }
    arrays |= {f"vocabulary.{name}": [getattr(names, name)] for name in _STRINGS}
    if matrix.dimension is not None:
        empty = np.zeros((0, matrix.dimension), np.float32)
        arrays["matrix.vectors"] = list(matrix.blocks) or [empty]
    if segment is not None:
        arrays |= {f"ids.{name}": [getattr(segment.ids, name)] for name in _STRINGS}
        for name in ("terms", "offsets", "rows", "counts"):
            arrays[f"postings.{name}"] = [getattr(segment, name)]
    for key in snapshot.columns:
        values, codes = snapshot.columns.codes(key) or (Values(), np.zeros(0, np.int32))
        arrays[f"column.codes.{key}"] = [codes]
        arrays[f"column.values.{key}"] = [np.frombuffer(values.to_json(), np.uint8)]
    return arrays


def _snapshot(arrays: Mapping[str, NDArray[Any]]) -> Snapshot:
    rows = len(arrays["keys"])
    segments: tuple[Segment, ...] = ()
    if "ids.text" in arrays:
        ids = StringTable(*(arrays[f"ids.{name}"] for name in _STRINGS))
        parts = (arrays[f"postings.{name}"] for name in ("terms", "offsets", "rows", "counts"))
        segments = (Segment(0, rows, ids, *parts),)
    vectors = arrays.get("matrix.vectors")
    columns = {
        key: (
            Values(arrays[f"column.values.{key}"].tobytes()),
            Growing(arrays[name]),
            arrays[name],
        )
        for name in arrays
        if (key := name.removeprefix("column.codes.")) != name
    }
    return Snapshot(
        segments=segments,
        vocabulary=Vocabulary(
            StringTable(*(arrays[f"vocabulary.{name}"] for name in _STRINGS)),
            arrays["vocabulary.ids"],
            named=bool(arrays["vocabulary.named"][0]),
        ),
        columns=Columns(columns, rows),
        matrix=Matrix(
            None if vectors is None else vectors.shape[1],
            arrays["matrix.positions"],
            arrays["matrix.rows"],
            () if vectors is None or not len(vectors) else (vectors,),
            float(arrays["matrix.largest"][0]),
        ),
        all_keys=arrays["keys"],
        lengths=arrays["lengths"],
        alive=np.ones(rows, np.bool_),
        live=rows,
        total=int(arrays["lengths"].sum()),
    )
