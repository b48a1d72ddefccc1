"""What pages and examples may count on when their code runs in the tests.

- The current folder is empty.
- ``AsyncOpenAI()`` and ``OpenAI()`` reach a server on this machine. Asked to answer, it cites the
  first source by its number: ``According to the documents: <its first sentence> [1]``. Asked for
  other wordings, scores, a plan or a rewritten question, it answers in the form that was asked for.
- No setting of ragchat is set, so the embedder is the local model.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ragchat.testing import LoopbackOpenAI

ROOT = Path(__file__).parents[2]
TOP = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES = sorted([*TOP, ROOT / "examples/README.md", *(ROOT / "docs").rglob("*.md")])
ELSEWHERE = {ROOT / "docs/coming-from.md"}  # run by tests/interop, with the libraries
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))

_ARRAY = re.compile(r"\[\s*\{")


def reply(request):
    """Answers a request as a small but willing model would."""
    prompt = request.json["messages"][-1]["content"]
    if not isinstance(prompt, str):
        prompt = "\n".join(part.get("text", "") for part in prompt)
    evidence = _evidence(prompt)
    asked = re.search(r"Question, as a JSON string:\n(.*)\n", prompt)
    if '{"scores"' in prompt:
        scores = [{"index": n, "score": round(1 / (n + 1), 3)} for n in range(len(evidence))]
        return json.dumps({"scores": scores})
    if '{"queries"' in prompt:
        number = int(re.search(r"exactly (\d+) wordings", prompt)[1])
        return json.dumps({"queries": [f"{json.loads(asked[1])} ({n})" for n in range(number)]})
    if '{"retrieve"' in prompt:
        said = re.search(r"New message, as a JSON string:\n(.*)\n", prompt)
        number = int((re.search(r'"variants": (\d+)', prompt) or ["", "0"])[1])
        question = json.loads(said[1])
        variants = [f"{question} ({n})" for n in range(number)]
        return json.dumps({"retrieve": True, "query": question, "variants": variants})
    if '{"query"' in prompt:
        return json.dumps({"query": json.loads(asked[1])})
    if evidence:
        first = re.split(r"(?<=[.!?])\s", str(evidence[0].get("content", "")))[0]
        return f"According to the documents: {first} [{evidence[0].get('citation', 1)}]"
    return "I do not know."


def _evidence(prompt):
    for match in _ARRAY.finditer(prompt):
        try:
            items, _ = json.JSONDecoder().raw_decode(prompt, match.start())
        except ValueError:
            continue
        return items
    return []


@pytest.fixture
def server():
    """A loopback server that answers as the module says."""
    with LoopbackOpenAI(default=reply) as running:
        yield running


@pytest.fixture
def reader(server, tmp_path, monkeypatch):
    """Puts the test into a reader's place: an empty folder, a key, a base URL."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "loopback")
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    return tmp_path
