"""`verify`: whether the passages that an answer cites support what it says."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from ragchat.afterwards import run_afterwards
from ragchat.citations.citations import Citations
from ragchat.citations.claims import claims_of
from ragchat.citations.judge import ClaimJudge
from ragchat.citations.support import Comparison, Evidence, leads
from ragchat.citations.verification import CheckedClaim, Support, Verification
from ragchat_retrieval.embedders.checks import embed_checked, legibility
from ragchat_retrieval.lexical import DEFAULT_ANALYZER
from ragchat_retrieval.text import clean_query

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ragchat.citations.claims import Claim
    from ragchat.citations.support import Match
    from ragchat.models import ChatModel
    from ragchat_retrieval.lexical import Analyzer
    from ragchat_retrieval.policy import Run
    from ragchat_retrieval.ports import Embedder
    from ragchat_retrieval.values import Passage

    Vectors = tuple[NDArray[np.float32], NDArray[np.float32]]


async def verify(
    text: str | None,
    citations: Citations | Mapping[int, Passage],
    *,
    embedder: Embedder | None = None,
    model: ChatModel | ClaimJudge | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    analyzer: Analyzer = DEFAULT_ANALYZER,
) -> Verification:
    """Checks each sentence of an answer against the passages that it cites.

    Without a chat model this measures agreement in wording and, with an embedder, in meaning
    (`ragchat.citations.support`); numbers and denials must agree for strong support. It cannot tell
    a true statement from a false one in the same words. Any text is accepted.

    Args:
        text: The answer. None, which a message of tool calls has for its content, claims nothing.
        citations: The passages that the prompt presented, by number: ``retrieval.citations``.
        embedder: Adds meaning. All claims and sentences go to it in one call, less the claims and
            passages that it cannot read: these are compared by words alone.
        model: Adds a verdict on every claim that cites known passages, by a chat model; a
            `ClaimJudge` sets its budget or prompt.
        on_error: Whether a failure raises or is made do with, visibly: without the verdicts of the
            chat model, or by words alone where the embedder fails or takes more than 10 seconds.
        analyzer: Analysis of words; that of the index.

    Returns:
        Every claim in order with its status; those without a marker are listed as uncited.

    Raises:
        EmbeddingError: The embedder failed, and may not be skipped.
        MalformedVerdicts: The model's reply is not one verdict per claim, and may not be skipped.
        ModelReplyError: Its reply is missing, blank, cut, filtered or refused, likewise.
        InvalidCitations: `citations` is no mapping from positive integers to passages.
        InvalidSetting: `on_error` is another word.
    """
    run = run_afterwards(on_error)
    text = text or ""
    presented = citations if isinstance(citations, Citations) else Citations(citations)
    # Large answers and passages must not hold up the loop.
    claims, evidence = await asyncio.to_thread(_read, text, presented, analyzer)
    vectors = None
    if embedder is not None and evidence.sentences:
        reads = partial(legibility, embedder, run=run)
        said = [claim.text if reads(claim.text) else "" for claim in claims]
        known = evidence.texts(reads)
        if any(said) and any(known):
            vectors = await run.stage(
                "vector",
                partial(_embedded, said, known, embedder),
                fallback=lambda: None,
                instead="words alone",
            )
    checked = await asyncio.to_thread(_checked, claims, presented, evidence, vectors)
    if model is not None:
        checked = await _judged(checked, presented, model, run, skip=on_error == "skip")
    return Verification(tuple(checked), degraded=tuple(run.record.degraded))


def _read(text: str, presented: Citations, analyzer: Analyzer) -> tuple[list[Claim], Evidence]:
    claims = claims_of(text, presented.find(text), analyzer)
    return claims, Evidence(list(presented.values()) if claims else [], analyzer)


async def _embedded(said: Sequence[str], known: Sequence[str], embedder: Embedder) -> Vectors:
    """Returns the vectors of claims and sentences; all are questions of the same kind."""
    texts = [clean_query(text) for text in (*said, *known)]
    distinct = list(dict.fromkeys(texts))
    place = {text: at for at, text in enumerate(distinct)}
    rows = (await embed_checked(embedder, distinct, "query"))[[place[text] for text in texts]]
    return rows[: len(said)], rows[len(said) :]


def _checked(
    claims: Sequence[Claim], presented: Citations, evidence: Evidence, vectors: Vectors | None
) -> list[CheckedClaim]:
    if vectors is not None:
        evidence.add_vectors(vectors[1])
    numbers = list(presented)
    return [
        _check(claim, numbers, evidence, None if vectors is None else _direction(vectors[0][at]))
        for at, claim in enumerate(claims)
    ]


def _direction(vector: NDArray[np.float32]) -> NDArray[np.float32] | None:
    return vector if vector.any() else None


def _check(
    claim: Claim, numbers: Sequence[int], evidence: Evidence, vector: NDArray[np.float32] | None
) -> CheckedClaim:
    found = CheckedClaim(text=claim.text, span=claim.span, mentions=claim.mentions)
    if not numbers:
        return found
    comparison = Comparison(claim.text, evidence, vector)
    matches = [comparison.match([row]) for row in range(len(numbers))]
    supports = _supports(numbers, matches, evidence)
    best = max(supports, key=lambda support: support.score)
    cited = dict.fromkeys(n for mention in claim.mentions for n in mention.numbers)
    rows = [row for row, number in enumerate(numbers) if number in cited]
    if not rows:
        return replace(found, best=best)
    together = comparison.match(rows)
    by_number = {support.citation: support for support in supports}
    return replace(
        found,
        level=together.level,
        score=together.score,
        supports=tuple(by_number[number] for number in cited),
        best=best,
    )


def _supports(
    numbers: Sequence[int], matches: Sequence[Match], evidence: Evidence
) -> list[Support]:
    """Returns how each passage supports a claim, with its lead over the others."""
    ahead = leads([match.score for match in matches])
    supports = []
    for number, match, lead in zip(numbers, matches, ahead, strict=True):
        closest = None if match.closest is None else evidence.sentences[match.closest]
        supports.append(
            Support(
                citation=number,
                level=match.level,
                score=match.score,
                lead=lead,
                sentence="" if closest is None else closest.text,
                span=None if closest is None else closest.span,
            )
        )
    return supports


async def _judged(
    checked: Sequence[CheckedClaim],
    presented: Citations,
    model: ChatModel | ClaimJudge,
    run: Run,
    *,
    skip: bool,
) -> list[CheckedClaim]:
    """Adds the verdicts of a chat model."""
    judge = model if isinstance(model, ClaimJudge) else ClaimJudge(model)
    asked = [at for at, claim in enumerate(checked) if claim.supports and claim.text]
    questions = [
        (checked[at].text, [support.citation for support in checked[at].supports]) for at in asked
    ]
    verdicts = dict.fromkeys(asked)
    try:
        verdicts |= dict(zip(asked, await judge(questions, presented), strict=True))
    except Exception as error:
        if not skip:
            raise
        run.skip("verify", error)
    return [replace(claim, verdict=verdicts.get(at)) for at, claim in enumerate(checked)]
