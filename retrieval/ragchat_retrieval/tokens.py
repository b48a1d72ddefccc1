"""Exact token counts without a network.

The vocabularies of OpenAI's encodings come compiled into ``toktok-rs``. Where that package has no
wheel, or for an older encoding, ``tiktoken`` counts, provided that its own vocabulary file is
already present and intact: it would otherwise download one, without a timeout. There is no
estimate: a budget that rests on a guess is no budget.

Special tokens such as ``<|endoftext|>`` that a text spells out are ordinary text here.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ragchat_retrieval.errors import InvalidSetting, TokenizerUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from tiktoken import Encoding

DEFAULT_ENCODING = "o200k_base"
"""The encoding of current OpenAI models, and the stand-in for unknown ones."""

_COMPILED = frozenset({"cl100k_base", "o200k_base", "o200k_harmony"})

# Address (whose SHA-1 names the cached file) and SHA-256 of each vocabulary, as in
# tiktoken_ext/openai_public.py of tiktoken 0.14.
_FILES = {
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    "p50k_base": "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069",
    "r50k_base": "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930",
}
_ADDRESS = "https://openaipublic.blob.core.windows.net/encodings/{name}.tiktoken"

# Encodings that differ from another one in special tokens only, which never occur in ordinary text.
_SAME_WORDS = {"o200k_harmony": "o200k_base", "p50k_edit": "p50k_base", "gpt2": "r50k_base"}


_AT_ONCE = 50_000
"""So many characters are counted in a tenth of a millisecond, or in one where words are rare."""

_LOADED: set[str] = set()


def count_tokens(text: str, encoding: str = DEFAULT_ENCODING) -> int:
    """Returns the exact number of tokens of `text`.

    Args:
        text: Any string. Lone surrogates count as U+FFFD, spelled-out special tokens as text.
        encoding: ``o200k_base``, ``o200k_harmony``, ``cl100k_base``, or an older encoding of
            OpenAI's whose vocabulary file tiktoken has.

    Raises:
        InvalidSetting: No encoding has that name.
        TokenizerUnavailable: Nothing on this machine can count exactly in that encoding.
    """
    return _counter(encoding).count(text)


def count_many(texts: Sequence[str], encoding: str = DEFAULT_ENCODING) -> list[int]:
    """Returns the exact numbers of tokens of `texts`, in order. Raises as `count_tokens`."""
    return [*map(_counter(encoding).count, texts)] if texts else []


def truncate(text: str, limit: int, encoding: str = DEFAULT_ENCODING) -> str:
    """Returns the longest prefix found at a token boundary that counts at most `limit` tokens.

    The prefix ends between characters, and its own count is checked: a prefix that was cut at a
    token boundary may need more tokens when it is counted by itself.

    Args:
        text: Any string; lone surrogates come back as U+FFFD.
        limit: Most tokens, 0 or more.
        encoding: As for `count_tokens`.

    Raises:
        InvalidSetting: The limit is negative or the encoding unknown.
        TokenizerUnavailable: Nothing on this machine can count exactly in that encoding.
    """
    if limit < 0:
        raise InvalidSetting("limit", "must be 0 or more")
    counter = _counter(encoding)
    for most in range(limit, 0, -1):
        prefix = counter.truncate(text, most)
        if counter.count(prefix) <= limit:
            return prefix
    return ""


def can_count(encoding: str) -> bool:
    """Says whether exact counts in `encoding` are possible on this machine, without a network."""
    try:
        _counter(encoding)
    except (InvalidSetting, TokenizerUnavailable):
        return False
    return True


def within(text: str, limit: int, count: Callable[[str], int] = count_tokens) -> bool:
    """Says whether a text counts at most `limit` tokens. Raises as `count` does.

    Our own count is not asked where it cannot be more: a token is one byte of UTF-8 at least.
    """
    if count is count_tokens and len(text.encode("utf-8", "surrogatepass")) <= limit:
        return True
    return count(text) <= limit


def is_loaded(encoding: str = DEFAULT_ENCODING) -> bool:
    """Says whether a count in `encoding` has no vocabulary to load, which takes a while."""
    return _SAME_WORDS.get(encoding, encoding) in _LOADED


def counts_at_once(count: Callable[[str], int], size: int) -> bool:
    """Says whether counting belongs on the event loop, since a thread would cost more.

    Args:
        count: `count_tokens`, or a counter that tells by an attribute ``loaded`` whether it is as
            fast as that one. Any other is foreign code, which may take its time.
        size: Characters of the longest text that is counted.
    """
    loaded = is_loaded() if count is count_tokens else getattr(count, "loaded", False)
    return loaded is True and size <= _AT_ONCE


def repair(text: str) -> str:
    """Returns `text` as valid Unicode: surrogate pairs are joined, lone ones become U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class _Counter(Protocol):
    def count(self, text: str) -> int: ...

    def truncate(self, text: str, limit: int) -> str: ...


class _Toktok:
    def __init__(self, module: ModuleType, encoding: str) -> None:
        # What `batch_count` is made of. That one makes room for a batch first, which takes as long
        # as counting a page; a text by itself needs none, and a batch on one thread gains nothing.
        self._tokenizer = module._encoding(encoding)  # noqa: SLF001 - for whoever needs single texts

    def count(self, text: str) -> int:
        try:
            tokens: int = self._tokenizer.count(text)
        except UnicodeEncodeError:
            tokens = self._tokenizer.count(repair(text))
        return tokens

    def truncate(self, text: str, limit: int) -> str:
        prefix: str = self._tokenizer.truncate(repair(text), limit)[0]
        return prefix


class _Tiktoken:
    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding

    def count(self, text: str) -> int:
        return len(self._encoding.encode_ordinary(text))

    def truncate(self, text: str, limit: int) -> str:
        tokens = self._encoding.encode_ordinary(repair(text))[:limit]
        prefix: bytes = self._encoding.decode_bytes(tokens)
        return prefix.decode("utf-8", "ignore")  # only the last character can be incomplete


@functools.lru_cache(maxsize=16)
def _counter(encoding: str) -> _Counter:
    name = _SAME_WORDS.get(encoding, encoding)
    if name not in _FILES:
        raise InvalidSetting("encoding", f"unknown encoding {encoding!r}")
    counter = _found(name)
    if counter is None:
        remedy = "put tiktoken's vocabulary file into TIKTOKEN_CACHE_DIR"
        if name in _COMPILED:
            remedy = f"install toktok-rs, or {remedy}"
        raise TokenizerUnavailable(encoding, remedy)
    _LOADED.add(name)
    return counter


def _found(name: str) -> _Counter | None:
    if name in _COMPILED:
        try:
            return _Toktok(importlib.import_module("toktok"), name)
        except ImportError:
            pass
    if not _file_is_present(name):
        return None
    return _Tiktoken(importlib.import_module("tiktoken").get_encoding(name))


def _file_is_present(name: str) -> bool:
    """Says whether tiktoken would find its file where it looks, with the right content.

    A file with other content counts as absent: tiktoken deletes it and downloads another.
    """
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    if folder is None:
        folder = str(Path(tempfile.gettempdir()) / "data-gym-cache")
    if not folder:
        return False
    address = _ADDRESS.format(name=name)
    path = Path(folder) / hashlib.sha1(address.encode(), usedforsecurity=False).hexdigest()
    try:
        content = path.read_bytes()
    except OSError:
        return False
    return hashlib.sha256(content).hexdigest() == _FILES[name]
