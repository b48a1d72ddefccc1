"""How well citations are checked without a chat model, on three public collections.

    python benchmarks/citations.py --data ../shared/data

- ExpertQA (validation part): is a claim supported by the evidence that it cites? The label
  *Complete* of experts against all others, by the score of `ragchat.verify`.
- LFRQA (FiQA part): which passage did a person cite for a claim? Each cited claim of an answer
  against all passages of that answer, by score plus lead. The texts are those of ``mtrag-fiqa``.
- SciFact: is the closest sentence one of those that people chose as rationale?

Figures of the first two are areas under the ROC curve. Weights and thresholds were chosen on one
half, by a hash of the question; ``chosen on`` and ``others`` are the halves. ``--choose`` prints
what was tried there. Embeddings are cached in ``benchmarks/.cache``.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import hashlib
import itertools
import json
import platform
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from embedding import CACHE, cached_embedder

import ragchat
from ragchat.citations.claims import claims_of, unmarked
from ragchat.citations.support import (
    BY_MEANING,
    BY_WORDS,
    Comparison,
    Evidence,
    Measures,
    Rule,
    leads,
)
from ragchat_retrieval.embedders.checks import embed_checked
from ragchat_retrieval.lexical import DEFAULT_ANALYZER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

HERE = Path(__file__).resolve().parent


@dataclass
class Case:
    """One question to the checker: a claim, passages, and which are right."""

    group: str
    """What is never split between the halves."""

    claim: str
    passages: list[ragchat.Passage]
    rows: list[list[int]]
    """What is scored: passages alone or together."""

    right: list[bool]
    measures: dict[Rule, list[Measures]] = field(default_factory=dict)
    closest: dict[Rule, list[int | None]] = field(default_factory=dict)
    levels: dict[Rule, list[str]] = field(default_factory=dict)
    scores: dict[Rule, list[float]] = field(default_factory=dict)
    sentences: list[str] = field(default_factory=list)
    label: str = ""
    """SciFact: whether the abstract supports the claim or contradicts it."""


def rows_of(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the objects of a gzipped JSON lines file."""
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        yield from map(json.loads, stream)


def expertqa(data: Path) -> list[Case]:
    """Returns a case per claim; the passages are those of its whole answer."""
    found = list(rows_of(data / "expertqa-val" / "queries.jsonl.gz"))
    answers: dict[tuple[str, str], dict[int, str]] = defaultdict(dict)
    for row in found:
        for evidence in row["evidence"]:
            answers[row["text"], row["system"]][evidence["n"]] = evidence["text"]
    cases = []
    for row in found:
        texts = answers[row["text"], row["system"]]
        passages = [ragchat.Passage(text) for text in texts.values()]
        places = {number: place for place, number in enumerate(texts)}
        cited = [places[evidence["n"]] for evidence in row["evidence"]]
        claim = without_markers(row["claim"])
        cases.append(Case(row["text"], claim, passages, [cited], [row["support"] == "Complete"]))
    return cases


def lfrqa(data: Path) -> list[Case]:
    """Returns a case per claim that cites something, with all passages of its answer."""
    corpus = {row["_id"]: row["text"] for row in rows_of(data / "mtrag-fiqa" / "corpus.jsonl.gz")}
    cases = []
    for row in rows_of(data / "lfrqa-fiqa" / "queries.jsonl.gz"):
        cited = {int(n): ids for n, ids in row["citation_map"].items()}
        ids = list(dict.fromkeys(id_ for found in cited.values() for id_ in found))
        passages = [ragchat.Passage(corpus[id_]) for id_ in ids]
        numbers = ragchat.Citations(dict.fromkeys(cited, passages[0]))
        text = row["reference_answer_with_citations"]
        for claim in claims_of(text, numbers.find(text), DEFAULT_ANALYZER):
            named = [n for mention in claim.mentions for n in mention.numbers]
            gold = {id_ for number in named for id_ in cited[number]}
            if gold:
                each = [[place] for place in range(len(ids))]
                right = [id_ in gold for id_ in ids]
                cases.append(Case(row["_id"], claim.text, passages, each, right))
    return cases


def scifact(data: Path) -> list[Case]:
    """Returns a case per claim and abstract; right are the sentences of a rationale."""
    corpus = {row["_id"]: row["text"] for row in rows_of(data / "scifact" / "corpus.jsonl.gz")}
    cases = []
    for row in rows_of(data / "scifact" / "evidence.jsonl.gz"):
        passage = ragchat.Passage(corpus[row["doc_id"]])
        rationale = [one_line(text) for group in row["rationales"] for text in group]
        case = Case(row["claim_id"], row["claim"], [passage], [[0]], [], label=row["label"])
        case.sentences = [s.text for s in Evidence([passage], DEFAULT_ANALYZER).sentences]
        case.right = [any(s in text or text in s for text in rationale) for s in case.sentences]
        cases.append(case)
    return cases


