"""Citation numbers over the turns of a conversation, and evidence that is presented again."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ragchat
from ragchat import sync
from ragchat.augment import Augmentation, AugmentContext, ContextualAugmenter, IdentityAugmenter
from ragchat.citations import CitationLedger, Citations
from ragchat.errors import ContextBudgetExceeded, InvalidAugmentation
from ragchat.prepare import Preparer
from ragchat_retrieval.caching import cached
from ragchat_retrieval.combining import fallback, federate
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.filters import Filter
from ragchat_retrieval.pipeline import RetrievalPipeline
from ragchat_retrieval.values import Candidate, Document, Passage

A, B, C, D = (
    Passage(text * 4, id=text, document_id=text, metadata={"team": team})
    for text, team in zip("abcd", ["hr", "hr", "it", "hr"], strict=True)
)


def candidates(*passages: Passage) -> list[Candidate]:
    return [Candidate(passage, 1.0) for passage in passages]


def ledger(*passages: Passage) -> CitationLedger:
    return CitationLedger(Citations(passages))


def augment(found, context: AugmentContext, **options) -> Augmentation:
    return ContextualAugmenter(**options).augment("q", candidates(*found), context)


def numbers_in(text: str) -> list[int]:
    """The numbers of the evidence as a model reads them, in either encoding."""
    block = re.search(r"<evidence>\n(.*)\n</evidence>", text, re.DOTALL)
    if block:
        return [entry["citation"] for entry in json.loads(block[1])]
    return [int(number) for number in re.findall(r"^\d{3} \[(\d+)\]", text, re.MULTILINE)]


async def prepare(*found: Passage, turn: str = "q", **options):
    preparer = Preparer(lambda _: candidates(*found), **options)
    return await preparer.prepare(messages=[{"role": "user", "content": turn}])


@pytest.mark.parametrize("encoding", ["json", "fenced"])
def test_the_evidence_carries_the_ledgers_numbers(encoding):
    context = AugmentContext(ledger=ledger(A, B))
    made = augment([C, B, D], context, encoding=encoding)
    assert numbers_in(made.text) == [3, 2, 4]
    assert made.citations == {2: B, 3: C, 4: D}


def test_without_a_ledger_numbers_run_from_1_by_relevance():
    assert augment([C, B], AugmentContext()).citations == {1: C, 2: B}
    assert augment([C, B], AugmentContext(ledger=CitationLedger())).citations == {1: C, 2: B}


def test_a_passage_that_was_found_twice_is_presented_once_under_its_number():
    made = augment([B, A, B], AugmentContext(ledger=ledger(A)))
    assert numbers_in(made.text) == [2, 1]


def test_edges_move_the_evidence_and_not_the_numbers():
    made = augment([A, B, C, D], AugmentContext(ledger=ledger(D)), order="edges")
    assert numbers_in(made.text) == [2, 4, 1, 3]
    assert made.citations == {1: D, 2: A, 3: B, 4: C}


def test_numbers_of_new_passages_close_up_when_one_does_not_fit():
    long = Passage("long " * 100, id="long")
    context = AugmentContext(ledger=ledger(A), count_tokens=len)
    made = augment([B, long, C], context, max_context_tokens=200)
    assert made.citations == {2: B, 3: C}
    assert made.tokens <= 200


def test_earlier_evidence_comes_after_the_new_and_only_as_far_as_it_fits():
    context = AugmentContext(ledger=ledger(A, B), earlier=(A, B), count_tokens=len)
    assert numbers_in(augment([C], context).text) == [3, 1, 2]
    tokens = [
        augment(
            [C],
            AugmentContext(ledger=ledger(A, B), earlier=earlier, count_tokens=len),
            max_context_tokens=1000,
        ).tokens
        for earlier in ((), (A,), (A, B))
    ]
    shown = [
        list(augment([C], context, max_context_tokens=limit).citations)
        for limit in (tokens[0], tokens[1] - 1, tokens[1], tokens[2] - 1, tokens[2])
    ]
    assert shown == [[3], [3], [1, 3], [1, 3], [1, 2, 3]]


def test_earlier_evidence_never_stands_in_for_new_evidence_that_does_not_fit():
    long = Passage("long " * 100, id="long")
    context = AugmentContext(ledger=ledger(A), earlier=(A,), count_tokens=len)
    with pytest.raises(ContextBudgetExceeded):
        augment([long], context, max_context_tokens=100)


@given(st.lists(st.lists(st.sampled_from([A, B, C, D]), max_size=4), min_size=1, max_size=6))
async def test_over_any_turns_a_number_means_one_passage_and_the_prompt_says_the_same(turns):
    known = CitationLedger()
    meaning: dict[int, str] = {}
    for found in turns:
        prepared = await prepare(*found, ledger=known, readmit=2)
        citations = prepared.retrieval.citations
        for number, passage in citations.items():
            assert meaning.setdefault(number, passage.id) == passage.id
        assert {c.passage.id for c in prepared.retrieval.candidates} <= {
            passage.id for passage in citations.values()
        }
        prompt = prepared.request["messages"][-1]["content"]
        assert sorted(numbers_in(prompt)) == list(citations)
        known = prepared.retrieval.ledger.cite(list(citations)[:1])
    assert len(set(meaning.values())) == len(meaning)


async def test_only_what_answers_cited_is_presented_again_the_latest_first():
    known = ledger(A, B, D).cite([1]).cite([4 - 1])
    prepared = await prepare(C, ledger=known, readmit=1)
    assert prepared.retrieval.citations == {3: D, 4: C}
    prepared = await prepare(C, ledger=known, readmit=5)
    assert prepared.retrieval.citations == {1: A, 3: D, 4: C}
    assert (await prepare(C, ledger=known)).retrieval.citations == {4: C}


async def test_a_passage_that_was_found_again_takes_no_place_among_the_earlier_ones():
    known = ledger(A, B).cite([1, 2])
    prepared = await prepare(B, ledger=known, readmit=1)
    assert prepared.retrieval.citations == {1: A, 2: B}


async def test_earlier_evidence_is_presented_when_nothing_new_is_found():
    prepared = await prepare(ledger=ledger(A).cite([1]), readmit=1)
    assert prepared.retrieval.citations == {1: A}
    assert prepared.retrieval.candidates == ()


@pytest.mark.parametrize("bound", ["scope", "filter"])
async def test_earlier_evidence_outside_of_scope_or_filter_is_never_presented_again(bound):
    known = ledger(A, C).cite([1, 2])
    options = {bound: Filter.of({"team": "hr"})}
    prepared = await prepare(D, ledger=known, readmit=5, **options)
    assert prepared.retrieval.citations == {1: A, 3: D}


@pytest.mark.parametrize("bound", ["scope", "filter"])
@pytest.mark.parametrize("around", ["nothing", "pipeline", "cached", "fallback", "federate"])
async def test_nor_is_what_the_retriever_itself_may_not_return(bound, around):
    """The boundary may be set where the retriever is made."""
    narrow = RetrievalPipeline(lambda _: candidates(D), **{bound: {"team": "hr"}})
    retriever = {
        "nothing": lambda: narrow,
        "pipeline": lambda: RetrievalPipeline(narrow),
        "cached": lambda: cached(narrow, ttl=60),
        "fallback": lambda: fallback(narrow, narrow),
        "federate": lambda: federate([narrow]),
    }[around]()
    preparer = Preparer(retriever, ledger=ledger(A, C).cite([1, 2]), readmit=5)
    prepared = await preparer.prepare(messages=[{"role": "user", "content": "q"}])
    assert prepared.retrieval.citations == {1: A, 3: D}


async def test_nor_is_what_another_corpus_held():
    """A ledger may come from a conversation that read more of them."""
    index = ragchat.quickstart()
    for name in ("hr", "it"):
        await index.corpus(name).ingest(Document(name, f"Tea for {name}."))
    question = {"messages": [{"role": "user", "content": "Tea?"}]}
    preparer = Preparer(index.corpus(["hr", "it"]).retriever(), ledger=CitationLedger())
    both = (await preparer.prepare(**question)).retrieval.ledger.cite([1, 2])
    for names, others in ((["hr", "it"], set()), ("hr", {"it"}), (["it"], {"hr"})):
        retriever = index.corpus(names).retriever(top_k=0)
        prepared = await Preparer(retriever, ledger=both, readmit=5).prepare(**question)
        shown = {passage.corpus for passage in prepared.retrieval.citations.values()}
        assert shown == {"hr", "it"} - others


@pytest.mark.parametrize("around", ["nothing", "pipeline", "cached", "fallback", "federate"])
async def test_evidence_that_was_deleted_since_is_never_presented_again(around):
    async with ragchat.quickstart() as index:
        await index.ingest(Document("tea", "Tea is green."), Document("rice", "Rice is white."))
        retriever = {
            "nothing": lambda: index.retriever(top_k=1),
            "pipeline": lambda: RetrievalPipeline(index.retriever(), top_k=1),
            "cached": lambda: cached(index.retriever(top_k=1)),
            "fallback": lambda: fallback(index.retriever(top_k=1), index.retriever(top_k=1)),
            "federate": lambda: federate([index.retriever(top_k=1)]),
        }[around]()
        preparer = Preparer(retriever, readmit=2)

        async def asked(question: str, known: CitationLedger):
            messages = [{"role": "user", "content": question}]
            prepared = await preparer.with_options(ledger=known).prepare(messages=messages)
            return prepared.retrieval

        first = await asked("How is tea?", CitationLedger())
        assert [p.text for p in first.citations.values()] == ["Tea is green."]
        known = first.ledger.cite([1])
        second = await asked("How is rice?", known)
        assert [p.text for p in second.citations.values()] == ["Tea is green.", "Rice is white."]
        await index.remove(ids=["tea"])
        third = await asked("How is rice?", known)
        assert {n: p.text for n, p in third.citations.items()} == {2: "Rice is white."}


async def test_evidence_whose_metadata_changed_since_is_held_to_them():
    async with ragchat.quickstart() as index:
        await index.ingest(Document("a", "Tea is green.", metadata={"team": "hr"}))
        preparer = Preparer(index.retriever(top_k=1), readmit=1, scope={"team": "hr"})
        question = {"messages": [{"role": "user", "content": "How is tea?"}]}
        first = await preparer.with_options(ledger=CitationLedger()).prepare(**question)
        known = first.retrieval.ledger.cite([1])
        await index.ingest(Document("a", "Tea is green.", metadata={"team": "it"}))
        second = await preparer.with_options(ledger=known).prepare(**question)
        assert second.retrieval.citations == {}
        await index.ingest(Document("a", "Tea is green.", title="Tea", metadata={"team": "hr"}))
        third = await preparer.with_options(ledger=known, top_k=0).prepare(**question)
        assert [passage.title for passage in third.retrieval.citations.values()] == ["Tea"]


async def test_what_is_gone_makes_room_for_what_was_cited_before_it():
    async with ragchat.quickstart() as index:
        texts = [f"Room {number} is free." for number in range(4)]
        await index.ingest(*(Document(text, text) for text in texts))
        preparer = Preparer(index.retriever(top_k=4), ledger=CitationLedger())
        question = {"messages": [{"role": "user", "content": "Which room is free?"}]}
        known = (await preparer.prepare(**question)).retrieval.ledger.cite([1, 2, 3, 4])
        gone = [known.citations[number].document_id for number in (4, 3)]
        await index.remove(ids=gone)
        again = Preparer(index.retriever(top_k=0), ledger=known, readmit=2)
        assert set((await again.prepare(**question)).retrieval.citations) == {1, 2}


async def test_several_retrievers_admit_what_any_of_them_does():
    parts = [
        RetrievalPipeline(lambda _: candidates(D), scope={"team": "hr"}),
        RetrievalPipeline(lambda _: [], scope={"team": "it"}),
    ]
    preparer = Preparer(federate(parts), ledger=ledger(A, C).cite([1, 2]), readmit=5)
    prepared = await preparer.prepare(messages=[{"role": "user", "content": "q"}])
    assert prepared.retrieval.citations == {1: A, 2: C, 3: D}


async def test_the_ledger_goes_on_through_turns_without_retrieval():
    known = ledger(A)
    for options in ({"gate": lambda _: False}, {"query_transformer": lambda _: None}):
        assert (await prepare(B, ledger=known, **options)).retrieval.ledger == known
    kept = await prepare(B, ledger=known, augmenter=IdentityAugmenter())
    assert (kept.retrieval.ledger, kept.retrieval.citations) == (known, {})
    assert (await prepare(B)).retrieval.ledger is None


async def test_an_augmenter_with_numbers_of_its_own_cannot_change_what_a_number_means():
    def augmenter(question, found, context):
        return Augmentation("text", Citations([candidate.passage for candidate in found]))

    with pytest.raises(InvalidAugmentation):
        await prepare(B, ledger=ledger(A), augmenter=augmenter)


async def test_the_ledger_is_an_option_of_one_request():
    preparer = Preparer(lambda _: candidates(B))
    messages = [{"role": "user", "content": "q"}]
    one = await preparer.with_options(ledger=ledger(A)).prepare(messages=messages)
    none = (
        await preparer.with_options(ledger=ledger(A))
        .with_options(ledger=None)
        .prepare(messages=messages)
    )
    assert (list(one.retrieval.citations), list(none.retrieval.citations)) == ([2], [1])
    blocking = sync.Preparer(lambda _: candidates(B), readmit=1)
    made = blocking.with_options(ledger=ledger(A).cite([1])).prepare(messages=messages)
    assert list(made.retrieval.citations) == [1, 2]


@pytest.mark.parametrize(
    "options", [{"ledger": {}}, {"readmit": -1}, {"readmit": True}, {"readmit": 1.0}]
)
def test_a_ledger_of_another_kind_and_a_negative_count_are_refused(options):
    with pytest.raises(InvalidSetting):
        Preparer(lambda _: [], **options)
