"""Lexical analysis and BM25: what the keyword lane means by a word.

The same analysis runs over passages and queries, in every store, and its name is part of an index's
identity. It is:

1. Unicode NFKC and case folding; format characters (direction marks, soft hyphens, joiners)
   dropped; decimal digits of any script become ASCII digits.
2. Diacritics folded on Latin, Greek and Cyrillic letters (``é`` to ``e``, ``ø`` to ``o``), kept in
   other scripts. English folds before stemming, so that ``resume`` finds ``résumé``; the stemmers
   of other languages need the marks, so that there it folds afterwards.
3. Words in scripts with spaces. In Chinese, Japanese, Korean, Thai, Lao, Khmer and Burmese, each
   run of characters gives its overlapping pairs; a run of one character is a term of its own.
4. Words joined by ``-``, ``.`` or ``_``, and names that end in ``++`` or ``#``, give their parts.
   What looks like an identifier (a digit, an underscore, a dot or such an ending) is a term as a
   whole too: ``ERR-4041``, ``snake_case``, ``v1.2.3``, ``38.101``, ``C++``.
5. Apostrophes: ``user's`` is ``user``, ``we'll`` is ``we``, ``don't`` is ``dont``; ``O'Brien`` is
   ``obrien`` and its parts of two letters or more.
6. Stop words dropped (`ragchat_retrieval.stopwords`), the rest stemmed: English by Porter's
   algorithm, any other language by Snowball's. Whole identifiers and words with digits are never
   stemmed.
7. In a question, a term of a single ASCII character weighs a quarter of any other term.
"""

from __future__ import annotations

import math
import re
import threading
import unicodedata
from collections import Counter
from typing import TYPE_CHECKING, Final

import Stemmer  # type: ignore[import-not-found]  # it has no stubs

from ragchat_retrieval.counting import counted
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.stopwords import STOP_WORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

K1: Final = 1.2
"""BM25's saturation of term counts (Robertson and Zaragoza 2009, the customary value)."""

B: Final = 0.75
"""BM25's normalisation by length (as `K1`)."""

_VERSION: Final = "ragchat1"
"""Begins the name of every analysis by the rules above; other rules need another."""

MAX_TERM: Final = 128
"""A longer term is cut after this many characters, so that every store can keep it."""

LONE_CHARACTER: Final = 0.25
"""Weight of a question's terms of one ASCII character, against 1 for any other.

The ``d`` of "vitamin d" should tell two passages about vitamins apart, and find nothing else.
Measured: nDCG@10 of the hybrid +.0035 on scifact, +.0027 on mtrag-clapnq, unchanged elsewhere.
"""

# Porter's own algorithm, as in Lucene's English analysis; Snowball's revision was no better.
_STEMMERS = {"english": "porter"}

_SHORT = 2
_GENERATION = 43_000
"""Chunks remembered before the older ones are forgotten; for more, a dict would double its size."""

_CACHED_LENGTH = 32
_FEW = 50
"""Texts below which counting one by one is as fast as counting together."""

_MANY = 1024
"""Texts that bring so many chunks that those of other texts would have to be forgotten."""


# Scripts without spaces between words, and Hangul, whose particles stick to the noun.
_PAIRED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3031-\u3035"
    "\u3040-\u318f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff"
    "\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
