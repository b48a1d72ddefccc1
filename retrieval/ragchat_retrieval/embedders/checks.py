"""The one place where an embedder's answer is checked, whoever wrote the embedder.

An embedder that returns fewer vectors than texts, a vector of another length, NaN or zeros would
otherwise damage an index silently. Every caller goes through `embed_checked`; our own embedders use
the same helpers.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from ragchat_retrieval.errors import EmbeddingError, InvalidSetting, RagchatError
from ragchat_retrieval.policy import model_call
from ragchat_retrieval.stages import call_stage
from ragchat_retrieval.vectors import NORMALISED, are_unit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from ragchat_retrieval.policy import Run
    from ragchat_retrieval.ports import Embedder, EmbeddingKind


async def embed_checked(
    embedder: Embedder, texts: Sequence[str], kind: EmbeddingKind = "query"
) -> NDArray[np.float32]:
    """Embeds texts and checks what came back.

    Blank texts are not sent. An ``embed`` written as a plain function runs in a worker thread.
    Rows that are not L2-normalised are normalised.

    Args:
        embedder: Any embedder.
        texts: The texts, in order.
        kind: What they are.

    Returns:
        float32 [len(texts), dimension]; rows of length 1, and rows of zeros for blank texts.

    Raises:
        EmbeddingError: The embedder failed, or its answer has the wrong count or dimension, a
            non-finite value or a zero vector; `position` tells the first text at fault.
    """

    async def ask(wanted: Sequence[str]) -> NDArray[np.float32]:
        with _recorded(embedder, wanted):
            answer = await _embedded(embedder, wanted, kind)
        return checked_rows(
            answer, count=len(wanted), dimension=embedder.dimension, model=embedder.model
        )

    return await without_blanks(texts, ask, dimension=lambda: embedder.dimension)


def legibility(embedder: Embedder, text: str, run: Run) -> float:
    """Returns how well a model reads a text, 0 … 1, and records it as a degradation if not at all.

    Texts that it cannot read are all much alike to it, so that words alone do better.

    Args:
        embedder: Tells it by a method ``legibility``, if it has one.
        text: What would be compared with others.
        run: What the text would be compared in.

    Raises:
        EmbeddingError: The embedder tells something else.
    """
    tells: Callable[[str], float] | None = getattr(embedder, "legibility", None)
    told = 1.0 if tells is None else float(tells(text))
    if not 0.0 <= told <= 1.0:  # also refuses NaN
        raise EmbeddingError("its legibility of a text lies outside 0 … 1", model=embedder.model)
    if not told:
        run.record.degrade("vector", f"{embedder.model} cannot read the text; words alone instead")
    return told


@contextmanager
def naming(owners: Sequence[str]) -> Iterator[None]:
    """Lets an `EmbeddingError` name the document whose text is at fault.

    Args:
        owners: Id of each text's document.
    """
    try:
        yield
    except EmbeddingError as error:
        if error.position is not None:
            error.document_id = owners[error.position]
        raise


async def _embedded(embedder: Embedder, texts: Sequence[str], kind: EmbeddingKind) -> object:
    embed: Callable[..., object] = embedder.embed
    try:
        return await call_stage(embed, texts, kind)
    except RagchatError:
        raise
    except Exception as error:
        problem = f"failed with {type(error).__name__}"
        raise EmbeddingError(problem, model=embedder.model) from error


def _recorded(embedder: Embedder, texts: Sequence[str]) -> AbstractContextManager[object]:
    """Records the call, unless another embedder does the work and is asked in its turn."""
    if hasattr(embedder, "unwrap"):
        return nullcontext()
    provider = getattr(embedder, "provider", None)
    return model_call("embeddings", embedder.model, items=len(texts), provider=provider)


async def known_dimension(embedder: Embedder) -> int:
    """Returns an embedder's dimension, asking its model once if it is not known yet.

    An embedder whose `dimension` is still 0 learns it in ``async prepare()``.

    Raises:
        EmbeddingError: The model could not be asked, or the embedder tells no dimension even then.
    """
    if embedder.dimension < 1 and (prepare := getattr(embedder, "prepare", None)) is not None:
        await call_stage(prepare)
    if embedder.dimension < 1:
        raise EmbeddingError("tells no dimension", model=embedder.model)
    return embedder.dimension


async def without_blanks(
    texts: Sequence[str],
    embed: Callable[[Sequence[str]], Awaitable[NDArray[np.float32]]],
    *,
    dimension: Callable[[], int],
) -> NDArray[np.float32]:
    """Embeds the texts that are not blank and leaves rows of zeros for the others.

    Args:
        texts: The texts, in order.
        embed: Embeds those that are not blank, float32 [n, dimension]; not called for none.
        dimension: Tells the dimension; asked after `embed`.

    Raises:
        InvalidSetting: `texts` is one string.
        EmbeddingError: As `embed` raises; `position` then counts in `texts`, and is None where it
            named none of those that were sent.
    """
    if isinstance(texts, str):
        raise InvalidSetting("texts", "must be a sequence of strings, not one string")
    places = [place for place, text in enumerate(texts) if text.strip()]
    if not places:
        return np.zeros((len(texts), dimension()), dtype=np.float32)
    try:
        rows = await embed([texts[place] for place in places])
    except EmbeddingError as error:
        at = error.position
        error.position = places[at] if type(at) is int and 0 <= at < len(places) else None
        raise
    if len(places) == len(texts):
        return rows
    spread = np.zeros((len(texts), rows.shape[1]), dtype=np.float32)
    spread[places] = rows
    return spread


def checked_rows(answer: object, *, count: int, dimension: int, model: str) -> NDArray[np.float32]:
    """Returns an embedder's raw answer as L2-normalised rows.

    Args:
        answer: An array or nested sequences of numbers.
        count: How many vectors were asked for, 1 or more.
        dimension: Their length; 0 accepts any.
        model: Labels the error.

    Returns:
        float32 [count, dimension]. Rows that already have length 1 keep their bits.

    Raises:
        EmbeddingError: Wrong count or dimension, values that are no finite numbers, a zero vector.
    """
    vectors = _as_array(answer, model)
    given = len(vectors) if vectors.ndim else 0
    if given != count:
        raise EmbeddingError(f"returned {given} vectors for {count} texts", model=model)
    if vectors.ndim != 2 or not vectors.shape[1]:  # noqa: PLR2004 - a matrix
        raise EmbeddingError("returned something other than one vector a text", model=model)
    if dimension and vectors.shape[1] != dimension:
        problem = f"returned vectors of {vectors.shape[1]} numbers, not {dimension}"
        raise EmbeddingError(problem, model=model)
    if vectors.dtype.kind not in "fiu":
        raise EmbeddingError("returned values that are no numbers", model=model)
    if vectors.dtype in (np.float32, np.float64) and are_unit([vectors]):
        return vectors.astype(np.float32)
    _refuse_first(np.logical_not(np.isfinite(vectors).all(axis=1)), "a non-finite value", model)
    _refuse_first(np.logical_not(vectors.any(axis=1)), "a zero vector", model)
    return _normalised(vectors)


def _as_array(answer: object, model: str) -> NDArray[Any]:
    try:
        return np.asarray(answer)
    except (TypeError, ValueError):
        raise EmbeddingError("returned vectors of different lengths", model=model) from None


def _refuse_first(bad: NDArray[np.bool_], what: str, model: str) -> None:
    if bad.any():
        position = int(bad.argmax())
        problem = f"returned {what} for text {position + 1} of {len(bad)}"
        raise EmbeddingError(problem, model=model, position=position)


def _normalised(vectors: NDArray[Any]) -> NDArray[np.float32]:
    exact = vectors.astype(np.float64)
    # Scaling by the largest value first keeps the squares of huge and tiny numbers in range.
    peaks = np.abs(exact).max(axis=1, keepdims=True)
    scaled = exact / peaks
    lengths = np.linalg.norm(scaled, axis=1, keepdims=True)
    with np.errstate(over="ignore"):
        done = np.abs(peaks * lengths - 1.0) <= NORMALISED
    rows: NDArray[np.float32] = np.where(done, exact, scaled / lengths).astype(np.float32)
    return rows
