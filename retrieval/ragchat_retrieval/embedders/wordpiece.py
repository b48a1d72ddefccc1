"""The tokenizer of BERT uncased, as all-MiniLM-L6-v2 uses it: text to token ids."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_WORD = re.compile(r"\w+")

_FIRST_LOOK = 4096
"""Characters tokenized at first; several times what fills a window of ordinary text."""

_FRAME = 2
"""``[CLS]`` and ``[SEP]``, which stand around every text."""


class WordPiece:
    """Lower-cased WordPiece over the vendored vocabulary of 30,522 entries.

    Safe for concurrent threads. A text that spells out ``[SEP]`` or another special token is
    ordinary text, so that a document cannot steer the model.

    Args:
        window: Tokens the model sees at most, ``[CLS]`` and ``[SEP]`` included.
    """

    def __init__(self, window: int) -> None:
        vocabulary = read_vocabulary()
        self._tokenizer = _tokenizer(vocabulary)
        self._room = window - _FRAME
        self._first, self._last = vocabulary["[CLS]"], vocabulary["[SEP]"]

    def count(self, text: str) -> int:
        """Returns the number of tokens of the whole text, ``[CLS]`` and ``[SEP]`` included."""
        return len(self._tokenizer.encode(text).ids) + _FRAME

    def pieces_per_word(self, text: str) -> float:
        """Returns into how many pieces the words of a text fall on average; 1 for no words.

        A word with letters beyond ASCII counts one more: it is read without its accents.
        """
        encoding = self._tokenizer.encode(text)
        words = [
            number
            for token, number in zip(encoding.tokens, encoding.word_ids, strict=True)
            if any(map(str.isalnum, token))
        ]
        accented = sum(not word.isascii() for word in _WORD.findall(text))
        return (len(words) + accented) / len(set(words)) if words else 1.0

    def ids(self, text: str) -> list[int]:
        """Returns the ids of ``[CLS]``, as many tokens of the text as fit, and ``[SEP]``."""
        size = _FIRST_LOOK
        while not self._settles(text, size):
            size *= 4
        ids = self._tokenizer.encode(text[:size]).ids
        return [self._first, *ids[: self._room], self._last]

    def _settles(self, text: str, size: int) -> bool:
        """Says whether the first `size` characters decide what the window holds.

        Cutting the text changes its last word only: they do if the window ends before that word.
        """
        if size >= len(text):
            return True
        words = self._tokenizer.encode(text[:size]).word_ids
        return len(words) > self._room and words[self._room - 1] != words[-1]


def read_vocabulary() -> dict[str, int]:
    """Returns the vendored vocabulary, token to id."""
    text = files("ragchat_retrieval.embedders").joinpath("_data/vocab.txt").read_text("utf-8")
    return {token: number for number, token in enumerate(text.removesuffix("\n").split("\n"))}


def _tokenizer(vocabulary: dict[str, int]) -> Tokenizer:
    # No special token is registered, so none is found in a text.
    from tokenizers import Tokenizer  # noqa: PLC0415 - of an extra
    from tokenizers.models import WordPiece as Model  # noqa: PLC0415 - of an extra
    from tokenizers.normalizers import BertNormalizer  # noqa: PLC0415 - of an extra
    from tokenizers.pre_tokenizers import BertPreTokenizer  # noqa: PLC0415 - of an extra

    tokenizer = Tokenizer(Model(vocabulary, unk_token="[UNK]"))  # noqa: S106 - a token of the vocabulary
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    return tokenizer