# `_Letters` and the ASCII table leave nothing but word characters, joiners and spaces.
_WORD = rf"[^\s\-.'+#{_PAIRED}]+"
_WORDS = r"{0}(?:[-.']{0})*(?:(?:\+\+|\#)(?!{0}))?"
_TOKEN = re.compile(rf"[{_PAIRED}]+|{_WORDS.format(_WORD)}")
_ASCII_TOKEN = re.compile(_WORDS.format("[a-z0-9_]+"))
_ASCII_TABLE = "".join(c if c.isalnum() or c in "-.'+#_" else " " for c in map(chr, range(128)))
_ASCII_BYTES = bytes(range(256)).lower().translate(_ASCII_TABLE.encode() + bytes(range(128, 256)))
_PAIRED_RUN = re.compile(rf"[{_PAIRED}]+")
_DIGIT = re.compile(r"[0-9]")  # of other scripts, `_Letters` leaves none
_IDENTIFIER = re.compile(r"[0-9_.+#]")
_CLITICS = frozenset({"s", "d", "m", "ll", "re", "ve"})
_FOLDED_SCRIPTS = ("LATIN", "GREEK", "CYRILLIC")
_STROKES = {"ø": "o", "ł": "l", "đ": "d", "ħ": "h", "ŧ": "t", "\u0131": "i", "æ": "ae", "œ": "oe"}
# What English text most often holds beyond ASCII; without these it takes the fast path.
_TYPOGRAPHY = (
    ("\u2019", "'"),
    ("\u2018", "'"),
    ("\u2011", "-"),
    *((char, " ") for char in "\u201c\u201d\u2013\u2014\u2026\u2022\xa0"),
)
_JOINERS = {"\u2010": "-", "\u2011": "-", "\u2018": "'", "\u2019": "'", "\u02bc": "'"}


class _Letters(dict[int, str | None]):
    """A translation table, filled as characters turn up: words and joiners stay, others split."""

    def __init__(self, *, fold: bool) -> None:
        super().__init__()
        self._fold = fold

    def __missing__(self, code: int) -> str | None:
        self[code] = value = self._letter(chr(code))
        return value

    def _letter(self, char: str) -> str | None:
        if char in "-.'+#_" or char in _JOINERS:
            return _JOINERS.get(char, char)
        category = unicodedata.category(char)
        if category == "Cf" and char != "\u200b":  # a space without width is still a space
            return None
        if category == "Nd":
            return str(unicodedata.decimal(char))
        if category[0] not in "LNM":
            return " "
        return folded(char) if self._fold else char


def is_paired(text: str) -> bool:
    """Says whether a text holds a script whose terms are pairs of characters, not words."""
    return not text.isascii() and _PAIRED_RUN.search(text) is not None


def _pairs(run: str) -> list[str]:
    """Returns the terms of a run of characters of such a script."""
    return [run] if len(run) == 1 else list(map(str.__add__, run, run[1:]))


def folded(text: str) -> str:
    """Returns a text in NFC without the diacritics of Latin, Greek and Cyrillic letters."""
    if text.isascii():
        return text
    return "".join(map(_folded_char, text))


def _folded_char(char: str) -> str:
    if "\u0300" <= char <= "\u036f":
        return ""
    if char in _STROKES:
        return _STROKES[char]
    base = unicodedata.normalize("NFD", char)[0]
    if base == char or not unicodedata.name(base, "").startswith(_FOLDED_SCRIPTS):
        return char
    return _STROKES.get(base, base)


class _Terms(dict[str, str]):
    """The terms of each chunk, parted by spaces, computed once.

    Bounded, since texts may hold endless numbers.

    When it is full it becomes the old generation; what is asked for again moves to the new one.
    """

    def __init__(self, expand: Callable[[str], str], *, share: int = 1) -> None:
        super().__init__()
        self._expand = expand
        self._share = share
        self._old: dict[str, str] = {}

    def __missing__(self, chunk: str) -> str:
        terms = self._old.get(chunk)
        if terms is None:
            terms = self._expand(chunk)
            terms = chunk if terms == chunk else terms  # one string takes half the memory
        if len(self) >= _GENERATION // self._share:
            self._old = dict(self)
            self.clear()
        if len(chunk) <= _CACHED_LENGTH:
            self[chunk] = terms
        return terms


