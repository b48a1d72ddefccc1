"""What holds for the retrievers of every library, in both directions, with the real packages."""

from __future__ import annotations

import threading

import pytest

import ragchat
from ragchat import Document, Eq, Filter, FilterUnsupported, Query, ScopeViolation
from ragchat_retrieval.foreign import retrieved
from ragchat_retrieval.pipeline import RetrievalPipeline

TEA = {"id": "tea#1", "text": "Tea grows in Assam.", "of": "tea", "score": 0.9}
RICE = {"id": "rice#1", "text": "Rice grows in Kerala.", "of": "rice", "score": 0.4}


def asking(text):
    return [{"role": "user", "content": text}]


@pytest.fixture
async def index():
    index = ragchat.quickstart()
    metadata = {"team": "a", "tags": ["leaf"]}
    await index.ingest(
        Document("tea", "Tea grows in Assam.", title="Tea", source="tea.md", metadata=metadata),
        Document("rice", "Rice grows in Kerala.", metadata={"team": "b"}),
    )
    return index


@pytest.mark.parametrize("has_async", [True, False], ids=["async", "sync"])
async def test_their_retriever_finds_candidates_of_ours(library, shelf, has_async):
    """Order, scores, texts and ids are kept."""
    found = shelf(TEA, RICE)
    ours = library.from_theirs(library.theirs(found, has_async=has_async))
    result = await retrieved(ours, Query("where does tea grow?"))
    assert [(c.passage.id, c.passage.document_id, c.passage.text, c.score) for c in result] == [
        ("tea#1", "tea", "Tea grows in Assam.", 0.9),
        ("rice#1", "rice", "Rice grows in Kerala.", 0.4),
    ]
    assert found.asked == ["where does tea grow?"]


async def test_sync_code_of_theirs_never_runs_on_the_event_loop(library, shelf):
    found = shelf(TEA)
    await library.from_theirs(library.theirs(found, has_async=False))(Query("tea"))
    assert threading.get_ident() not in found.threads


async def test_async_code_of_theirs_runs_on_the_event_loop(library, shelf):
    found = shelf(TEA)
    await library.from_theirs(library.theirs(found, has_async=True))(Query("tea"))
    assert found.threads == [threading.get_ident()]


async def test_scores_are_made_of_the_order_where_there_are_none(library, shelf):
    items = [{key: item[key] for key in ("id", "text")} for item in (TEA, RICE)]
    theirs = library.theirs(shelf(*items), has_async=True)
    result = await library.from_theirs(theirs)(Query("tea"))
    assert [candidate.score for candidate in result] == [1.0, 0.5]


async def test_metadata_reach_the_passage(library, shelf):
    item = TEA | {"metadata": {"file_path": "tea.md", "title": "Tea", "year": 2026}}
    theirs = library.theirs(shelf(item), has_async=True)
    (candidate,) = await library.from_theirs(theirs)(Query("tea"))
    passage = candidate.passage
    assert (passage.source, passage.title, passage.metadata["year"]) == ("tea.md", "Tea", 2026)


@pytest.mark.parametrize("bounds", [{"scope": Eq("team", "a")}, {"filter": Eq("team", "a")}])
async def test_a_retriever_that_cannot_filter_is_never_asked_with_a_scope(library, shelf, bounds):
    """Neither is one with a filter; the error says what kind of retriever it is."""
    found = shelf(TEA)
    theirs = library.theirs(found, has_async=True)
    preparer = ragchat.Preparer(
        library.from_theirs(theirs), **{name: Filter(each) for name, each in bounds.items()}
    )
    with pytest.raises(FilterUnsupported) as caught:
        await preparer.prepare(model="m", messages=asking("tea"))
    assert caught.value.retriever == type(theirs).__name__
    assert found.asked == []


