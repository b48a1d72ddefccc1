"""The page as `ragchat serve` serves it."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import ragchat
from ragchat.server import create_app

sites = sys.modules["browser_site"]  # conftest has loaded it


@pytest.fixture
def url():
    """The address of the real server, over an index in memory and without a chat model."""
    splitter = ragchat.HeadingSplitter(80)
    index = ragchat.HybridIndex(embedder=ragchat.HashingEmbedder(64), splitter=splitter)
    with ThreadPoolExecutor() as pool:  # Playwright has a loop in this thread
        pool.submit(lambda: asyncio.run(index.ingest(*sites.DOCUMENTS))).result()
    with sites.serving_app(create_app(index)) as address:
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
