"""The libraries, quiet and offline, behind one face for the tests that hold for all of them."""

from __future__ import annotations

import os

# Read when they are imported: no usage statistics, no table of prices from the net.
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import threading
from dataclasses import dataclass, field
from typing import Any

import pytest
from haystack import Document as HaystackDocument
from haystack import component
from langchain_core.documents import Document as LangChainDocument
from langchain_core.retrievers import BaseRetriever as LangChainBase
from llama_index.core.retrievers import BaseRetriever as LlamaBase
from llama_index.core.schema import NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode

from ragchat.interop import haystack, langchain, llamaindex
from ragchat.testing import LoopbackOpenAI


@dataclass
class Shelf:
    """What a retriever of another library finds, and how it was asked."""

    items: list[dict[str, Any]]
    asked: list[str] = field(default_factory=list)
    threads: list[int] = field(default_factory=list)

    def find(self, text: str) -> list[dict[str, Any]]:
        self.asked.append(text)
        self.threads.append(threading.get_ident())
        return self.items


def _metadata(item, *others):
    told = {key: item[key] for key in others if key in item}
    document = {"document_id": item["of"]} if "of" in item else {}
    return {**item.get("metadata", {}), **told, **document}


class LangChain:
    """LangChain's documents hold no score of their own."""

    from_theirs = staticmethod(langchain.from_langchain)

    @staticmethod
    def ours(retriever, **options):
        return langchain.RagchatRetriever(retriever=retriever, **options)

    @staticmethod
    def theirs(shelf, *, has_async):
        def made(found):
            return [
                LangChainDocument(
                    id=item.get("id"), page_content=item["text"], metadata=_metadata(item, "score")
                )
                for item in found
            ]

        class Sync(LangChainBase):
            def _get_relevant_documents(self, query, *, run_manager):
                return made(shelf.find(query))

        class Async(Sync):
            async def _aget_relevant_documents(self, query, *, run_manager):
                return made(shelf.find(query))

        return Async() if has_async else Sync()

    @staticmethod
    def invoke(retriever, text):
        return LangChain.told(retriever.invoke(text))

    @staticmethod
    async def ainvoke(retriever, text):
        return LangChain.told(await retriever.ainvoke(text))

    @staticmethod
    def told(documents):
        return [
            (d.id, d.page_content, d.metadata.get("relevance_score"), d.metadata) for d in documents
        ]


class LlamaIndex:
    """LlamaIndex's own ``aretrieve`` would call sync code on the loop."""

    from_theirs = staticmethod(llamaindex.from_llamaindex)
    ours = staticmethod(llamaindex.RagchatRetriever)

    @staticmethod
    def theirs(shelf, *, has_async):
        def made(found):
            return [
                NodeWithScore(
                    node=TextNode(
                        **({"id_": item["id"]} if item.get("id") else {}),
                        text=item["text"],
                        metadata=item.get("metadata", {}),
                        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=item["of"])}
                        if "of" in item
                        else {},
                    ),
                    score=item.get("score"),
                )
                for item in found
            ]

        class Sync(LlamaBase):
            def _retrieve(self, query_bundle):
                return made(shelf.find(query_bundle.query_str))

        class Async(Sync):
            async def _aretrieve(self, query_bundle):
                return made(shelf.find(query_bundle.query_str))

        return Async() if has_async else Sync()

    @staticmethod
    def invoke(retriever, text):
        return LlamaIndex.told(retriever.retrieve(text))

    @staticmethod
    async def ainvoke(retriever, text):
        return LlamaIndex.told(await retriever.aretrieve(text))

    @staticmethod
    def told(nodes):
        return [(n.node.node_id, n.node.text, n.score, n.node.metadata) for n in nodes]


def _haystack_documents(found):
    return {
        "documents": [
            HaystackDocument(
                **({"id": item["id"]} if item.get("id") else {}),
                content=item["text"],
                meta=_metadata(item),
                score=item.get("score"),
            )
            for item in found
        ]
    }


@component
class HaystackSync:
    def __init__(self, shelf):
        self.shelf = shelf

    @component.output_types(documents=list[HaystackDocument])
    def run(self, query: str):
        return _haystack_documents(self.shelf.find(query))


@component
class HaystackAsync:
    def __init__(self, shelf):
        self.shelf = shelf

    @component.output_types(documents=list[HaystackDocument])
    def run(self, query: str):
        return _haystack_documents(self.shelf.find(query))

    @component.output_types(documents=list[HaystackDocument])
    async def run_async(self, query: str):
        return _haystack_documents(self.shelf.find(query))


class Haystack:
    """Haystack's components may or may not have ``run_async``."""

    from_theirs = staticmethod(haystack.from_haystack)
    ours = staticmethod(haystack.RagchatRetriever)

    @staticmethod
    def theirs(shelf, *, has_async):
        return (HaystackAsync if has_async else HaystackSync)(shelf)

    @staticmethod
    def invoke(retriever, text):
        return Haystack.told(retriever.run(query=text))

    @staticmethod
    async def ainvoke(retriever, text):
        return Haystack.told(await retriever.run_async(query=text))

    @staticmethod
    def told(outputs):
        return [(d.id, d.content, d.score, d.meta) for d in outputs["documents"]]


@pytest.fixture(params=[LangChain, LlamaIndex, Haystack], ids=lambda library: library.__name__)
def library(request):
    """Each library in turn."""
    return request.param


@pytest.fixture
def shelf():
    """Makes what a foreign retriever finds."""
    return lambda *items: Shelf(list(items))


@pytest.fixture
def server(monkeypatch):
    """A chat model's server on loopback, to which every OpenAI client turns."""
    with LoopbackOpenAI(default="Tea grows in Assam [1].") as running:
        monkeypatch.setenv("OPENAI_API_KEY", "loopback")
        monkeypatch.setenv("OPENAI_BASE_URL", running.base_url)
        monkeypatch.setenv("OPENAI_API_BASE", running.base_url)
        yield running
