"""A real HTTP server on loopback that embeds, records what it gets, and misbehaves on request.

It speaks OpenAI's ``POST /v1/embeddings`` and Ollama's ``POST /api/embed``; the vectors are those
of `HashingEmbedder`.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from ragchat_retrieval.embedders.hashing import hashed_vector
from ragchat_retrieval.testing.loopback_server import Fault, LoopbackServer, Request

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["EmbeddingServer", "Fault", "Request"]


class EmbeddingServer(LoopbackServer):
    """The server; a context manager.

    Args:
        dimension: Length of its vectors.
    """

    paths = frozenset({"/v1/embeddings", "/api/embed"})

    def __init__(self, dimension: int = 16) -> None:
        super().__init__()
        self.dimension = dimension

    def reply(self, request: Request) -> dict[str, Any]:
        """Returns the right reply to a request."""
        dimension = request.body.get("dimensions", self.dimension)
        given = request.body["input"]
        texts = [given] if isinstance(given, str) else given
        vectors = [hashed_vector(text, dimension) for text in texts]
        model = request.body["model"]
        if request.path == "/api/embed":
            return {"model": model, "embeddings": [vector.tolist() for vector in vectors]}
        as_base64 = request.body.get("encoding_format") == "base64"
        data = [
            {"object": "embedding", "index": n, "embedding": _encoded(vector, as_base64=as_base64)}
            for n, vector in enumerate(vectors)
        ]
        usage = {"prompt_tokens": len(texts), "total_tokens": len(texts)}
        return {"object": "list", "model": model, "data": data, "usage": usage}


def _encoded(vector: NDArray[np.float32], *, as_base64: bool) -> object:
    if as_base64:
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return vector.tolist()
