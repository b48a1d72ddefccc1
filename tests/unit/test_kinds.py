"""What is of another kind than is needed is refused where it is given, by name and kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragchat_retrieval.chunking import TextSplitter
from ragchat_retrieval.combining import fallback, federate
from ragchat_retrieval.embedders import CachedEmbedder, HashingEmbedder
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.evaluation import evaluate
from ragchat_retrieval.fusion import RRF, Weighted
from ragchat_retrieval.index import HybridIndex
from ragchat_retrieval.ingest import ingest_directory, records
from ragchat_retrieval.migration import migrate_index, swap_indexes
from ragchat_retrieval.opening import open_index
from ragchat_retrieval.options import SearchOptions
from ragchat_retrieval.pipeline import RetrievalPipeline
from ragchat_retrieval.policy import Policy, StagePolicy
from ragchat_retrieval.rerank import Rerank
from ragchat_retrieval.stores.memory import MemoryStore
from ragchat_retrieval.values import Document

URL = "memory://"
INDEX = HybridIndex()


@pytest.mark.parametrize(
    ("name", "kind", "make"),
    [
        ("store", "a store, .* not str", lambda: HybridIndex("kb.sqlite")),
        ("store", "a store, .* not the class MemoryStore", lambda: HybridIndex(MemoryStore)),
        ("embedder", "an embedder, .* not str", lambda: HybridIndex(embedder="minilm")),
        ("embedder", "not the class Hash", lambda: HybridIndex(embedder=HashingEmbedder)),
        ("embedder", "an embedder, .* not str", lambda: open_index(URL, embedder="minilm")),
        ("successor", "an embedder, .* not int", lambda: HybridIndex(successor=3)),
        ("splitter", "a splitter, .* not function", lambda: HybridIndex(splitter=lambda text: [])),
        ("splitter", "not the class Text", lambda: HybridIndex(splitter=TextSplitter)),
        ("analyzer", "an Analyzer, not str", lambda: HybridIndex(analyzer="en")),
        ("fusion", "a fusion, .* not float", lambda: HybridIndex(fusion=0.3)),
        ("fusion", "a fusion, .* not the class RRF", lambda: SearchOptions(fusion=RRF)),
        ("policy", "a Policy, not str", lambda: SearchOptions(policy="strict")),
        ("rerank", "a Rerank, not function", lambda: SearchOptions(rerank=lambda q, c: [])),
        ("vector", "a StagePolicy, not str", lambda: Policy(vector="skip")),
        ("Rerank.scorer", "callable with .* not object", lambda: Rerank(object())),
        ("Rerank.scorer", "callable with .* not str", lambda: SearchOptions.of(rerank="bge")),
        ("inner", "an embedder, .* not str", lambda: CachedEmbedder("minilm")),
        ("source", "an index or a retriever, .* not str", lambda: RetrievalPipeline("kb.sqlite")),
        ("retrievers", "callable, as .*, not HybridIndex", lambda: federate([INDEX])),
        ("stage", "callable, not str", lambda: fallback(lambda query: [], "kb")),
        ("url", "a path or a URL, not NoneType", lambda: open_index(None)),
        ("url", "a path or a URL, not MemoryStore", lambda: open_index(MemoryStore())),
    ],
)
def test_a_part_of_another_kind_is_refused_when_it_is_given(name, kind, make):
    with pytest.raises(InvalidSetting, match=f"must be .*{kind}") as caught:
        make()
    assert caught.value.name == name


@pytest.mark.parametrize(
    ("name", "kind", "work"),
    [
        ("index", "an index, .* not str", lambda: ingest_directory("kb.sqlite", Path())),
        ("index", "an index, .* not Opening", lambda: ingest_directory(open_index(URL), Path())),
        ("index", "an index, .* not MemoryStore", lambda: ingest_directory(MemoryStore(), Path())),
        ("old", "an index, .* not str", lambda: migrate_index("a", "b")),
        ("new", "an index, .* not Opening", lambda: migrate_index(INDEX, open_index(URL))),
        ("live", "an index, .* not str", lambda: swap_indexes("a", INDEX)),
        ("built", "an index, .* not str", lambda: swap_indexes(INDEX, "b")),
        ("decode", "callable .* not str", lambda: records([1], "json", INDEX.ingest)),
        ("sink", "callable .* not HybridIndex", lambda: records([1], Document, INDEX)),
        ("splitter", "a splitter, .* not str", lambda: INDEX.ingest(splitter="text")),
        (
            "retriever",
            "an index or a retriever, .* not str",
            lambda: evaluate("kb", []),
        ),
    ],
)
async def test_work_on_something_of_another_kind_is_refused_before_it_begins(name, kind, work):
    with pytest.raises(InvalidSetting, match=f"must be .*{kind}") as caught:
        await work()
    assert caught.value.name == name


def test_parts_of_the_right_kind_are_taken():
    HybridIndex(
        MemoryStore(),
        embedder=CachedEmbedder(HashingEmbedder(16)),
        successor=HashingEmbedder(32),
        splitter=TextSplitter(),
        fusion=Weighted(),
    )
    SearchOptions(policy=Policy(vector=StagePolicy("skip")), rerank=Rerank(lambda q, c: []))
