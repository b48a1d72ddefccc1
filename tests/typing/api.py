# pyright: reportUnnecessaryTypeIgnoreComment=true
"""User code that is type-checked by mypy and pyright, and never run.

Each part is something that an application writes; `assert_type` pins what it gets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_type

from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletion

import ragchat

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


async def wrap_a_call(messages: list[dict[str, str]]) -> str:
    """The first thing that a user writes."""
    client = AsyncOpenAI()
    async with ragchat.open_index("kb.sqlite") as index:
        assert_type(index, ragchat.HybridIndex)
        report = await index.ingest(ragchat.Document("leave", "25 days.", source="leave.md"))
        assert_type(report, ragchat.IngestReport)
        preparer = ragchat.Preparer(index.retriever(top_k=5))
        prepared = await preparer.prepare(model="gpt-5", messages=messages)
        assert_type(prepared, ragchat.PreparedRequest)
        reply = await prepared.call(client.chat.completions.create)
        assert_type(reply, ChatCompletion)
        passage = prepared.retrieval.citations.resolve("[1]")
        assert_type(passage, ragchat.Passage)
        assert_type(prepared.retrieval.candidates, tuple[ragchat.Candidate, ...])
        assert_type(prepared.retrieval.degraded, tuple[ragchat.Degradation, ...])
        text = ""
        async with prepared.stream(client.chat.completions.create) as chunks:
            async for chunk in chunks:
                text += chunk.choices[0].delta.content or ""
                _ = chunk.misspelt  # pyright: ignore[reportAttributeAccessIssue] # Any for mypy
        for mention in prepared.retrieval.citations.find(text):
            assert_type(mention, ragchat.Mention)
            assert_type(mention.numbers, tuple[int, ...])
        return text


async def stream_events(prepared: ragchat.PreparedRequest, create: Any) -> str:
    """Events, and the answer that they fold to."""
    folding = ragchat.EventFold()
    async with prepared.events(create, citations="link", link=lambda n, p: f"{n}{p.id}") as events:
        assert_type(events, ragchat.PreparedEvents)
        async for event in events:
            folding.add(event)
            match event:
                case ragchat.Sources():
                    assert_type(event.presented, ragchat.Citations)
                case ragchat.Citation(passages=passages):
                    assert_type(passages, tuple[ragchat.Passage, ...])
                case ragchat.Finished():
                    assert_type(event.annotations, tuple[ragchat.Annotation, ...])
                case _:
                    assert_type(event.choice, int | None)
    answers = prepared.answers(await prepared.call(create))
    assert_type(answers, ragchat.Answers)
    assert_type(answers.choices[0].cited, dict[int, ragchat.Passage])
    text, citations = prepared.retrieval.citations.renumber(answers.choices[0].content)
    assert_type(citations, ragchat.Citations)
    ledger = prepared.retrieval.ledger or ragchat.CitationLedger()
    assert_type(ledger.cite(answers.choices[0].cited), ragchat.CitationLedger)
    assert_type(prepared.responses_request, dict[str, Any])
    return text


async def search(index: ragchat.HybridIndex) -> None:
    """Searching with options, filters and explanations."""
    result = await index.search("leave", top_k=3, filter={"team": "hr"}, explain=True)
    assert_type(result, ragchat.SearchResult)
    assert_type(result[0], ragchat.Candidate)
    assert_type(result[:2], tuple[ragchat.Candidate, ...])
    assert_type([candidate.score for candidate in result], list[float])
    rows = await index.search_batch(["a", ragchat.Query("b")], fusion=ragchat.RRF(k=60))
    assert_type(rows, list[ragchat.SearchResult])
    bounds = ragchat.Filter(ragchat.Eq("team", "hr"), ragchat.Gt("year", 2020))
    assert_type(bounds & ragchat.Filter.of({"open": True}), ragchat.Filter)
    if (why := result[0].explain) is not None:
        assert_type(why, ragchat.Explanation)
        assert_type(why.final_rank, int)


async def measure(index: ragchat.HybridIndex) -> None:
    """Measuring, comparing, tuning."""
    collection = ragchat.load_collection("questions")
    evaluation = await ragchat.evaluate(
        index.retriever(top_k=10), collection.topics, fusions={"RRF": ragchat.RRF()}
    )
    assert_type(evaluation, ragchat.Evaluation)
    assert_type(evaluation.mean("ndcg@10"), float)
    assert_type(evaluation.difference("ndcg@10", baseline="keyword").low, float)
    tuning = await ragchat.tune(index, collection.topics, held_out=0.3)
    assert_type(tuning.recommended.keyword, float)


# Stages of an application's own are plain functions.


def keyword_retriever(query: ragchat.Query) -> list[ragchat.Candidate]:
    """A sync retriever."""
    return [ragchat.Candidate(ragchat.Passage(query.text), 1.0)]


async def service_retriever(query: ragchat.Query) -> ragchat.SearchResult:
    """An async retriever."""
    return ragchat.SearchResult((ragchat.Candidate(ragchat.Passage(query.text), 1.0),))


def short_turns(turn: ragchat.ConversationQuery) -> bool:
    """A gate."""
    return len(turn.query.text) > 3


async def by_length(
    query: ragchat.Query, candidates: Sequence[ragchat.Candidate]
) -> Sequence[float]:
    """A reranker."""
    del query
    return [1 / (1 + len(candidate.passage.text)) for candidate in candidates]


def by_year(query: ragchat.Query, candidates: Sequence[ragchat.Candidate]) -> list[float]:
    """A sync reranker."""
    del query
    return [float(candidate.passage.metadata["year"] > 2024) for candidate in candidates]


async def wherever_a_stage_goes(index: ragchat.HybridIndex, topics: Any) -> None:
    """A sync one is as good as an async one."""
    await index.search("tea", rerank=by_year)
    index.retriever(rerank=ragchat.Rerank(by_year, weight=0.5))
    found = await index.search("tea")
    await ragchat.rerank("tea", found, by_year)
    ragchat.federate([index.retriever(), keyword_retriever, service_retriever])
    ragchat.RetrievalPipeline(keyword_retriever, rerank=by_year)
    await ragchat.evaluate(keyword_retriever, topics)


def stages(create: Any, index: ragchat.HybridIndex) -> ragchat.Preparer:
    """Everything that a preparer takes."""
    small = ragchat.ChatModel(create, model="small", temperature=0)
    ragchat.Preparer(keyword_retriever)
    ragchat.Preparer(service_retriever, gate=short_turns, policy=ragchat.Policy.strict())
    retriever = index.retriever(
        top_k=5,
        expander=ragchat.MultiQueryExpander(small, n=2),
        rerank=ragchat.Rerank(by_length, pool=20),
        mmr=0.5,
    )
    assert_type(retriever, ragchat.RetrievalPipeline)
    preparer = ragchat.Preparer(
        retriever,
        query_transformer=ragchat.chain(
            ragchat.CompressionTransformer(small), ragchat.HydeTransformer(small)
        ),
        augmenter=ragchat.ContextualAugmenter(max_context_tokens=2000, encoding="fenced"),
    )
    ragchat.Preparer(retriever, augmenter=ragchat.IdentityAugmenter(), query_transformer=None)
    served = ragchat.HttpReranker("http://127.0.0.1:8080/rerank", shape="tei")
    index.retriever(rerank=served)
    assert_type(ragchat.HttpReranker.from_env(), ragchat.HttpReranker | None)
    return preparer.with_options(scope=ragchat.Eq("tenant", "a"), deadline=5.0)


class Mine:
    """An embedder of an application's own."""

    model = "mine"
    dimension = 2

    async def embed(self, texts: Sequence[str], kind: str = "query") -> Any:
        """Embeds."""
        del kind
        return [[1.0, 0.0] for _ in texts]


