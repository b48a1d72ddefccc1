"""Spans tell what happened, where and for how long; what was said only on request."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import ragchat
from ragchat.testing import ScriptedChatModel
from ragchat_retrieval import telemetry
from ragchat_retrieval.policy import Policy, StagePolicy

SECRET = "swordfish"
EMBEDDING = f"embeddings {ragchat.HashingEmbedder(256).model}"
MESSAGES = [
    {"role": "user", "content": "Where is tea grown?"},
    {"role": "assistant", "content": "In the hills."},
    {"role": "user", "content": f"And {SECRET}?"},
]


class Spans:
    """The spans that a provider exported, as tests ask for them."""

    def __init__(self):
        self.provider = TracerProvider()
        self._exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def all(self):
        return self._exporter.get_finished_spans()

    def one(self, name):
        (span,) = [span for span in self.all if span.name == name]
        return span

    def tree(self):
        """Returns each span's name with its parent's."""
        names = {span.context.span_id: span.name for span in self.all}
        return {(s.name, names.get(s.parent.span_id) if s.parent else None) for s in self.all}

    def written(self):
        """Returns everything that would leave the process."""
        return "".join(span.to_json() for span in self.all)


@pytest.fixture
def spans():
    made = Spans()
    undo = ragchat.instrument(made.provider)
    yield made
    undo()


async def index_of_two():
    index = ragchat.quickstart()
    await index.ingest(
        ragchat.Document("tea", f"Tea is grown in the hills. {SECRET}"),
        ragchat.Document("rice", "Rice is grown in the plains."),
    )
    return index


def model(*replies):
    return ragchat.ChatModel(ScriptedChatModel(replies).create, model="small")


def first_best(query, candidates):
    return [1.0 - place / 10 for place in range(len(candidates))]


async def prepared_with_everything(**options):
    index = await index_of_two()
    retriever = index.retriever(
        top_k=2,
        rerank=first_best,
        expander=ragchat.MultiQueryExpander(model('["tea hills", "tea fields"]'), n=2),
    )
    preparer = ragchat.Preparer(
        retriever,
        query_transformer=ragchat.CompressionTransformer(model(f"Where does {SECRET} grow?")),
        **options,
    )
    return await preparer.prepare(model="big", messages=MESSAGES)


async def test_spans_stand_inside_one_another_as_the_work_does(spans):
    await prepared_with_everything()
    retrieval = "retrieval default"
    assert spans.tree() >= {
        ("ragchat.prepare", None),
        ("ragchat.transform", "ragchat.prepare"),
        ("chat small", "ragchat.transform"),
        (retrieval, "ragchat.prepare"),
        ("ragchat.expand", retrieval),
        ("chat small", "ragchat.expand"),
        ("ragchat.keyword", retrieval),
        ("ragchat.vector", retrieval),
        (EMBEDDING, "ragchat.vector"),
        ("ragchat.rerank", retrieval),
        ("ragchat.augment", "ragchat.prepare"),
    }
    assert ("ragchat.vector", "ragchat.keyword") not in spans.tree()
    assert len({span.context.trace_id for span in spans.all if "embeddings" not in span.name}) == 1


async def test_a_span_that_a_stage_makes_in_its_thread_is_inside_the_stage(spans):
    def scorer(query, candidates):
        with spans.provider.get_tracer("theirs").start_as_current_span("theirs"):
            return [0.5] * len(candidates)

    index = await index_of_two()
    await index.search("tea", rerank=scorer)
    assert ("theirs", "ragchat.rerank") in spans.tree()


async def test_concurrent_requests_have_traces_of_their_own(spans):
    index = await index_of_two()
    preparer = ragchat.Preparer(index.retriever())
    request = {"model": "big", "messages": MESSAGES[-1:]}
    await asyncio.gather(*(preparer.prepare(request) for _ in range(8)))
    roots = [span for span in spans.all if span.name == "ragchat.prepare"]
    assert len(roots) == len({span.context.trace_id for span in roots}) == 8
    for root in roots:
        mine = [s for s in spans.all if s.context.trace_id == root.context.trace_id]
        assert sorted(s.name for s in mine if s.name.startswith("retrieval")) == [
            "retrieval default"
        ]


async def test_a_retrieval_and_its_model_calls_bear_the_conventional_names(spans):
    await prepared_with_everything()
    retrieval = spans.one("retrieval default")
    assert retrieval.kind is SpanKind.INTERNAL
    assert dict(retrieval.attributes) == {
        "gen_ai.operation.name": "retrieval",
        "gen_ai.data_source.id": "default",
        "gen_ai.retrieval.top_k": 2,
        "ragchat.candidates": 2,
    }
    chat = next(span for span in spans.all if span.name == "chat small")
    assert chat.kind is SpanKind.CLIENT
    assert dict(chat.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "small",
        "gen_ai.provider.name": "openai",
        "gen_ai.usage.input_tokens": chat.attributes["gen_ai.usage.input_tokens"],
        "gen_ai.usage.output_tokens": chat.attributes["gen_ai.usage.output_tokens"],
        "ragchat.items": 1,
        "ragchat.requests": 1,
    }
    assert chat.attributes["gen_ai.usage.input_tokens"] > 0
    vector = next(span for span in spans.all if span.name.startswith("embeddings"))
    assert vector.attributes["gen_ai.operation.name"] == "embeddings"


async def test_a_search_by_itself_is_a_retrieval_too(spans):
    index = await index_of_two()
    await index.corpus("other").search("tea", top_k=7)
    await index.search("tea")
    assert ("retrieval other", None) in spans.tree()
    assert spans.one("retrieval other").attributes["gen_ai.retrieval.top_k"] == 7
    assert spans.one("retrieval default").attributes["ragchat.candidates"] == 2


async def test_a_retriever_of_somebody_elses_has_no_data_source(spans):
    async def retriever(query):
        return [ragchat.Candidate(ragchat.Passage("Tea."), 1.0)]

    await ragchat.Preparer(retriever).prepare(model="big", messages=MESSAGES[-1:])
    assert dict(spans.one("retrieval").attributes) == {
        "gen_ai.operation.name": "retrieval",
        "ragchat.candidates": 1,
    }


async def test_no_text_leaves_the_process_unless_it_is_asked_for(spans):
    prepared = await prepared_with_everything()
    assert SECRET in prepared.request["messages"][-1]["content"]
    for text in (SECRET, "hills", "tea fields"):
        assert text not in spans.written()


async def test_texts_are_there_when_they_are_asked_for():
    made = Spans()
    undo = ragchat.instrument(made.provider, capture_content=True)
    try:
        await prepared_with_everything()
    finally:
        undo()
    retrieval = made.one("retrieval default").attributes
    assert retrieval["gen_ai.retrieval.query.text"] == f"Where does {SECRET} grow?"
    found = json.loads(retrieval["gen_ai.retrieval.documents"])
    assert {document["id"].partition("#")[0] for document in found} == {"tea", "rice"}
    assert all(isinstance(document["score"], float) for document in found)
    chats = [span.attributes for span in made.all if span.name == "chat small"]
    asked = [json.loads(c["gen_ai.input.messages"])[0] for c in chats]
    assert {message["role"] for message in asked} == {"user"}
    assert all(SECRET in message["parts"][0]["content"] for message in asked)
    replies = [json.loads(c["gen_ai.output.messages"])[0]["parts"][0] for c in chats]
    assert {"type": "text", "content": f"Where does {SECRET} grow?"} in replies


@pytest.mark.parametrize(
    ("value", "captures"),
    [
        ("", False),
        ("false", False),
        ("no_content", False),
        ("event_only", False),
        ("true", True),
        ("SPAN_ONLY", True),
        ("span_and_event", True),
    ],
)
async def test_the_variable_of_opentelemetry_asks_for_texts(monkeypatch, value, captures):
    monkeypatch.setenv(telemetry.CAPTURE, value)
    made = Spans()
    undo = ragchat.instrument(made.provider)
    try:
        await (await index_of_two()).search("tea")
    finally:
        undo()
    attributes = made.one("retrieval default").attributes
    assert ("gen_ai.retrieval.query.text" in attributes) is captures


async def test_an_error_is_told_by_its_class_alone(spans):
    async def broken(query, candidates):
        raise LookupError(SECRET)

    index = await index_of_two()
    with pytest.raises(LookupError):
        await index.search("tea", rerank=broken)
    for name in ("ragchat.rerank", "retrieval default"):
        span = spans.one(name)
        assert span.status.status_code is StatusCode.ERROR
        assert span.status.description is None
        assert span.attributes["error.type"] == "LookupError"
        assert span.events == ()
    assert SECRET not in spans.written()


async def test_an_error_of_ours_is_named_with_its_module(spans):
    async def malformed(query, candidates):
        return []

    index = await index_of_two()
    with pytest.raises(ragchat.MalformedRanking):
        await index.search("tea", rerank=malformed)
    name = "ragchat_retrieval.errors.MalformedRanking"
    assert spans.one("ragchat.rerank").attributes["error.type"] == name


async def test_a_degradation_is_an_event_and_an_attribute_of_the_whole(spans):
    async def broken(query, candidates):
        raise LookupError(SECRET)

    index = await index_of_two()
    await ragchat.Preparer(index.retriever(rerank=broken)).prepare(
        model="big", messages=MESSAGES[-1:]
    )
    stage, whole = spans.one("ragchat.rerank"), spans.one("ragchat.prepare")
    assert stage.attributes["ragchat.skipped"] is True
    assert stage.attributes["error.type"] == "LookupError"
    assert whole.attributes["ragchat.degraded"] == ("rerank: LookupError",)
    (event,) = whole.events
    assert event.name == "ragchat.degraded"
    assert dict(event.attributes) == {"ragchat.stage": "rerank", "ragchat.reason": "LookupError"}
    assert whole.status.status_code is StatusCode.UNSET


async def test_a_cancelled_request_ends_its_spans(spans):
    reached = asyncio.Event()

    async def hangs(query, candidates):
        reached.set()
        await asyncio.Event().wait()

    index = await index_of_two()
    task = asyncio.create_task(index.search("tea", rerank=hangs))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    span = spans.one("retrieval default")
    assert span.attributes["error.type"] == "asyncio.exceptions.CancelledError"
    assert span.end_time is not None


async def test_a_search_with_a_policy_of_its_own_stays_in_the_request(spans):
    index = await index_of_two()
    policy = Policy(rerank=StagePolicy("raise"))
    prepared = await ragchat.Preparer(index.retriever(policy=policy)).prepare(
        model="big", messages=MESSAGES[-1:]
    )
    assert ("ragchat.keyword", "retrieval default") in spans.tree()
    assert prepared.retrieval.trace.of("keyword")


async def test_embedding_outside_a_request_has_a_span_too(spans):
    await index_of_two()
    span = spans.one(EMBEDDING)
    assert span.parent is None
    assert span.attributes["ragchat.items"] == 2


async def test_what_was_begun_can_be_ended():
    made = Spans()
    ragchat.instrument(made.provider)()
    await (await index_of_two()).search("tea")
    assert made.all == ()


PLAIN = """
import asyncio, sys
import ragchat
async def main():
    index = ragchat.quickstart()
    await index.ingest(ragchat.Document("a", "Tea is grown in the hills."))
    await ragchat.Preparer(index.retriever()).prepare(
        model="m", messages=[{"role": "user", "content": "tea"}]
    )
asyncio.run(main())
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""

SET_BY_THE_APPLICATION = """
import asyncio
from opentelemetry import trace
import ragchat
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from ragchat_retrieval import telemetry
assert telemetry.observer() is None
exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
async def main():
    await ragchat.quickstart().search("tea")
asyncio.run(main())
print([span.name for span in exporter.get_finished_spans()])
"""

WITHOUT_THE_EXTRA = """
import sys
sys.modules["opentelemetry.trace"] = None
import ragchat
try:
    ragchat.instrument()
except ragchat.MissingExtra as error:
    print(error.extra)
"""


@pytest.mark.parametrize(
    ("script", "printed"),
    [
        (PLAIN, ""),
        (SET_BY_THE_APPLICATION, "['retrieval default']"),
        (WITHOUT_THE_EXTRA, "otel"),
    ],
    ids=["nobody asks", "the application has a provider", "without the extra"],
)
def test_opentelemetry_is_imported_only_by_whoever_wants_it(script, printed, child_env):
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=child_env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, printed), done.stderr
