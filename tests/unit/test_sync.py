"""The blocking face."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import inspect
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

import ragchat
from ragchat import ChatModel, CompressionTransformer, RetrievalGate, sync
from ragchat.augment import IdentityAugmenter
from ragchat.errors import EmptyResponse
from ragchat.events import Finished, fold
from ragchat.portal import portal
from ragchat.testing import ScriptedChatModel, as_object
from ragchat_retrieval.errors import CorpusChanged, InvalidQuery, InvalidSetting
from ragchat_retrieval.values import Candidate, Document, Passage, Query

GUARD = 30
MESSAGES = [{"role": "user", "content": "q"}]


def found(*texts: str) -> list[Candidate]:
    return [Candidate(Passage(text, id=text), 1.0) for text in texts]


def prepared(**options) -> sync.PreparedRequest:
    preparer = sync.Preparer(lambda _: found("fact"), augmenter=IdentityAugmenter(), **options)
    return preparer.prepare(messages=MESSAGES, model="m")


def text_of(chunks) -> str:
    return "".join(c.choices[0].delta.content or "" for c in chunks)


def test_a_client_in_place_of_its_create_is_refused_by_name():
    for asked in (prepared().call, prepared().stream, prepared().events):
        with pytest.raises(InvalidSetting, match=r"client\.chat\.completions\.create"):
            asked(object())


def test_a_request_is_prepared_and_answered_without_any_await():
    model = ScriptedChatModel("the answer")
    made = sync.Preparer(lambda _: found("fact")).prepare({"messages": MESSAGES})
    assert made.question == "q"
    assert "fact" in made.request["messages"][0]["content"]
    assert made.retrieval.citations.resolve("[1]").text == "fact"
    for create in (model.create, model.create_sync):
        assert made.call(create).choices[0].message.content == "the answer"
        with made.stream(create) as chunks:
            assert text_of(chunks) == "the answer"
    assert [s.closes for s in model.streams] == [1, 1]
    assert "stream" not in model.calls[0]


def test_options_and_tool_rounds_are_those_of_the_async_classes():
    events = []
    preparer = sync.Preparer(lambda _: found("a", "b")).with_options(
        top_k=1, on_stage=events.append
    )
    made = preparer.prepare(messages=MESSAGES)
    assert len(made.retrieval.candidates) == 1
    assert len(events) == 6
    longer = made.with_messages([{"role": "assistant", "content": "x"}])
    assert len(longer.request["messages"]) == 2


def test_the_blocking_preparer_takes_a_gate_and_searches_ahead():
    model = ChatModel(ScriptedChatModel("What does it cost?").create, model="small")
    preparer = sync.Preparer(
        lambda query: found(query.text),
        query_transformer=CompressionTransformer(model),
        speculative=True,
        gate=RetrievalGate(),
    )
    history = [{"role": "user", "content": "a pump"}, {"role": "assistant", "content": "Blue."}]
    asked = preparer.prepare(messages=[*history, {"role": "user", "content": "price?"}])
    assert asked.retrieval.candidates[0].passage.id == "What does it cost?"
    thanked = preparer.prepare(messages=[*history, {"role": "user", "content": "thanks"}])
    assert thanked.retrieval.skipped == "gate"


def test_the_index_has_blocking_methods():
    import ragchat_retrieval.opening

    progress = []
    with sync.HybridIndex(ragchat_retrieval.opening.quickstart()) as index:
        report = index.ingest(
            Document("a", "The Go build cache lives in ~/Library/Caches/go-build.", source="n"),
            Document("b", "Tea is hot."),
            on_progress=progress.append,
        )
        assert (report.documents, progress[-1]) == (2, 1.0)
        best = index.search("where is the Go build cache?", top_k=1)[0]
        assert best.passage.text.startswith("The Go build cache")
        assert [len(row) for row in index.search_batch(["cache", ""], top_k=1)] == [1, 0]
        made = sync.Preparer(index.retriever(top_k=1)).prepare(
            messages=[{"role": "user", "content": "where is the Go build cache?"}]
        )
        assert made.retrieval.candidates[0].passage.document_id == "a"
        assert index.describe().documents == 2
        assert list(index.document_ids()) == ["a", "b"]
        assert index.remove(source="n") == 1
        assert index.embed() == 0
        assert index.corpus("other").describe().documents == 0
        index.reset()
        assert index.describe().documents == 0


def test_a_folder_is_ingested_an_index_copied_and_swapped_without_any_await(tmp_path):
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "tea.md").write_text("# Tea\n\nTea is grown in the hills.", "utf-8")
    shares = []
    with sync.open_index("memory://", embedder=None) as live:
        built = live.corpus("next")
        report = sync.ingest_directory(
            live, folder, metadata={"team": "a"}, on_progress=shares.append
        )
        assert (report.documents, shares[-1]) == (1, 1.0)
        assert live.search("tea")[0].passage.metadata["team"] == "a"
        moved = sync.migrate_index(live, built, batch=1)
        assert (moved.documents, moved.verified) == (1, True)
        live.ingest(Document("late", "Coffee came later."))
        with pytest.raises(CorpusChanged):
            sync.swap_indexes(live, built, expected=moved.revision)
        sync.swap_indexes(live, built)
        assert list(live.document_ids()) == ["notes/tea.md"]
        assert list(built.document_ids()) == ["late", "notes/tea.md"]


@pytest.mark.parametrize(
    ("options", "function"),
    [
        (sync.chat.PreparerOptions, ragchat.Preparer),
        (sync.index.DirectoryOptions, ragchat.ingest_directory),
        (sync.index.MigrationOptions, ragchat.migrate_index),
    ],
)
def test_options_are_those_of_the_async_function(options, function):
    parameters = inspect.signature(function).parameters.values()
    keywords = {p.name: p.annotation for p in parameters if p.kind is p.KEYWORD_ONLY}
    assert {name: hint.__forward_arg__ for name, hint in options.__annotations__.items()} == {
        name: hint.replace("Progress", "Callable[[float], object]")
        for name, hint in keywords.items()
    }


@pytest.mark.parametrize("name", ["PreparedEvents", "PreparedRequest", "PreparedStream"])
def test_what_is_prepared_has_all_that_its_async_counterpart_has(name):
    """A blocking ``close`` stands in for ``aclose``."""

    def public(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")} - {"aclose", "close"}

    assert public(getattr(sync, name)) == public(getattr(ragchat.prepared, name))


def test_chunks_that_were_got_elsewhere_are_read_without_await():
    made = prepared()
    reader = made.reader(citations="strip")
    chunk = {"choices": [{"index": 0, "delta": {"content": "so [1]."}}]}
    events = [*reader.start(), *reader.feed(chunk), *reader.finish()]
    assert fold(events).choices[0].content == "so."
    assert made.stream_kwargs() == {**made.call_kwargs(), "stream": True}
    assert made.budget is None


def test_open_index_names_the_language_of_a_new_index_and_takes_over_that_of_an_old_one(tmp_path):
    path, german = tmp_path / "kb.sqlite", ragchat.Analyzer("german")
    with sync.open_index(path, embedder=None, analyzer=german) as index:
        index.ingest(ragchat.Document("hafen", "Die Häuser am Hafen werden gestrichen."))
    with sync.open_index(path, embedder=None) as index:
        assert [found.passage.document_id for found in index.search("Haus")] == ["hafen"]


def test_open_index_opens_at_once_and_closes_with_its_block():
    with sync.open_index("memory://", embedder=None) as index:
        index.ingest(Document("a", "red apple"))
        assert len(index.search("apple")) == 1


def test_run_returns_results_and_raises_errors_as_they_are():
    error = InvalidQuery("x")

    async def fail():
        raise error

    with pytest.raises(InvalidQuery) as caught:
        sync.run(fail())
    assert caught.value is error
    assert sync.run(asyncio.sleep(0, "done")) == "done"


async def test_it_works_beside_a_running_loop():
    assert prepared().question == "q"


def test_it_works_from_many_threads_at_once():
    results = []
    threads = [threading.Thread(target=lambda: results.append(prepared())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GUARD)
    assert len(results) == 8


def test_one_loop_serves_the_whole_process():
    async def loop():
        return asyncio.get_running_loop()

    assert sync.run(loop()) is sync.run(loop())


def test_a_call_from_its_own_loop_is_refused_instead_of_hanging():
    async def nested():
        return prepared()

    with pytest.raises(RuntimeError, match="own event loop"):
        sync.run(nested())


def test_a_sync_stage_may_use_the_blocking_face():
    def retrieve(query: Query) -> list[Candidate]:
        return sync.run(asyncio.sleep(0, found("inner")))

    made = sync.Preparer(retrieve).prepare(messages=MESSAGES)
    assert made.retrieval.citations[1].text == "inner"


def test_context_variables_are_carried_into_stages_calls_and_streams():
    variable = contextvars.ContextVar("variable", default="unset")
    seen = []

    async def retrieve(query):
        seen.append(variable.get())
        return found("a")

    async def create(**params):
        seen.append(variable.get())
        return iter("x") if params.get("stream") else "ok"

    variable.set("mine")
    request = sync.Preparer(retrieve).prepare(messages=MESSAGES)
    request.call(create)
    assert len(list(request.stream(create))) == 1
    assert seen == ["mine"] * 3


class Upstream:
    """A stream, async or sync, that knows who touched it."""

    def __init__(self, *chunks, error=None):
        self.chunks, self.error = list(chunks), error
        self.closes = 0
        self.tasks, self.threads = set(), set()

    async def create(self, **params):
        self.tasks.add(asyncio.current_task())
        return self

    def create_sync(self, **params):
        self.threads.add(threading.current_thread())
        return SyncView(self)

    def __aiter__(self):
        return self

    def take(self):
        if self.chunks:
            return self.chunks.pop(0)
        if self.error:
            raise self.error
        return None

    async def __anext__(self):
        self.tasks.add(asyncio.current_task())
        chunk = self.take()
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    async def aclose(self):
        self.tasks.add(asyncio.current_task())
        self.closes += 1


class SyncView:
    def __init__(self, upstream: Upstream):
        self.upstream = upstream

    def __iter__(self):
        return self

    def __next__(self):
        self.upstream.threads.add(threading.current_thread())
        chunk = self.upstream.take()
        if chunk is None:
            raise StopIteration
        return chunk

    def close(self):
        self.upstream.closes += 1


@pytest.mark.parametrize("kind", ["create", "create_sync"])
def test_a_stream_is_closed_once_however_it_is_left(kind):
    request = prepared()
    whole = Upstream("a", "b")
    assert list(request.stream(getattr(whole, kind))) == ["a", "b"]

    early = Upstream("a", "b")
    with request.stream(getattr(early, kind)) as chunks:
        for _ in chunks:
            break
        assert not chunks.closed
    assert list(chunks) == []
    assert chunks.closed
    chunks.close()

    dropped = Upstream("a", "b")
    assert next(request.stream(getattr(dropped, kind))) == "a"
    gc.collect()
    assert [u.closes for u in (whole, early, dropped)] == [1, 1, 1]

    unread = Upstream("a")
    with request.stream(getattr(unread, kind)):
        pass
    assert (unread.closes, unread.tasks, unread.threads) == (0, set(), set())

    broken = Upstream("a", error=OSError("cut"))
    with pytest.raises(OSError, match="cut"):
        list(request.stream(getattr(broken, kind)))
    assert broken.closes == 1


class Silent(Upstream):
    """A stream that says when somebody waits for its second chunk, and lets them wait."""

    def __init__(self):
        super().__init__(*(as_object({"choices": [{"delta": {"content": c}}]}) for c in "ab"))
        self.waited_for, self.goes_on = threading.Event(), threading.Event()

    def create_later(self, **params):
        return self.create(**params)

    def take(self):
        if len(self.chunks) == 1:
            self.waited_for.set()
            assert self.goes_on.wait(GUARD)
        return super().take()

    async def __anext__(self):
        if len(self.chunks) == 1:
            self.waited_for.set()
            await asyncio.Event().wait()
        return await super().__anext__()


@pytest.mark.parametrize("face", ["stream", "events"])
@pytest.mark.parametrize("kind", ["create", "create_later", "create_sync"])
def test_a_stream_that_another_thread_closes_ends_for_the_one_that_waits_for_a_chunk(kind, face):
    """An async client's at once; a sync client closes its own when it comes out."""
    upstream, read = Silent(), []
    stream = getattr(prepared(), face)(getattr(upstream, kind))
    reader = threading.Thread(target=lambda: read.extend(stream), daemon=True)
    reader.start()
    assert upstream.waited_for.wait(GUARD)
    stream.close()
    if kind == "create_sync":
        upstream.goes_on.set()
    reader.join(GUARD)
    assert not reader.is_alive()
    assert upstream.closes == 1
    assert not any(isinstance(each, Finished) for each in read)
    assert list(stream) == []