def own_parts() -> ragchat.HybridIndex:
    """Ports are protocols: no base class is needed."""
    return ragchat.HybridIndex(
        ragchat.MemoryStore(),
        embedder=Mine(),
        splitter=ragchat.CachedSplitter(ragchat.SemanticSplitter(Mine())),
        fusion=ragchat.Weighted(keyword=0.5),
    )


async def moving(old: ragchat.HybridIndex, new: ragchat.HybridIndex) -> None:
    """Copies an index and lets the copy take its name."""
    report = await ragchat.migrate_index(old, new, batch=8, on_progress=print)
    assert_type(report, ragchat.MigrationReport)
    assert_type(report.revision, int)
    await ragchat.swap_indexes(old, new, expected=report.revision)
    stores: list[ragchat.SwappableStore] = [ragchat.MemoryStore(), ragchat.SQLiteStore("a")]
    await stores[0].swap_corpus("next")


def shapes_of_stages() -> None:
    """Stages of the user's own fit the shapes."""

    def words(query: ragchat.Query) -> list[ragchat.Query]:
        return [query.with_text("other words")]

    async def unchanged(conversation: ragchat.ConversationQuery) -> ragchat.Query:
        return conversation.query

    expander: ragchat.Expander = words
    gate: ragchat.Gate = ragchat.RetrievalGate()
    transformer: ragchat.ConversationTransformer = unchanged
    augmenter: ragchat.Augmenter = ragchat.IdentityAugmenter()
    ragchat.Preparer(
        ragchat.quickstart().retriever(expander=expander),
        gate=gate,
        query_transformer=transformer,
        augmenter=augmenter,
    )


