"""The words that a text is about. Pure."""

from __future__ import annotations

import unicodedata
from collections import Counter
from typing import TYPE_CHECKING

from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.lexical import DEFAULT_ANALYZER, is_paired

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ragchat_retrieval.lexical import Analyzer


def keywords(
    text: str, limit: int = 10, *, min_length: int = 4, analyzer: Analyzer | None = None
) -> list[str]:
    """Returns the words that occur most often in a text, without stop words.

    Words that the analysis takes for the same (``cache``, ``Caches``) count together and are
    returned as they are most often written. In scripts without spaces between words, pairs of
    characters take the place of words.

    Args:
        text: Any text.
        limit: Most words, 0 or more.
        min_length: Least characters of a word; pairs of scripts without spaces always count.
        analyzer: The analysis; None is English.

    Returns:
        The words, most frequent first, ties by where they first occur.

    Raises:
        InvalidSetting: `limit` is negative or `min_length` is below 1.
    """
    if limit < 0:
        raise InvalidSetting("limit", "must be 0 or more")
    if min_length < 1:
        raise InvalidSetting("min_length", "must be 1 or more")
    spellings: dict[tuple[str, ...], Counter[str]] = {}
    for key, word in _words(text, min_length, analyzer or DEFAULT_ANALYZER):
        spellings.setdefault(key, Counter())[word] += 1
    # Dictionaries and `most_common` keep the order of insertion among equals.
    ranked = sorted(spellings.values(), key=lambda seen: -seen.total())
    return [seen.most_common(1)[0][0] for seen in ranked[:limit]]


def _words(text: str, min_length: int, analyzer: Analyzer) -> Iterator[tuple[tuple[str, ...], str]]:
    for chunk in text.split():
        terms = tuple(analyzer.terms(chunk))
        if is_paired(chunk):
            yield from (((term,), term) for term in terms if len(term) > 1)
            continue
        word = _bare(chunk)
        if terms and len(word) >= min_length:
            yield terms, word


def _bare(chunk: str) -> str:
    """Returns a word without the punctuation around it."""
    inside = [place for place, char in enumerate(chunk) if unicodedata.category(char)[0] in "LNM"]
    return chunk[inside[0] : inside[-1] + 1] if inside else ""
