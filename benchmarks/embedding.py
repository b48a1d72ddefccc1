"""The local embedder, whose vectors are kept so that a second run takes a minute."""

from __future__ import annotations

from pathlib import Path

import ragchat

CACHE = Path(__file__).resolve().parent / ".cache" / "minilm.sqlite"


def cached_embedder(cache: Path = CACHE) -> ragchat.CachedEmbedder:
    """Returns the embedder with its cache, and makes the folder of that."""
    cache.parent.mkdir(parents=True, exist_ok=True)
    return ragchat.CachedEmbedder(ragchat.LocalEmbedder(), cache)
