"""Several corpora read as one.

A composite over the port: it works with any store. Ids of passages and documents begin with the
name of their corpus (`ragchat_retrieval.text.corpus_prefix`), because two corpora may use one id
for different things, and whatever comes after a search goes by ids. Filters and scopes see the ids
as they were written.

Cosines of one model compare as they are. BM25 scores do not: each corpus has its own idea of which
words are rare, and a word that only one passage of a large corpus holds would outweigh anything
that a small corpus has to say. So the counts of passages and of those that hold a term are added
up, and every corpus weighs words by the sums. What stays its own is the average length of its
passages: long and short are relative to passages of the same kind.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, NoReturn, TypeVar

from ragchat_retrieval.errors import IdentityMismatch, InvalidSetting, StoreReadOnly
from ragchat_retrieval.lexical import idf
from ragchat_retrieval.ports import Capabilities, Hit, StoreCounts, TermCounts, Written, term_counts
from ragchat_retrieval.tasks import gather
from ragchat_retrieval.text import corpus_prefix

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ragchat_retrieval.filters import Filter
    from ragchat_retrieval.ports import Identity, Store
    from ragchat_retrieval.values import Document, Passage, Revision

T = TypeVar("T")


class JoinedStore:
    """Reads several corpora as one; writing is refused. `HybridIndex.corpus` makes it.

    Implements `ragchat_retrieval.ports.Store`. Passages tell their `Passage.corpus`. All corpora
    must have been written with one analysis, and with one embedding model where they have vectors.

    Args:
        parts: Handles on different corpora, usually of one store; one or more.

    Raises:
        InvalidSetting: There is no part, or two are of one name.
    """

    def __init__(self, parts: Sequence[Store]) -> None:
        self._parts = {corpus_prefix(part.corpus_name): part for part in parts}
        if not parts or len(self._parts) != len(parts):
            raise InvalidSetting("corpora", "takes one or more different names")

    def parts(self) -> tuple[Store, ...]:
        """Returns what is read, in the order given."""
        return tuple(self._parts.values())

    @property
    def name(self) -> str:
        """The kind of the first part."""
        return self.parts()[0].name

    @property
    def capabilities(self) -> Capabilities:
        """What every part can do; nothing that writes."""
        can = [part.capabilities for part in self.parts()]
        return Capabilities(
            filterable=all(each.filterable for each in can),
            keyword=all(each.keyword for each in can),
            semantic=all(each.semantic for each in can),
            atomic_batch=all(each.atomic_batch for each in can),
            reset=False,
        )

    @property
    def corpus_name(self) -> str:
        """The names of all parts."""
        return ", ".join(part.corpus_name for part in self.parts())

    def corpus(self, name: str) -> Store:
        """Returns a handle on a single corpus of the first part's store, which may be written."""
        return self.parts()[0].corpus(name)

    async def identity(self) -> Identity | None:
        """Returns what the corpora were written with; None if none was ever written.

        Raises:
            IdentityMismatch: They were written with different analyses or embedding models.
        """
        return (await self.written()).identity

    async def written(self) -> Written:
        """Returns what `identity` does, and names the corpora that were written without vectors.

        Raises:
            IdentityMismatch: They were written with different analyses or embedding models.
        """
        stored = await self._ask(lambda part: part.identity())
        pairs = list(zip(self.parts(), stored, strict=True))
        known = (identity for identity in stored if identity is not None)
        common = max(known, key=lambda identity: identity.model is not None, default=None)
        for part, identity in pairs:
            if common is None or identity is None:
                continue
            # A corpus without vectors has keywords to add, and nothing that could be wrong.
            if identity not in {common, replace(common, model=None, dimension=None)}:
                raise IdentityMismatch(
                    str(identity),
                    str(common),
                    store=self.name,
                    remedy=f"corpora are read together only where all have one identity, "
                    f"and {part.corpus_name!r} has another",
                )
        bare = [part.corpus_name for part, each in pairs if each is not None and each.model is None]
        return Written(common, bare)

    async def revision(self) -> int:
        """Returns a counter that every write of any part raises."""
        return sum(await self._ask(lambda part: part.revision()))

    # --- writing ---

    async def replace(
        self,
        revisions: Sequence[Revision],
        *,
        identity: Identity,
        scope: Filter,
        expected: Mapping[str, str] | None = None,
    ) -> None:
        """Refuses to write."""
        del revisions, identity, scope, expected
        self._refuse()

    async def delete(self, document_ids: Collection[str], *, scope: Filter) -> int:
        """Refuses to write."""
        del document_ids, scope
        self._refuse()

    async def delete_by_source(self, source: str, *, scope: Filter) -> int:
        """Refuses to write."""
        del source, scope
        self._refuse()

    async def reset(self) -> None:
        """Refuses to write."""
        self._refuse()

    async def drop_corpus(self) -> None:
        """Refuses to write."""
        self._refuse()

    async def repair(self) -> None:
        """Refuses to write."""
        self._refuse()

    async def aclose(self) -> None:
        """Closes the parts."""
        closed = await asyncio.gather(
            *(part.aclose() for part in self.parts()), return_exceptions=True
        )
        for failure in closed:
            if failure is not None:
                raise failure

    # --- reading ---

    async def ids(self, *, scope: Filter) -> list[str]:
        """Returns all passage ids in ascending order."""
        return self._all_ids(await self._ask(lambda part: part.ids(scope=scope)))

    async def document_ids(self, *, scope: Filter) -> list[str]:
        """Returns all document ids in ascending order."""
        return self._all_ids(await self._ask(lambda part: part.document_ids(scope=scope)))

    async def document(self, document_id: str, *, scope: Filter) -> Document | None:
        """Returns a document with its text, or None."""
        for prefix, ids in self._by_part([document_id]).items():
            found = await self._parts[prefix].document(ids[0], scope=scope)
            return None if found is None else replace(found, id=document_id)
        return None

    async def get(self, passage_ids: Sequence[str], *, scope: Filter) -> dict[str, Passage]:
        """Returns the known ones among these passages, by id."""
        found = await self._ask_for(passage_ids, lambda part, ids: part.get(ids, scope=scope))
        return {
            prefix + id_: self._told(passage, prefix)
            for prefix, passages in found.items()
            for id_, passage in passages.items()
        }

    async def vectors(
        self, passage_ids: Sequence[str], *, scope: Filter
    ) -> dict[str, NDArray[np.float32]]:
        """Returns the vectors of the known ones that have one, float32 [dimension]."""
        return _merged(
            await self._ask_for(passage_ids, lambda part, ids: part.vectors(ids, scope=scope))
        )

    async def neighbours(
        self, document_id: str, ordinal: int, n: int, *, scope: Filter
    ) -> list[Passage]:
        """Returns the passages at ordinals ``ordinal − n … ordinal + n``, in order."""
        for prefix, ids in self._by_part([document_id]).items():
            found = await self._parts[prefix].neighbours(ids[0], ordinal, n, scope=scope)
            return [self._told(passage, prefix) for passage in found]
        return []

    async def hashes(
        self, document_ids: Collection[str] | None = None, *, scope: Filter
    ) -> dict[str, str]:
        """Returns the fingerprints of the known ones among these documents; None means all."""
        if document_ids is not None:
            return _merged(
                await self._ask_for(document_ids, lambda part, ids: part.hashes(ids, scope=scope))
            )
        found = await self._ask(lambda part: part.hashes(scope=scope))
        return _merged(dict(zip(self._parts, found, strict=True)))

    async def count(self, *, scope: Filter) -> StoreCounts:
        """Returns how much the corpora hold together."""
        counts = await self._ask(lambda part: part.count(scope=scope))
        return StoreCounts(*map(sum, zip(*counts, strict=True)))

    async def corpora(self) -> list[str]:
        """Returns the names of all corpora that were written, in ascending order."""
        names = await self._ask(lambda part: part.corpora())
        return sorted(set(chain.from_iterable(names)))

    # --- the lanes ---

    async def search_text(
        self,
        terms: Mapping[str, float],
        limit: int,
        *,
        filter: Filter,
        scope: Filter,
    ) -> list[Hit]:
        """Returns the best passages by BM25 over analysed, weighted terms."""
        weights = await self._weights(terms)
        return self._best(
            await gather(
                *(
                    part.search_text(weights[prefix], limit, filter=filter, scope=scope)
                    for prefix, part in self._parts.items()
                )
            ),
            limit,
        )

    async def score_text(
        self, terms: Mapping[str, float], passage_ids: Sequence[str], *, scope: Filter
    ) -> dict[str, float]:
        """Returns the BM25 scores of given passages; 0.0 without a common term."""
        weights = await self._weights(terms)
        wanted = self._by_part(passage_ids)
        scores = await gather(
            *(
                self._parts[prefix].score_text(weights[prefix], ids, scope=scope)
                for prefix, ids in wanted.items()
            )
        )
        return _merged(dict(zip(wanted, scores, strict=True)))

    async def term_counts(self, terms: Collection[str]) -> TermCounts | None:
        """Returns how common terms are in the corpora together; None if a part does not tell."""
        counts = await self._counted(terms)
        return None if counts is None else _sum(counts)

    async def search_vector(
        self,
        vector: NDArray[np.float32],
        limit: int,
        *,
        filter: Filter,
        scope: Filter,
    ) -> list[Hit]:
        """Returns the best passages by cosine similarity with a normalised vector."""
        found = await self._ask(
            lambda part: part.search_vector(vector, limit, filter=filter, scope=scope)
        )
        return self._best(found, limit)

    async def score_vector(
        self, vector: NDArray[np.float32], passage_ids: Sequence[str], *, scope: Filter
    ) -> dict[str, float]:
        """Returns the cosine similarities of those given passages that have a vector."""
        return _merged(
            await self._ask_for(
                passage_ids, lambda part, ids: part.score_vector(vector, ids, scope=scope)
            )
        )

    # --- inside ---

    def _refuse(self) -> NoReturn:
        raise StoreReadOnly(
            "several corpora are read together; write to each by its own name", store=self.name
        )

    async def _ask(self, work: Callable[[Store], Awaitable[T]]) -> list[T]:
        return await gather(*map(work, self.parts()))

    async def _ask_for(
        self, ids: Collection[str], work: Callable[[Store, list[str]], Awaitable[T]]
    ) -> dict[str, T]:
        """Asks each part for its own ones among these ids; answers by the part's prefix."""
        wanted = self._by_part(ids)
        found = await gather(*(work(self._parts[prefix], own) for prefix, own in wanted.items()))
        return dict(zip(wanted, found, strict=True))

    def _by_part(self, ids: Collection[str]) -> dict[str, list[str]]:
        """Returns ids as the parts know them, by prefix; those of no part are left out."""
        wanted: dict[str, list[str]] = {}
        for id_ in ids:
            name, slash, rest = id_.partition("/")
            if name + slash in self._parts:
                wanted.setdefault(name + slash, []).append(rest)
        return wanted

    def _told(self, passage: Passage, prefix: str) -> Passage:
        return replace(
            passage,
            id=prefix + passage.id,
            document_id=prefix + passage.document_id,
            corpus=self._parts[prefix].corpus_name,
        )

    def _all_ids(self, found: Sequence[Sequence[str]]) -> list[str]:
        pairs = zip(self._parts, found, strict=True)
        return sorted(prefix + id_ for prefix, ids in pairs for id_ in ids)

    def _best(self, found: Sequence[Sequence[Hit]], limit: int) -> list[Hit]:
        pairs = zip(self._parts, found, strict=True)
        merged = [Hit(prefix + id_, score) for prefix, hits in pairs for id_, score in hits]
        merged.sort(key=lambda hit: (-hit.score, hit.passage_id))
        return merged[: max(0, limit)]

    async def _counted(self, terms: Collection[str]) -> list[TermCounts] | None:
        counts = await self._ask(lambda part: term_counts(part, terms))
        known = [each for each in counts if each is not None]
        return known if len(known) == len(counts) else None

    async def _weights(self, terms: Mapping[str, float]) -> dict[str, Mapping[str, float]]:
        """Returns what terms must weigh in each part for its idf to become that of all parts."""
        counts = await self._counted(terms)
        if counts is None:
            return dict.fromkeys(self._parts, terms)
        everywhere = _sum(counts)
        rarity = {t: idf(everywhere.passages, held) for t, held in everywhere.holding.items()}
        return {
            prefix: {
                term: weight * (rarity[term] / idf(own.passages, own.holding[term]))
                for term, weight in terms.items()
                if term in own.holding
            }
            for prefix, own in zip(self._parts, counts, strict=True)
        }


def _sum(counts: Sequence[TermCounts]) -> TermCounts:
    holding: Counter[str] = Counter()
    for each in counts:
        holding.update(each.holding)
    return TermCounts(sum(each.passages for each in counts), holding)


def _merged(found: Mapping[str, Mapping[str, T]]) -> dict[str, T]:
    """Returns answers by the ids of all parts together."""
    return {prefix + id_: value for prefix, own in found.items() for id_, value in own.items()}
