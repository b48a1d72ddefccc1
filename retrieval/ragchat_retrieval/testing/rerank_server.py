"""A real HTTP server on loopback that reranks as TEI, vLLM or Cohere do, and misbehaves on request.

A document's relevance is the share of the question's distinct words that it holds. Requests that
the real servers refuse are refused with their statuses.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from ragchat_retrieval.testing.loopback_server import Fault, LoopbackServer, Refusal, Request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ragchat_retrieval.rerankers.shapes import Shape

__all__ = ["Fault", "Request", "RerankServer", "relevance"]

_PATHS: dict[Shape, frozenset[str]] = {
    "tei": frozenset({"/rerank"}),
    "vllm": frozenset({"/rerank", "/v1/rerank"}),
    "cohere": frozenset({"/v2/rerank"}),
}
_TEI_BATCH = 32
_WORD = re.compile(r"\w+")


class RerankServer(LoopbackServer):
    """The server; a context manager.

    Args:
        shape: Whose API it speaks.
        model: The only model that vLLM and Cohere know here.
        logits: Give log-odds instead of 0 … 1, as some models behind vLLM do.
        key: The bearer token to ask for; None asks for none.
    """

    def __init__(
        self,
        shape: Shape = "tei",
        *,
        model: str = "m",
        logits: bool = False,
        key: str | None = None,
    ) -> None:
        super().__init__()
        self.shape = shape
        self.paths = _PATHS[shape]
        self._model = model
        self._logits = logits
        self._key = key

    def reply(self, request: Request) -> object:
        """Returns the ranking, best first.

        Raises:
            Refusal: The real server would refuse the request.
        """
        if self._key is not None and request.headers.get("authorization") != f"Bearer {self._key}":
            raise Refusal(401, {"message": "invalid api token"})
        query, texts = self._read(request.body)
        scores = [relevance(query, text) for text in texts]
        if self._logits:
            scores = [math.log((score + 0.01) / (1.01 - score)) for score in scores]
        order = sorted(range(len(texts)), key=lambda index: -scores[index])
        if self.shape == "tei":
            return [{"index": index, "score": scores[index]} for index in order]
        results = [{"index": index, "relevance_score": scores[index]} for index in order]
        if self.shape == "vllm":
            for result in results:
                result["document"] = {"text": texts[int(result["index"])]}  # type: ignore[assignment]
        return {"id": "rerank-1", "model": self._model, "results": results}

    def _read(self, body: Mapping[str, Any]) -> tuple[str, Sequence[str]]:
        query = body.get("query")
        texts = body.get("texts" if self.shape == "tei" else "documents")
        misread = 422 if self.shape == "tei" else 400
        if not isinstance(query, str) or not isinstance(texts, list) or not texts:
            raise Refusal(misread, {"error": "a field is missing", "type": "validation"})
        if self.shape == "tei":
            if len(texts) > _TEI_BATCH:
                problem = f"batch size {len(texts)} > maximum allowed batch size {_TEI_BATCH}"
                raise Refusal(422, {"error": problem, "type": "validation"})
        elif body.get("model") != self._model:
            raise Refusal(404, {"error": {"message": "The model does not exist.", "code": 404}})
        return query, texts


def relevance(query: str, text: str) -> float:
    """Returns the share of a question's distinct words that a text holds, 0 … 1."""
    asked = set(_WORD.findall(query.casefold()))
    return len(asked & set(_WORD.findall(text.casefold()))) / max(1, len(asked))
