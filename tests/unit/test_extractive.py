"""Answers without a chat model are whole sentences of the evidence, each with its number."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat.citations import Citations
from ragchat.extractive import NO_SUPPORT, ExtractiveAnswer, extractive_answer
from ragchat_retrieval.embedders import HashingEmbedder
from ragchat_retrieval.errors import EmbeddingError, InvalidQuery, InvalidSetting
from ragchat_retrieval.values import Candidate, ContextText, Passage, Query, Span

LEAVE = (
    "# Paid leave\n\nEmployees get 25 days of paid leave a year. Unused days expire in March.\n\n"
    "- Parental leave is 14 weeks.\n- Sabbaticals are unpaid.\n\n"
    "| kind | days |\n|---|---|\n| moving house | 2 |\n"
)


def candidates(*texts):
    """Passages of one document each, best first."""
    return [
        Candidate(Passage(text, document_id=f"d{n}", span=Span(0, len(text))), 1 / (n + 1))
        for n, text in enumerate(texts)
    ]


async def test_it_answers_with_the_sentence_that_holds_the_question_s_words():
    answer = await extractive_answer("How many days of paid leave?", candidates("Hello.", LEAVE))
    assert answer.text == "Employees get 25 days of paid leave a year. [2]"


async def test_words_match_by_their_stem():
    answer = await extractive_answer("a sabbatical", candidates(LEAVE), max_sentences=1)
    assert answer.sentences[0].text == "Sabbaticals are unpaid."


async def test_a_heading_is_no_sentence_but_says_what_the_sentences_under_it_are_about():
    evidence = [
        Candidate(Passage("It costs 32 euros a day.", headings=("Cargo bikes",)), 1.0),
        Candidate(Passage("It costs 14 euros a day.", headings=("City bikes",)), 0.9),
        Candidate(Passage("# Cargo bike costs"), 0.8),
    ]
    answer = await extractive_answer("what does a cargo bike cost?", evidence, max_sentences=1)
    assert answer.text == "It costs 32 euros a day. [1]"


async def test_a_rare_word_counts_more_than_a_common_one():
    evidence = candidates("The pump is red. The pump is old. The valve leaks.")
    answer = await extractive_answer("pump valve", evidence, max_sentences=1)
    assert answer.text == "The valve leaks. [1]"


async def test_the_score_is_the_share_of_the_question_s_terms_weighted_by_their_rarity():
    """Recomputed by hand: 3 sentences, of which 2 hold pump, 1 valve and none gasket."""

    def idf(df):
        return math.log(1 + 3 / df)

    evidence = candidates("The pump is red. The pump and the gate. The valve leaks.")
    answer = await extractive_answer("pump valve gasket", evidence, max_sentences=1)
    assert answer.sentences[0].score == pytest.approx(idf(1) / (idf(2) + idf(1) + idf(1)))


async def test_sentences_come_in_the_order_of_the_evidence_not_of_their_scores():
    evidence = candidates(
        "Hotel guests use the garage.", "The underground garage is open to hotel guests at night."
    )
    answer = await extractive_answer("underground garage hotel guests", evidence)
    assert [sentence.citation for sentence in answer.sentences] == [1, 2]
    assert answer.sentences[0].score < answer.sentences[1].score


async def test_what_two_passages_both_say_is_said_once():
    text = "Employees get 25 days of paid leave."
    answer = await extractive_answer("paid leave days", candidates(text, text.upper()))
    assert answer.text == f"{text} [1]"


@pytest.mark.parametrize("question", ["Who is the mayor of Springfield?", "??", "the of and"])
async def test_when_nothing_supports_an_answer_it_says_so(question):
    answer = await extractive_answer(question, candidates(LEAVE))
    assert answer.text == NO_SUPPORT
    assert answer.sentences == ()


async def test_no_evidence_supports_nothing():
    assert (await extractive_answer("anything", [])).text == NO_SUPPORT


async def test_a_follow_up_question_is_answered_in_the_light_of_its_conversation():
    evidence = candidates("The Lark costs 32 euros a day.", "The kettle costs 35 euros.")
    alone = await extractive_answer("how much does it cost?", evidence, max_sentences=1)
    context = (ContextText("Which kettle is the fastest?", lexical=0.4),)
    query = Query("how much does it cost?", context=context)
    followed = await extractive_answer(query, evidence, max_sentences=1)
    assert (alone.sentences[0].citation, followed.sentences[0].citation) == (1, 2)


async def test_what_the_conversation_said_already_is_not_said_again():
    evidence = candidates("The Heron carries two children. It costs 38 euros a day.")
    context = (ContextText("The Heron carries two children. [1]", lexical=0.4),)
    answer = await extractive_answer(Query("what does it cost?", context=context), evidence)
    assert answer.text == "It costs 38 euros a day. [1]"


@pytest.mark.parametrize("embedder", [None, HashingEmbedder(64)])
async def test_what_was_said_is_said_again_to_who_asks_again(embedder):
    """Asking twice is no reason to say that the documents do not know."""
    evidence = candidates("The Heron carries two children.")
    said = (
        ContextText("How many children does the Heron carry?", lexical=0.4),
        ContextText("The Heron carries two children. [1]", lexical=0.4),
    )
    again = Query("How many children does the Heron carry?", context=said)
    answer = await extractive_answer(again, evidence, embedder=embedder)
    assert answer.text == "The Heron carries two children. [1]"
    other = Query("And what do bananas cost?", context=said)
    answer = await extractive_answer(other, evidence, embedder=embedder)
    assert answer == ExtractiveAnswer(NO_SUPPORT)


async def test_code_is_no_sentence():
    evidence = candidates("Print it.\n\n```python\nprint('leave days')\n```\n\nNo leave days left.")
    answer = await extractive_answer("leave days", evidence)
    assert answer.text == "No leave days left. [1]"


async def test_numbers_are_those_of_given_citations():
    evidence = {4: Passage("Employees get 25 days of paid leave.")}
    answer = await extractive_answer("paid leave", evidence)
    assert answer.text.endswith("[4]")


async def test_the_brackets_of_a_document_are_no_citations():
    """A paper's own references, which the prompt's numbers have nothing to do with."""
    paper = "The valve opens at 5 bar [2], as `bar` says【7:0†f】."
    evidence = candidates(paper, "Pumps are blue.")
    answer = await extractive_answer("When does the valve open?", evidence)
    assert answer.text == "The valve opens at 5 bar (2), as `bar` says(7:0†f). [1]"
    assert answer.sentences[0].text == paper


MARKERS = ["[1]", "[2, 3]", "【2】", "\uff3b1\uff3d", "【4:0†f】"]
FRAGMENTS = [*MARKERS, "`", "``", "~~~", "!", "x", "(", " ", "\\"]


@given(st.lists(st.lists(st.sampled_from(FRAGMENTS)).map("".join), min_size=1, max_size=3))
async def test_no_document_forges_a_citation_or_hides_one(texts):
    evidence = candidates(*(f"The valve {text} opens{text}" for text in texts))
    answer = await extractive_answer("the valve opens", evidence)
    found = Citations([candidate.passage for candidate in evidence]).find(answer.text)
    assert [mention.numbers for mention in found] == [(s.citation,) for s in answer.sentences]
    assert not any(mention.unknown for mention in found)


async def test_a_table_s_row_is_a_sentence_and_its_rule_is_none():
    answer = await extractive_answer("moving house", candidates(LEAVE))
    assert answer.text == "moving house | 2 [1]"


class Meaning:
    """An embedder that knows one synonym."""

    model, dimension = "meaning", 2

    async def embed(self, texts, kind="query"):
        about = ("car", "automobile")
        rows = [[1.0, 0.0] if any(w in t.lower() for w in about) else [0.0, 1.0] for t in texts]
        return np.array(rows, dtype=np.float32)


async def test_an_embedder_finds_what_shares_no_word_with_the_question():
    evidence = candidates("The sea is blue.", "Automobiles park on level two.")
    answer = await extractive_answer("where is my car", evidence, embedder=Meaning())
    assert answer.text == "Automobiles park on level two. [2]"
    assert (await extractive_answer("where is my car", evidence)).text == NO_SUPPORT


async def test_a_model_that_cannot_read_the_question_is_not_asked():
    embedder = HashingEmbedder(64)
    embedder.legibility = str.isascii
    evidence = candidates("Чай стоит два евро.", "Кофе стоит три евро.")
    answer = await extractive_answer("Сколько стоит чай?", evidence, embedder=embedder)
    plain = await extractive_answer("Сколько стоит чай?", evidence)
    assert (answer.text, answer.sentences) == (plain.text, plain.sentences)
    assert [left_out.stage for left_out in answer.degraded] == ["vector"]


async def test_sentences_that_a_model_cannot_read_are_scored_by_their_words():
    class Latin(Meaning):
        def legibility(self, text):
            return text.isascii()

        async def embed(self, texts, kind="query"):
            sent.extend(texts)
            return await super().embed(texts, kind)

    sent: list[str] = []
    evidence = candidates("ACME の保証は二年です。", "Automobiles park on level two.")
    question = "where is the car warranty of ACME"
    answer = await extractive_answer(question, evidence, embedder=Latin())
    assert [s.citation for s in answer.sentences] == [1, 2]
    assert sent == [question, "Automobiles park on level two."]
    assert [left_out.stage for left_out in answer.degraded] == ["vector"]


async def test_a_turn_that_a_model_cannot_read_moves_no_question():
    """As in retrieval: to the model such texts are all much alike."""

    class Latin(Meaning):
        def legibility(self, text):
            return text.isascii()

    evidence = candidates("The sea is blue.", "Automobiles park on level two.")
    turn = ContextText("海は青いですか", semantic=9.0)
    asked = Query("where is my car", context=(turn,))
    answer = await extractive_answer(asked, evidence, embedder=Latin())
    assert answer.text == "Automobiles park on level two. [2]"
    assert [left_out.stage for left_out in answer.degraded] == ["vector"]


async def test_an_embedder_that_fails_is_a_typed_error_or_made_do_without():
    class Broken(Meaning):
        async def embed(self, texts, kind="query"):
            raise ConnectionError

    evidence = candidates("The sea is blue.", "Automobiles park on level two.")
    with pytest.raises(EmbeddingError):
        await extractive_answer("how is the sea", evidence, embedder=Broken())
    answer = await extractive_answer("how is the sea", evidence, embedder=Broken(), on_error="skip")
    assert answer.text == "The sea is blue. [1]"
    assert [left_out.stage for left_out in answer.degraded] == ["vector"]
    with pytest.raises(InvalidSetting, match="on_error"):
        await extractive_answer("q", evidence, on_error="ignore")


@pytest.mark.parametrize("limit", [0, -1])
async def test_less_than_one_sentence_is_refused(limit):
    with pytest.raises(InvalidSetting, match="max_sentences"):
        await extractive_answer("q", [], max_sentences=limit)


async def test_a_blank_question_is_refused():
    with pytest.raises(InvalidQuery):
        await extractive_answer(" \x00 ", [])


WORDS = st.sampled_from(
    ["pump", "valve", "leaks", "red", "Old", "3.5", "e.g.", "東京。", "- x", "\n\n"]
)
TEXTS = st.lists(st.lists(WORDS, min_size=1, max_size=12).map(" ".join), max_size=5)


@given(texts=TEXTS, question=st.lists(WORDS, min_size=1, max_size=3).map(" ".join))
async def test_every_sentence_stands_in_the_document_where_its_span_says(texts, question):
    documents = [f"preface {n}\n" + text for n, text in enumerate(texts)]
    evidence = [
        Candidate(Passage(text, document_id=str(n), span=Span(10, 10 + len(text))), 1.0)
        for n, text in enumerate(texts)
    ]
    if not question.strip():
        return
    answer = await extractive_answer(question, evidence)
    assert len(answer.sentences) <= 3
    keys = [(s.citation, s.span) for s in answer.sentences]
    assert keys == sorted(set(keys))
    for sentence in answer.sentences:
        stood = documents[sentence.citation - 1][slice(*sentence.span)]
        assert sentence.text in " ".join(stood.split())
        assert 0 < sentence.score <= 1
        assert re.search(re.escape(f"{sentence.text} [{sentence.citation}]"), answer.text)
