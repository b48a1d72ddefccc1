"""What people write before they have read a page is refused with what belongs in its place."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import ragchat
from ragchat import sync
from ragchat.server import create_app
from ragchat.testing import ScriptedChatModel
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.evaluation import Topic

QUESTION = [{"role": "user", "content": "How many days of leave do I get?"}]


def test_an_index_that_was_not_awaited_says_so():
    opening = ragchat.open_index("memory://", embedder=None)
    with pytest.raises(AttributeError, match=r"no 'search' before the index is open: .* await"):
        opening.search("leave")


async def test_an_index_of_the_other_face_is_refused(tmp_path):
    index = ragchat.in_memory()
    blocking = sync.HybridIndex(index)
    for wrong in (blocking, "kb.sqlite"):
        with pytest.raises(InvalidSetting, match="index: must be an index, such as `async with"):
            await ragchat.ingest_directory(wrong, tmp_path)
    for use in (
        lambda: sync.ingest_directory(index, tmp_path),
        lambda: sync.migrate_index(blocking, index),
        lambda: sync.swap_indexes(index, blocking),
    ):
        with pytest.raises(InvalidSetting, match=r"index: must be one of ragchat\.sync"):
            use()


async def test_whatever_needs_the_async_index_says_where_the_blocking_one_keeps_it():
    """Where it is given, not when it is first used."""
    blocking = sync.HybridIndex(ragchat.in_memory())
    topics = [Topic("q", ragchat.Query("leave"), {"leave": 1})]
    for use in (
        lambda: ragchat.RagTools(blocking),
        lambda: create_app(blocking),
        lambda: ragchat.tune(blocking, topics),
        lambda: ragchat.migrate_index(blocking, ragchat.in_memory()),
        lambda: ragchat.migrate_index(ragchat.in_memory(), blocking),
        lambda: ragchat.swap_indexes(ragchat.in_memory(), blocking),
    ):
        with pytest.raises(InvalidSetting, match=r"must be an index.* \.index of a blocking one"):
            await use()
    for use in (
        lambda: ragchat.evaluate(blocking, topics),
        lambda: ragchat.RetrievalPipeline(blocking),
    ):
        with pytest.raises(InvalidSetting, match=r"as index\.retriever\(\) is"):
            await use()


async def test_one_question_in_the_place_of_several_is_not_read_letter_by_letter():
    index = ragchat.in_memory()
    with pytest.raises(InvalidSetting, match=r"^queries: must be a sequence of .*, not one"):
        await index.search_batch("leave")
    with pytest.raises(InvalidSetting, match=r"^queries: "):
        sync.HybridIndex(index).search_batch("leave")


async def test_a_listener_that_would_have_to_be_awaited_is_refused_before_any_work(tmp_path):
    """Its coroutines would be dropped, and nobody would hear anything."""

    async def on_progress(share):
        raise AssertionError

    index, topics = ragchat.in_memory(), [Topic("q", ragchat.Query("leave"), {"leave": 1})]
    for use in (
        lambda: index.ingest(ragchat.Document("a", "b"), on_progress=on_progress),
        lambda: index.embed(on_progress=on_progress),
        lambda: ragchat.ingest_directory(index, tmp_path, on_progress=on_progress),
        lambda: ragchat.evaluate(index, topics, on_progress=on_progress),
        lambda: ragchat.tune(index, topics, on_progress=on_progress),
        lambda: ragchat.migrate_index(index, ragchat.in_memory(), on_progress=on_progress),
    ):
        with pytest.raises(InvalidSetting, match="on_progress: must not be async"):
            await use()
    assert await index.document_ids() == []


async def test_a_list_of_messages_in_the_place_of_a_request_is_told_its_name():
    preparer = ragchat.Preparer(ragchat.in_memory().retriever())
    with pytest.raises(ragchat.InvalidRequest, match=r"messages=\[…\]"):
        await preparer.prepare(QUESTION)


async def test_the_text_of_an_answer_in_the_place_of_a_response_is_told_what_reads_it():
    prepared = await ragchat.Preparer(ragchat.in_memory().retriever()).prepare(messages=QUESTION)
    with pytest.raises(InvalidSetting, match=r"^response: .* retrieval\.citations reads a text"):
        prepared.answers("25 days [1].")


async def test_what_is_no_completion_is_refused_instead_of_read_as_an_answer_without_choices():
    """A call that was not awaited, a stream, a response of another API."""
    prepared = await ragchat.Preparer(ragchat.in_memory().retriever()).prepare(messages=QUESTION)
    model = ScriptedChatModel("25 days [1].")
    stream = await model.create(stream=True)
    waiting = model.create()
    for given in (stream, waiting, SimpleNamespace(output=[], output_text="25 days [1].")):
        with pytest.raises(InvalidSetting, match=rf"^response: .* a {type(given).__name__}"):
            prepared.answers(given)
    waiting.close()
    assert prepared.answers({"choices": []}).choices == ()
