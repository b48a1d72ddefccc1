"""<ragchat-answer> by itself, fed with real events and with hostile ones."""

from __future__ import annotations

import json
import sys
import time

import pytest

from ragchat.citations import Citations, CitationStream, Mention
from ragchat.events import Citation, Finished, Sources, TextDelta
from ragchat.wire import wire_form
from ragchat_retrieval.values import Candidate, Passage

sites = sys.modules["browser_site"]  # conftest has loaded it
A = Passage("Alpha says so.", id="a", title="<img src=x onerror=window.hacked=1>", source="a.md")
B = Passage("Beta too.", id="b", source="javascript:alert(1)", document_id="b")
KNOWN = Citations([A, B])
SOURCES = Sources(retrieved=(Candidate(A, 1.0),), presented=KNOWN)

FEED = """async ([events, each]) => {
    await import("/static/component/ragchat-answer.js");
    const answer = document.createElement("ragchat-answer");
    document.getElementById("reading").append(answer);
    const shown = [];
    for (const event of [{ type: "start", version: 1 }, ...events]) {
        answer.feed(event);
        if (!each) continue;
        answer._draw(); // at once, instead of at the next frame
        shown.push(answer.shadowRoot.querySelector(".answer").textContent);
    }
    answer.feed({ type: "end" });
    const root = answer.shadowRoot.querySelector(".answer");
    const tags = [...answer.shadowRoot.querySelectorAll("*")].map(({ localName }) => localName);
    const links = [...answer.shadowRoot.querySelectorAll("[href],[src]")];
    const found = {
        shown,
        html: root.innerHTML,
        text: root.textContent,
        tags: [...new Set(tags)],
        links: links.map((one) => one.getAttribute("href") ?? one.getAttribute("src")),
        chips: [...root.querySelectorAll(".chip")].map(({ textContent }) => textContent),
        hacked: window.hacked ?? null,
    };
    answer.remove();
    return found;
}"""


def events_of(text: str, size: int) -> list[dict]:
    """The events of an answer that comes in pieces of a size."""
    stream = CitationStream(KNOWN)
    found = [SOURCES]
    for at in range(0, len(text), size):
        emitted = stream.feed(text[at : at + size])
        found += _shown(emitted)
    found += _shown(stream.finish())
    return [wire_form(event) for event in [*found, Finished(0, "stop")]]


def _shown(emitted) -> list:
    text = [TextDelta(0, emitted.text)] if emitted.text else []
    return [*text, *(Citation(0, c.start, c.end, c.mention) for c in emitted.citations)]


@pytest.fixture(scope="module")
def page(browser, serving):
    """One page for all: each test takes its element away again."""
    with serving(sites.Site().app()) as url:
        context = browser.new_context()
        page = context.new_page()
        seen = sites.Visit(page, url)
        page.goto(url)
        yield page
        context.close()
    assert not seen.errors
    assert not seen.foreign


def fed(page, text: str, size: int = 10_000, *, each: bool = False) -> dict:
    return page.evaluate(FEED, [events_of(text, size), each])


STREAMED = (
    "**Bold [1] text** 😀 and 🎻 [2], then [1, 2][1].\n\n- one [1]\n- two `x[1]` and [9]\n\n"
    "| a | b |\n|---|---|\n| c [2] | 【1】 |\n\n```python\nrows[1] = 2\n```\n\n> quoted [1]\n"
)


@pytest.mark.parametrize("size", [1, 3, 7])
def test_a_streamed_answer_ends_as_the_whole_one_does(page, size):
    assert fed(page, STREAMED, size)["html"] == fed(page, STREAMED)["html"]


def test_chips_stand_where_their_markers_stood(page):
    """Offsets are code points, so signs outside of the basic plane count once."""
    found = fed(page, "😀 and 🎻 [2].")
    assert found["text"] == "😀 and 🎻2."
    assert found["chips"] == ["2"]


def test_invented_numbers_are_question_marks_and_code_stays_code(page):
    found = fed(page, STREAMED)
    assert found["chips"] == ["1", "2", "1", "2", "1", "1", "?", "2", "1", "1"]
    assert "x[1]" in found["text"]
    assert "rows[1] = 2" in found["text"]


def test_no_marker_is_ever_seen_in_pieces(page):
    text = "One [1]. Two [2][1], three [1, 2]. An open [bracket stays."
    for shown in fed(page, text, 1, each=True)["shown"]:
        for piece in ("[1", "[2", "1]", "2]", "[]"):
            assert piece not in shown
    assert "[bracket stays." in fed(page, text, 1)["text"]


HOSTILE = [
    "<script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=1>",
    "[x](javascript:window.hacked=1)",
    "[x](JaVa\tScRiPt:window.hacked=1)",
    "[x](\u0001javascript:window.hacked=1)",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](vbscript:x) [y](file:///etc/passwd) [z](//evil.example) [w](/relative)",
    "<javascript:window.hacked=1>",
    "![x](https://evil.example/leak.png)",
    '[x](https://example.org/" onclick="window.hacked=1)',
    "[<img src=x onerror=window.hacked=1>](https://example.org)",
    '```"><script>window.hacked=1</script>\nx\n```',
    "| <svg onload=window.hacked=1> | b |\n|---|---|\n| <iframe src=javascript:1> | c |",
    "# <style>*{display:none}</style>",
    "&lt;script&gt;window.hacked=1&lt;/script&gt;",
    "{{constructor.constructor('window.hacked=1')()}} ${window.hacked=1}",
    "<a href=javascript:window.hacked=1>x</a> [1]",
    "[__proto__](https://example.org/__proto__) constructor toString",
]  # fmt: skip
KINDS = {"a", "blockquote", "br", "button", "code", "del", "details", "div", "em", "h3", "h4"}
KINDS |= {"h5", "h6", "hr", "li", "ol", "p", "pre", "section", "span", "strong", "summary", "table"}
KINDS |= {"tbody", "td", "th", "thead", "tr", "ul", "dl", "dt", "dd", "i"}


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("size", [2, 10_000])
def test_nothing_of_an_answer_becomes_an_element_or_an_address_of_its_own(page, text, size):
    found = fed(page, text, size)
    assert found["hacked"] is None
    assert set(found["tags"]) <= KINDS
    assert all(link.startswith(("https://example.org", "https://evil")) for link in found["links"])
    assert "onclick" not in "".join(found["tags"])