def without_markers(text: str) -> str:
    """Returns a claim as `ragchat.verify` sees it."""
    return one_line(unmarked(text, 0, len(text), ragchat.Citations().find(text)))


def one_line(text: str) -> str:
    """Returns a text without line breaks."""
    return " ".join(text.split())


async def measure(cases: Sequence[Case], embedder: ragchat.Embedder) -> None:
    """Fills in measures, levels and closest sentences, with vectors and without."""
    for case in cases:
        for rule in (BY_WORDS, BY_MEANING):
            evidence = Evidence(case.passages, DEFAULT_ANALYZER)
            vector = None
            if rule is BY_MEANING:
                texts = [case.claim, *(sentence.text for sentence in evidence.sentences)]
                vectors = await embed_checked(embedder, texts, "query")
                evidence.add_vectors(vectors[1:])
                vector = vectors[0]
            compared = Comparison(case.claim, evidence, vector)
            case.measures[rule] = [compared.measure(rows) for rows in case.rows]
            matches = [compared.match(rows) for rows in case.rows]
            case.scores[rule] = [match.score for match in matches]
            case.levels[rule] = [match.level for match in matches]
            case.closest[rule] = [match.closest for match in matches]


def in_half(group: str) -> bool:
    """Says whether a question belongs to the half on which weights and thresholds were chosen."""
    return int(hashlib.sha256(group.encode()).hexdigest(), 16) % 2 == 0


HALVES: dict[str, Callable[[Case], bool]] = {
    "all": lambda _: True,
    "chosen on": lambda case: in_half(case.group),
    "others": lambda case: not in_half(case.group),
}


def auc(right: Sequence[bool], scores: Sequence[float]) -> float:
    """Returns the area under the ROC curve; ties count half."""
    labels, values = np.asarray(right, bool), np.asarray(scores, float)
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[place]
    positive = int(labels.sum())
    negative = len(labels) - positive
    return float((ranks[labels].sum() - positive * (positive + 1) / 2) / (positive * negative))


def overlap(case: Case, rows: Sequence[int]) -> float:
    """Returns the share of the claim's terms that the passages hold, to compare with."""
    mine = set(DEFAULT_ANALYZER.terms(case.claim))
    text = "\n".join(case.passages[row].text for row in rows)
    return len(mine & set(DEFAULT_ANALYZER.terms(text))) / max(len(mine), 1)


def area(cases: Sequence[Case], values: Callable[[Case], Sequence[float]]) -> float:
    """Returns the area over all that is scored in some cases."""
    right = [label for case in cases for label in case.right]
    return auc(right, [value for case in cases for value in values(case)])


def with_leads(scores: Sequence[float]) -> list[float]:
    """Returns scores plus leads, by which the passage that was cited is told."""
    return [score + lead for score, lead in zip(scores, leads(scores), strict=True)]


def areas(name: str, cases: Sequence[Case], *, lead: bool) -> list[str]:
    """Returns the lines of a table: areas by half and way of scoring."""
    ways: dict[str, Callable[[Case], Sequence[float]]] = {
        "share of words": lambda case: [overlap(case, rows) for rows in case.rows],
        "without an embedder": lambda case: case.scores[BY_WORDS],
        "with it": lambda case: case.scores[BY_MEANING],
    }
    if lead:
        ways |= {
            "score + lead, without": lambda case: with_leads(case.scores[BY_WORDS]),
            "score + lead, with it": lambda case: with_leads(case.scores[BY_MEANING]),
        }
    lines = [f"| {name} | claims | " + " | ".join(ways) + " |", "|---" * (len(ways) + 2) + "|"]
    for half, belongs in HALVES.items():
        part = [case for case in cases if belongs(case)]
        cells = " | ".join(f"{area(part, way):.3f}" for way in ways.values())
        lines.append(f"| {half} | {len(part)} | {cells} |")
    return [*lines, ""]


def hits(cases: Sequence[Case]) -> list[str]:
    """Returns how often the closest sentence is a right one."""

    def by_words(case: Case) -> bool:
        mine = set(DEFAULT_ANALYZER.terms(case.claim))
        shared = [len(mine & set(DEFAULT_ANALYZER.terms(text))) for text in case.sentences]
        return case.right[int(np.argmax(shared))]

    def by_rule(rule: Rule) -> Callable[[Case], bool]:
        return lambda case: case.right[case.closest[rule][0] or 0]

    ways = {
        "any sentence": lambda case: sum(case.right) / len(case.right),
        "most words": by_words,
        "without an embedder": by_rule(BY_WORDS),
        "with it": by_rule(BY_MEANING),
    }
    means = (f"{sum(map(way, cases)) / len(cases):.3f}" for way in ways.values())
    return [
        "| SciFact | claims | " + " | ".join(ways) + " |",
        "|---" * (len(ways) + 2) + "|",
        f"| all | {len(cases)} | " + " | ".join(means) + " |",
        "",
    ]


