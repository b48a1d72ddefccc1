"""Telling a language by its script, where that is certain and cheap. Pure.

Only languages that have a script to themselves are told. Latin, Cyrillic, Arabic, Devanagari and
Chinese characters are each written in several languages, so that no text in them is told.
"""

from __future__ import annotations

import unicodedata
from typing import Final

_OWN: Final = {
    "japanese ja": ("HIRAGANA", "KATAKANA"),
    "korean ko": ("HANGUL",),
    "greek el": ("GREEK",),
    "thai th": ("THAI",),
    "lao lo": ("LAO",),
    "khmer km": ("KHMER",),
    "burmese my": ("MYANMAR",),
    "georgian ka": ("GEORGIAN",),
    "armenian hy": ("ARMENIAN",),
    "tamil ta": ("TAMIL",),
    "telugu te": ("TELUGU",),
    "kannada kn": ("KANNADA",),
    "malayalam ml": ("MALAYALAM",),
    "gujarati gu": ("GUJARATI",),
    "sinhala si": ("SINHALA",),
}
_SCRIPTS: Final = {name: scripts for names, scripts in _OWN.items() for name in names.split()}
_WITH_CHINESE: Final = frozenset({"HIRAGANA", "HANGUL"})
"""Scripts beside which Chinese characters are part of the language."""


def surely_in(text: str, language: str) -> bool:
    """Says whether a text is certain to be in a language.

    It is if it has a letter of the language's own script, and more than half of its letters are of
    that script, or Chinese characters beside Japanese or Korean. So names in Latin letters may
    stand in it, and a foreign sentence that quotes a word of the language is not told.

    Args:
        text: Any text.
        language: Its English name or two-letter code; of another one nothing is certain.
    """
    own = _SCRIPTS.get(language.strip().casefold())
    if own is None or text.isascii():
        return False
    letters = [unicodedata.name(char, "") for char in text if char.isalpha()]
    if not any(name.startswith(own) for name in letters):
        return False
    counted = (*own, "CJK") if own[0] in _WITH_CHINESE else own
    return 2 * sum(name.startswith(counted) for name in letters) > len(letters)
