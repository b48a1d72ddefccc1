"""Filter columns: metadata and reserved fields, dictionary-encoded.

A column holds a code per row, −1 where the key is absent, and the distinct values behind the
codes. A condition is tested once per distinct value, by the very function that defines filters,
and the answers are looked up by code; so a mask is exactly what testing each passage would give.
"""

from __future__ import annotations

import json
import threading
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ragchat_retrieval.comparison import canonical_date, canonical_datetime, scalar_key
from ragchat_retrieval.engine.growing import Growing
from ragchat_retrieval.filters import Op

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.engine.batch import Batch
    from ragchat_retrieval.filters import Condition

_CACHED_ANSWERS = 64
_FEW = 16
"""Values up to which each is encoded by itself."""

_SIMPLE = frozenset({str, bool, int, float})
"""Types whose equal values have one code."""

_CONTAINER = ("container",)
_COMPARED: dict[Op, Callable[[Any, Any], Any]] = {
    Op.GT: np.greater,
    Op.GTE: np.greater_equal,
    Op.LT: np.less,
    Op.LTE: np.less_equal,
}


class Mask:
    """The live rows that a filter selects.

    Args:
        flags: bool [rows of the snapshot]; False for removed rows. Not to be written to.
    """

    def __init__(self, flags: NDArray[np.bool_]) -> None:
        self.flags = flags

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """The selected rows, ascending."""
        return np.flatnonzero(self.flags)

    @cached_property
    def size(self) -> int:
        """How many rows are selected."""
        return int(np.count_nonzero(self.flags))

    def __len__(self) -> int:
        return self.size


class Values:
    """The distinct values of a column, by code. Grows at its end.

    Equal strings have one code, strings of one instant have one each, so that a code also names a
    string exactly, as ids need. Other filter-equal values share a code.

    Args:
        stored: What `to_json` gave, decoded when first needed.
    """

    def __init__(self, stored: bytes = b"[]") -> None:
        self._stored: bytes | None = stored
        self._values: list[Any] = []
        self._codes: dict[Hashable, int] = {}
        self._answers: dict[bytes, NDArray[np.bool_]] = {}
        self._numbers = np.zeros(0)
        self._lock = threading.RLock()

    def encode(self, values: Sequence[object]) -> list[int]:
        """Returns the codes of values, giving new codes to new ones. For the writer only."""
        values_of, codes = self._loaded()
        if len(values) > _FEW and len(kinds := {*map(type, values)}) == 1 and kinds <= _SIMPLE:
            distinct = [*dict.fromkeys(values)]
            if kinds == {str}:  # as ids and labels are
                new = [value for value in distinct if value not in codes]
                first = len(values_of)
                values_of += new
                codes.update(zip(new, range(first, first + len(new)), strict=True))
                return [codes[value] for value in values]
            if len(distinct) < len(values):
                known = dict(zip(distinct, self.encode(distinct), strict=True))
                return [known[value] for value in values]
        result = []
        for value in values:
            key = _identity(value)
            code = codes.get(key)
            if code is None:
                code = len(values_of)
                values_of.append(_representative(value))
                codes[key] = code
            result.append(code)
        return result

    def codes_of(self, strings: Iterable[str]) -> list[int]:
        """Returns the codes of those of these strings that are known, matched exactly."""
        codes = self._loaded()[1]
        found = (codes.get(string) for string in strings)
        return [code for code in found if code is not None]

    def get(self, codes: NDArray[np.integer[Any]]) -> list[Any]:
        """Returns the values of codes."""
        values = self._loaded()[0]
        return [values[code] for code in codes.tolist()]

    def answers(self, condition: Condition) -> NDArray[np.bool_]:
        """Returns which codes match a condition; may be longer than a reader's codes reach."""
        values, _ = self._loaded()
        key = condition.canonical_bytes()
        with self._lock:
            known = self._answers.get(key, np.zeros(0, np.bool_))
            if len(known) < len(values):
                fresh = self._tested(condition, len(known), len(values))
                known = np.concatenate([known, fresh])
                while len(self._answers) >= _CACHED_ANSWERS:
                    del self._answers[next(iter(self._answers))]
                self._answers[key] = known
            return known

    def untested(self, condition: Condition) -> int:
        """Returns how many values `answers` would have to test one by one."""
        known = len(self._answers.get(condition.canonical_bytes(), ()))
        stored = 0 if self._stored is None else len(self._stored)
        return stored + len(self._values) - known

    def compacted(self, used: NDArray[np.integer[Any]]) -> Values:
        """Returns only the values of these codes, renumbered in the order given."""
        result = Values()
        result.encode(self.get(used))
        return result

    def to_json(self) -> bytes:
        """Returns all values as UTF-8 JSON."""
        return json.dumps(self._loaded()[0], ensure_ascii=False).encode()

    def _tested(self, condition: Condition, low: int, high: int) -> NDArray[np.bool_]:
        op = condition.op
        if op is Op.EXISTS:
            return np.full(high - low, condition.value)
        if op in {Op.EQ, Op.IN, Op.NE} and (exact := self._exact(condition)) is not None:
            equal = np.zeros(high, np.bool_)
            equal[np.array([code for code in exact if code < high], np.int64)] = True
            return (~equal if op is Op.NE else equal)[low:]
        if op in _COMPARED:
            ((kind, operand),) = condition.operands
            if kind == "number":
                with np.errstate(invalid="ignore"):
                    answer: NDArray[np.bool_] = _COMPARED[op](self._as_numbers(high)[low:], operand)
                return answer
        values = self._values[low:high]
        return np.fromiter(map(condition.test, values), np.bool_, high - low)

    def _exact(self, condition: Condition) -> list[int] | None:
        """Returns the codes equal to the operands; None if that needs a look at every value."""
        found = []
        for kind, value in condition.operands:
            if kind == "string" and canonical_date(str(value)) is not None:
                return None
            code = self._codes.get(value if kind == "string" else (kind, value))
            if code is not None:
                found.append(code)
        return found

    def _as_numbers(self, high: int) -> NDArray[np.float64]:
        """Returns numbers as float64, exact by what metadata allows; NaN for other kinds."""
        low = len(self._numbers)
        if low < high:
            fresh = [
                float(value) if type(value) in {int, float} else np.nan
                for value in self._values[low:high]
            ]
            self._numbers = np.concatenate([self._numbers, np.array(fresh, np.float64)])
        return self._numbers[:high]

    def _loaded(self) -> tuple[list[Any], dict[Hashable, int]]:
        if self._stored is not None:
            with self._lock:
                if self._stored is not None:
                    values = json.loads(self._stored)
                    self._codes = {_identity(value): code for code, value in enumerate(values)}
                    self._values = values
                    self._stored = None
        return self._values, self._codes


