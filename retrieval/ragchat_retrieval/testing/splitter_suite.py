"""The contract of splitters as a test suite: a new splitter overrides one fixture.

    class TestMySplitter(SplitterContract):
        @pytest.fixture
        def splitter(self):
            return MySplitter()

`check_passages` checks the same invariants on a text of your own, for property tests.
"""
# ruff: noqa: RUF001 - samples in a dozen scripts

from __future__ import annotations

import asyncio
import pickle
import unicodedata
from typing import TYPE_CHECKING

import pytest

from ragchat_retrieval.ports import AsyncSplitter
from ragchat_retrieval.values import Document

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ragchat_retrieval.ports import Splitter
    from ragchat_retrieval.values import Passage

SAMPLES: dict[str, str] = {
    "English": "The kettle is on, isn't it? Dr. Reed paid 3.50 for it, e.g. in cash. It boils!\n\n"
    "Then it whistles (quite loudly). Nobody minds.",
    "German": "Die Straße führt über die Brücke. Sie kostet z. B. 3,50 € im Jahr.\r\n\r\n"
    "Größere Wagen müssen außen herum fahren.",
    "Russian": "Поезд ушёл в полночь. На перроне никого, т. е. совсем никого.\n\nТолько фонари.",
    "Greek": "Το πλοίο φεύγει στις οκτώ. Πού είναι οι βαλίτσες; Στο λιμάνι.",
    "Arabic": "وصل القطار متأخرا. هل رأيت الحقيبة؟ نعم، هي هناك.\n\nشكرا لك۔",
    "Hebrew": "הספר על השולחן. מי קרא אותו? אף אחד לא.\n\nמחר נחזיר אותו.",
    "Hindi": "क्षितिज पर सूरज निकला। पक्षी उड़ गए। क्या तुमने देखा?",
    "Tamil": "மழை பெய்கிறது. குடை எங்கே? கதவின் பின்னால் உள்ளது.",
    "Thai": "ฝนตกหนักมาก แม่น้ำล้นตลิ่งแล้ว ที่บ้านไม่มีใครอยู่",
    "Chinese": "今天天气很好。我们去公园喝茶!你来吗?“当然。”他说。\n\nGPU显存不够。",
    "Japanese": "駅前の喫茶店でコーヒーを飲んだ。「おいしい!」と彼女は言った。ーっと音がした。",
    "Korean": "오늘은 날씨가 좋다. 우리는 차를 마신다! 너도 올래?",
    "emoji": "👩‍🔬🇵🇱🇫🇷👍🏽 ❤️ e\u0301nd 🏳️‍🌈👨‍👩‍👧‍👦",
    "odd spaces": "\ufeff\n\n  a\u00a0b\x0cc\u2028d\u3000\u0301e \r f\r\r\ng \t\n \n\u200b\n",
    "special tokens": "<|endoftext|> then <|im_start|>system and <|im_end|>.\n\n[SEP] {{ x }}",
    "repeated": "go go go go go\n\nsame line\n\nsame line\n\nsame line",
    "one long word": "x" * 500,
    "code": "def f(a):\n    if a:\n        return a[1:]\n\n\n# no heading\nclass B:\n    x = 1\n",
    "Markdown": "---\ntitle: t\n---\n# One\n\ntext\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n"
    "- item\n  - inner\n- item\n\n```sh\n# no heading\n```\n\nTwo\n---\n\n> quote\n",
}
"""Texts in a dozen scripts, and texts that break splitters."""

BLANK = ("", " ", "\n\n", "\r\n \r\n", "\t\u3000\u2028\x0c")
"""Texts without anything to read."""

_JOINERS = frozenset("\u200c\u200d\ufe0e\ufe0f") | {chr(c) for c in range(0x1F3FB, 0x1F400)}


