"""What embedders that ask a server have in common: batches, concurrency, replies."""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ragchat_retrieval.embedders.checks import without_blanks
from ragchat_retrieval.errors import EmbeddingError, InvalidSetting, RagchatError
from ragchat_retrieval.served import failure
from ragchat_retrieval.tasks import gather
from ragchat_retrieval.tokens import can_count, count_many, repair, truncate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.ports import EmbeddingKind

_ENCODING = "cl100k_base"
"""The encoding of OpenAI's embedding models."""

_REFUSED = frozenset({400, 413, 422})
"""Statuses of a server that does not take what it was sent."""

_WORD = "dimension"
"""What every model embeds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """How texts are prepared and sent to a served model.

    Raises:
        InvalidSetting: A limit is less than 1, or the timeout is not a positive number.
    """

    batch_size: int = 128
    """Texts a request at most."""

    batch_tokens: int = 100_000
    """Tokens (cl100k_base) a request at most; a longer text goes alone."""

    concurrency: int = 4
    """Requests of one call at a time."""

    timeout: float = 60.0
    """Seconds for one try of one request."""

    max_tokens: int | None = None
    """Tokens (cl100k_base) a text at most, longer ones are cut; None leaves that to the server."""

    query_prefix: str = ""
    """Put before every query, for models that want it (``query: ``)."""

    passage_prefix: str = ""
    """Put before every passage."""

    def __post_init__(self) -> None:
        for name in ("batch_size", "batch_tokens", "concurrency", "max_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidSetting(name, "must be 1 or more")
        if not (math.isfinite(self.timeout) and self.timeout > 0):
            raise InvalidSetting("timeout", "must be a positive number of seconds")

    def prepare(self, texts: Sequence[str], kind: EmbeddingKind) -> tuple[list[str], list[int]]:
        """Returns the texts as they are sent, and their sizes.

        A text's size is that of its UTF-8 form, which its tokens never exceed, where all texts
        keep to the limits even so, such as a few queries. Otherwise it is the text's tokens. Where
        no exact tokenizer is at hand, it is that of the UTF-8 form too, and no text is cut.
        """
        prefix = self.query_prefix if kind == "query" else self.passage_prefix
        wanted = [repair(prefix + text) for text in texts]
        sizes = [len(text.encode()) for text in wanted]
        longest = math.inf if self.max_tokens is None else self.max_tokens
        fits = sum(sizes) <= self.batch_tokens and max(sizes, default=0) <= longest
        if fits or not can_count(_ENCODING):
            return wanted, sizes
        sizes = count_many(wanted, _ENCODING)
        if self.max_tokens is not None:
            for place, size in enumerate(sizes):
                if size > self.max_tokens:
                    wanted[place] = truncate(wanted[place], self.max_tokens, _ENCODING)
                    sizes[place] = self.max_tokens
        return wanted, sizes

    async def send(
        self,
        texts: Sequence[str],
        kind: EmbeddingKind,
        ask: Callable[[Sequence[str]], Awaitable[NDArray[np.float32]]],
        *,
        model: str,
    ) -> NDArray[np.float32]:
        """Embeds texts in batches, several at a time; if one fails, the others are cancelled.

        Of passages, a batch that the server refuses goes in halves: it may hold too many for it,
        or one that the server does not take, which is told.

        Args:
            texts: At least one, none blank.
            kind: What they are.
            ask: Embeds one batch.
            model: Labels errors.

        Raises:
            EmbeddingError: As `ask` raises, its position counted in `texts`; or the batches'
                vectors differ in length.
        """
        wanted, sizes = self.prepare(texts, kind)
        gate = asyncio.Semaphore(self.concurrency)

        async def sent(batch: range) -> list[NDArray[np.float32]]:
            try:
                return [await ask(wanted[batch.start : batch.stop])]
            except EmbeddingError as error:
                if error.position is not None:
                    error.position += batch.start
                elif kind == "passage" and error.status in _REFUSED:
                    if len(batch) > 1:
                        half = len(batch) // 2
                        return [*await sent(batch[:half]), *await sent(batch[half:])]
                    if await _is_taken(ask):
                        error.position = batch.start
                raise

        async def one(batch: range) -> list[NDArray[np.float32]]:
            async with gate:
                return await sent(batch)

        cut = batches(sizes, most=self.batch_size, total=self.batch_tokens)
        found = [await one(cut[0])] if len(cut) == 1 else await gather(*map(one, cut))
        parts = [part for some in found for part in some]
        if len(parts) == 1:  # most often
            return parts[0]
        if len({part.shape[1] for part in parts}) > 1:
            raise EmbeddingError("returned vectors of different lengths", model=model)
        rows: NDArray[np.float32] = np.concatenate(parts)
        return rows


async def _is_taken(ask: Callable[[Sequence[str]], Awaitable[object]]) -> bool:
    """Says whether the server embeds a plain word, so that what it refused was the text's fault."""
    try:
        await ask([_WORD])
    except EmbeddingError:
        return False
    return True