class Columns:
    """All columns of a corpus. Immutable; `appended` gives the next state."""

    def __init__(
        self, columns: Mapping[str, tuple[Values, Growing[np.int32], NDArray[np.int32]]], rows: int
    ) -> None:
        self._columns = columns
        self.rows = rows

    def codes(self, key: str) -> tuple[Values, NDArray[np.int32]] | None:
        """Returns a column's values and the code of each row; None if no row ever had the key."""
        column = self._columns.get(key)
        return None if column is None else (column[0], column[2])

    def flags(self, condition: Condition) -> NDArray[np.bool_]:
        """Returns which rows match a condition, bool [rows]."""
        column = self.codes(condition.key)
        if column is None:
            return np.full(self.rows, condition.test_absent())
        values, codes = column
        # The code of absence, −1, finds the last answer.
        answers = np.append(values.answers(condition), condition.test_absent())
        flags: NDArray[np.bool_] = answers[codes]
        return flags

    def appended(self, batch: Batch) -> Columns:
        """Returns the columns with a batch's rows. For the writer only."""
        size, first = len(batch), self.rows
        added: dict[str, tuple[list[int], list[object]]] = {}
        for key, given in (
            ("document_id", batch.document_ids),
            ("title", batch.titles),
            ("source", batch.sources),
        ):
            at = [position for position, value in enumerate(given) if value is not None]
            if at:
                added[key] = (at, [given[position] for position in at])
        for position, metadata in enumerate(batch.metadata):
            for key, value in metadata.items():
                rows, values = added.setdefault(key, ([], []))
                rows.append(position)
                values.append(value)
        columns = dict(self._columns)
        for key in columns.keys() | added.keys():
            codes = np.full(size, -1, np.int32)
            if key in added:
                column = columns.get(key) or self._new(first)
                codes[added[key][0]] = column[0].encode(added[key][1])
            else:
                column = columns[key]
            known, growing, _ = column
            columns[key] = (known, growing, growing.extended(first, codes))
        return Columns(columns, first + size)

    def compacted(self, kept: NDArray[np.int64]) -> Columns:
        """Returns columns of only these rows, ascending, without values that no row has."""
        columns = {}
        for key, (values, _, codes) in self._columns.items():
            used, renumbered = np.unique(codes[kept], return_inverse=True)
            if len(used) and used[0] < 0:
                used, renumbered = used[1:], renumbered - 1
            if len(used):
                fresh = renumbered.astype(np.int32)
                columns[key] = (values.compacted(used), Growing(fresh), fresh)
        return Columns(columns, len(kept))

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    @staticmethod
    def _new(rows: int) -> tuple[Values, Growing[np.int32], NDArray[np.int32]]:
        absent = np.full(rows, -1, np.int32)
        return Values(), Growing(absent), absent


def _identity(value: object) -> Hashable:
    if type(value) is str:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    return scalar_key(value) or _CONTAINER


def _representative(value: object) -> object:
    """Returns a JSON value that every condition answers like `value`."""
    if isinstance(value, datetime):
        return canonical_datetime(value)
    return [] if scalar_key(value) is None else value
