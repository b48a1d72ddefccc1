"""A reranker behind HTTP: TEI, vLLM and what speaks like it, Cohere."""

from __future__ import annotations

import asyncio
import math
import os
from typing import TYPE_CHECKING, Any, Self

from ragchat_retrieval.errors import InvalidSetting, RagchatError, RerankError
from ragchat_retrieval.policy import model_call
from ragchat_retrieval.rerank import RerankDefaults
from ragchat_retrieval.rerankers.shapes import SHAPES, body, endpoint, scaled, scores, shape_of
from ragchat_retrieval.retry import DEFAULT, Retries, retried
from ragchat_retrieval.served import (
    MAX_REPLY,
    PerLoop,
    failure,
    http_client,
    http_parts,
    post_json,
)
from ragchat_retrieval.tasks import gather
from ragchat_retrieval.tokens import repair
from ragchat_retrieval.values import indexed_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import httpx2

    from ragchat_retrieval.rerankers.shapes import Shape
    from ragchat_retrieval.values import Candidate, Query

_PREFIX = "RAGCHAT_RERANK_"
_SETTINGS = ("MODEL", "API_KEY", "WEIGHT", "MARGIN")
_MAX_REPLY = MAX_REPLY

# What a server answers to a body in the other shape: unknown path or method, a field missing.
_MISUNDERSTOOD = frozenset({400, 404, 405, 422})