async def conversation(query: ragchat.Query, model: ragchat.ChatModel) -> None:
    """Transforms and answers without a model."""
    turn = ragchat.ConversationQuery(query, [{"role": "user", "content": "hello"}])
    assert_type(await ragchat.HistoryExpansionTransformer()(turn), ragchat.Query)
    assert_type(await ragchat.CompressionTransformer(model)(turn), ragchat.Query)
    assert_type(await ragchat.QueryPlanner(model, variants=2)(turn), ragchat.Query | None)
    assert_type(ragchat.RetrievalGate(also=("ahoy",)).retrieves(turn), bool)
    ragchat.Preparer(
        ragchat.quickstart().retriever(),
        gate=ragchat.RetrievalGate(),
        query_transformer=ragchat.fallback(
            ragchat.QueryPlanner(model), ragchat.HistoryExpansionTransformer(), timeout=2.0
        ),
        speculative=True,
    )
    answer = await ragchat.extractive_answer(query, ragchat.Citations([ragchat.Passage("a")]))
    assert_type(answer, ragchat.ExtractiveAnswer)
    assert_type(answer.text, str)


def failing(error: ragchat.RagchatError) -> Mapping[str, object]:
    """Errors are one tree and carry their data."""
    if isinstance(error, ragchat.StageTimeout):
        assert_type(error.timeout, float)
    if isinstance(error, ragchat.InvalidDocument):
        return {"field": error.field, "id": error.document_id}
    return {"retry": error.retryable}


def blocking() -> None:
    """The sync face has the same methods."""
    with ragchat.sync.open_index("kb.sqlite") as index:
        assert_type(index.search("leave"), ragchat.SearchResult)
        report = ragchat.sync.ingest_directory(index, "docs", glob="*.md", on_progress=print)
        assert_type(report, ragchat.IngestReport)
        built = index.corpus("next")
        moved = ragchat.sync.migrate_index(index, built, verify=False)
        assert_type(moved, ragchat.MigrationReport)
        ragchat.sync.swap_indexes(index, built, expected=moved.revision)
        prepared = ragchat.sync.Preparer(index.retriever()).prepare(model="gpt-5", messages=[])
        assert_type(prepared.call(OpenAI().chat.completions.create), ChatCompletion)
        assert_type(prepared.call(AsyncOpenAI().chat.completions.create), ChatCompletion)
        for chunk in prepared.stream(OpenAI().chat.completions.create):
            _ = chunk.misspelt  # pyright: ignore[reportAttributeAccessIssue] # Any for mypy


async def check_an_answer(answer: str, prepared: ragchat.PreparedRequest) -> list[str]:
    """Whether the sources support what was said."""
    client = AsyncOpenAI()
    model = ragchat.ChatModel(client.chat.completions.create, model="gpt-5-mini")
    citations = prepared.retrieval.citations
    checked = await ragchat.verify(answer, citations, model=model, on_error="skip")
    assert_type(checked, ragchat.Verification)
    assert_type(checked.claims, tuple[ragchat.CheckedClaim, ...])
    for claim in checked.claims:
        assert_type(claim.supports, tuple[ragchat.Support, ...])
    assert_type(ragchat.sync.verify(answer, {1: citations[1]}), ragchat.Verification)
    return [claim.text for claim in checked.having("unsupported", "uncited")]