def batches(sizes: Sequence[int], *, most: int, total: int) -> list[range]:
    """Cuts items into consecutive batches of at most `most` items and `total` size.

    An item larger than `total` gets a batch of its own. Pure.
    """
    cut: list[range] = []
    start = size = 0
    for place, own in enumerate(sizes):
        if place > start and (place - start == most or size + own > total):
            cut.append(range(start, place))
            start, size = place, 0
        size += own
    if start < len(sizes):
        cut.append(range(start, len(sizes)))
    return cut


class ServedEmbedder(ABC):
    """What embedders that ask a server share; a subclass sends one batch and closes.

    Args:
        model: The model's name.
        dimension: Length of the vectors as the caller tells it; checked and never sent.
        sending: How texts are sent.
        params: Sent with every request; ``dimensions`` among them tells the length as well.
        usual_dimension: The length where neither tells it; 0 is not known.

    Raises:
        InvalidSetting: A blank model, or a dimension less than 1.
    """

    def __init__(
        self,
        model: str,
        *,
        dimension: int | None,
        sending: Sending,
        params: Mapping[str, Any],
        usual_dimension: int = 0,
    ) -> None:
        if not model.strip():
            raise InvalidSetting("model", "must not be blank")
        if dimension is None:
            dimension = params.get("dimensions")
        if dimension is not None and dimension < 1:
            raise InvalidSetting("dimension", "must be 1 or more")
        self._model = model
        self._dimension = usual_dimension if dimension is None else dimension
        self._sending = sending
        self._params = dict(params)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._model!r})"

    @property
    def model(self) -> str:
        """The model's name."""
        return self._model

    @property
    def dimension(self) -> int:
        """Length of its vectors; 0 until it is known, see `prepare`."""
        return self._dimension

    async def prepare(self) -> None:
        """Learns the dimension by embedding one word, unless it is known.

        Raises:
            EmbeddingError: The server failed.
        """
        if not self._dimension:
            await self.embed([_WORD])

    async def embed(
        self, texts: Sequence[str], kind: EmbeddingKind = "query"
    ) -> NDArray[np.float32]:
        """Returns float32 [len(texts), dimension], rows L2-normalised; zeros for blank texts.

        Raises:
            EmbeddingError: The server failed or answered with something unusable.
        """

        async def work(wanted: Sequence[str]) -> NDArray[np.float32]:
            rows = await self._sending.send(wanted, kind, self._ask, model=self._model)
            self._dimension = rows.shape[1]
            return rows

        return await without_blanks(texts, work, dimension=lambda: self._dimension)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @abstractmethod
    async def aclose(self) -> None:
        """Closes the running loop's connections."""

    @abstractmethod
    async def _ask(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embeds one batch, with retries and checks."""


@contextmanager
def typed_errors(model: str) -> Iterator[None]:
    """Turns what a client raises into an `EmbeddingError` with status and class, not its words."""
    try:
        yield
    except RagchatError:
        raise
    except Exception as error:
        problem, status, transient = failure(error)
        raise EmbeddingError(problem, model=model, status=status, retryable=transient) from error


def in_order(items: object, *, count: int, model: str) -> list[object]:
    """Returns the ``embedding`` of each item, ordered by its ``index``.

    Args:
        items: The reply's list.
        count: How many texts were sent.
        model: Labels errors.

    Raises:
        EmbeddingError: No list, or its indexes are not exactly 0 … count − 1.
    """
    if not isinstance(items, list):
        raise EmbeddingError("the reply has no list of vectors", model=model)
    placed: dict[object, object] = {}
    for item in items:
        index = getattr(item, "index", None)
        if type(index) is not int or not 0 <= index < count or index in placed:
            raise EmbeddingError("the reply's indexes do not match the texts", model=model)
        placed[index] = getattr(item, "embedding", None)
    if len(placed) != count:
        raise EmbeddingError(f"returned {len(placed)} vectors for {count} texts", model=model)
    return [placed[index] for index in range(count)]