def test_nothing_of_a_title_or_source_becomes_an_element(page):
    found = fed(page, "Yes [1][2].")
    assert found["hacked"] is None
    assert found["links"] == []
    assert set(found["tags"]) <= KINDS


@pytest.mark.parametrize(
    "text",
    [
        "*a " * 20_000,
        "**" * 20_000,
        "_" * 40_000,
        "[" * 40_000,
        "[a](" * 10_000,
        "`" * 20_001 + " `a``b" * 5_000,
        "> " * 5_000 + "deep",
        "- " * 5_000 + "deep",
        "|" + "-" * 30_000 + " x\n|" + " " * 30_000 + "y",
        "```" + " a" * 20_000 + "`",
        "# a" + " " * 40_000 + "x",
        "http" * 20_000,
        " \n" * 20_000,
        "a  " * 20_000,
        "\n".join("| a | b |" for _ in range(3_000)),
        "1. x\n" * 4_000,
    ],
    ids=lambda text: repr(text[:6]),
)
def test_no_text_takes_the_browser_long(page, text):
    """A pathological text costs about as much as an ordinary one of its length."""
    ordinary = ("Some words of an ordinary answer. " * 40 + "\n\n") * (len(text) // 1360 + 1)
    took = []
    for one in (ordinary, text):
        events = [{"type": "text", "choice": 0, "text": one}]
        began = time.perf_counter()
        page.evaluate(FEED, [events, False])
        took.append(time.perf_counter() - began)
    assert took[1] < 50 * took[0] + 2


def test_unknown_events_and_fields_are_ignored(page):
    events = [
        {"type": "telepathy", "choice": 0, "text": "x"},
        {"type": "text", "choice": 0, "text": "seen", "mood": "good"},
        {"type": "text", "choice": 1, "text": "another choice"},
    ]
    assert page.evaluate(FEED, [events, False])["text"] == "seen"


def test_an_invented_place_breaks_nothing(page):
    """Events that lie about offsets cost a chip at most."""
    mention = Mention(0, 3, "[1]", numbers=(1,))
    events = [wire_form(e) for e in (SOURCES, TextDelta(0, "ab"), Citation(0, 90, 95, mention))]
    found = page.evaluate(FEED, [json.loads(json.dumps(events)), False])
    assert found["text"] == "ab"


ENDED = """async (turns) => {
    await import("/static/component/ragchat-answer.js");
    const answer = document.createElement("ragchat-answer");
    document.getElementById("reading").append(answer);
    const shown = [];
    for (const events of turns) {
        answer.reset();
        for (const event of [{ type: "start", version: 1 }, ...events]) answer.feed(event);
        const below = answer.shadowRoot.querySelector(".failure");
        shown.push(below.hidden ? null : below.innerText.replace("Try again", " +").trim());
    }
    answer.remove();
    return shown;
}"""


def test_an_answer_that_the_model_did_not_finish_says_so(page):
    """As the command line does; a model that calls tools has finished."""
    text = {"type": "text", "choice": 0, "text": "So"}
    reasons = ["stop", "length", "content_filter", None, "tool_calls", "end_turn"]
    ended = [
        {"type": "finished", "choice": 0, "finish_reason": r, "annotations": []} for r in reasons
    ]
    shown = page.evaluate(ENDED, [[text, each, {"type": "end"}] for each in ended])
    whole, cut, filtered, unknown, *others = shown
    assert [whole, *others] == [None] * 3
    assert "length limit" in cut
    assert "content filter" in filtered
    assert "may not be whole" in unknown


def test_each_failure_has_its_own_words(page):
    """Also where the same element was asked again, and failed again."""
    errors = [
        {"type": "error", "code": "x", "message": words, "retryable": retryable}
        for words, retryable in [("Busy.", True), ("No such model.", False)]
    ]
    shown = page.evaluate(ENDED, [[errors[0]], [errors[1]], [{"type": "end"}], [errors[0]]])
    assert shown == ["Busy. +", "No such model.", None, "Busy. +"]


def test_a_list_is_indented_on_the_side_where_its_text_begins(page):
    room = page.evaluate(
        """async (text) => {
        await import("/static/component/ragchat-answer.js");
        const answer = document.createElement("ragchat-answer");
        document.getElementById("reading").append(answer);
        answer.feed({ type: "text", choice: 0, text });
        answer.feed({ type: "end" });
        const outer = answer.shadowRoot.querySelector(".answer").getBoundingClientRect();
        const items = [...answer.shadowRoot.querySelectorAll("li")];
        const boxes = items.map((item) => item.getBoundingClientRect());
        answer.remove();
        return boxes.map(({ left, right }) => [left - outer.left > 9, outer.right - right > 9]);
        }""",
        "- one\n- two\n\nThen\n\n1. \u0623\u0648\u0644\n2. \u062b\u0627\u0646",
    )
    assert room == [[True, False]] * 2 + [[False, True]] * 2