class Analyzer:
    """Turns text into terms; the module says how. Safe to use from any thread.

    Args:
        language: A language that Snowball has a stemmer for, by its English name, or None for
            neither stemming nor stop words. A few languages have a stemmer and no stop list.

    Raises:
        InvalidSetting: There is no stemmer for the language.
    """

    __slots__ = (
        "_fold_first",
        "_letters",
        "_lock",
        "_stemmer",
        "_stops",
        "_terms",
        "_words",
        "language",
    )

    language: str | None

    def __init__(self, language: str | None = "english") -> None:
        if language is not None and language not in Stemmer.algorithms():
            known = ", ".join(sorted(Stemmer.algorithms()))
            raise InvalidSetting("language", f"no stemmer for {language!r}; there are {known}")
        self.language = language
        self._fold_first = language in {None, "english"}
        self._letters = _Letters(fold=self._fold_first)
        # The token cache stands before the stemmer's own.
        algorithm = _STEMMERS.get(language or "", language)
        self._stemmer = None if algorithm is None else Stemmer.Stemmer(algorithm, 0)
        self._stops = STOP_WORDS.get(language or "", frozenset())
        self._lock = threading.Lock()
        self._terms = _Terms(lambda chunk: " ".join(self._expand(chunk)))
        self._words = _Terms(self._word, share=8)  # of identifiers, which share their parts

    @property
    def name(self) -> str:
        """Names the analysis, for an index's identity."""
        return f"{_VERSION}:{self.language or 'none'}"

    @classmethod
    def named(cls, name: str) -> Analyzer | None:
        """Returns the analyzer with this name; None if it is not one of this version's."""
        prefix, _, language = name.partition(":")
        if prefix != _VERSION or (language != "none" and language not in Stemmer.algorithms()):
            return None
        return cls(None if language == "none" else language)

    def terms(self, text: str) -> list[str]:
        """Returns the terms of a text in order, with repetitions; none for a text of stop words."""
        return " ".join(map(self._terms.__getitem__, self._chunks(text))).split()

    def counts(self, text: str) -> dict[str, int]:
        """Returns the distinct terms of a text with how often each occurs, ≥ 1."""
        return Counter(self.terms(text))

    def weights(self, question: str) -> dict[str, float]:
        """Returns the distinct terms of a question with what each weighs: its count, or less.

        A term of one ASCII character weighs `LONE_CHARACTER` of its count.
        """
        return {
            term: count * (LONE_CHARACTER if len(term) == 1 and term.isascii() else 1.0)
            for term, count in self.counts(question).items()
        }

    def counts_many(self, texts: Sequence[str]) -> Sequence[Mapping[str, int]]:
        """Returns `counts` of each text, in order; of many, in flat arrays (see `terms`)."""
        if len(texts) < _FEW:
            return tuple(map(self.counts, texts))
        # Many texts would drive everything else from the cache, and repeat their own chunks anyway.
        many = len(texts) > _MANY
        remembered = self._terms.__getitem__
        expand = self._expand if many else lambda chunk: remembered(chunk).split()
        return counted(texts, self._plain, expand)

    def _chunks(self, text: str) -> list[str]:
        """Splits a text where no token can reach across; the tokens of each chunk are cached."""
        # A full stop before a space is never part of a token, and fewer chunks are cached.
        return self._spaced(text).replace(". ", " ").split()

    def _spaced(self, text: str) -> str:
        """Returns a text in its plain form: word characters and joiners, the rest as spaces."""
        if not text.isascii():
            for char, plain in _TYPOGRAPHY:
                text = text.replace(char, plain)
        if text.isascii():
            return text.lower().translate(_ASCII_TABLE)
        text = unicodedata.normalize("NFKC", text).casefold()
        # Folding case can leave characters apart that belong together.
        return unicodedata.normalize("NFKC", text).translate(self._letters)

    def _plain(self, texts: Sequence[str]) -> tuple[bytes, list[int]]:
        """Returns texts in their plain form as UTF-8, parted by spaces, and the bytes of each."""
        spaced = [text if text.isascii() else self._spaced(text) for text in texts]
        sizes = [len(text) if text.isascii() else len(text.encode()) for text in spaced]
        return "\n".join(spaced).encode().translate(_ASCII_BYTES), sizes

    def _expand(self, chunk: str) -> list[str]:
        """Returns the terms of a chunk; so do those that follow."""
        if chunk.isascii():
            if chunk.isalnum():
                term = self._word(chunk)
                return [term] if term else []
            if chunk.isidentifier():
                return self._joined(chunk)
            tokens = _ASCII_TOKEN.findall(chunk)
        elif _PAIRED_RUN.fullmatch(chunk):
            return _pairs(chunk)
        else:
            tokens = _TOKEN.findall(chunk)
        if len(tokens) == 1:
            return self._token(tokens[0])
        return [term for token in tokens for term in self._token(token)]

    def _token(self, token: str) -> list[str]:
        if not token.isascii() and _PAIRED_RUN.fullmatch(token):
            return _pairs(token)
        if "'" in token:
            token = token.removesuffix("'s")
            if "'" in token and not _IDENTIFIER.search(token) and "-" not in token:
                return self._apostrophe(token.split("'"))
        return self._joined(token)

    def _joined(self, token: str) -> list[str]:
        spaced = token.rstrip("+#").replace("-", " ").replace(".", " ")
        parts = spaced.replace("_", " ").replace("'", " ").split()
        terms = [*filter(None, map(self._words.__getitem__, parts))]
        if parts and token != parts[0] and _IDENTIFIER.search(token):
            terms.insert(0, token[:MAX_TERM])
        return terms

    def _apostrophe(self, parts: list[str]) -> list[str]:
        *head, last = parts
        words = ["".join(head if last in _CLITICS else parts)]
        if last not in _CLITICS and last != "t":
            words += (part for part in parts if len(part) > 1)
        return [term for term in map(self._word, words) if term]

    def _word(self, word: str) -> str:
        if word in self._stops:
            return ""
        # Porter leaves words of two letters alone; Snowball's version of it would make "os" an "o".
        digits = not word.isalpha() and _DIGIT.search(word)
        if self._stemmer is not None and len(word) > _SHORT and not digits:
            with self._lock:  # a stemmer works in a buffer of its own
                word = self._stemmer.stemWord(word)
        if not self._fold_first:
            word = folded(word)
        return word[:MAX_TERM]

    def __eq__(self, other: object) -> bool:
        return self.name == other.name if isinstance(other, Analyzer) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"Analyzer({self.language!r})"

    def __reduce__(self) -> tuple[type[Analyzer], tuple[str | None]]:
        return (Analyzer, (self.language,))


