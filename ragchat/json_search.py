"""Finding the first complete JSON value in what a model said. Pure, and linear in time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

MAX_DEPTH = 64
"""Deepest nesting of a value that is looked for."""

JSONValue: TypeAlias = Any
"""What `json.loads` returns."""

Pairs: TypeAlias = Callable[[list[tuple[str, JSONValue]]], JSONValue]
"""Makes an object of its key-value pairs: the ``object_pairs_hook`` of `json.loads`."""

_LONGEST_INTEGER = 400
_OPENING = re.compile(r"[{\[]")
_OBJECT = re.compile(r"\{")
_TOKEN = re.compile(
    r"""[\x20\t\r\n]*+(?:
        (?P<string>"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+")
        |(?P<scalar>-?+(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]++)?+|true|false|null)
        |(?P<mark>[{}\[\],:])
    )""",
    re.VERBOSE,
)

_State = Literal["value", "first item", "key", "first key", "colon", "next"]
_STEPS: dict[tuple[_State, str], _State] = {
    ("value", "string"): "next",
    ("value", "scalar"): "next",
    ("first item", "string"): "next",
    ("first item", "scalar"): "next",
    ("key", "string"): "colon",
    ("first key", "string"): "colon",
    ("colon", ":"): "value",
}
_OPENS: dict[tuple[_State, str], _State] = {
    ("value", "{"): "first key",
    ("value", "["): "first item",
    ("first item", "{"): "first key",
    ("first item", "["): "first item",
}
_CLOSES = {("first key", "}"), ("next", "}"), ("first item", "]"), ("next", "]")}
_PARTNER = {"}": "{", "]": "["}


def first_json(text: str, *, pairs: Pairs | None = None) -> JSONValue:
    """Returns the first complete JSON object or array in `text`, decoded; None without one.

    Fences and prose around it are ignored. A broken value is never repaired: the search goes on
    with the outermost complete value inside it, then behind it.

    Args:
        text: What a model said.
        pairs: Makes the objects; a `ValueError` that it raises reaches the caller. By default the
            last of equal keys wins.
    """
    return _first(text, _OPENING, _DECODER if pairs is None else _decoder(pairs))


def first_object(text: str) -> dict[str, JSONValue]:
    """Returns the first complete JSON object in `text`, decoded; an empty one without any.

    Lists are passed over, so that a model may cite ``[1]`` in what it says before, and so is a list
    around the object.
    """
    return _first(text, _OBJECT, _DECODER) or {}


def _first(text: str, begins: re.Pattern[str], decoder: json.JSONDecoder) -> JSONValue:
    opening = begins.search(text)
    if opening is None:
        return None
    if text.count("{") + text.count("[") <= MAX_DEPTH:
        # The usual reply is complete, and the decoder reads it ten times as fast as `_searched`.
        try:
            return decoder.raw_decode(text, opening.start())[0]
        except ValueError:
            pass
    found = _searched(text, begins)
    return None if found is None else decoder.decode(found)


def _searched(text: str, begins: re.Pattern[str]) -> str | None:
    position = 0
    while opening := begins.search(text, position):
        reader = _Reader(opening.start())
        while (token := _TOKEN.match(text, reader.position)) and reader.take(token):
            pass
        for start, end in reader.complete:
            if begins.match(text, start):
                return text[start:end]
        # Brackets that are still open share the fault, so none of them needs a second look.
        position = max(reader.position, opening.end())
    return None


def _refuse(constant: str) -> JSONValue:
    raise ValueError(constant)


def _integer(digits: str) -> int | float:
    """Reads an integer; Python refuses to read one of thousands of digits, so that is a float."""
    return int(digits) if len(digits) <= _LONGEST_INTEGER else float(digits)


def _decoder(pairs: Pairs | None = None) -> json.JSONDecoder:
    """Returns a decoder that takes neither NaN nor Infinity, which are no JSON."""
    return json.JSONDecoder(object_pairs_hook=pairs, parse_int=_integer, parse_constant=_refuse)


_DECODER = _decoder()


class _Reader:
    """Follows the grammar of JSON from an opening bracket, one token at a time."""

    def __init__(self, start: int) -> None:
        self.position = start
        self.complete: list[tuple[int, int]] = []
        """Ranges of the outermost complete objects and arrays so far."""

        self._open: list[tuple[str, int]] = []
        self._state: _State = "value"

    def take(self, token: re.Match[str]) -> bool:
        """Takes the next token; says whether the value goes on."""
        mark = token["mark"]
        symbol = mark or token.lastgroup or ""
        step = (self._state, symbol)
        if step in _STEPS:
            self._state = _STEPS[step]
        elif step in _OPENS and len(self._open) < MAX_DEPTH:
            self._state = _OPENS[step]
            self._open.append((symbol, token.start("mark")))
        elif step in _CLOSES and self._open[-1][0] == _PARTNER[symbol]:
            self._close(token.end())
        elif step == ("next", ","):
            self._state = "key" if self._open[-1][0] == "{" else "value"
        else:
            return False
        self.position = token.end()
        return bool(self._open)

    def _close(self, end: int) -> None:
        start = self._open.pop()[1]
        while self.complete and self.complete[-1][0] > start:
            self.complete.pop()
        self.complete.append((start, end))
        self._state = "next"
