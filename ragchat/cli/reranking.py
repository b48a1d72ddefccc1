"""The rerank endpoint that the environment names, as commands use it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ragchat_retrieval.rerankers import HttpReranker


@asynccontextmanager
async def reranker_from_env(*, wanted: bool = True) -> AsyncIterator[HttpReranker | None]:
    """Yields the reranker of ``RAGCHAT_RERANK_URL``, its connections closed at the end.

    Args:
        wanted: Whether to read the settings at all; if not, None.

    Raises:
        InvalidSetting: A setting cannot work.
    """
    from ragchat_retrieval.rerankers import HttpReranker  # noqa: PLC0415 - --help stays quick

    found = HttpReranker.from_env() if wanted else None
    if found is None:
        yield None
        return
    async with found:
        yield found
