"""`Citations`: the numbers that a prompt gave its passages, and how an answer used them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from ragchat.citations.annotate import annotation
from ragchat.citations.renumber import Renumbered, renumbered_text
from ragchat.citations.scanner import scan
from ragchat.citations.stored import dumped, load_entries, load_form
from ragchat.citations.stream import markdown_link, rewrite
from ragchat.errors import InvalidCitations, UnknownCitation
from ragchat_retrieval.values import Passage

if TYPE_CHECKING:
    from ragchat.citations.annotate import Annotation
    from ragchat.citations.scanner import Marker
    from ragchat.citations.stream import CitationMode, Emitted, LinkMaker, Placed

_RESOLVABLE = re.compile(r"\[ *([1-9][0-9]{0,17}) *\]|([1-9][0-9]{0,17})")


@dataclass(frozen=True, slots=True)
class Mention:
    """A marker in an answer and what it stands for."""

    start: int
    end: int
    """End of the half-open range of characters (code points)."""

    marker: str
    """The marker as it stands in the answer."""

    numbers: tuple[int, ...] = field(default=(), kw_only=True)
    """Known citation numbers, in the order written, each once."""

    unknown: tuple[int, ...] = field(default=(), kw_only=True)
    """Invented numbers: no passage of the prompt has them."""

    foreign: bool = field(default=False, kw_only=True)
    """Whether it is another system's marker, which is never mapped to a number."""


class Citations(Mapping[int, Passage]):
    """The passages that a prompt presented, by number: an immutable map.

    The numbers are 1 … n, or those of a `CitationLedger`, which may have gaps.

    Equal content is equal. What was retrieved, what was presented (this), and what an answer cited
    (`cited`) are three different lists.

    Args:
        passages: The passages numbered from 1 in this order, or a mapping from their numbers.

    Raises:
        InvalidCitations: A number is no positive integer, or something is no passage.
    """

    __slots__ = ("_passages",)

    _passages: dict[int, Passage]

    def __init__(self, passages: Iterable[Passage] | Mapping[int, Passage] = ()) -> None:
        given = (
            dict(cast("Mapping[int, Passage]", passages))
            if isinstance(passages, Mapping)
            else dict(enumerate(passages, start=1))
        )
        for number, passage in given.items():
            if type(number) is not int or number < 1:
                raise InvalidCitations("a citation number must be a positive integer")
            if not isinstance(passage, Passage):
                raise InvalidCitations(f"citation {number} stands for no passage")
        object.__setattr__(self, "_passages", {number: given[number] for number in sorted(given)})

    def __getitem__(self, number: int) -> Passage:
        return self._passages[number]

    def __iter__(self) -> Iterator[int]:
        return iter(self._passages)

    def __len__(self) -> int:
        return len(self._passages)

    def __hash__(self) -> int:
        return hash(tuple(self._passages.items()))

    def __repr__(self) -> str:
        named = ", ".join(f"{number}: {passage.id!r}" for number, passage in self.items())
        return f"Citations({{{named}}})"

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("citations are immutable")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("citations are immutable")

    def __reduce__(self) -> tuple[type[Citations], tuple[dict[int, Passage]]]:
        return (type(self), (self._passages,))

    def resolve(self, marker: str | int) -> Passage:
        """Returns the passage that a single marker stands for.

        Args:
            marker: ``[1]``, ``[ 1 ]`` or ``1``, or the number itself.

        Raises:
            UnknownCitation: It is written otherwise, or no passage has that number.
        """
        if isinstance(marker, str):
            match = _RESOLVABLE.fullmatch(marker)
            number = int(match[1] or match[2]) if match else 0
        else:
            number = marker if type(marker) is int else 0
        if number not in self._passages:
            raise UnknownCitation(str(marker), len(self))
        return self._passages[number]

    def find(self, text: str | None) -> tuple[Mention, ...]:
        """Returns every marker in an answer, in order; see `ragchat.citations.scanner`.

        Args:
            text: The answer. None, which a message of tool calls has for its content, has none.
        """
        said = text or ""
        return tuple(self.mention(marker, said[marker.start : marker.end]) for marker in scan(said))

    def mention(self, marker: Marker, written: str) -> Mention:
        """Returns what a marker that a scanner found stands for here.

        Args:
            marker: The marker.
            written: Its characters.
        """
        named = [n for first, last in marker.ranges for n in range(first, last + 1)]
        distinct = dict.fromkeys(named)
        return Mention(
            marker.start,
            marker.end,
            written,
            numbers=tuple(n for n in distinct if n in self._passages),
            unknown=tuple(n for n in distinct if n not in self._passages),
            foreign=marker.foreign,
        )

    def cited(self, text: str | None) -> dict[int, Passage]:
        """Returns the passages that an answer cites, by number, in order of first appearance.

        Args:
            text: As for `find`.
        """
        numbers = dict.fromkeys(n for mention in self.find(text) for n in mention.numbers)
        return {number: self._passages[number] for number in numbers}

    def annotate(self, text: str | None) -> list[Annotation]:
        """Returns OpenAI-shaped ``url_citation`` annotations, one per marker and passage.

        Indices count code points; ``end_index`` is exclusive. Invented numbers and foreign markers
        have no annotation.

        Args:
            text: As for `find`.
        """
        return self.annotations(self.rewrite(text or "").citations)

    def annotations(self, placed: Iterable[Placed]) -> list[Annotation]:
        """Returns the annotations of citations in a text that was rewritten, one per passage.

        All numbers of a marker share the place of what stands for the marker.
        """
        return [
            annotation(place.start, place.end, self._passages[number])
            for place in placed
            for number in place.mention.numbers
        ]

    def rewrite(
        self, text: str, mode: CitationMode = "keep", *, link: LinkMaker = markdown_link
    ) -> Emitted:
        """Rewrites the markers of a whole answer: takes them out, or makes links of them.

        Args:
            text: The answer.
            mode: What becomes of the markers; see `CitationStream`, which does the same piece by
                piece.
            link: Writes the link of one number, in mode ``link``.

        Raises:
            InvalidSetting: There is no such mode.
        """
        return rewrite(text, self, mode, link)

    def renumber(self, text: str) -> Renumbered:
        """Numbers an answer's citations anew: 1 … n by first appearance, without gaps.

        Lists and ranges are written anew, code, links and foreign markers stay, and invented
        numbers become ``[?]``, so that none comes to stand for another passage.

        Returns:
            The text, and the citations that go with it: the cited passages only.
        """
        mentions = self.find(text)
        cited = dict.fromkeys(number for mention in mentions for number in mention.numbers)
        numbers = {old: new for new, old in enumerate(cited, start=1)}
        passages = (self._passages[number] for number in cited)
        return Renumbered(renumbered_text(text, mentions, numbers), Citations(passages))

    def joined(self, others: Citations) -> Citations:
        """Returns these and others, such as what a tool showed after the prompt.

        Raises:
            InvalidCitations: A number stands for another passage there.
        """
        for number in self.keys() & others.keys():
            if self[number].id != others[number].id:
                raise InvalidCitations(f"citation {number} stands for another passage")
        return Citations({**self, **others})

    def to_json(self) -> str:
        """Returns a versioned JSON text of all passages with their numbers, without loss."""
        return dumped(self._passages)

    @classmethod
    def from_json(cls, text: str | bytes) -> Citations:
        """Returns the citations that `to_json` made a text of.

        Raises:
            InvalidCitations: The text is of another version, or nothing of ours.
        """
        return cls(load_entries(load_form(text)))
