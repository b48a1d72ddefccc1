"""Answering without a chat model: the sentences of the evidence that support an answer best.

Nothing is written that no document says: the answer is made of whole sentences as they stand, each
followed by the number of its passage.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from ragchat.afterwards import run_afterwards
from ragchat.citations import scan
from ragchat.sentences import ABOVE_CREDIT, sentences_of
from ragchat_retrieval.asking import blended, semantic_text, semantic_texts
from ragchat_retrieval.embedders.checks import embed_checked, legibility
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.lexical import DEFAULT_ANALYZER
from ragchat_retrieval.values import Passage, Query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ragchat.sentences import Sentence
    from ragchat_retrieval.lexical import Analyzer
    from ragchat_retrieval.policy import Run
    from ragchat_retrieval.ports import Embedder
    from ragchat_retrieval.trace import Degradation
    from ragchat_retrieval.values import Candidate, Span

    Evidence = Mapping[int, Passage] | Sequence[Candidate]
    _Numbered = tuple[int, Sentence]
    _Ranked = tuple[float, int, Sentence]

# The numbers below were chosen on 150 answerable and 150 unanswerable development questions of
# ClapNQ, whose answers name the sentences they rest on. With the local embedder 66 % of the
# sentences taken are among those, 87 % of the answers hold at least one, and 1 % of the answerable
# and 19 % of the unanswerable questions get none; by words alone 61 %, 79 %, 7 % and 25 %.

NO_SUPPORT = "Nothing in the documents found answers this."
"""The text of an answer without sentences."""

_RANK_DISCOUNT = 0.35
"""By how much a sentence's score falls with each place of its passage in the evidence."""

_LEAST = 0.25
"""Score below which a sentence supports nothing; a share of the question's weighted terms."""

_NEAR_BEST = 0.7
"""Share of the best score that a further sentence needs."""

_SAME = 0.8
"""Jaccard similarity of terms from which two sentences say the same."""

_SAID = 0.8
"""Share of a sentence's terms in an earlier turn from which it was said already."""


@dataclass(frozen=True, slots=True)
class SupportingSentence:
    """A sentence of the evidence."""

    text: str
    """As it stands in the passage, less line breaks, list markers and the outer bars of a table."""

    citation: int
    """Number of its passage, from 1."""

    span: Span
    """Where it stands in its document's text; in the passage's, if that has no span itself."""

    score: float
    """How much of the question it answers, 0 … 1; comparable only inside its own answer."""


@dataclass(frozen=True, slots=True)
class ExtractiveAnswer:
    """An answer made of sentences of the evidence."""

    text: str
    """The sentences, each followed by its citation such as ``[1]``; says so if there are none. What
    would be a citation in a document's own text is in round brackets."""

    sentences: tuple[SupportingSentence, ...] = ()
    """In the order of the evidence."""

    degraded: tuple[Degradation, ...] = field(default=(), kw_only=True)
    """What failed and was left out, where it may be: ``vector`` is the embedder."""


async def extractive_answer(
    question: str | Query,
    evidence: Evidence,
    *,
    embedder: Embedder | None = None,
    max_sentences: int = 3,
    on_error: Literal["raise", "skip"] = "raise",
    analyzer: Analyzer = DEFAULT_ANALYZER,
) -> ExtractiveAnswer:
    """Answers with the best supporting sentences of the evidence.

    A sentence's score is the share of the question's terms that it holds, each weighted by how rare
    it is among the evidence's sentences; with an embedder that can read both, the mean of that and
    of the cosine with the question. The weighted context of a `Query` counts as it does in
    retrieval, so that a follow-up question is answered in the light of its conversation. What was
    said in it is not said again, unless nothing else answers and the question by itself asks for
    it. Headings and code are no sentences.

    Args:
        question: A question, or the query that retrieved the evidence.
        evidence: Passages by citation number, as `Citations` has them, or candidates, which are
            numbered from 1 in their order.
        embedder: Adds meaning to the score; None scores by words only.
        max_sentences: Most sentences in the answer, at least 1.
        on_error: Whether a failure of the embedder raises, or sentences are then scored by words
            alone, visibly; so they are where it takes more than 10 seconds.
        analyzer: Analysis of words; that of the index.

    Returns:
        The answer; its text says so if no sentence supports one.

    Raises:
        InvalidSetting: `max_sentences` is less than 1, or `on_error` is another word.
        InvalidQuery: The question is blank.
        EmbeddingError: The embedder failed, and may not be skipped.
    """
    if max_sentences < 1:
        raise InvalidSetting("max_sentences", "must be at least 1")
    run = run_afterwards(on_error)
    query = question if isinstance(question, Query) else Query(question)
    turns = [frozenset(analyzer.terms(context.text)) for context in query.context]
    fresh: list[_Numbered] = []
    said: list[_Numbered] = []
    for number, passage in _numbered(evidence):
        for sentence in sentences_of(passage, analyzer):
            known = any(_holds(turn, sentence) for turn in turns)
            (said if known else fresh).append((number, sentence))
    chosen = _choose(await _ranked(query, fresh, embedder, analyzer, run), max_sentences)
    if not chosen and said:
        # Asked for again: but the conversation may not vouch for what it said itself.
        alone = replace(query, context=())
        chosen = _choose(await _ranked(alone, said, embedder, analyzer, run), max_sentences)
    degraded = tuple(dict.fromkeys(run.record.degraded))
    if not chosen:
        return ExtractiveAnswer(NO_SUPPORT, degraded=degraded)
    text = " ".join(f"{_quoted(sentence.text)} [{sentence.citation}]" for sentence in chosen)
    return ExtractiveAnswer(text, tuple(chosen), degraded=degraded)


