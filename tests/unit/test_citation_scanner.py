"""The scanner of citation markers, against a slow reference that works in another way."""

# ruff: noqa: RUF001 - look-alike brackets, digits and dashes are what is tested

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat.citations.scanner import LOOKAHEAD, MAX_MARKER, Scanner, scan

Found = tuple[int, int, tuple[tuple[int, int], ...]]


def markers(text: str) -> list[str]:
    return [text[m.start : m.end] for m in scan(text)]


# The reference: lines first, then code in each line, then every bracket by itself.

LEAD = re.compile(r"(?:[ \t>]|[-*+][ \t]|[0-9]+[.)][ \t])*")
RUN = re.compile(r"`+")
BRACKET = re.compile(r"[\[［【][^\[\]［］【】\n]{0,61}[\]］】]")
ITEM = re.compile(r"([0０]|[1-9１-９]\d*)(?:[-‐‑–]([0０]|[1-9１-９]\d*))?")


def code_mask(text: str) -> list[bool]:
    mask: list[bool] = []
    fence: tuple[str, int] | None = None
    for line in re.findall(r"[^\n]*\n|[^\n]+", text):
        body = line.rstrip("\n")
        if fence is not None:
            stripped = body.lstrip(" \t>").rstrip(" \t\r")
            closes = len(stripped) >= fence[1] and set(stripped) == {fence[0]}
            mask += [True] * len(line)
            fence = None if closes else fence
            continue
        lead = LEAD.match(body).end()
        tildes = re.match(r"~{3,}", body[lead:])
        if tildes:
            fence = ("~", len(tildes[0]))
            mask += [True] * len(line)
            continue
        opened = 0
        inside = []
        at = 0
        for run in RUN.finditer(body):
            inside += [opened > 0] * (run.start() - at) + [True] * len(run[0])
            at = run.end()
            if not opened:
                opened = len(run[0])
                may_fence = run.start() == lead and opened >= 3
            elif opened == len(run[0]):
                opened = 0
        inside += [opened > 0] * (len(line) - at)
        mask += inside
        if opened and may_fence and line.endswith("\n"):
            fence = ("`", opened)
    return mask


def reference(text: str) -> list[Found]:
    mask = code_mask(text)
    found: list[Found] = []
    subscripts: set[int] = set()
    for match in BRACKET.finditer(text):
        if mask[match.start()]:
            continue
        start, end, square = match.start(), match.end(), text[match.start()] == "["
        if {"[": "]", "［": "］", "【": "】"}[text[start]] != text[end - 1]:
            continue
        inner = text[start + 1 : end - 1]
        parts = [
            re.sub(r"[ \u00a0\u202f\u3000]*([-‐‑–])[ \u00a0\u202f\u3000]*", r"\1", p)
            for p in re.split("[,;，、；]", inner)
        ]
        items = [ITEM.fullmatch(part.strip(" \u00a0\u202f\u3000")) for part in parts]
        numeric = all(items)
        others = re.fullmatch(r"[0-9]{1,9}(:[0-9]{1,9})?†.*", inner) or (
            text[start] == "【" and re.fullmatch(r".*†.*|[0-9]{1,9}:[0-9]{1,9}", inner)
        )
        if not numeric and not others:
            continue
        if square:
            word = re.search(r"[A-Za-z0-9_]*\Z", text[:start])[0]
            if start in subscripts or (word and not word[0].isdigit()):
                subscripts.add(end)
                continue
            if text[start - 1 : start] == "!" or text[end : end + 1] in ("(", ":"):
                continue
        ranges = tuple((int(i[1]), int(i[2] or i[1])) for i in items) if numeric else ()
        closed = all(item[2] is None or int(item[2]) < 1000 for item in items if item)
        if closed and all(0 <= last - first < 100 for first, last in ranges):
            found.append((start, end, ranges))
    return found


