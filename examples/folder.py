"""An index that mirrors a folder of Markdown: ingest, search, change the folder, ingest again.

Unchanged files are skipped, changed ones replaced, vanished ones removed. A run that was stopped
is resumed by running it again.

It prints:

    2 written, 0 unchanged, 0 removed
    handbook/leave.md Leave > Carrying over 9 9
    0 written, 1 unchanged, 1 removed
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import ragchat

LEAVE = """\
# Leave

## How much

Employees get 25 days of paid leave.

## Carrying over

Up to five days carry over to March.
"""


async def mirror(index: ragchat.HybridIndex, folder: Path) -> None:
    report = await ragchat.ingest_directory(index, folder)
    print(f"{report.documents} written, {report.skipped} unchanged, {report.deleted} removed")


async def main(folder: Path) -> None:
    handbook = folder / "handbook"
    handbook.mkdir()
    (handbook / "leave.md").write_text(LEAVE, "utf-8")
    (handbook / "desks.md").write_text("# Desks\n\nDesks are booked a day ahead.\n", "utf-8")

    async with ragchat.open_index(folder / "kb.sqlite") as index:
        await mirror(index, handbook)
        found = await index.search("how many days carry over?", top_k=1)
        passage = found[0].passage
        print(passage.document_id, " > ".join(passage.headings), *passage.lines)

        (handbook / "desks.md").unlink()
        await mirror(index, handbook)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        asyncio.run(main(Path(temporary)))
