"""What a text says word for word: words in order, numbers, names, denials. Pure."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from itertools import pairwise

from ragchat_retrieval.lexical import Analyzer

_PLAIN = Analyzer(None)
"""Words as they are written: neither stemmed nor without stop words."""

_GROUP = 3
_NUMBER = re.compile(r"\d(?:[\d.,'\u2019\u00a0\u202f]*\d)?")
_INSIDE = re.compile(r"(?<=[^\W_])[,;'\u2019)]{0,2}[ (-]+([^\W_]+)")
# English; German, Dutch, Scandinavian; French, Spanish, Italian, Portuguese; Russian.
_DENIALS_WRITTEN = """
not no never none neither nor cannot without dont doesnt didnt isnt arent wasnt werent wont cant
couldnt shouldnt wouldnt hasnt havent hadnt
nicht kein keine keinen keinem keiner nie niemals ohne niet geen nooit zonder inte ikke
ne jamais aucun aucune sans nunca jamas sin ninguno ninguna non mai senza nessun nessuna nao sem
nenhum nenhuma
\u043d\u0435 \u043d\u0435\u0442 \u043d\u0438\u043a\u043e\u0433\u0434\u0430 \u0431\u0435\u0437
"""
_DENIALS = frozenset(_DENIALS_WRITTEN.split())
_DENYING = re.compile(
    "[\u4e0d\u6ca1\u6c92\u975e\u65e0\u7121\u672a]|\u306a\u3044|\u307e\u305b\u3093|\uc54a|\uc5c6"
)


@dataclass(frozen=True, slots=True)
class Wording:
    """A text as a sequence of words; pairs of characters in scripts without spaces."""

    spelled: str
    """Its words between single spaces, with one at either end."""

    phrases: frozenset[tuple[str, str]]
    """Every two adjacent words."""

    words: int
    """How many words it has."""

    @classmethod
    def of(cls, text: str) -> Wording:
        """Returns the wording of a text: case, diacritics and punctuation do not count."""
        words = _PLAIN.terms(text)
        return cls(f" {' '.join(words)} ", frozenset(pairwise(words)), len(words))


def numbers_in(text: str) -> frozenset[str]:
    """Returns the numbers of a text in one spelling, those of any script.

    Three digits behind the last mark are a group, since ``1,000`` here is ``1.000`` there; any
    other number of digits is a fraction, so that 12.5 is not 125. Versions and dates keep their
    marks.
    """
    return frozenset(_spelled(found[0]) for found in _NUMBER.finditer(text))


def _spelled(number: str) -> str:
    digits = (str(unicodedata.decimal(char)) if char.isdecimal() else " " for char in number)
    *groups, last = "".join(digits).split()
    if not groups or len(last) == _GROUP:
        return "".join((*groups, last))
    if any(len(group) != _GROUP for group in groups[1:]):
        return ".".join((*groups, last))
    fraction = last.rstrip("0")
    return "".join(groups) + (f".{fraction}" if fraction else "")


def names_in(text: str) -> list[str]:
    """Returns the names of a sentence: words with a capital that do not begin it or a quotation."""
    return [found[1] for found in _INSIDE.finditer(text) if found[1][0].isupper()]


def denies(text: str) -> bool:
    """Says whether a text denies something: by a word such as *not*, in some languages."""
    return _DENYING.search(text) is not None or not _DENIALS.isdisjoint(_PLAIN.terms(text))