DEFAULT_ANALYZER: Final = Analyzer()
"""English."""


def idf(live: int, holding: int) -> float:
    """Returns ``ln(1 + (N − df + ½) / (df + ½))``: positive however common the term is.

    Args:
        live: Passages in the corpus.
        holding: Passages that hold the term.
    """
    return math.log(1.0 + (live - holding + 0.5) / (holding + 0.5))


def bm25(
    query: Mapping[str, float],
    passages: Sequence[Mapping[str, int]],
    *,
    k1: float = K1,
    b: float = B,
) -> list[float]:
    """Scores passages by BM25, in plain Python: the definition that every store's scores equal.

    A passage's score is the sum over the query's terms of
    ``weight · idf · tf / (tf + k1 · (1 − b + b · length / average length))``. This is Lucene's
    form, without the constant factor ``k1 + 1``; lengths count all terms of a passage.

    Args:
        query: Weights of the query's terms, usually how often each occurs in it.
        passages: Term counts of all passages of the corpus.
        k1: Saturation of term counts, ≥ 0.
        b: Normalisation by length, 0 … 1.

    Returns:
        One score per passage, 0 for a passage without any of the terms.
    """
    lengths = [sum(passage.values()) for passage in passages]
    average = sum(lengths) / len(lengths) if lengths else 0.0
    scores = [0.0] * len(passages)
    for term in sorted(query):
        holding = sum(term in passage for passage in passages)
        factor = query[term] * idf(len(passages), holding)
        for position, passage in enumerate(passages):
            if count := passage.get(term):
                norm = k1 * (1.0 - b + b * lengths[position] / average)
                scores[position] += factor * count / (count + norm)
    return scores
