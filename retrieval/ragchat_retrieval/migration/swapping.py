"""Letting a corpus that was built beside another take its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragchat_retrieval.errors import SwapUnsupported
from ragchat_retrieval.filters import Filter
from ragchat_retrieval.kinds import check_index
from ragchat_retrieval.ports import SwappableStore

if TYPE_CHECKING:
    from ragchat_retrieval.index import HybridIndex


async def swap_indexes(
    live: HybridIndex, built: HybridIndex, *, expected: int | None = None
) -> None:
    """Exchanges the corpora of two indexes of one store, in one step; nothing is copied.

    Afterwards the corpus of `live` is what `built` was, for every process, and the other way
    round: swapping again goes back, and dropping the other corpus ends it.

    Args:
        live: The index that is in use.
        built: The one that takes its place; another corpus of the same file, schema or memory.
        expected: Revision at which the live corpus must be: `MigrationReport.revision`, so that no
            write is left behind.

    Raises:
        InvalidSetting: One is no index.
        SwapUnsupported: The store cannot, or the two are not in the same one.
        UnknownCorpus: One of them was never written.
        CorpusChanged: The live corpus was written since; migrate once more.
    """
    check_index("live", live)
    check_index("built", built)
    store, other = live.store, built.store
    if not isinstance(store, SwappableStore) or other.name != store.name:
        raise SwapUnsupported(store=store.name)
    name = other.corpus_name
    if name == store.corpus_name:
        raise SwapUnsupported("a corpus cannot be swapped with itself", store=store.name)
    # Two files may each have a corpus of this name.
    here, everything = store.corpus(name), Filter()
    known = await here.revision() == await other.revision()
    if not known or await here.hashes(scope=everything) != await other.hashes(scope=everything):
        raise SwapUnsupported("the two corpora are not in the same store", store=store.name)
    await store.swap_corpus(name, expected=expected)