class HttpReranker:
    """Asks ``POST …/rerank`` of a server for the relevance of candidates.

    It speaks the shapes of Hugging Face's text-embeddings-inference (TEI), of vLLM (also Jina,
    Infinity, LiteLLM, llama.cpp) and of Cohere. The shape is read from the address: Cohere's host
    or ``/v2`` is Cohere, ``/v1`` is vLLM. For a bare ``/rerank`` the first request finds out: it
    goes out in vLLM's shape if a model is named, else in TEI's, and once more in the other one if
    the server does not understand it.

    Scores within 0 … 1 are taken as they are. TEI is asked for such scores and Cohere promises
    them, so that others are a `MalformedRanking`. A model behind vLLM may give logits: if any score
    of a pool lies outside 0 … 1, all are spread over 0 … 1 by least and largest. Then the best
    candidate always has 1 and a ``min_rerank`` floor means little.

    A request that fails for a moment is tried again (`ragchat_retrieval.retry`). Candidates without
    any text are not sent and score 0.

    Args:
        url: The server, its API (``http://127.0.0.1:8000/v1``) or the address itself.
        model: The model's name; TEI serves one model and needs none.
        shape: Names the shape instead of finding it out.
        api_key: Sent as a bearer token.
        weight: Share of these scores in the blend with the first stage, 0 … 1.
        margin: Skip where (best − second) / best of the first stage is at least this; None never
            skips.
        least_pool: The pool is max(top_k, least_pool) candidates.
        normalise: True always spreads scores over 0 … 1; False never does; None goes by the shape.
        batch_size: Candidates a request at most. TEI refuses more than 32 as it is delivered.
        concurrency: Requests of one call at a time.
        timeout: Seconds for one try of one request.
        retries: The rule for tries.
        **params: Sent with every request as they are, such as ``truncate_prompt_tokens=-1`` (vLLM
            refuses what is longer than its window) or ``max_tokens_per_doc=512`` (Cohere).

    Raises:
        InvalidSetting: A setting lies outside its range, or the URL is not http(s).
    """

    def __init__(
        self,
        url: str,
        model: str = "",
        *,
        shape: Shape | None = None,
        api_key: str | None = None,
        weight: float = 0.7,
        margin: float | None = 0.2,
        least_pool: int = 10,
        normalise: bool | None = None,
        batch_size: int = 32,
        concurrency: int = 4,
        timeout: float = 30.0,
        retries: Retries = DEFAULT,
        **params: Any,
    ) -> None:
        if shape is not None and shape not in SHAPES:
            raise InvalidSetting("shape", f"must be one of {', '.join(SHAPES)}")
        if not 0.0 <= weight <= 1.0:
            raise InvalidSetting("weight", "must lie in 0 … 1")
        if margin is not None and not margin >= 0.0:
            raise InvalidSetting("margin", "must be 0 or more")
        limits = {"least_pool": least_pool, "batch_size": batch_size, "concurrency": concurrency}
        for name, value in limits.items():
            if value < 1:
                raise InvalidSetting(name, "must be 1 or more")
        if not (math.isfinite(timeout) and timeout > 0):
            raise InvalidSetting("timeout", "must be a positive number of seconds")
        http_parts(url)
        self._url = url
        self._model = model.strip()
        self._shape: Shape | None = shape or shape_of(url)
        self._headers = {} if api_key is None else {"authorization": f"Bearer {api_key}"}
        self._normalise = normalise
        self._batch_size = batch_size
        self._concurrency = concurrency
        self._retries = retries
        self._params = params
        self._clients: PerLoop[httpx2.AsyncClient] = PerLoop(lambda: http_client(timeout))
        self.rerank_defaults = RerankDefaults(weight=weight, margin=margin, least_pool=least_pool)
        """What a `Rerank` around it uses where it says nothing itself."""

    def __repr__(self) -> str:
        return f"HttpReranker({self._host!r}, {self._model!r})"

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Self | None:
        """Returns the reranker that the environment names, or None without ``RAGCHAT_RERANK_URL``.

        Beside the URL it reads ``RAGCHAT_RERANK_MODEL``, ``_API_KEY``, ``_WEIGHT`` and ``_MARGIN``
        (a number, or ``none`` to never skip). No other variable counts.

        Args:
            environ: The variables; None reads those of the process.

        Raises:
            InvalidSetting: A value cannot work, or one is set without a URL.
        """
        given = os.environ if environ is None else environ
        url = given.get(f"{_PREFIX}URL", "").strip()
        settings = {name: given.get(_PREFIX + name, "").strip() for name in _SETTINGS}
        if not url:
            for name, value in settings.items():
                if value:
                    raise InvalidSetting(_PREFIX + name, f"has no effect without {_PREFIX}URL")
            return None
        http_parts(url, f"{_PREFIX}URL")
        options: dict[str, Any] = {}
        if settings["WEIGHT"]:
            options["weight"] = _number("WEIGHT", settings["WEIGHT"], most=1.0)
        if settings["MARGIN"].lower() == "none":
            options["margin"] = None
        elif settings["MARGIN"]:
            options["margin"] = _number("MARGIN", settings["MARGIN"], most=math.inf)
        return cls(url, settings["MODEL"], api_key=settings["API_KEY"] or None, **options)

    @property
    def model(self) -> str:
        """The model's name; empty where the server has but one."""
        return self._model

    @property
    def shape(self) -> Shape | None:
        """How the server is asked; None until the first request has found out."""
        return self._shape

    async def __call__(self, query: Query, candidates: Sequence[Candidate]) -> list[float]:
        """Returns one score in [0, 1] per candidate, in the order of the input.

        Without candidates nothing is sent.

        Raises:
            RerankError: The server failed, or its reply is no JSON.
            MalformedRanking: The reply is not exactly one usable score per candidate.
        """
        texts = [repair(indexed_text(candidate.passage)) for candidate in candidates]
        places = [place for place, text in enumerate(texts) if text.strip()]
        found = [0.0] * len(texts)
        if not places:
            return found
        question = repair(query.text)
        wanted = [texts[place] for place in places]
        with model_call("rerank", self._model, items=len(wanted)):
            given, shape = await self._all(question, wanted)
        values = scaled(shape, given, normalise=self._normalise)
        for place, score in zip(places, values, strict=True):
            found[place] = score
        return found

    async def aclose(self) -> None:
        """Closes the running loop's connections."""
        if (client := self._clients.pop()) is not None:
            await client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _all(self, query: str, texts: Sequence[str]) -> tuple[list[float], Shape]:
        """Returns the raw scores of all batches, and in which shape they came."""
        size = self._batch_size
        batches = [texts[start : start + size] for start in range(0, len(texts), size)]
        first: list[list[float]] = []
        shape = self._shape
        if shape is None:
            shape, found = await self._find_out(query, batches[0])
            first.append(found)
        gate = asyncio.Semaphore(self._concurrency)

        async def one(batch: Sequence[str]) -> list[float]:
            async with gate:
                return await self._scores(shape, query, batch)

        rest = await gather(*map(one, batches[len(first) :]))
        return [score for part in (*first, *rest) for score in part], shape

    async def _find_out(self, query: str, texts: Sequence[str]) -> tuple[Shape, list[float]]:
        """Asks in the likelier shape, then in the other one if that was not understood."""
        likely: Shape = "vllm" if self._model else "tei"
        other: Shape = "tei" if self._model else "vllm"
        try:
            found = await self._scores(likely, query, texts)
        except RerankError as error:
            if error.status not in _MISUNDERSTOOD:
                raise
            try:
                found = await self._scores(other, query, texts)
            except RerankError:
                raise error from None  # the likelier shape's answer says more
            likely = other
        self._shape = likely
        return likely, found

    async def _scores(self, shape: Shape, query: str, texts: Sequence[str]) -> list[float]:
        content = {**body(shape, self._model, query, texts), **self._params}
        address = endpoint(self._url, shape)

        async def post() -> object:
            return await post_json(
                self._clients.get(), address, content, headers=self._headers, limit=_MAX_REPLY
            )

        try:
            reply = await retried(post, self._retries)
        except RagchatError:
            raise
        except Exception as error:
            problem, status, transient = failure(error)
            raise RerankError(
                problem, model=self._model or self._host, status=status, retryable=transient
            ) from error
        return scores(shape, reply, len(texts))

    @property
    def _host(self) -> str:
        """The server without what may be secret in its address."""
        parts = http_parts(self._url)
        return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}"


def _number(name: str, text: str, *, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= most:
        limits = "0 … 1" if most == 1.0 else "0 or more"
        raise InvalidSetting(_PREFIX + name, f"must be a number, {limits}")
    return value
