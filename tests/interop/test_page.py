"""Every block of the page for those who come from another library runs."""

from __future__ import annotations

import gc
import importlib.util
import sys
from pathlib import Path

import pytest

from ragchat.testing import LoopbackOpenAI

ROOT = Path(__file__).parents[2]


def load(name):
    """Imports a module of the tests of pages; test folders are no packages."""
    spec = importlib.util.spec_from_file_location(f"pages_{name}", ROOT / f"tests/docs/{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


# Clients that the other libraries open and keep.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_the_blocks_of_the_page_run_in_order(tmp_path, monkeypatch):
    """Its outputs are those of the blocks."""
    blocks, reply = load("blocks"), load("conftest").reply
    monkeypatch.chdir(tmp_path)
    with LoopbackOpenAI(default=reply) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "loopback")
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_BASE", server.base_url)  # LlamaIndex reads this one
        page = blocks.blocks_of(ROOT / "docs/coming-from.md")
        await blocks.run_python([block for block in page if block.language == "python"])
        gc.collect()  # what they left open is warned of here, not in another test