PIECES = st.sampled_from(
    [
        *"[]【】［］()!:†^-,;`~ \n>.1２a_中é\t\r",
        *("[1]", "[2]", "[1, 2]", "[1-3]", "【1】", "［1］", "【4:0†file.pdf】", "[^1]", "[ 12 ]"),
        *(
            "```",
            "~~~",
            "```py\n",
            "\n```\n",
            "\n~~~~ \n",
            "``",
            "- ",
            "1. ",
            "name",
            "2024",
            "x[1]",
        ),
        *(
            "[1](",
            "![",
            "[3]:",
            "[1–2]",
            "[3-1]",
            "[1-200]",
            "[1990-2024]",
            "[990-1000]",
            "[2024]",
            "[01]",
            "[" + "1" * 61 + "]",
            "[" + "1" * 62 + "]",
        ),
    ]
)
TEXTS = st.lists(PIECES, max_size=25).map("".join)


@given(TEXTS)
def test_the_scanner_agrees_with_an_independent_slow_reference(text: str):
    assert [(m.start, m.end, m.ranges) for m in scan(text)] == reference(text)


@given(TEXTS, st.data())
def test_the_markers_are_the_same_for_every_way_of_cutting_the_text(text: str, data: st.DataObject):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=10)))
    scanner = Scanner()
    found = []
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        found += scanner.feed(text[start:end])
        assert end - MAX_MARKER <= scanner.settled <= end
        assert all(marker.end <= scanner.settled for marker in found)
    found += scanner.finish()
    assert found == scan(text)
    assert scanner.settled == len(text)


@given(TEXTS)
def test_one_character_at_a_time_is_as_good_as_all_at_once(text: str):
    scanner = Scanner()
    found = [marker for char in text for marker in scanner.feed(char)] + scanner.finish()
    assert found == scan(text)


@pytest.mark.parametrize("opening", ["[", "［", "【"])
@pytest.mark.parametrize("filler", ["1", "1,", "x", "[", " ", "†"])
def test_an_unterminated_bracket_holds_back_at_most_a_small_fixed_number_of_characters(
    opening: str, filler: str
):
    """A marker that never ends settles at once, and a later one still counts."""
    scanner = Scanner()
    scanner.feed(opening)
    fed = 1
    for _ in range(2000):
        scanner.feed(filler)
        fed += len(filler)
        assert fed - scanner.settled < LOOKAHEAD
    assert [m.ranges for m in scanner.feed(" [2] ")] == [((2, 2),)]


@pytest.mark.parametrize("unit", ["[", "[1, ", "【x", "`a", "a[1]", "``` ", "\n- ", "【1†", "!["])
def test_work_is_linear_in_the_length_of_the_text(unit: str, monkeypatch: pytest.MonkeyPatch):
    """The number of steps of the machine grows no faster than the text."""
    steps = 0

    def counted(method):
        def wrapper(*args):
            nonlocal steps
            steps += 1
            return method(*args)

        return wrapper

    for name in ("_line_start", "_body", "_bracket", "_in_run", "_in_code", "_in_fence"):
        monkeypatch.setattr(Scanner, name, counted(getattr(Scanner, name)))
    scan(unit * 4000)
    assert steps <= 3 * len(unit) * 4000


def test_lists_ranges_and_the_three_kinds_of_brackets_are_markers():
    text = "a [1] b [1][2] c [1, 2] d [1-3] e 【1】 f ［1］ g [1–2; 4] h [ 1 ] i ［２］ j [1，2]"
    assert [m.ranges for m in scan(text)] == [
        ((1, 1),),
        ((1, 1),),
        ((2, 2),),
        ((1, 1), (2, 2)),
        ((1, 3),),
        ((1, 1),),
        ((1, 1),),
        ((1, 2), (4, 4)),
        ((1, 1),),
        ((2, 2),),
        ((1, 1), (2, 2)),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "(1)",
        "[Doc 1]",
        "[^2]",
        "¹",
        "[¹]",
        "[①]",
        "[]",
        "[1.0]",
        "[-1]",
        "[01]",
        "[1,000]",
        "[3-1]",
        "[1-101]",
        "[1990-2024]",
        "[1, 998-1000]",
        "[1】",
        "[1\n]",
    ],
)
def test_other_ways_to_point_at_a_source_are_text(text: str):
    assert markers(f"so {text} it is") == []


