"""The page in a real browser: asking, reading, doubting, and everything that can go wrong."""

from __future__ import annotations

import sys

import pytest

sites = sys.modules["browser_site"]  # conftest has loaded it
ask, answered = sites.ask, sites.answered

LEAVE = "How much paid leave do employees get in a year, and does it carry over?"


def chips(answer) -> list[str]:
    return answer.locator("button.chip").all_text_contents()


def test_everything_weighs_less_than_150_kilobytes():
    files = [path for folder in (sites.PAGE, sites.COMPONENT) for path in folder.iterdir()]
    assert len(files) > 8
    assert sum(path.stat().st_size for path in files) <= 150_000


def test_an_answer_shows_its_citations_and_tells_its_sources_apart(visit):
    page = visit()
    answer = answered(page, LEAVE)
    assert chips(answer) == ["1", "2", "2", "1", "2", "1"]
    assert answer.locator("table td").count() == 6
    assert "calendar[1]" in answer.locator("li code").first.text_content()
    sources = answer.locator(".sources")
    assert sources.locator("h3").text_content() == "2 sources cited"
    assert sources.locator("summary").first.text_content() == "3 passages read but not cited"
    assert "Handbook" in sources.locator("li").first.text_content()


def test_the_examples_of_the_corpus_can_be_asked(visit, site):
    page = visit()
    page.locator("#questions button").first.click()
    page.wait_for_selector(".actions:not([hidden])")
    assert site.requests == [[{"role": "user", "content": sites.QUESTIONS[0]}]]


def test_a_follow_up_carries_the_conversation(visit, site):
    page = visit()
    answered(page, LEAVE)
    answered(page, "And in the first year?")
    roles = [message["role"] for message in site.requests[1]]
    assert roles == ["user", "assistant", "user"]
    assert site.requests[1][1]["content"] == sites.ANSWER


def test_a_citation_opens_its_passage_in_context_with_the_sentence_marked(visit):
    page = visit()
    answer = answered(page, LEAVE)
    answer.locator("button.chip").nth(1).click()
    panel = page.locator("#evidence")
    panel.locator(".around").first.wait_for(state="attached")
    assert panel.locator("mark").text_content().startswith("Up to five days of leave carry over")
    assert "25 days of paid leave" in panel.locator(".around").first.text_content()
    assert panel.locator("h2").text_content() == "Handbook"
    assert "Carrying over" in panel.locator(".where").text_content()
    whole = panel.locator(".passage").text_content().strip("…")
    assert whole in sites.HANDBOOK


def test_arrow_keys_go_through_the_citations_and_escape_returns(visit):
    page = visit()
    answer = answered(page, LEAVE)
    answer.locator("button.chip").first.focus()
    page.keyboard.press("Enter")
    status = page.locator("#evidence nav span")
    assert status.text_content() == "Source 1 · citation 1 of 6"
    page.keyboard.press("ArrowRight")
    assert status.text_content() == "Source 2 · citation 2 of 6"
    page.keyboard.press("ArrowLeft")
    assert status.text_content() == "Source 1 · citation 1 of 6"
    assert answer.locator('button.chip[aria-current="true"]').count() == 1
    page.keyboard.press("Escape")
    assert page.locator("#evidence").is_hidden()
    focused = "document.querySelector('ragchat-answer').shadowRoot.activeElement.dataset.index"
    assert page.evaluate(focused) == "0"


def test_opening_the_evidence_moves_nothing_on_a_wide_screen(visit):
    page = visit()
    answer = answered(page, LEAVE)
    before = answer.bounding_box()
    answer.locator("button.chip").first.click()
    page.locator("#evidence").wait_for()
    assert answer.bounding_box() == before


def test_a_sentence_that_its_source_does_not_support_says_why(visit):
    page = visit()
    answer = answered(page, LEAVE)
    doubted = answer.locator(".doubt[tabindex]").first
    assert doubted.text_content().startswith("Half of the staff never use this rule")
    doubted.focus()
    assert "does not seem to say this" in answer.locator("#card").text_content()
    assert "up to five" not in "".join(answer.locator(".doubt").all_text_contents())


def test_why_this_passage_was_found_can_be_read(visit):
    page = visit()
    answered(page, LEAVE).locator("button.chip").first.click()
    page.locator("#evidence summary").click()
    assert page.locator("#evidence meter").count() == 2
    assert "in the end" in page.locator("#evidence .path").text_content()


def test_the_card_of_a_citation_shows_on_hover_and_focus(visit):
    page = visit()
    answer = answered(page, LEAVE)
    card = answer.locator("#card")
    answer.locator("button.chip").nth(1).hover()
    card.wait_for()
    assert card.locator("mark").text_content().startswith("Up to five days")
    page.keyboard.press("Escape")
    assert card.is_hidden()


