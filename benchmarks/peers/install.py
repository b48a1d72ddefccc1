"""Puts ragchat's adapters into a copy of the benchmark kit for chat-RAG orchestration.

    python benchmarks/peers/install.py KIT

KIT is the folder with ``run.py``, ``worker.py``, ``mock.py`` and ``contestants.json``. Running it
again changes nothing more. What it changes is told in the README beside it.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CONTESTANTS = {
    "ragchat": {"venv": "ragchat", "module": "ragchat_classic"},
    "ragchat-planner": {"venv": "ragchat", "module": "ragchat_planner"},
    "ragchat-raw": {"venv": "ragchat", "module": "ragchat_raw"},
}
LINES = {
    "    if model == 'mock-expand-lines':": (
        "    if model == 'mock-plan': return json.dumps("
        "{'retrieve': True, 'query': c['standalone'], 'variants': c['variants']})\n"
    ),
    "    if model == 'mock-rerank-scores':": (
        "    if model == 'mock-rerank-index': return json.dumps({'scores': "
        "[{'index': d, 'score': round(1 - r / 20, 3)} for r, d in enumerate(c['order'])]})\n"
    ),
    "        if len(LOG) < 2000: LOG.append(('embed'": (
        "        import os\n"
        "        if 'EMBEDDINGS_WAIT' in os.environ: await asyncio.sleep(ms / 1000)\n"
    ),
}
"""What is put into the mock, by the line that it stands in front of."""


def install(kit: Path) -> None:
    """Copies the adapters, names the contestants and teaches the mock what it does not know.

    Raises:
        SystemExit: The folder is no kit, or its mock is another one than is known here.
    """
    listed, mock = kit / "contestants.json", kit / "mock.py"
    if not (listed.is_file() and mock.is_file()):
        raise SystemExit(f"{kit} is no copy of the kit")
    source = mock.read_text(encoding="utf-8")
    for before, line in LINES.items():
        if line not in source:
            if source.count(before) != 1:
                raise SystemExit(f"{mock} answers in another way than is known here")
            source = source.replace(before, line + before)
    _write(mock, source)
    for adapter in sorted((HERE / "adapters").glob("*.py")):
        shutil.copyfile(adapter, kit / "adapters" / adapter.name)
    contestants = json.loads(listed.read_text(encoding="utf-8"))
    lines = [f" {json.dumps(n)}: {json.dumps(c)}" for n, c in (contestants | CONTESTANTS).items()]
    _write(listed, "{" + ",\n".join(lines).lstrip() + "}\n")


def _write(path: Path, text: str) -> None:
    path.chmod(0o644)  # a kit may be shared read-only
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:  # noqa: PLR2004 - the script and the folder
        raise SystemExit(__doc__)
    install(Path(sys.argv[1]))