def contradicted(cases: Sequence[Case]) -> list[str]:
    """Returns which levels claims have that their abstract supports, or contradicts."""
    lines = ["| SciFact | claims | | verbatim or strong | weak | none |", "|---" * 6 + "|"]
    for label, rule in itertools.product(("SUPPORT", "CONTRADICT"), (BY_WORDS, BY_MEANING)):
        levels = [case.levels[rule][0] for case in cases if case.label == label]
        strong = sum(level in ("verbatim", "strong") for level in levels)
        shares = (strong, levels.count("weak"), levels.count("none"))
        cells = " | ".join(f"{share / len(levels):.2f}" for share in shares)
        way = "without" if rule is BY_WORDS else "with"
        lines.append(f"| {label.lower()} | {len(levels)} | {way} | {cells} |")
    return [*lines, ""]


def precisions(collections: Mapping[str, Sequence[Case]]) -> list[str]:
    """Returns for each level how many claims have it and how many of them are right."""
    levels = {"verbatim or strong": ("verbatim", "strong"), "weak": ("weak",), "none": ("none",)}
    lines = ["| right, of how many | | " + " | ".join(levels) + " |", "|---" * 5 + "|"]
    for name, cases in collections.items():
        for half, rule in itertools.product(("chosen on", "others"), (BY_WORDS, BY_MEANING)):
            part = [case for case in cases if HALVES[half](case)]
            pairs = [pair for c in part for pair in zip(c.levels[rule], c.right, strict=True)]
            cells = []
            for names in levels.values():
                found = [right for level, right in pairs if level in names]
                cells.append(f"{sum(found) / max(len(found), 1):.2f} of {len(found)}")
            way = "without" if rule is BY_WORDS else "with"
            lines.append(f"| {name}, {half} | {way} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def choose(qa: Sequence[Case], cited: Sequence[Case]) -> None:
    """Prints areas by weights, and precisions by threshold, on the half to choose on."""
    halves = [[case for case in cases if in_half(case.group)] for cases in (qa, cited)]
    tried = []
    for rule, meaning in ((BY_WORDS, 0.0), (BY_MEANING, 1.0)):
        for words, phrases in itertools.product(
            (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0), (0.2, 0.4, 0.7, 0.8, 0.9, 1.0, 1.5, 3.0)
        ):
            whole = words + phrases + meaning
            other = Rule(words / whole, phrases / whole, meaning / whole, 1, 1)
            first, second = (
                area(halves[0], lambda c, o=other, r=rule: [o.score(m) for m in c.measures[r]]),
                area(
                    halves[1],
                    lambda c, o=other, r=rule: with_leads([o.score(m) for m in c.measures[r]]),
                ),
            )
            tried.append((meaning, first + second, words, phrases, first, second))
    for meaning, _, words, phrases, first, second in sorted(tried, reverse=True):
        print(f"meaning {meaning} words {words} phrases {phrases}: {first:.4f} {second:.4f}")
    for rule in (BY_WORDS, BY_MEANING):
        for threshold in np.arange(0.05, 0.8, 0.05):
            cells = []
            for part in halves:
                pairs = [p for c in part for p in zip(c.scores[rule], c.right, strict=True)]
                above = [right for score, right in pairs if score >= threshold]
                below = [right for score, right in pairs if score < threshold]
                cells.append(
                    f"above {np.mean(above):.2f} of {len(above)}, below {np.mean(below):.2f} "
                    f"of {len(below)}"
                )
            print(
                f"{'words' if rule is BY_WORDS else 'meaning'} {threshold:.2f}", *cells, sep=" | "
            )


async def run(data: Path, *, choosing: bool) -> list[str]:
    """Measures all and returns the tables."""
    embedder = cached_embedder(CACHE.with_name("citations.sqlite"))
    qa, cited, rationales = expertqa(data), lfrqa(data), scifact(data)
    for cases in (qa, cited, rationales):
        await measure(cases, embedder)
    if choosing:
        choose(qa, cited)
        return []
    return [
        *areas("ExpertQA", qa, lead=False),
        *areas("LFRQA", cited, lead=True),
        *hits(rationales),
        *contradicted(rationales),
        *precisions({"ExpertQA": qa, "LFRQA": cited}),
    ]


def main() -> None:
    """Runs the benchmark and prints its tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=HERE.parent.parent / "shared" / "data")
    parser.add_argument("--choose", action="store_true", help="print what weights would give")
    args = parser.parse_args()
    lines = asyncio.run(run(args.data, choosing=args.choose))
    print(f"{date.today()}, Python {platform.python_version()}, {platform.machine()}, ", end="")  # noqa: DTZ011
    print(", ".join(f"{name} {version(name)}" for name in ("numpy", "onnxruntime")), "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