def test_an_async_stream_is_owned_by_a_single_task_and_a_sync_one_stays_in_the_callers_thread():
    upstream = Upstream("a", "b")
    with prepared().stream(upstream.create) as chunks:
        next(chunks)
    assert len(upstream.tasks) == 1
    direct = Upstream("a", "b")
    list(prepared().stream(direct.create_sync))
    assert direct.threads == {threading.current_thread()}


def test_a_plain_function_may_return_a_coroutine():
    model = ScriptedChatModel("hello")
    request = prepared()

    def create(**params):
        return model.create(**params)

    assert request.call(create).choices[0].message.content == "hello"
    assert text_of(request.stream(create)) == "hello"


def test_nothing_in_return_is_an_empty_response():
    async def nothing(**params):
        return None

    for create in (nothing, lambda **_: None):
        with pytest.raises(EmptyResponse):
            prepared().call(create)
        with pytest.raises(EmptyResponse):
            next(prepared().stream(create))


def test_ctrl_c_stops_the_work_before_it_goes_on():
    started, stopped = threading.Event(), threading.Event()

    async def work():
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            stopped.set()

    main = threading.get_ident()

    def interrupt():
        assert started.wait(GUARD)
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        sync.run(work())
    assert stopped.is_set()
    thread.join(GUARD)