def test_a_stopped_answer_keeps_its_text_and_stops_the_server(visit, site):
    page = visit()
    ask(page, "Please wait")
    answer = page.locator("ragchat-answer")
    answer.get_by_text("The first words").wait_for()
    assert "[1" not in answer.locator(".answer").text_content()
    page.click("#stop")
    answer.get_by_text("You stopped this answer.").wait_for()
    assert answer.locator(".answer").text_content().startswith("The first words")
    assert site.left.wait(20)
    site.gate.set()
    answer.get_by_role("button", name="Try again").click()
    answer.get_by_text("and the rest.").wait_for()


def test_a_stopped_answer_is_said_as_far_as_it_was_read(visit, site):
    page = visit()
    ask(page, "Please wait")
    answer = page.locator("ragchat-answer")
    answer.get_by_text("The first words").wait_for()
    page.click("#stop")
    answer.get_by_text("You stopped this answer.").wait_for()
    answered(page, LEAVE)
    assert [message["role"] for message in site.requests[1]] == ["user", "assistant", "user"]


def test_an_upstream_error_says_what_and_can_be_tried_again(visit, site):
    site.failures = 1
    page = visit()
    ask(page, LEAVE)
    failure = page.locator("ragchat-answer").get_by_role("alert")
    failure.wait_for()
    assert "status 503" in failure.text_content()
    assert "secret" not in page.content()
    failure.get_by_role("button", name="Try again").click()
    page.wait_for_selector(".actions:not([hidden])")
    assert failure.is_hidden()


def test_what_was_said_before_an_error_stays(visit):
    page = visit()
    ask(page, "Say half of it")
    answer = page.locator("ragchat-answer")
    answer.get_by_role("alert").wait_for()
    assert answer.locator(".answer").text_content().strip() == "Half of an ans"


def test_an_answer_that_broke_off_is_no_part_of_the_conversation(visit, site):
    """The model would take half a sentence for what it had said."""
    page = visit()
    ask(page, "Say half of it")
    page.locator("ragchat-answer").get_by_role("alert").wait_for()
    answered(page, LEAVE)
    assert site.requests[1] == [{"role": "user", "content": LEAVE}]


def test_names_are_shown_in_the_order_in_which_they_are_written(visit, site):
    """Characters that turn the direction of what follows would make one file look like another."""
    given = sites.ragchat.Document("a.md", sites.HANDBOOK, title="report \u202etxt.exe\u2066")
    site.documents = {given.id: given}
    page = visit()
    answer = answered(page, LEAVE)
    assert answer.locator(".sources .name").first.text_content() == "report txt.exe"
    answer.locator("button.chip").first.click()
    assert page.locator("#evidence h2").text_content() == "report txt.exe"
    assert answer.evaluate("(one) => one.state.passages[0].label") == given.title


def test_offline_is_told_and_asking_again_works(visit):
    page = visit()
    page.context.set_offline(True)
    ask(page, LEAVE)
    page.locator("ragchat-answer").get_by_text("You are offline.").wait_for()
    assert page.locator("#banner").is_visible()
    page.context.set_offline(False)
    page.locator("ragchat-answer").get_by_role("button", name="Try again").click()
    page.wait_for_selector(".actions:not([hidden])")
    assert page.locator("#banner").is_hidden()


def test_without_a_chat_model_answers_are_quotations_and_it_is_said_once(visit, site):
    site.model = False
    page = visit()
    answer = answered(page, "How many days of paid leave do employees get?")
    assert "Employees get 25 days of paid leave a year." in answer.locator(".answer").text_content()
    assert page.get_by_text("no chat model").count() == 1


def test_without_documents_the_page_asks_for_some(visit, site):
    site.documents.clear()
    page = visit()
    assert page.locator("#welcome-title").text_content() == "Drop your documents here"
    assert page.locator("#ask").is_hidden()
    file = {"name": "new.md", "mimeType": "text/markdown", "buffer": b"# New\n\nIt is new."}
    page.set_input_files("#files", [file])
    page.wait_for_selector("#ask:not([hidden])")
    assert site.uploaded == {"new.md": b"# New\n\nIt is new."}
    assert page.locator("#welcome-title").text_content() == "What would you like to know?"


def test_files_can_be_dropped_anywhere_and_one_that_is_refused_says_so(visit, site):
    page = visit()
    page.evaluate(
        """() => {
        const dataTransfer = new DataTransfer();
        dataTransfer.items.add(new File(["# A"], "a.md"));
        dataTransfer.items.add(new File(["x"], "b.exe"));
        const target = document.getElementById("reading");
        for (const name of ["dragenter", "dragover", "drop"])
            target.dispatchEvent(
                new DragEvent(name, { bubbles: true, cancelable: true, dataTransfer }));
        }"""
    )
    page.get_by_text("not added: this kind of file is not read here").wait_for()
    assert site.uploaded == {"a.md": b"# A"}
    assert page.locator("#drop").is_hidden()
    page.get_by_text("4 documents").wait_for()


