"""Several corpora read together keep what the contract says of reading and searching."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ragchat_retrieval.filters import Filter
from ragchat_retrieval.ports import Hit
from ragchat_retrieval.stores.joined import JoinedStore
from ragchat_retrieval.stores.memory import MemoryStore
from ragchat_retrieval.testing.filter_suite import IDS, WAYS, put_cases, wrong_cases
from ragchat_retrieval.testing.store_suite_kit import ALL
from ragchat_retrieval.testing.store_suite_lanes import KeywordLaneContract, VectorLaneContract
from ragchat_retrieval.testing.store_suite_reads import ReadContract
from ragchat_retrieval.testing.store_suite_scope import ScopeContract
from ragchat_retrieval.text import corpus_prefix

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection

    from ragchat_retrieval.ports import Store
    from ragchat_retrieval.testing.filter_suite import Way

NAME = "a/b %2F"


class Through:
    """A corpus that is written directly and read through a join with another, which is empty.

    Ids are those of the corpus, so that the contract's expectations hold as they stand.
    """

    def __init__(self, part: Store) -> None:
        self.part = part
        self.joined = JoinedStore([part.corpus("aside"), part])
        self.prefix = corpus_prefix(part.corpus_name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.part, name)

    def corpus(self, name: str) -> Through:
        return Through(self.part.corpus(name))

    def own(self, passage):
        assert passage.corpus == self.part.corpus_name
        ids = passage.id.removeprefix(self.prefix), passage.document_id.removeprefix(self.prefix)
        return replace(passage, id=ids[0], document_id=ids[1], corpus=None)

    async def identity(self):
        return await self.joined.identity()

    async def revision(self):
        return await self.joined.revision()

    async def count(self, *, scope):
        return await self.joined.count(scope=scope)

    async def corpora(self):
        return await self.joined.corpora()

    async def ids(self, *, scope):
        return [id_.removeprefix(self.prefix) for id_ in await self.joined.ids(scope=scope)]

    async def document_ids(self, *, scope):
        return [
            id_.removeprefix(self.prefix) for id_ in await self.joined.document_ids(scope=scope)
        ]

    async def document(self, document_id, *, scope):
        found = await self.joined.document(self.prefix + document_id, scope=scope)
        return found and replace(found, id=document_id)

    async def get(self, passage_ids, *, scope):
        found = await self.joined.get([self.prefix + id_ for id_ in passage_ids], scope=scope)
        assert all(id_ == passage.id for id_, passage in found.items())
        return {id_.removeprefix(self.prefix): self.own(passage) for id_, passage in found.items()}

    async def neighbours(self, document_id, ordinal, n, *, scope):
        found = await self.joined.neighbours(self.prefix + document_id, ordinal, n, scope=scope)
        return [self.own(passage) for passage in found]

    async def vectors(self, passage_ids, *, scope):
        return self.stripped(await self.joined.vectors(self.full(passage_ids), scope=scope))

    async def hashes(self, document_ids=None, *, scope):
        wanted = None if document_ids is None else self.full(document_ids)
        return self.stripped(await self.joined.hashes(wanted, scope=scope))

    async def term_counts(self, terms):
        return await self.joined.term_counts(terms)

    async def search_text(self, terms, limit, *, filter, scope):
        return self.hits(await self.joined.search_text(terms, limit, filter=filter, scope=scope))

    async def search_vector(self, vector, limit, *, filter, scope):
        return self.hits(await self.joined.search_vector(vector, limit, filter=filter, scope=scope))

    async def score_text(self, terms, passage_ids, *, scope):
        full = self.full(passage_ids)
        return self.stripped(await self.joined.score_text(terms, full, scope=scope))

    async def score_vector(self, vector, passage_ids, *, scope):
        full = self.full(passage_ids)
        return self.stripped(await self.joined.score_vector(vector, full, scope=scope))

    def full(self, ids):
        return [self.prefix + id_ for id_ in ids]

    def stripped(self, found):
        return {id_.removeprefix(self.prefix): value for id_, value in found.items()}

    def hits(self, found):
        return [Hit(id_.removeprefix(self.prefix), score) for id_, score in found]


class TestReadingThroughAJoin(ReadContract, ScopeContract, KeywordLaneContract, VectorLaneContract):
    @pytest.fixture
    async def store(self) -> AsyncIterator[Through]:
        """Gives an empty store."""
        under = MemoryStore(corpus=NAME)
        yield Through(under)
        await under.aclose()


class Halves:
    """Two corpora read through a join; what is written goes to them by turns.

    Ids are those that were written, as in the cases.
    """

    def __init__(self, under: Store) -> None:
        self.halves = [under.corpus("odd"), under.corpus("even")]
        self.joined = JoinedStore(self.halves)
        self.count = self.joined.count
        self.ids_there: dict[str, str] = {}

    async def replace(self, revisions, **options):
        for n, half in enumerate(self.halves):
            await half.replace(revisions[n::2], **options)
            prefix = corpus_prefix(half.corpus_name)
            self.ids_there |= {r.passages[0].id: prefix + r.passages[0].id for r in revisions[n::2]}

    def there(self, ids):
        return [self.ids_there[id_] for id_ in ids]

    def here(self, found):
        return [id_.partition("/")[2] for id_ in found]

    async def search_text(self, *asked, **bounds):
        return self.hits(await self.joined.search_text(*asked, **bounds))

    async def search_vector(self, *asked, **bounds):
        return self.hits(await self.joined.search_vector(*asked, **bounds))

    def hits(self, found):
        return [Hit(id_.partition("/")[2], score) for id_, score in found]

    async def score_text(self, terms, ids, *, scope):
        return self.here(await self.joined.score_text(terms, self.there(ids), scope=scope))

    async def score_vector(self, vector, ids, *, scope):
        return self.here(await self.joined.score_vector(vector, self.there(ids), scope=scope))

    async def ids(self, *, scope):
        return self.here(await self.joined.ids(scope=scope))

    async def get(self, ids, *, scope):
        return self.here(await self.joined.get(self.there(ids), scope=scope))

    async def vectors(self, ids, *, scope):
        return self.here(await self.joined.vectors(self.there(ids), scope=scope))


async def checked(store: Halves, given: Filter) -> Collection[str]:
    """Reads all passages and checks them as an index does once more."""
    found = await store.joined.get(store.there(IDS), scope=ALL)
    return store.here(id_ for id_, passage in found.items() if given.matches_passage(passage))


@pytest.mark.parametrize("way", [*WAYS, checked], ids=lambda way: way.__name__)
async def test_every_filter_case_holds_over_two_corpora(way: Way) -> None:
    """Filters see the ids that were written, in the stores and when passages are checked again."""
    store = Halves(MemoryStore())
    await put_cases(store)
    assert await wrong_cases(store, way) == []
    assert set(await way(store, Filter())) == set(IDS)