async def test_a_scope_reaches_the_retriever_that_narrow_returns(library, shelf):
    everything, team_a = shelf(TEA, RICE), shelf(TEA | {"metadata": {"team": "a"}})
    given = []

    def narrow(bounds):
        given.append(bounds)
        return library.theirs(team_a, has_async=True)

    ours = library.from_theirs(library.theirs(everything, has_async=True), narrow=narrow)
    query = Query("grows", scope=Filter(Eq("team", "a")))
    assert [c.passage.id for c in await retrieved(ours, query)] == ["tea#1"]
    assert (given, everything.asked) == ([Filter(Eq("team", "a"))], [])
    assert ours.filterable


async def test_what_narrow_lets_through_is_checked(library, shelf):
    """A narrowed retriever that returns another team's passage is an error, not a leak."""
    theirs = library.theirs(shelf(RICE | {"metadata": {"team": "b"}}), has_async=True)
    ours = library.from_theirs(theirs, narrow=lambda _bounds: theirs)
    with pytest.raises(ScopeViolation):
        await retrieved(ours, Query("grows", scope=Filter(Eq("team", "a"))))


async def test_an_answer_cites_what_their_retriever_found(library, shelf, server):
    from openai import AsyncOpenAI

    theirs = library.theirs(shelf(RICE, TEA), has_async=False)
    preparer = ragchat.Preparer(library.from_theirs(theirs), top_k=1)
    prepared = await preparer.prepare(model="m", messages=asking("Where does rice grow?"))
    async with AsyncOpenAI() as client:
        answer = prepared.answers(await prepared.call(client.chat.completions.create))
    assert [p.id for p in answer.choices[0].cited.values()] == ["rice#1"]


async def test_their_retriever_takes_the_stages_of_a_pipeline(library, shelf):
    ours = library.from_theirs(library.theirs(shelf(TEA, RICE), has_async=True))
    pipeline = RetrievalPipeline(ours, rerank=lambda _query, found: [0.1, 0.9], top_k=1)
    assert [c.passage.id for c in await pipeline(Query("grows"))] == ["rice#1"]


async def test_an_error_of_theirs_arrives_as_it_is(library, shelf):
    found = shelf()
    found.find = lambda _text: 1 / 0
    with pytest.raises(ZeroDivisionError):
        await library.from_theirs(library.theirs(found, has_async=False))(Query("tea"))


async def test_our_index_is_one_of_their_retrievers(library, index):
    """Text, id, score, title, source, metadata and place are there."""
    retriever = library.ours(index.retriever(top_k=1))
    (best,) = await index.search("where does tea grow?", top_k=1)
    ((identity, text, score, metadata),) = await library.ainvoke(retriever, "where does tea grow?")
    assert (identity, text, score) == (best.passage.id, "Tea grows in Assam.", best.score)
    expected = {"document_id": "tea", "title": "Tea", "source": "tea.md", "team": "a"}
    expected |= {"tags": ["leaf"], "span": [0, 19], "lines": [1, 1]}
    assert {key: metadata[key] for key in expected} == expected
    metadata["tags"].append("theirs to change")


async def test_our_index_can_be_asked_without_await(library, index):
    """Also beside a running loop, as in a notebook."""
    retriever = library.ours(index.retriever(top_k=1))
    assert library.invoke(retriever, "tea") == await library.ainvoke(retriever, "tea")


async def test_our_scope_and_filter_hold_in_their_hands(library, index):
    retriever = library.ours(index.retriever(), scope={"team": "b"})
    assert [row[1] for row in await library.ainvoke(retriever, "grows")] == [
        "Rice grows in Kerala."
    ]
    retriever = library.ours(index.retriever(), filter={"team": "b"}, scope={"team": "a"})
    assert await library.ainvoke(retriever, "grows") == []


async def test_a_blank_question_finds_nothing(library, index):
    assert await library.ainvoke(library.ours(index.retriever()), " \n") == []


async def test_a_passage_survives_the_way_there_and_back(library, index):
    found = await index.search("grows")
    back = library.from_theirs(library.ours(index.retriever()))
    returned = await retrieved(back, Query("grows"))

    def told(result):
        return [(c.passage.id, c.passage.document_id, c.passage.text, c.score) for c in result]

    assert told(returned) == told(found)
    assert [(c.passage.title, c.passage.source) for c in returned] == [
        (c.passage.title, c.passage.source) for c in found
    ]
