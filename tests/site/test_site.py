"""The site of the documentation stands by itself, and leads to everything that is public."""

from __future__ import annotations

import json
import re
from urllib.parse import unquote

import ragchat
import ragchat_retrieval

URL = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")
SCHEME = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//|[a-z][a-z0-9+.-]*:", re.IGNORECASE)
ASKED_ON_SIGHT = {"mermaid", "arithmatex", "md-source"}
"""Classes for which the theme's script would fetch something from another host."""


def addresses(style):
    """The addresses that a style sheet loads."""
    return [first or second for first, second in URL.findall(style)]


def foreign(address):
    """Says whether an address is one of another host."""
    return bool(SCHEME.match(address)) and not address.startswith("data:")


def test_no_page_loads_anything_from_another_host(pages):
    assert len(pages) > 60
    for path, page in pages.items():
        loaded = page.loads + [one for style in page.styles for one in addresses(style)]
        assert [address for address in loaded if foreign(address)] == [], path
        assert page.classes & ASKED_ON_SIGHT == set(), path


def test_no_style_sheet_loads_anything_from_another_host(site):
    sheets = sorted(site.rglob("*.css"))
    assert sheets
    for sheet in sheets:
        loaded = addresses(sheet.read_text("utf-8"))
        assert [address for address in loaded if foreign(address)] == [], sheet


def test_what_a_page_loads_is_there(pages):
    for path, page in pages.items():
        for address in page.loads:
            target, _, _ = address.partition("#")
            if path.name != "404.html" and not address.startswith("data:"):
                assert (path.parent / unquote(target)).exists(), f"{path}: {address}"


def test_every_link_and_every_anchor_leads_somewhere(pages, site):
    checked = 0
    for path, page in pages.items():
        if path.name == "404.html":  # may be shown at any address, so it links from the root
            continue
        for link in page.links:
            if foreign(link):
                continue
            target, _, anchor = link.partition("#")
            aim = (path.parent / unquote(target)).resolve() if target else path
            assert aim in pages or aim.is_file(), f"{path}: {link}"
            assert aim.is_relative_to(site), f"{path}: {link}"
            if anchor and not anchor.startswith("__"):
                assert unquote(anchor) in pages[aim].ids, f"{path}: {link}"
            checked += 1
    assert checked > 5_000


def test_no_anchor_is_there_twice(pages):
    for path, page in pages.items():
        assert len(page.ids) == len(set(page.ids)), path


def test_every_public_name_is_in_the_reference(pages, site):
    known = {
        anchor
        for path, page in pages.items()
        if path.parent == site / "reference"
        for anchor in page.ids
    }
    assert [n for n in ragchat.__all__ if f"ragchat.{n}" not in known] == []
    core = ragchat_retrieval.__all__
    assert [n for n in core if f"ragchat_retrieval.{n}" not in known] == []


def test_the_search_knows_every_page(pages, site):
    """The index is there twice: as JSON for servers, as a script for pages read from a disk."""
    index = json.loads((site / "search/search_index.json").read_text("utf-8"))
    script = (site / "search/search_index.js").read_text("utf-8")
    assert json.loads(script.removeprefix("var __index = ")) == index
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    known = {path.relative_to(site).as_posix() for path in pages} - {"404.html"}
    assert found == known


def test_names_in_the_text_lead_to_the_reference(pages, site):
    links = pages[site / "tutorial.html"].links
    assert "reference/preparing.html#ragchat.Preparer" in links
