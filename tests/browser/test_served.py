"""The page as `ragchat serve` serves it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import ragchat
from ragchat.server import KeyRing, create_app, new_key

sites = sys.modules["browser_site"]  # conftest has loaded it


SECRET, KEY = new_key("reader")


@pytest.fixture
def keys():
    """The keys of the server: without any everybody may come in."""


@pytest.fixture
def url(serving, keys):
    """The address of the real server, over an index in memory and without a chat model."""
    splitter = ragchat.HeadingSplitter(80)
    index = ragchat.HybridIndex(embedder=ragchat.HashingEmbedder(64), splitter=splitter)
    with ThreadPoolExecutor() as pool:  # Playwright has a loop in this thread
        pool.submit(lambda: asyncio.run(index.ingest(*sites.DOCUMENTS))).result()
    with serving(create_app(index, keys=keys)) as address:
        yield address


def test_a_question_a_citation_and_a_new_document(visit):
    page = visit()
    page.locator("#questions button").first.wait_for()
    answer = sites.answered(page, "How many days of paid leave do employees get?")
    assert "Employees get 25 days of paid leave a year." in answer.locator(".answer").text_content()
    answer.locator("button.chip").first.click()
    around = page.locator("#evidence .around").last
    around.wait_for(state="attached")
    assert "Carrying over" in page.locator("#evidence .passage").text_content()
    assert page.locator("#evidence mark").count() == 1
    file = {"name": "new.md", "mimeType": "text/markdown", "buffer": b"# New\n\nA new rule."}
    page.set_input_files("#files", [file])
    page.get_by_text("4 documents").wait_for()


@pytest.mark.parametrize("keys", [KeyRing([KEY])])
def test_a_key_opens_the_page_and_another_says_that_it_does_not(visit):
    """A character that no header can carry, as some programs paste, does not lock it for good."""
    page = visit()
    banner = page.locator("#banner")
    assert banner.is_hidden()
    page.fill("#key", "rc-wrong")
    page.click("#unlock button")
    banner.get_by_text("This key opens nothing here.").wait_for()
    assert page.locator("#key").input_value() == ""
    page.fill("#key", f" \u200b{SECRET}\u200b ")
    page.click("#unlock button")
    page.wait_for_selector("#ask:not([hidden])")
    assert banner.is_hidden()
    assert page.locator("#unlock").is_hidden()
    page.reload()
    page.wait_for_selector("#ask:not([hidden])")
    answer = sites.answered(page, "How many days of paid leave do employees get?")
    assert "25 days" in answer.locator(".answer").text_content()


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.exe", b"MZ", "not added: this kind of file is not read here"),
        ("empty.md", b" ", "not added: there is no text in it"),
        ("new.md", b"# New\n\nA new rule.", "1 passage"),
    ],
)
def test_a_file_that_is_sent_says_what_became_of_it(visit, name, text, told):
    page = visit()
    file = {"name": name, "mimeType": "text/plain", "buffer": text}
    page.set_input_files("#files", [file])
    page.locator("#uploads").get_by_text(told, exact=True).wait_for()
    if "passage" in told:
        page.set_input_files("#files", [file])
        page.locator("#uploads").get_by_text("was here already", exact=True).wait_for()


@pytest.mark.parametrize("form", [[], ["--preset=desktop"]], ids=["phone", "desktop"])
def test_lighthouse_finds_nothing_to_complain_of(url, chromium, node_modules, form):
    """It also scores speed, which is no matter of a test: benchmarks/RESULTS.md tells that."""
    chrome = "--chrome-flags=--headless=new --no-sandbox --disable-gpu --no-first-run"
    done = subprocess.run(
        [node_modules / ".bin/lighthouse", url, "--quiet", "--output=json", chrome, *form],
        env={**os.environ, "CHROME_PATH": chromium},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    report = json.loads(done.stdout)
    scores = {name: found["score"] for name, found in report["categories"].items()}
    failed = [name for name, audit in report["audits"].items() if audit["score"] == 0]
    assert scores.pop("performance") > 0
    assert scores == {"accessibility": 1, "best-practices": 1, "seo": 1}, failed
    # All that the first visit transfers, headers too, comes from here.
    requests = report["audits"]["network-requests"]["details"]["items"]
    assert {request["url"].startswith(url) for request in requests} == {True}
    assert sum(request["transferSize"] for request in requests) <= 150_000
