"""Each library's own stores, retrievers and pipelines work with ours."""

from __future__ import annotations

import pytest
from haystack import Document as HaystackDocument
from haystack import Pipeline
from haystack.components.embedders import OpenAIDocumentEmbedder, OpenAITextEmbedder
from haystack.components.retrievers.in_memory import (
    InMemoryBM25Retriever,
    InMemoryEmbeddingRetriever,
)
from haystack.document_stores.in_memory import InMemoryDocumentStore
from langchain_core.documents import Document as LangChainDocument
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore
from llama_index.core import Document as LlamaDocument
from llama_index.core import MockEmbedding, VectorStoreIndex

import ragchat
from ragchat import Document, Eq, Filter, InvalidSetting, Query
from ragchat.interop import haystack, langchain, llamaindex
from ragchat_retrieval.foreign import retrieved

TEXTS = {"a": "Tea grows in Assam.", "b": "Rice grows in Kerala."}


@pytest.fixture
async def index():
    index = ragchat.quickstart()
    await index.ingest(*(Document(team, text) for team, text in TEXTS.items()))
    return index


async def test_a_vector_store_of_langchain_searches_by_meaning_inside_a_scope():
    """It is asked with the semantic text of a query, and narrowed by its own filter."""
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=16))
    store.add_documents(
        [LangChainDocument(page_content=t, metadata={"team": team}) for team, t in TEXTS.items()]
    )

    def narrow(bounds):
        kept = {"filter": lambda document: bounds.matches(document.metadata)}
        return store.as_retriever(search_kwargs=kept)

    ours = langchain.from_langchain(store.as_retriever(), narrow=narrow)
    assert ours.semantic
    query = Query("unlike", semantic="Rice grows in Kerala.")
    assert (await retrieved(ours, query))[0].passage.text == "Rice grows in Kerala."
    found = await retrieved(ours, Query("grows", scope=Filter(Eq("team", "a"))))
    assert [c.passage.text for c in found] == ["Tea grows in Assam."]


async def test_our_retriever_composes_as_a_runnable(index):
    ours = langchain.RagchatRetriever(retriever=index.retriever(top_k=1))
    chain = ours | RunnableLambda(lambda documents: documents[0].page_content)
    assert chain.batch(["tea", "rice"]) == list(TEXTS.values())
    assert await chain.abatch(["tea", "rice"]) == list(TEXTS.values())


async def test_a_vector_index_of_llamaindex_is_asked_as_one():
    theirs = VectorStoreIndex.from_documents(
        [LlamaDocument(text=text, doc_id=team) for team, text in TEXTS.items()],
        embed_model=MockEmbedding(8),
    )
    ours = llamaindex.from_llamaindex(theirs.as_retriever(similarity_top_k=2))
    assert ours.semantic
    found = await retrieved(ours, Query("grows", top_k=1))
    assert len(found) == 1
    assert TEXTS[found[0].passage.document_id] == found[0].passage.text


async def test_a_keyword_retriever_of_haystack_keeps_its_scores():
    store = InMemoryDocumentStore()
    store.write_documents([HaystackDocument(content=text) for text in TEXTS.values()])
    theirs = InMemoryBM25Retriever(store)
    expected = theirs.run(query="rice grows")["documents"]
    found = await retrieved(haystack.from_haystack(theirs), Query("rice grows"))
    assert [(c.passage.id, c.score) for c in found] == [(d.id, d.score) for d in expected]


async def test_a_retriever_of_haystack_by_vectors_comes_with_its_embedder(server):
    store = InMemoryDocumentStore()
    documents = [HaystackDocument(content=text) for text in TEXTS.values()]
    store.write_documents(OpenAIDocumentEmbedder().run(documents)["documents"])
    theirs = InMemoryEmbeddingRetriever(store)
    embedder = OpenAITextEmbedder()
    ours = haystack.from_haystack(theirs, embedder=embedder)
    assert ours.semantic
    found = await retrieved(ours, Query("unlike", semantic="Rice grows in Kerala."))
    await embedder.close_async()
    assert found[0].passage.text == "Rice grows in Kerala."


def test_an_embedder_that_is_missing_or_of_no_use_is_refused():
    store = InMemoryDocumentStore()
    with pytest.raises(InvalidSetting, match="is needed by InMemoryEmbeddingRetriever"):
        haystack.from_haystack(InMemoryEmbeddingRetriever(store))
    with pytest.raises(InvalidSetting, match="is of no use by InMemoryBM25Retriever"):
        haystack.from_haystack(InMemoryBM25Retriever(store), embedder=object())


async def test_our_retriever_is_a_component_of_a_pipeline(index):
    pipeline = Pipeline()
    pipeline.add_component("retriever", haystack.RagchatRetriever(index.retriever()))
    given = {"retriever": {"query": "rice", "top_k": 1}}
    (document,) = pipeline.run(given)["retriever"]["documents"]
    assert document.content == "Rice grows in Kerala."
