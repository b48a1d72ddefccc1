"""The three ways in which servers rerank: addresses, bodies, replies, ranges of scores. Pure.

- ``tei``: ``/rerank``, documents in ``texts``; the reply is a list of ``index`` and ``score``.
  Scores lie in 0 … 1, as they are asked for.
- ``vllm``: ``/rerank`` or ``/v1/rerank``, documents in ``documents``; the reply has ``results`` of
  ``index`` and ``relevance_score``. Scores may be any numbers.
- ``cohere``: ``/v2/rerank``, else as vLLM. Scores lie in 0 … 1.

Jina, Infinity, LiteLLM and llama.cpp answer in vLLM's shape. There a model may give logits instead
of 0 … 1, which the reply does not tell, so that the scores themselves are looked at.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, get_args

from ragchat_retrieval.errors import MalformedRanking
from ragchat_retrieval.served import http_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

Shape = Literal["tei", "vllm", "cohere"]
"""How a server wants to be asked."""

SHAPES: tuple[Shape, ...] = get_args(Shape)

_COHERE_HOSTS = frozenset({"api.cohere.com", "api.cohere.ai"})
_TOLERANCE = 1e-6
"""Rounding of a server's arithmetic, by which a score may leave 0 … 1."""


def shape_of(url: str) -> Shape | None:
    """Returns the shape that an address tells; None for ``/rerank``, where two servers differ.

    Raises:
        InvalidSetting: The URL is not http(s).
    """
    parts = http_parts(url)
    path = parts.path.rstrip("/").removesuffix("/rerank")
    if parts.hostname in _COHERE_HOSTS or path.endswith("/v2"):
        return "cohere"
    return "vllm" if path.endswith("/v1") else None


def endpoint(url: str, shape: Shape) -> str:
    """Returns the address to post to; `url` may name the server, its API or the address itself.

    Raises:
        InvalidSetting: The URL is not http(s).
    """
    path = http_parts(url).path.rstrip("/")
    base = url.strip().rstrip("/")
    if path.endswith("/rerank"):
        return base
    if path.endswith(("/v1", "/v2")):
        return f"{base}/rerank"
    return f"{base}/v2/rerank" if shape == "cohere" else f"{base}/rerank"


def body(shape: Shape, model: str, query: str, texts: Sequence[str]) -> dict[str, Any]:
    """Returns what to send. Too long texts are cut where the shape lets us ask for it (TEI)."""
    if shape == "tei":
        return {"query": query, "texts": list(texts), "raw_scores": False, "truncate": True}
    return {"model": model, "query": query, "documents": list(texts)}


def scores(shape: Shape, reply: object, count: int) -> list[float]:
    """Returns the finite scores of a reply, in the order of the texts.

    Args:
        shape: How the server was asked.
        reply: Its reply.
        count: How many texts were sent.

    Raises:
        MalformedRanking: It is not exactly one finite number for each text; names the fault.
    """
    items, key = reply, "score"
    if shape != "tei":
        items, key = (reply.get("results") if isinstance(reply, dict) else None), "relevance_score"
    if not isinstance(items, list):
        raise MalformedRanking("the reply has no list of scores")
    placed: dict[int, float] = {}
    for item in items:
        index, score = (item.get("index"), item.get(key)) if isinstance(item, dict) else (None, 0)
        if type(index) is not int or not 0 <= index < count or index in placed:
            raise MalformedRanking("the reply's indexes do not match the candidates")
        if (value := _finite(score)) is None:
            raise MalformedRanking(f"score {index} is no finite number")
        placed[index] = value
    if len(placed) != count:
        raise MalformedRanking(f"{len(placed)} scores for {count} candidates")
    return [placed[index] for index in range(count)]


def scaled(shape: Shape, given: Sequence[float], *, normalise: bool | None) -> list[float]:
    """Returns the scores of a whole pool in 0 … 1.

    Scores within 0 … 1 stay as they are: they mean something by themselves. Others are spread over
    0 … 1 by least and largest (all equal: ½), which keeps their order and nothing else.

    Args:
        shape: ``vllm`` may give any number; the others promise 0 … 1, so that anything else is a
            fault, unless `normalise` is set.
        given: The scores of all batches.
        normalise: True always spreads; False never does; None goes by the shape.

    Raises:
        MalformedRanking: A score lies outside 0 … 1 and may not be spread.
    """
    outside = [n for n, s in enumerate(given) if not -_TOLERANCE <= s <= 1.0 + _TOLERANCE]
    spread = normalise if normalise is not None else bool(outside) and shape == "vllm"
    if not spread:
        if outside:
            raise MalformedRanking(f"score {outside[0]} lies outside 0 … 1")
        return [min(max(score, 0.0), 1.0) for score in given]
    least, largest = min(given, default=0.0), max(given, default=0.0)
    # Halves, since the difference of two finite numbers may be none.
    width = largest / 2 - least / 2
    if width <= 0.0:
        return [0.5] * len(given)
    return [min(max((score / 2 - least / 2) / width, 0.0), 1.0) for score in given]


def _finite(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
