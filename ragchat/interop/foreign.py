"""What the bridges to other libraries share: their findings as candidates, our passages as theirs.

A bridge says how its library is asked. What becomes of scores, metadata, filters and scopes is the
same for all of them, and is said here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ragchat_retrieval.errors import FilterUnsupported, InvalidMetadata
from ragchat_retrieval.filters import KEY_PATTERN, RESERVED_KEYS, Filter
from ragchat_retrieval.foreign import retrieved
from ragchat_retrieval.metadata import Metadata
from ragchat_retrieval.stages import call_stage
from ragchat_retrieval.text import clean_query
from ragchat_retrieval.trace import Degradation
from ragchat_retrieval.values import Candidate, Passage, Query, SearchResult

if TYPE_CHECKING:
    from ragchat_retrieval.foreign import AnyRetriever
    from ragchat_retrieval.options import FilterLike

Theirs: TypeAlias = Any
"""An object of the other library, whose types are not ours to name."""

Narrow: TypeAlias = Callable[[Filter], Theirs]
"""Returns their retriever with a filter of ours built in; async or sync."""

_SOURCES = ("source", "file_path", "url", "file_name")
"""Where loaders of other libraries say what a document came from, the likeliest first."""


class Found(NamedTuple):
    """What another library found, before it is one of our candidates."""

    text: str | None
    """None or blank for what holds no text, such as an image."""

    id: str | None
    metadata: Mapping[str, Any]
    document_id: str | None = None
    score: object = None
    """Anything but a finite number counts as none."""


@dataclass(frozen=True, slots=True)
class ForeignRetriever:
    """Another library's retriever as one of ours.

    * **Scores** are kept if every item has a finite one and they fall or stay from item to item;
      else they are made of the order, 1 / rank. The order is always theirs.
    * **Metadata** become the passage's: ``title`` and ``source`` (or ``file_path``, ``url``,
      ``file_name``) its fields too. A value that ours cannot hold is kept as its text; a key that
      no filter can name is left out.
    * **Filters and scopes** are what `narrow` builds into their retriever. Without it, a query that
      has either is refused: it would be answered from everything. What comes back is checked.
    * **Ids** are theirs. Where items share one, as the chunks of a document may, it names the
      document, and each passage gets one of its own.
    * Items without text are left out, and the result says so.

    Raises:
        FilterUnsupported: The query has a filter or a scope, and there is no `narrow`.
        BaseException: What their retriever raised.
    """

    ask: Callable[[Theirs, str], Awaitable[Sequence[Found]]]
    """Asks one of their retrievers."""

    retriever: Theirs
    narrow: Narrow | None = field(default=None, kw_only=True)
    semantic: bool = field(default=False, kw_only=True)
    """Whether it searches by meaning, and so is asked with ``query.semantic`` if there is one."""

    @property
    def filterable(self) -> bool:
        """Whether filters run inside its search."""
        return self.narrow is not None

    async def __call__(self, query: Query) -> SearchResult:
        """Asks their retriever."""
        found = await self.ask(await self._bounded(query.filter & query.scope), query.text)
        told = [item for item in found if item.text and not item.text.isspace()]
        scores = _scores([item.score for item in told])
        met = Counter(item.id for item in told)
        passages = [_passage(item, unique=met[item.id] == 1) for item in told]
        return SearchResult(
            tuple(map(Candidate, passages, scores)),
            queries=(query,),
            degraded=_left_out(len(found) - len(told)),
        )

    async def _bounded(self, bounds: Filter) -> Theirs:
        if not bounds:
            return self.retriever
        if self.narrow is None:
            raise FilterUnsupported(type(self.retriever).__name__)
        return await call_stage(self.narrow, bounds)


async def candidates_for(
    retriever: AnyRetriever,
    text: str,
    *,
    filter: FilterLike,
    scope: FilterLike,
    top_k: int | None = None,
) -> Sequence[Candidate]:
    """Asks a retriever of ours on behalf of another library; a blank text finds nothing."""
    if not clean_query(text):
        return ()
    query = Query(text, filter=Filter.of(filter), scope=Filter.of(scope), top_k=top_k)
    return await retrieved(retriever, query)


def metadata_of(passage: Passage) -> dict[str, Any]:
    """Returns a passage's metadata with its fields beside them, as other libraries keep them.

    A key of the passage's own metadata wins over ``headings``, ``page``, ``lines`` and ``span``.
    """
    fields = {
        "headings": list(passage.headings) or None,
        "page": passage.page,
        "lines": passage.lines and list(passage.lines),
        "span": passage.span and list(passage.span),
        **_thawed(passage.metadata),
        "document_id": passage.document_id or None,
        "title": passage.title,
        "source": passage.source,
    }
    own = passage.metadata
    return {key: value for key, value in fields.items() if value is not None or key in own}


def _thawed(value: Any) -> Any:  # noqa: ANN401 - any value of metadata
    """Returns a metadata value as plain lists and dicts, which their owners may change."""
    if isinstance(value, Mapping):
        return {key: _thawed(inner) for key, inner in value.items()}
    return [*map(_thawed, value)] if isinstance(value, list) else value


def _scores(given: Sequence[object]) -> list[float]:
    numbers = [
        float(score)
        for score in given
        if not isinstance(score, bool) and isinstance(score, Real) and math.isfinite(score)
    ]
    if len(numbers) == len(given) and all(above >= below for above, below in pairwise(numbers)):
        return numbers
    return [1 / rank for rank in range(1, len(given) + 1)]


def _passage(item: Found, *, unique: bool) -> Passage:
    told = item.metadata
    document_id = _text(item.document_id) or _text(told.get("document_id")) or item.id or ""
    return Passage(
        item.text or "",
        id=(item.id or "") if unique else "",
        document_id=document_id,
        title=_text(told.get("title")),
        source=next(filter(None, (_text(told.get(key)) for key in _SOURCES)), None),
        metadata=dict(_kept(told)),
    )


def _kept(metadata: Mapping[str, Any]) -> Sequence[tuple[str, Any]]:
    return [
        (key, _holdable(key, value))
        for key, value in metadata.items()
        if isinstance(key, str) and KEY_PATTERN.fullmatch(key) and key not in RESERVED_KEYS
    ]


def _holdable(key: str, value: object) -> object:
    """Returns a value that our metadata can hold: the same, or its text."""
    try:
        return Metadata({key: value})[key]
    except InvalidMetadata:
        return str(value)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _left_out(number: int) -> tuple[Degradation, ...]:
    return (Degradation("retrieve", f"{number} items without text"),) if number else ()
