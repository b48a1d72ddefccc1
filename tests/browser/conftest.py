"""A real browser for the tests of the page, and the site that it visits.

``make test-browser`` brings what they need: Playwright, Chromium of the distribution, and some npm
packages in the folder ``.node``.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NODE_MODULES = HERE.parents[1] / ".node" / "node_modules"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def load(name):
    """Imports a module beside this one; test folders are no packages."""
    if (found := sys.modules.get(f"browser_{name}")) is not None:
        return found
    spec = importlib.util.spec_from_file_location(f"browser_{name}", HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


sites = load("site")


@pytest.fixture(scope="session")
def chromium():
    """The program."""
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("there is no Chromium on this machine: apt-get install chromium")
    return found


@pytest.fixture(scope="session")
def browser(chromium):
    """Chromium without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield running
        running.close()


@pytest.fixture(scope="session")
def node_modules():
    """The folder with the npm packages."""
    if shutil.which("node") is None:
        pytest.skip("there is no Node.js on this machine")
    if not NODE_MODULES.is_dir():
        pytest.skip("the npm packages are not there: make test-browser brings them")
    return NODE_MODULES


@pytest.fixture
def site():
    """The site, which a test may change before it visits it."""
    return sites.Site()


@pytest.fixture
def url(site, serving):
    """The site's address; what waits in it goes on at the end."""
    with serving(site.app(), before_end=site.gate.set) as address:
        yield address


@pytest.fixture
def visit(browser, url):
    """Opens the page, with options of a browser context; checks at the end that all went well."""
    contexts, visits = [], []

    def opened(**options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        context.set_default_timeout(60_000)
        contexts.append(context)
        page = context.new_page()
        visits.append(sites.Visit(page, url))
        page.goto(url)
        page.wait_for_selector("#welcome:not([hidden])")
        return page

    yield opened
    for context in contexts:
        context.close()
    for one in visits:
        assert not one.errors
        assert not one.foreign