@pytest.mark.parametrize(
    "text",
    [
        "【4:0†file.pdf】",
        "【4†source】",
        "[4:0†f]",
        "【source†L1-L2】",
        "【4:0】",
        "［4:1†x］",
        "[4†source]",
        "［4†x］",
    ],
)
def test_markers_of_other_systems_are_foreign(text: str):
    (marker,) = scan(f"so {text}.")
    assert (marker.foreign, marker.ranges) == (True, ())


def test_emphasis_in_lenticular_brackets_is_no_marker():
    assert markers("【重要】お知らせ 【1】") == ["【1】"]


def test_only_the_marker_in_prose_counts_beside_code_links_and_footnotes():
    text = (
        "Use the pump [1].\nInline `a[1]` and ``b ` [1]`` here.\n"
        "```python\nx = rows[2]\ny = [1, 2]\n```\n~~~\n[3]\n~~~\n"
        "[1](http://x) ![2] [^1] [4]: note\n\n```\nopen [5]\n"
    )
    assert markers(text) == ["[1]"]


@pytest.mark.parametrize(
    "before", ["", "claim.", "喝茶", "(", "2024", "café", "`x`", "said,", "»", "]"]
)
def test_a_marker_after_punctuation_cjk_or_a_year_is_a_citation(before: str):
    assert markers(f"{before}[1]") == ["[1]"]


@pytest.mark.parametrize("before", ["name", "a_b", "x1", "_", "obj.field", "中x"])
def test_a_marker_directly_after_an_ascii_identifier_is_a_subscript(before: str):
    assert markers(f"{before}[1] and {before}[1][2] but {before} [3]") == ["[3]"]


def test_an_identifier_does_not_turn_other_brackets_into_subscripts():
    assert markers("GPU【1】 GPU［2］") == ["【1】", "［2］"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("```\n[1]", []),
        ("~~~\n[1]\n```\n[2]", []),
        ("````\n[1]\n```\n[2]\n````\n[3]", ["[3]"]),
        ("  ```\n  [1]\n  ```  \n[2]", ["[2]"]),
        ("1. do\n   ```sh\n   [1]\n   ```\n2. then [2]", ["[2]"]),
        ("- ```\n  [1]\n  ```\n[2]", ["[2]"]),
        ("> ```\n> [1]\n> ```\n> [2]", ["[2]"]),
        ("```\n[1]\n``` no\n[2]", []),
        ("```a``` [1]", ["[1]"]),
        ("text ```\n[1]", ["[1]"]),
        ("~~struck~~ [1]", ["[1]"]),
        ("a ~~~ [1]", ["[1]"]),
    ],
)
def test_a_fence_ends_at_a_line_of_as_many_of_the_same_or_never(text: str, expected: list[str]):
    assert markers(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("`a [1]` [2]", ["[2]"]),
        ("`a [1]\n[2]", ["[2]"]),
        ("``a ` [1]`` [2]", ["[2]"]),
        ("``a [1]` [2]\n[3]", ["[3]"]),
    ],
)
def test_a_run_of_backticks_opens_code_until_the_same_run_or_the_end_of_the_line(
    text: str, expected: list[str]
):
    assert markers(text) == expected


def test_a_marker_of_more_than_63_characters_is_text():
    assert markers("[" + "1" * (MAX_MARKER - 2) + "]") == ["[" + "1" * (MAX_MARKER - 2) + "]"]
    assert markers("[" + "1" * (MAX_MARKER - 1) + "]") == []