async def _ranked(
    query: Query,
    numbered: Sequence[_Numbered],
    embedder: Embedder | None,
    analyzer: Analyzer,
    run: Run,
) -> list[_Ranked]:
    """Returns sentences with their scores, which fall with the place of their passages."""
    sentences = [sentence for _, sentence in numbered]
    scores = _lexical_scores(_weights(query, analyzer), sentences)
    asked = semantic_text(query)
    if embedder is not None and sentences and legibility(embedder, asked, run):
        # Where the model cannot read a sentence, its words say more than a likeness that all have.
        read = [
            sentence.text if legibility(embedder, sentence.text, run) else ""
            for sentence in sentences
        ]
        work = partial(_cosines, query, read, embedder, run)
        cosines = (
            await run.stage("vector", work, fallback=lambda: None, instead="words alone")
            if any(read)
            else None
        )
        if cosines is not None:
            scores = [
                (words + max(0.0, cosine)) / 2 if text else words
                for text, words, cosine in zip(read, scores, cosines, strict=True)
            ]
    return [
        (score / (1 + _RANK_DISCOUNT * (number - 1)), number, sentence)
        for score, (number, sentence) in zip(scores, numbered, strict=True)
    ]


def _holds(turn: frozenset[str], sentence: Sentence) -> bool:
    return len(sentence.distinct & turn) >= _SAID * len(sentence.distinct)


def _numbered(evidence: Evidence) -> list[tuple[int, Passage]]:
    if isinstance(evidence, Mapping):
        return sorted(evidence.items())
    return list(enumerate((candidate.passage for candidate in evidence), 1))


def _weights(query: Query, analyzer: Analyzer) -> dict[str, float]:
    """Returns the query's terms with their weights: 1 for its own, less for the conversation's."""
    weights = dict.fromkeys(analyzer.terms(query.lexical or query.text), 1.0)
    for context in query.context:
        for term in analyzer.terms(context.text):
            weights[term] = max(weights.get(term, 0.0), min(context.lexical, 1.0))
    return weights


def _lexical_scores(weights: Mapping[str, float], sentences: Sequence[Sentence]) -> list[float]:
    """Returns for each sentence the share of the weighted terms that it holds, 0 … 1.

    A term of which no sentence knows counts like one that a single sentence holds. Headings say
    what a sentence is about and count for less. A sentence answers nothing if it has no term of the
    query, or if neither it nor what stands above it has one of the question's own.
    """
    total = len(sentences)
    asked = {term for term, weight in weights.items() if weight >= 1}
    found = Counter(term for sentence in sentences for term in sentence.distinct if term in weights)
    value = {
        term: weight * math.log(1 + total / max(found[term], 1)) for term, weight in weights.items()
    }
    whole = sum(value.values()) or 1.0
    scores = []
    for sentence in sentences:
        own = sum(value[term] for term in sentence.distinct if term in value)
        above = sum(value[term] for term in sentence.above - sentence.distinct if term in value)
        relevant = own and not asked.isdisjoint(sentence.distinct | sentence.above)
        scores.append((own + ABOVE_CREDIT * above) / whole if relevant else 0.0)
    return scores


async def _cosines(
    query: Query, texts: list[str], embedder: Embedder, run: Run
) -> list[float] | None:
    """Returns the cosine of each text with the question, as retrieval asks it."""
    asked = semantic_texts([query])
    sent = [text if legibility(embedder, text, run) else "" for text in asked]
    vectors = await embed_checked(embedder, sent, "query")
    (main,) = blended([query], dict(zip(asked, vectors, strict=True)))
    if main is None:
        return None
    passages = await embed_checked(embedder, texts, "passage")
    return [float(cosine) for cosine in passages @ main]


def _choose(ranked: Sequence[_Ranked], limit: int) -> list[SupportingSentence]:
    """Takes the best distinct sentences and puts them into the order of the evidence."""
    best = max((score for score, _, _ in ranked), default=0.0)
    floor = max(_LEAST, _NEAR_BEST * best)
    taken: list[_Ranked] = []
    for score, number, sentence in sorted(ranked, key=lambda item: -item[0]):
        if score < floor or len(taken) == limit:
            break
        if all(_similarity(sentence.distinct, other.distinct) < _SAME for _, _, other in taken):
            taken.append((score, number, sentence))
    return [
        SupportingSentence(sentence.text, number, sentence.span, min(score, 1.0))
        for score, number, sentence in sorted(taken, key=lambda item: (item[1], item[2].span))
    ]


def _quoted(sentence: str) -> str:
    """Returns a sentence in which nothing is a citation, or hides the one that follows it."""
    followed = f"{sentence} [1]"
    if not any(marker.end == len(followed) for marker in scan(followed)):
        sentence = sentence.replace("`", "'").replace("~", "-")  # it ends inside of code
    parts, read = [], 0
    for marker in scan(sentence):
        parts += [sentence[read : marker.start], f"({sentence[marker.start + 1 : marker.end - 1]})"]
        read = marker.end
    return "".join((*parts, sentence[read:]))


def _similarity(a: frozenset[str], b: frozenset[str]) -> float:
    return len(a & b) / len(a | b)
