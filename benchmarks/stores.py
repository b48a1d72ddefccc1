"""Whether every store ranks alike: nDCG@10 of both lanes and the hybrid, store by store.

    python benchmarks/stores.py --data ../shared/data [--only cranfield] [--stores memory,qdrant]

As ``quality.py``: whole collections, one passage per document, the local embedding model with its
cache, questions as they stand. The first store is what the others are compared with. In an
environment with all extras. Qdrant is the server at ``QDRANT_URL``, or else the client's own
engine, which takes seconds a question: ``--limit 25`` asks the first ones only. OpenSearch is a
node made as for the tests, which takes a JDK and Maven.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
import time
from pathlib import Path

from opened import STORES
from quality import HERE, RANKINGS, cell, measure

COLLECTIONS = ("scifact", "cranfield", "python-docs")


def main() -> None:
    """Runs the benchmark and prints its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=HERE.parent.parent / "shared" / "data")
    parser.add_argument("--only", default=",".join(COLLECTIONS), help="comma-separated")
    parser.add_argument("--stores", default=",".join(STORES), help="comma-separated")
    parser.add_argument("--limit", type=int, help="only the first questions")
    args = parser.parse_args()
    figures = {}
    for store in args.stores.split(","):
        start, args.store = time.perf_counter(), store
        figures[store] = asyncio.run(measure(args))["collections"]
        print(f"{store}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
    first, *others = figures
    print(f"| collection | ranking | {' | '.join(figures)} |")
    print("|---" * (len(figures) + 2) + "|")
    apart: dict[str, list[float]] = {name: [] for name in others}
    for name in args.only.split(","):
        for ranking in RANKINGS:
            row = {store: figures[store][name][ranking] for store in figures}
            print(f"| {name} | {ranking} | {' | '.join(map(cell, row.values()))} |")
            for store in others:
                apart[store].append(abs(row[store] / row[first] - 1))
    for store, values in apart.items():
        told = [value for value in values if not math.isnan(value)]
        print(f"\n{store}: at most {max(told):.2%} from {first}")


if __name__ == "__main__":
    main()
