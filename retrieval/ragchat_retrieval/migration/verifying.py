"""Comparing two indexes: counts, fingerprints, samples of what is stored, sampled searches."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from ragchat_retrieval.migration.copying import EVERY_ORDINAL, EVERYTHING
from ragchat_retrieval.values import indexed_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ragchat_retrieval.migration.copying import Copying
    from ragchat_retrieval.values import Passage

T = TypeVar("T")

SAMPLED_DOCUMENTS: Final = 200
"""Documents that are compared letter by letter, spread evenly over all."""

SAMPLED_SEARCHES: Final = 50
"""Passages that are searched for in each lane."""

_LIMIT: Final = 10
_FOUND: Final = 0.9
"""Least share of sampled searches that find what they must: an approximate index misses some."""

_CLOSE: Final = 1e-2
"""Most that the cosine of a vector with its copy may be off 1: eight bits cost up to 0.005."""

_TOLD: Final = 3
"""Ids that a problem names."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing in which the indexes differ."""

    what: str
    document_ids: Sequence[str] = ()
    """The documents of which it is true; none if it is of the corpora as a whole."""

    certain: bool = False
    """Whether it has nothing to do with what is written to the old index meanwhile."""

    def __str__(self) -> str:
        if not self.document_ids:
            return self.what
        some = ", ".join(map(repr, self.document_ids[:_TOLD]))
        more = ", …" if len(self.document_ids) > _TOLD else ""
        count = len(self.document_ids)
        return f"{self.what}: {count} document{'s' * (count > 1)} ({some}{more})"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What differs between two indexes, as of a moment."""

    differences: Sequence[Difference] = ()
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    """Those of the old index when the comparison began."""

    @property
    def problems(self) -> tuple[str, ...]:
        """What differs, in a sentence each."""
        return tuple(map(str, self.differences))

    @property
    def suspects(self) -> dict[str, str | None]:
        """The documents that differ, with their fingerprints in the old index, None for none."""
        differing = (i for difference in self.differences for i in difference.document_ids)
        return {i: self.fingerprints.get(i) for i in differing}

    def lasting(self, earlier: Comparison) -> tuple[str, ...]:
        """Returns what is no news: what an earlier comparison found, too, of the same revisions."""
        before, now = earlier.suspects, self.suspects
        stayed = {i for i, mark in now.items() if i in before and before[i] == mark}
        told = []
        for difference in self.differences:
            ids = [i for i in difference.document_ids if difference.certain or i in stayed]
            if ids:
                told.append(str(replace(difference, document_ids=ids)))
        return tuple(told)


async def compared(copying: Copying, suspects: Sequence[str] = ()) -> Comparison:
    """Compares the two indexes of a finished copy.

    Args:
        copying: The copy.
        suspects: Documents to look at besides, which an earlier comparison found to differ.
    """
    old = await copying.old.store.hashes(scope=EVERYTHING)
    found = await _counts(copying)
    found += await _fingerprints(copying, old)
    ids = await copying.old.store.document_ids(scope=EVERYTHING)
    looked_at = [each for known in (ids, suspects) for each in _spread(known, SAMPLED_DOCUMENTS)]
    sampled, passages = await _samples(copying, list(dict.fromkeys(looked_at)))
    found += sampled
    told = {i for difference in sampled for i in difference.document_ids}
    sound = [passage for passage in passages if passage.document_id not in told]
    found += await _searches(copying, _spread(sound, SAMPLED_SEARCHES))
    return Comparison(found, old)


async def _counts(copying: Copying) -> list[Difference]:
    old = await copying.old.store.count(scope=EVERYTHING)
    new = await copying.new.store.count(scope=EVERYTHING)
    vectors = old.vectors if copying.new.embedder is None else old.passages
    expected = {
        "documents": old.documents,
        "passages": old.passages,
        "vectors": vectors if copying.identity.model is not None else 0,
    }
    return [
        Difference(f"{getattr(new, what)} {what}, not {number}")
        for what, number in expected.items()
        if getattr(new, what) != number
    ]


async def _fingerprints(copying: Copying, old: Mapping[str, str]) -> list[Difference]:
    new = await copying.new.store.hashes(scope=EVERYTHING)
    differing = sorted(i for i in old.keys() | new.keys() if old.get(i) != new.get(i))
    return _of("another fingerprint", differing)


async def _samples(
    copying: Copying, document_ids: Sequence[str]
) -> tuple[list[Difference], list[Passage]]:
    """Compares documents, passages and copied vectors; returns the passages too."""
    old, new = copying.old.store, copying.new.store
    passages: list[Passage] = []
    texts, pieces, vectors = [], [], []
    for document_id in document_ids:
        if await old.document(document_id, scope=EVERYTHING) != await new.document(
            document_id, scope=EVERYTHING
        ):
            texts.append(document_id)
        theirs = await old.neighbours(document_id, 0, EVERY_ORDINAL, scope=EVERYTHING)
        mine = await new.neighbours(document_id, 0, EVERY_ORDINAL, scope=EVERYTHING)
        if list(theirs) != list(mine):
            pieces.append(document_id)
        passages += mine
        if copying.keeps_vectors and not await _same_vectors(copying, theirs):
            vectors.append(document_id)
    told = (
        ("another text or label", texts),
        ("other passages", pieces),
        ("other vectors", vectors),
    )
    return [difference for what, ids in told for difference in _of(what, ids)], passages


async def _same_vectors(copying: Copying, passages: Sequence[Passage]) -> bool:
    ids = [passage.id for passage in passages]
    old = await copying.old.store.vectors(ids, scope=EVERYTHING)
    new = await copying.new.store.vectors(ids, scope=EVERYTHING)
    # Both are of length 1; a store that keeps them in fewer bits gives them back nearly.
    return all(i in new and float(row @ new[i]) > 1 - _CLOSE for i, row in old.items())


async def _searches(copying: Copying, passages: Sequence[Passage]) -> list[Difference]:
    """Searches for passages by all of their own words, and by their own vectors."""
    store, analyzer = copying.new.store, copying.new.analyzer
    texts = [indexed_text(passage) for passage in passages]
    counts = await asyncio.to_thread(analyzer.counts_many, texts)
    missed: dict[str, list[str]] = {"keyword": [], "vector": []}
    for passage, terms in zip(passages, counts, strict=True):
        if terms and store.capabilities.keyword:
            weights = dict.fromkeys(terms, 1.0)
            hits = await store.search_text(weights, _LIMIT, filter=EVERYTHING, scope=EVERYTHING)
            own = await store.score_text(weights, [passage.id], scope=EVERYTHING)
            # Others may hold all of these words too; what is shown first is then as good.
            if not hits or hits[0].score < own.get(passage.id, np.inf) * (1 - _CLOSE):
                missed["keyword"].append(passage.document_id)
    vectors = await store.vectors([passage.id for passage in passages], scope=EVERYTHING)
    owners = {passage.id: passage.document_id for passage in passages}
    for passage_id, vector in vectors.items():
        hits = await store.search_vector(vector, _LIMIT, filter=EVERYTHING, scope=EVERYTHING)
        if not hits or hits[0].score < 1 - _CLOSE:
            missed["vector"].append(owners[passage_id])
    return [
        Difference(f"not found by {lane} search", ids, certain=True)
        for lane, ids in missed.items()
        if ids and len(ids) > (1 - _FOUND) * len(passages)
    ]


def _spread(items: Sequence[T], most: int) -> list[T]:
    """Returns at most so many of the items, evenly spread, the same each time."""
    return list(items[:: max(1, -(-len(items) // most))])


def _of(what: str, document_ids: Sequence[str]) -> list[Difference]:
    return [Difference(what, document_ids)] if document_ids else []
