"""The page that the how-to on citations has its reader write, in a real browser."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from ragchat.testing import LoopbackOpenAI

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/citation-ui.md"
ANSWER = "You get 25 days of paid leave a year [1]. They are paid double [1]."

sites = sys.modules["browser_site"]  # conftest has loaded it


def load(name, path):
    """Imports a file that is in no package."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def url(tmp_path, monkeypatch, serving):
    """The application of the how-to, over the files that it names; its model is on loopback."""
    blocks = load("docs_blocks", ROOT / "tests/docs/blocks.py")
    blocks.write_files(blocks.blocks_of(PAGE), tmp_path)
    monkeypatch.chdir(tmp_path)
    with LoopbackOpenAI(default=ANSWER) as model:
        monkeypatch.setenv("OPENAI_API_KEY", "loopback")
        monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
        with serving(load("how_to_app", tmp_path / "app.py").app) as address:
            yield address


def test_a_number_opens_its_passage(browser, url):
    """And a sentence that the passage does not support is marked."""
    context = browser.new_context()
    page = context.new_page()
    seen = sites.Visit(page, url)
    page.goto(url)
    page.get_by_role("button", name="Ask").click()
    answer = page.locator("ragchat-answer")
    answer.locator("button.chip").first.click()
    aside = page.locator("aside")
    aside.get_by_text("handbook/leave.md").wait_for()
    assert aside.text_content() == (
        "[1] handbook/leave.md: Employees get 25 days of paid leave a year."
    )
    answer.locator(".doubt").first.wait_for()
    context.close()
    assert not seen.errors
    assert not seen.foreign
