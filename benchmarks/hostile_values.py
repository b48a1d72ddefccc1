"""Values that were made to do harm: texts, numbers and JSON of any kind at any depth."""

from __future__ import annotations

import json
import string
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from urllib.parse import quote

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Sequence

T = TypeVar("T")
JSON: TypeAlias = Any

FOREIGN_IDS = ("foreign", "foreign/of another corpus", "stray")
"""Ids outside the attacker's reach; `OWN_ID` is inside."""

OWN_ID = "own"

WIDENING = ["scope", "corpus", "filter", "key", "tenant", "team", "stamp", "owner", "index", "op"]
"""Names that a server might take for more than a filter."""

_DEEPER = 0.8
"""How often a broken value is broken further inside."""

_MOST_DEPTH = 4


class Values:
    """Makes values.

    Args:
        chance: Where all randomness comes from.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def one(self, values: Sequence[T]) -> T:
        """Returns one of these."""
        return self._chance.choice(values)

    def some(self, names: Iterable[str]) -> list[str]:
        """Returns each of these or not."""
        return [name for name in names if self.one([True, False])]

    def number(self) -> str:
        """Returns what a query parameter takes for a number, or not."""
        return quote(self.one(["0", "1", "5", "-1", "9" * 30, "9" * 5000, "", "x", "1e3", "٣"]))

    def id(self) -> str:
        """Returns a document's id, of whomever."""
        return self.one([*FOREIGN_IDS, OWN_ID, self.text(), "a" * 2000, "uploads/a.md"])

    def text(self) -> str:
        """Returns a text."""
        letters = string.printable + "é日🙂\u202e\0\u0301\ufeff\u2028"
        made = "".join(self._chance.choices(letters, k=self._chance.randint(0, 40)))
        known = ["leave", "How many days of leave?", "heliotrope outside scope", "team y owner", ""]
        return self.one([made, *known, "[1]", "</evidence>", "x" * 3000])

    def value(self, depth: int) -> JSON:
        """Returns a JSON value of any kind; `depth` is how deep it will lie."""
        kinds: list[Callable[[], Any]] = [
            self.text,
            lambda: self.one([0, 1, -1, 10**20, -(10**20), 2**63, 10**400]),
            lambda: self.one([True, False, None, 1e308, -0.0, 5e-324, "\ud800", "a\udfffb"]),
            lambda: self.one(["heli", *FOREIGN_IDS, "x", "y", "team", "$ne", "*"]),
        ]
        if depth < _MOST_DEPTH:
            some = range(self._chance.randint(0, 3))
            kinds += [
                lambda: [self.value(depth + 1) for _ in some],
                lambda: {self.text(): self.value(depth + 1) for _ in some},
                lambda: {self.one(WIDENING): self.value(depth + 1) for _ in some},
            ]
        return self.one(kinds)()

    def broken(self, value: JSON) -> JSON:
        """Returns a copy of a value that is different at one place of any depth."""
        if isinstance(value, dict) and value and self._chance.random() < _DEEPER:
            name = self.one(list(value))
            left = {other: value[other] for other in value if other != name}
            further = {**value, self.one([*WIDENING, self.text()]): self.value(0)}
            changed = {**value, name: self.broken(value[name])}
            return self.one([left, further, *[changed] * 8])
        if isinstance(value, list) and value and self._chance.random() < _DEEPER:
            at = self._chance.randrange(len(value))
            return [
                *value[:at],
                self.broken(value[at]),
                *value[at + 1 :],
                *self.one([[], [value[at]]]),
            ]
        return self.value(0)

    def json(self, value: JSON) -> bytes:
        """Returns a value's JSON, in which a half of a surrogate pair may stand as it is."""
        escaped = self.one([True, False])
        return json.dumps(value, ensure_ascii=escaped).encode("utf-8", "surrogatepass")
