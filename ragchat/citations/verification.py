"""What checking the citations of an answer found, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ragchat.citations.citations import Mention
    from ragchat.citations.judge import Verdict
    from ragchat.citations.support import Level
    from ragchat_retrieval.trace import Degradation
    from ragchat_retrieval.values import Span

Status = Literal["supported", "weak", "unsupported", "unknown", "uncited"]
"""What became of a claim: ``unknown`` if it cites nothing that the prompt presented."""

_BY_LEVEL: dict[Level, Status] = {
    "verbatim": "supported",
    "strong": "supported",
    "weak": "weak",
    "none": "unsupported",
}
_BY_VERDICT: dict[Verdict, Status] = {
    "supported": "supported",
    "partial": "weak",
    "unsupported": "unsupported",
    "contradicted": "unsupported",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """How one passage supports one claim."""

    citation: int
    """Number of the passage."""

    level: Level
    """``verbatim``, ``strong``, ``weak`` or ``none``."""

    score: float
    """How well wording and subject agree, 0 … 1; comparable between checks of the same kind, with
    an embedder or without."""

    lead: float
    """The score, less that of the best other passage presented, −1 … 1. Below 0 another one
    supports the claim better; with only one passage the lead is 0."""

    sentence: str
    """The sentence of the passage that is closest to the claim, on one line; empty if the passage
    has no words."""

    span: Span | None
    """Where that sentence stands in its document's text (in the passage's own, if that has no
    span); None without a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedClaim:
    """A sentence of an answer and what supports it."""

    text: str
    """The sentence on one line, without its markers."""

    span: Span
    """Where it stands in the answer, in code points, its markers included."""

    mentions: tuple[Mention, ...] = ()
    """Its markers."""

    level: Level = "none"
    """How well all passages that it cites support it together."""

    score: float = 0.0
    """The score of all of them together, 0 … 1; at least that of each alone."""

    supports: tuple[Support, ...] = ()
    """Each passage that it cites by itself, in the order cited."""

    best: Support | None = None
    """The presented passage that supports it best, cited or not, however little that may be; None
    if none was presented."""

    verdict: Verdict | None = None
    """What the chat model says; None without one, and for claims that cite no known passage."""

    @property
    def unknown(self) -> tuple[int, ...]:
        """The invented numbers that it cites."""
        return tuple(dict.fromkeys(n for mention in self.mentions for n in mention.unknown))

    @property
    def status(self) -> Status:
        """What became of it: the verdict's, if there is one, else the level's."""
        if not self.mentions:
            return "uncited"
        if not self.supports:
            return "unknown"
        return _BY_LEVEL[self.level] if self.verdict is None else _BY_VERDICT[self.verdict]


@dataclass(frozen=True, slots=True)
class Verification:
    """The claims of an answer, each with what supports it."""

    claims: tuple[CheckedClaim, ...]
    """In the order of the answer."""

    degraded: tuple[Degradation, ...] = field(default=(), kw_only=True)
    """What failed and was left out, where it may be: ``vector`` is the embedder, ``verify`` the
    chat model."""

    def having(self, *statuses: Status) -> tuple[CheckedClaim, ...]:
        """Returns the claims with one of these statuses."""
        return tuple(claim for claim in self.claims if claim.status in statuses)

    @property
    def cited(self) -> tuple[CheckedClaim, ...]:
        """The claims that carry a marker."""
        return tuple(claim for claim in self.claims if claim.mentions)

    @property
    def uncited(self) -> tuple[CheckedClaim, ...]:
        """The claims that carry none."""
        return self.having("uncited")

    @property
    def unknown(self) -> tuple[int, ...]:
        """The invented numbers of the whole answer, each once."""
        return tuple(dict.fromkeys(n for claim in self.claims for n in claim.unknown))

    @property
    def supported(self) -> bool:
        """Whether every claim is cited and supported, and no number is invented.

        An answer without claims says nothing that could be wrong.
        """
        return not self.unknown and all(claim.status == "supported" for claim in self.claims)