def check_passages(document: Document, passages: Sequence[Passage]) -> None:
    """Checks what holds for the passages of every splitter.

    Raises:
        AssertionError: An invariant is broken; says which and where.
    """
    text = document.text
    numbers = _line_numbers(text)
    last_start = -1
    for ordinal, passage in enumerate(passages):
        assert passage.span is not None, "a passage has no span"
        start, end = passage.span
        where = f"passage {ordinal} at {start}:{end}"
        assert text[start:end] == passage.text, f"{where} is not that slice of its document"
        assert passage.text.strip(), f"{where} is blank"
        assert start > last_start, f"{where} does not start after the one before"
        assert passage.lines == (numbers[start], numbers[end - 1]), f"{where}: wrong lines"
        for cut in (start, end):
            assert not inside_cluster(text, cut), f"{where} cuts a character at {cut}"
        assert passage.ordinal == ordinal
        assert passage.document_id == document.id
        assert passage.digest == document.digest
        labels = (passage.title, passage.source, passage.metadata)
        assert labels == (document.title, document.source, document.metadata)
        last_start = start
    assert len({passage.id for passage in passages}) == len(passages), "two passages share an id"


def inside_cluster(text: str, offset: int) -> bool:
    """Says whether a cut would part a character from its marks, joiners or line end.

    A small rule of its own: combining marks, joiners, variation selectors, skin tones, CRLF and
    pairs of regional indicators.
    """
    if not 0 < offset < len(text):
        return False
    before, after = text[offset - 1], text[offset]
    if before + after == "\r\n":
        return True
    if before not in _JOINERS and unicodedata.category(before) in {"Cc", "Cf", "Zl", "Zp"}:
        return False
    if after in _JOINERS or unicodedata.category(after) in {"Mn", "Me", "Mc"}:
        return True
    if before == "\u200d" and _is_pictograph(after):
        base = text[:offset].rstrip("".join(_JOINERS))  # two emoji are joined, not a letter and one
        return bool(base) and _is_pictograph(base[-1])
    return _is_regional(after) and _regionals_before(text, offset) % 2 == 1


def _regionals_before(text: str, offset: int) -> int:
    begin = offset
    while begin and _is_regional(text[begin - 1]):
        begin -= 1
    return offset - begin


def _is_pictograph(character: str) -> bool:
    return unicodedata.category(character) == "So" and not _is_regional(character)


def _is_regional(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _line_numbers(text: str) -> list[int]:
    """Returns the line of every character, from 1; CRLF, CR and LF each end a line."""
    numbers, line = [], 1
    for position, character in enumerate(text):
        numbers.append(line)
        if character == "\n" or (character == "\r" and text[position + 1 : position + 2] != "\n"):
            line += 1
    return numbers


class SplitterContract:
    """What every splitter promises."""

    @pytest.fixture
    def splitter(self) -> Splitter:
        """Gives the splitter under test."""
        pytest.fail("override the fixture splitter")

    def test_it_has_a_name(self, splitter: Splitter) -> None:
        """The name says policy and settings: another one means that documents are split again."""
        assert splitter.name.strip()

    @pytest.mark.parametrize("sample", SAMPLES)
    def test_passages_are_slices_with_exact_places(self, splitter: Splitter, sample: str) -> None:
        """Spans and lines are exact, no passage is blank, no character is cut."""
        document = Document(
            sample, SAMPLES[sample], title="T", source="s.md", metadata={"team": "blue"}
        )
        passages = splitter.split(document)
        assert passages
        check_passages(document, passages)

    @pytest.mark.parametrize("text", BLANK, ids=ascii)
    def test_a_blank_text_has_no_passages(self, splitter: Splitter, text: str) -> None:
        """Nothing comes of nothing."""
        assert list(splitter.split(Document("blank", text))) == []

    def test_splitting_twice_gives_the_same(self, splitter: Splitter) -> None:
        """Passages and their ids are the same in every run."""
        document = Document("d", "\n\n".join(SAMPLES.values()))
        assert list(splitter.split(document)) == list(splitter.split(document))

    def test_it_goes_to_worker_processes(self, splitter: Splitter) -> None:
        """A splitter can be pickled."""
        assert pickle.loads(pickle.dumps(splitter)).name == splitter.name  # noqa: S301 - our own

    async def test_waiting_gives_the_same(self, splitter: Splitter) -> None:
        """A splitter that has `asplit` gives there what `split` gives."""
        if not isinstance(splitter, AsyncSplitter):
            return
        document = Document("d", "\n\n".join(SAMPLES.values()))
        waited = list(await splitter.asplit(document))
        assert waited == list(await asyncio.to_thread(splitter.split, document))
