"""What the evidence block costs beside the texts that it presents, in tokens of o200k_base.

    python benchmarks/overhead.py --data ../shared/data [--collection python-docs]

Every question of the collection is searched by keywords in an index whose splitter cuts passages
of the given size, and the top passages are encoded as `ContextualAugmenter` does. Overhead is the
block's tokens over those of the passages' texts, less one. A document's source is the part of its
id before "#" (in python-docs the file of a section), so that every document has title and source.
"""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import ragchat
from ragchat.evidence import Evidence, encode
from ragchat_retrieval.evaluation import load_collection
from ragchat_retrieval.tokens import count_tokens

if TYPE_CHECKING:
    from ragchat.evidence import Encoding
    from ragchat_retrieval.evaluation import Collection

HERE = Path(__file__).resolve().parent
PROFILES = ((512, 64), (224, 32), (128, 16), (64, 8))
"""Size and overlap: the default without an embedder, that of the local one, and smaller ones."""

ENCODINGS: tuple[Encoding, ...] = ("json", "fenced")


async def measure(
    found: Collection, profile: tuple[int, int], top_k: int
) -> tuple[float, dict[str, float]]:
    """Returns the mean tokens of a passage, and the overhead by encoding as a share."""
    index = ragchat.HybridIndex(splitter=ragchat.TextSplitter(*profile))
    async with index:
        await index.ingest(*(replace(d, source=d.id.partition("#")[0]) for d in found.documents()))
        rows = await index.search_batch([topic.query for topic in found.topics], top_k=top_k)
    shown, passages, spent = 0, 0, dict.fromkeys(ENCODINGS, 0)
    for row in filter(len, rows):
        evidence = [Evidence(n, c.passage, c.passage.text) for n, c in enumerate(row, start=1)]
        shown += sum(count_tokens(item.content) for item in evidence)
        passages += len(evidence)
        for encoding in ENCODINGS:
            spent[encoding] += count_tokens(encode(evidence, encoding))
    return shown / passages, {name: tokens / shown - 1 for name, tokens in spent.items()}


def main() -> None:
    """Runs the benchmark and prints its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=HERE.parent.parent / "shared" / "data")
    parser.add_argument("--collection", default="python-docs")
    parser.add_argument("--top-k", type=int, default=5)
    args = parser.parse_args()
    found = load_collection(args.data / args.collection)
    print("| size, overlap | tokens a passage | " + " | ".join(ENCODINGS) + " |")
    print("|---" * (len(ENCODINGS) + 2) + "|")
    for profile in PROFILES:
        mean, shares = asyncio.run(measure(found, profile, args.top_k))
        cells = [f"{profile[0]}, {profile[1]}", f"{mean:.0f}"]
        print("| " + " | ".join([*cells, *(f"{share:.1%}" for share in shares.values())]) + " |")


if __name__ == "__main__":
    main()
