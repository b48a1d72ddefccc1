"""`CitationLedger`: numbers that stay with their passages over the turns of a conversation."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ragchat.citations.citations import Citations
from ragchat.citations.stored import dumped, load_entries, load_form
from ragchat.errors import InvalidCitations, UnknownCitation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ragchat_retrieval.values import Passage


@dataclass(frozen=True, slots=True)
class CitationLedger:
    """Every passage that a conversation was shown, by number. Immutable: each step returns another.

    A passage is known by its id. A known one keeps its number, new ones get the next numbers, and a
    number is never given twice, not even after `forget`.

    Raises:
        InvalidCitations: Two numbers stand for one passage, a cited number is unknown, or the next
            number is not above all others.
    """

    citations: Citations = field(default_factory=Citations)
    """All passages, by number. An answer may cite those of its own prompt only, which are in
    ``prepared.retrieval.citations``."""

    cited: tuple[int, ...] = field(default=(), kw_only=True)
    """Numbers that answers cited, each once, the one cited last at the end."""

    next_number: int = field(default=0, kw_only=True)
    """The number of the next new passage; 0 means one more than the highest."""

    _numbers: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        highest = max(self.citations, default=0)
        if self.next_number == 0:
            object.__setattr__(self, "next_number", highest + 1)
        numbers = {passage.id: number for number, passage in self.citations.items()}
        if len(numbers) != len(self.citations):
            raise InvalidCitations("two numbers of a ledger stand for the same passage")
        if type(self.next_number) is not int or self.next_number <= highest:
            raise InvalidCitations("the next number of a ledger must be above all others")
        if len(set(self.cited)) != len(self.cited) or not set(self.cited) <= set(self.citations):
            raise InvalidCitations("a ledger's cited numbers must be known, and each stand once")
        object.__setattr__(self, "_numbers", numbers)

    def number(self, passages: Iterable[Passage]) -> tuple[int, ...]:
        """Returns the number of each passage: its own if it is known, else the next in order."""
        numbers, after = [], self.next_number
        given: dict[str, int] = {}
        for passage in passages:
            known = self._numbers.get(passage.id) or given.get(passage.id)
            if known is None:
                known = given[passage.id] = after
                after += 1
            numbers.append(known)
        return tuple(numbers)

    def admit(self, presented: Citations) -> CitationLedger:
        """Returns the ledger after a prompt that presented these passages.

        Known passages are kept as they are presented now.

        Raises:
            InvalidCitations: A number does not go with the ledger: it stands for another passage,
                or the passage has another number.
        """
        for number, passage in presented.items():
            given = number in self.citations or number >= self.next_number
            if self._numbers.get(passage.id, number) != number or not given:
                raise InvalidCitations(f"citation {number} does not go with the ledger")
        if not presented:
            return self
        after = max(self.next_number, max(presented) + 1)
        return replace(self, citations=self.citations.joined(presented), next_number=after)

    def cite(self, numbers: Iterable[int]) -> CitationLedger:
        """Returns the ledger after an answer that cited these numbers.

        Args:
            numbers: Known numbers in the order cited, such as ``citations.cited(answer)``.

        Raises:
            UnknownCitation: The ledger has no such number.
        """
        fresh = dict.fromkeys(numbers)
        for number in fresh:
            if number not in self.citations:
                raise UnknownCitation(str(number), len(self.citations))
        kept = (number for number in self.cited if number not in fresh)
        return replace(self, cited=(*kept, *fresh))

    def recent(self, count: int | None = None) -> tuple[Passage, ...]:
        """Returns the passages cited last, the latest first; at most `count`, or all."""
        return tuple(self.citations[number] for number in self.cited[::-1][:count])

    def forget(self, *document_ids: str) -> CitationLedger:
        """Returns the ledger without the passages of these documents; their numbers stay unused."""
        gone = frozenset(document_ids)
        kept = {n: p for n, p in self.citations.items() if p.document_id not in gone}
        return replace(
            self,
            citations=Citations(kept),
            cited=tuple(number for number in self.cited if number in kept),
        )

    def to_json(self) -> str:
        """Returns a versioned JSON text of the ledger, without loss."""
        return dumped(self.citations, cited=list(self.cited), next=self.next_number)

    @classmethod
    def from_json(cls, text: str | bytes) -> CitationLedger:
        """Returns the ledger that `to_json` made a text of.

        Raises:
            InvalidCitations: The text is of another version, or nothing of ours.
        """
        form = load_form(text)
        cited, after = form.get("cited"), form.get("next")
        if not isinstance(cited, list) or not all(type(number) is int for number in cited):
            raise InvalidCitations("a stored ledger is damaged")
        if type(after) is not int or after < 1:
            raise InvalidCitations("a stored ledger is damaged")
        return cls(Citations(load_entries(form)), cited=tuple(cited), next_number=after)
