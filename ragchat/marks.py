"""Marks that a text cannot contain, to fence untrusted data that must not close or fake them.

A mark is made of decimal digits, of which three are one token in the encodings of current models.
"""

from __future__ import annotations

import hashlib
import itertools

_TRIES_OF_ONE_LENGTH = 64
_MORE_DIGITS = 3


def mark_for(content: str, *, digits: int = 6) -> str:
    """Returns digits that `content` does not hold, not even with blanks in between.

    They come from a hash of the whole content, so its author cannot know them, and one that occurs
    in it all the same is passed over.

    Args:
        content: Everything that will stand between the marks.
        digits: The least number of digits; content full of numbers gets more.
    """
    squeezed = "".join(content.split())
    data = content.encode("utf-8", "surrogatepass")
    for attempt in itertools.count():
        length = digits + _MORE_DIGITS * (attempt // _TRIES_OF_ONE_LENGTH)
        digest = hashlib.sha256(b"%d:%b" % (attempt, data)).digest()
        mark = f"{int.from_bytes(digest, 'big') % 10**length:0{length}d}"
        if mark not in squeezed:
            return mark
    raise AssertionError  # pragma: no cover - the counter does not end


def fenced(text: str) -> str:
    """Returns the text between a line ``<<<mark`` and a line ``mark>>>``."""
    mark = mark_for(text)
    return f"<<<{mark}\n{text}\n{mark}>>>"