def test_a_loop_that_was_stopped_is_replaced():
    before = portal()
    before.stop()
    assert prepared().question == "q"
    assert portal() is not before


SCRIPT = """
import os, sys
from ragchat import ChatModel, CompressionTransformer, RetrievalGate, sync
from ragchat.testing import ScriptedChatModel, as_object
from ragchat_retrieval.values import Candidate, Passage

preparer = sync.Preparer(lambda _: [Candidate(Passage("fact"), 1.0)])
messages = [{"role": "user", "content": "q"}]
model = ScriptedChatModel("ok")

def answer():
    prepared = preparer.prepare(messages=messages)
    return prepared.call(model.create).choices[0].message.content

assert answer() == "ok"
"""


def run_script(tail: str, child_env: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT + textwrap.dedent(tail)],
        capture_output=True,
        text=True,
        timeout=120,
        env=child_env,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_it_works_in_forked_children(child_env):
    out = run_script(
        """
        pid = os.fork()
        if pid == 0:
            print(answer(), flush=True)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        print(answer())
        """,
        child_env,
    )
    assert out.split() == ["ok", "ok"]


def test_a_process_ends_although_a_stream_is_left_open(child_env):
    out = run_script(
        """
        class Endless:
            def __aiter__(self):
                return self
            async def __anext__(self):
                return "chunk"
            async def aclose(self):
                print("closed", flush=True)

        async def create(**params):
            return Endless()

        stream = preparer.prepare(messages=messages).stream(create)
        print(next(stream))
        """,
        child_env,
    )
    assert out.split() == ["chunk", "closed"]