def test_files_that_are_dropped_while_others_are_sent_follow_them(visit, site):
    """What became of the first stays to be read."""
    page = visit()
    page.evaluate(
        """() => {
        for (const name of ["b.exe", "a.md"]) {
            const dataTransfer = new DataTransfer();
            dataTransfer.items.add(new File(["# A"], name));
            dispatchEvent(new DragEvent("drop", { cancelable: true, dataTransfer }));
        }
        }"""
    )
    page.get_by_role("button", name="Close").wait_for()
    assert page.locator("#uploads p").all_text_contents() == [
        "b.exenot added: this kind of file is not read here",
        "a.md3 passages",
    ]
    assert site.uploaded == {"a.md": b"# A"}


def test_many_files_with_long_names_stay_inside_of_their_list(visit):
    """It scrolls, and can be closed."""
    page = visit()
    names = [f"{'a_long_name_' * 8}{n}.exe" for n in range(40)]
    page.set_input_files(
        "#files", [{"name": name, "mimeType": "text/plain", "buffer": b"x"} for name in names]
    )
    page.get_by_role("button", name="Close").click()
    page.evaluate("document.getElementById('uploads').hidden = false")
    box = page.locator("#uploads").bounding_box()
    assert box["y"] >= 0
    assert box["y"] + box["height"] <= 800
    assert page.evaluate(
        "() => { const { scrollWidth, clientWidth } = document.getElementById('uploads');"
        " return scrollWidth <= clientWidth; }"
    )


def test_an_answer_can_be_copied_with_its_references(visit, url):
    page = visit(permissions=["clipboard-read", "clipboard-write"])
    answered(page, LEAVE)
    page.get_by_role("button", name="Copy with references").click()
    page.get_by_text("Copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith(sites.ANSWER.rstrip())
    assert "[2] Handbook, Working here › Carrying over" in copied


def test_the_conversation_can_be_exported_as_markdown(visit, tmp_path):
    page = visit()
    answered(page, LEAVE)
    with page.expect_download() as download:
        page.click("#export")
    download.value.save_as(tmp_path / "answers.md")
    text = (tmp_path / "answers.md").read_text("utf-8")
    assert text.startswith(f"## {LEAVE}\n\nYou get **25 days")
    assert "[1] Handbook" in text


def test_an_export_says_which_answer_broke_off(visit, tmp_path):
    page = visit()
    ask(page, "Say half of it")
    told = page.locator("ragchat-answer").get_by_role("alert")
    told.wait_for()
    with page.expect_download() as download:
        page.click("#export")
    download.value.save_as(tmp_path / "answers.md")
    text = (tmp_path / "answers.md").read_text("utf-8")
    assert text.startswith("## Say half of it\n\nHalf of an ans\n\n*")
    assert text.split("*")[1] in told.text_content()


def test_light_and_dark_follow_the_system_and_the_switch(visit):
    page = visit(color_scheme="dark")
    paper = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(paper)
    page.click("#theme")
    light = page.evaluate(paper)
    assert light != dark
    page.reload()
    page.wait_for_selector("#welcome:not([hidden])")
    assert page.evaluate(paper) == light


@pytest.mark.parametrize("size", [(390, 780), (320, 640), (640, 400), (900, 700)], ids=str)
def test_on_a_phone_a_tablet_and_at_twice_the_size_nothing_is_cut_off(visit, size):
    """The evidence is a sheet from below, and its sentence stays in sight above it."""
    page = visit(viewport={"width": size[0], "height": size[1]})
    answer = answered(page, LEAVE)
    answer.locator("button.chip").nth(1).click()
    sheet = page.locator("#evidence").bounding_box()
    assert sheet["width"] == size[0]
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    chip = answer.locator("button.chip").nth(1).bounding_box()
    if size[1] > 480:
        assert sheet["y"] > 100
        assert 0 <= chip["y"] < sheet["y"]


def test_the_whole_page_can_be_used_with_the_keyboard(visit):
    page = visit()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    page.keyboard.type("Leave?")
    page.keyboard.press("Enter")
    page.wait_for_selector(".actions:not([hidden])")
    for _ in range(12):
        page.keyboard.press("Shift+Tab")
        inner = "document.activeElement.shadowRoot?.activeElement?.className"
        if page.evaluate(inner) == "chip":
            break
    assert page.evaluate(inner) == "chip"
    page.keyboard.press("Enter")
    assert page.locator("#evidence").is_visible()


AXE = """async () => {
    const { violations } = await axe.run();
    return violations.filter(({ impact }) => ["serious", "critical"].includes(impact))
        .map(({ id, nodes }) => [id, nodes.map((node) => [node.target, node.failureSummary])]);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(visit, node_modules, scheme):
    page = visit(bypass_csp=True, color_scheme=scheme, reduced_motion="reduce")
    page.add_script_tag(path=str(node_modules / "axe-core" / "axe.min.js"))
    assert page.evaluate(AXE) == []
    answer = answered(page, LEAVE)
    answer.locator("button.chip").first.click()
    page.locator("#evidence .around").first.wait_for(state="attached")
    page.locator("#evidence summary").click()
    answer.locator(".sources summary").first.click()
    assert page.evaluate(AXE) == []
