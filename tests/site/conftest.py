"""The site, built once for all tests of this folder, and its pages as a browser's parser sees them.

``make docs`` brings MkDocs, and runs these tests. The site is built into ``site/``, so that what
was checked is what may be put on a server.
"""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SITE = ROOT / "site"
LOADING = {
    ("audio", "src"),
    ("embed", "src"),
    ("iframe", "src"),
    ("image", "href"),
    ("img", "src"),
    ("input", "src"),
    ("link", "href"),
    ("object", "data"),
    ("script", "src"),
    ("source", "src"),
    ("track", "src"),
    ("use", "href"),
    ("video", "poster"),
    ("video", "src"),
}
"""Attributes whose address a browser asks for by itself."""


class Page(HTMLParser):
    """What a page links, what it loads, and what can be linked in it."""

    def __init__(self, path):
        super().__init__()
        self.links, self.loads, self.ids, self.styles = [], [], [], []
        self.classes = set()
        self.in_style = False
        self.feed(path.read_text("utf-8"))
        self.close()

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if value is None:
                continue
            if (tag, name) in LOADING:
                self.loads.append(value)
            elif name == "srcset":
                self.loads += [one.split()[0] for one in value.split(",")]
            elif (tag, name) == ("a", "href"):
                self.links.append(value)
            elif name == "id":
                self.ids.append(value)
            elif name == "class":
                self.classes.update(value.split())
            elif name == "style":
                self.styles.append(value)
        self.in_style = tag == "style"

    def handle_data(self, data):
        if self.in_style:
            self.styles.append(data)


@pytest.fixture(scope="session")
def site(child_env):
    """Builds the site without a way to the net; any warning of MkDocs is an error."""
    env = {**child_env, "NO_MKDOCS_2_WARNING": "1"}
    env.pop("PYTHONWARNINGS")  # those of other people's plugins
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(SITE)],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return SITE


@pytest.fixture(scope="session")
def pages(site):
    """Every page of the site, by its path."""
    return {path: Page(path) for path in sorted(site.rglob("*.html"))}
