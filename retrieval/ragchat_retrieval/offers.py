"""What a store may offer besides the methods of `ports.Store`.

Each of these is a protocol of its own. Who asks a store looks whether it has the method, and does
without where it has not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, cast, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ragchat_retrieval.filters import Filter
    from ragchat_retrieval.fusion import LaneResult
    from ragchat_retrieval.ports import Hit, Identity, Store
    from ragchat_retrieval.values import Passage


class TermCounts(NamedTuple):
    """How common terms are in a corpus, whoever asks: scopes and filters play no part."""

    passages: int
    """All passages of the corpus."""

    holding: Mapping[str, int]
    """How many of them hold each term; a term that none holds is left out."""


@runtime_checkable
class CountsTerms(Protocol):
    """What a store with a keyword lane may offer besides: others can then weigh words as it does.

    Without it, corpora that are read together weigh words each by its own statistics, and the words
    of a title all weigh the same. A store without a keyword lane has nothing to tell: None.
    """

    async def term_counts(self, terms: Collection[str]) -> TermCounts | None:
        """Returns how common terms are in the corpus; None if that is not known after all."""
        ...


async def term_counts(store: Store, terms: Collection[str]) -> TermCounts | None:
    """Returns how common terms are in a store's corpus; None if it does not count them."""
    return await store.term_counts(terms) if isinstance(store, CountsTerms) else None


class Written(NamedTuple):
    """What a corpus was written with, whoever asks."""

    identity: Identity | None
    """None before the first write."""

    keyword_only: Sequence[str] = ()
    """Names of the corpora in it that were written without vectors, though others may have some."""


@runtime_checkable
class TellsWritten(Protocol):
    """What a store that reads several corpora may offer besides: to tell which have no vectors.

    Without it, a search by meaning cannot name those that it sees nothing of.
    """

    async def written(self) -> Written:
        """Returns what `identity` does, and those corpora, in the order in which they are read.

        Raises:
            IdentityMismatch: As `identity`.
        """
        ...


async def written(store: Store) -> Written:
    """Returns what a store's corpus was written with, as far as the store tells."""
    if stands_for(store, "written", "identity"):
        return await cast("TellsWritten", store).written()
    return Written(await store.identity())


@runtime_checkable
class SearchesVectors(Protocol):
    """What a store with a vector lane may offer besides: to search for several queries at once."""

    async def search_vectors(
        self,
        vectors: Sequence[NDArray[np.float32]],
        limit: int,
        *,
        filter: Filter,
        scope: Filter,
    ) -> Sequence[Sequence[Hit]]:
        """Returns what `search_vector` does for each of one or more vectors, in order."""
        ...


class LaneQuery(NamedTuple):
    """A question as the two lanes of a store take it."""

    terms: Mapping[str, float] | None
    """Analysed, weighted terms; None if the keyword lane is not asked."""

    vector: NDArray[np.float32] | None
    """float32 [dimension], normalised; None if the vector lane is not asked."""


class BothLanes(NamedTuple):
    """What both lanes of a store say to one question; None where a lane was not asked."""

    keyword: LaneResult | None
    vector: LaneResult | None


@runtime_checkable
class SearchesBoth(Protocol):
    """What a store with both lanes may offer besides: to answer them in one step.

    That is one way there and back instead of four, over one state of the corpus.
    """

    async def search_both(
        self,
        queries: Sequence[LaneQuery],
        limit: int,
        *,
        filter: Filter,
        scope: Filter,
        complete: bool,
    ) -> Sequence[BothLanes]:
        """Returns what both lanes find for each of one or more questions, in order.

        Hits are those of `search_text` and `search_vector`. If they are to be completed, it is by
        what `score_text` and `score_vector` say of the other lane's hits, and by nothing where a
        question has no terms. All questions ask the same lanes, one or both.
        """
        ...


@runtime_checkable
class SearchesAndReads(Protocol):
    """What a store with both lanes may offer besides: to read what was found in the same step.

    That is one way there and back for a whole search, of both lanes or of one, and no writer comes
    between what is found and what is read.
    """

    async def search_and_read(
        self,
        queries: Sequence[LaneQuery],
        limit: int,
        *,
        filter: Filter,
        scope: Filter,
        complete: bool,
        choose: Callable[[Sequence[BothLanes]], Sequence[str]],
    ) -> Mapping[str, Passage]:
        """Returns what `get` says of the passages that are chosen from what both lanes find.

        Args:
            queries: As for `search_both`, and so are the others.
            limit: How many hits each lane is asked for.
            filter: What the user asked to narrow to.
            scope: The trusted boundary, for what is read as well.
            complete: Whether each lane scores what only the other one found.
            choose: Gets what `search_both` would return and returns passage ids. It may be called
                in any thread, and again if the store has to begin anew: its last answer counts.
                What it raises is for the caller.
        """
        ...


def stands_for(store: Store, whole: str, *parts: str) -> bool:
    """Says whether a method that a store offers besides does what these others of it do.

    It does not if a subclass, or the object itself, has one of them of its own and inherits the
    `whole`, which knows nothing of that.

    Args:
        store: Any store.
        whole: Name of the method that it may offer.
        *parts: Names of the methods that it is called instead of.
    """
    names = {whole, *parts}
    layers = (getattr(store, "__dict__", {}), *map(vars, type(store).__mro__))
    return next((whole in layer for layer in layers if not names.isdisjoint(layer)), False)


@runtime_checkable
class SwappableStore(Protocol):
    """A store that can exchange two of its corpora in one step."""

    async def swap_corpus(self, other: str, *, expected: int | None = None) -> None:
        """Exchanges the contents of this corpus and another one of the same store, atomically.

        Nothing is copied: names change places. A reader sees both as before or both as after, a
        write that waits goes to what bears the name by then, and both revisions rise above what
        either was.

        Args:
            other: The other corpus.
            expected: Revision at which this corpus must be.

        Raises:
            UnknownCorpus: One of them was never written.
            CorpusChanged: This corpus is at another revision; nothing was done.
        """
        ...
