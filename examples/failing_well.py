"""An enhancement that fails is skipped, visibly; with a strict policy it is an error.

Filters, scopes, budgets and citation numbers never degrade.

It prints:

    found: ['Tea is grown in the hills.']
    skipped: [('rerank', 'ConnectionError')]
    strict: no route to the reranker
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import ragchat

MESSAGES = [{"role": "user", "content": "Where is tea grown?"}]


async def unreachable(*_: object) -> list[float]:
    raise ConnectionError("no route to the reranker")


async def main() -> None:
    logging.getLogger("ragchat").addHandler(logging.NullHandler())  # it would warn on stderr
    index = ragchat.quickstart()
    await index.ingest(ragchat.Document("tea", "Tea is grown in the hills."))
    preparer = ragchat.Preparer(index.retriever(rerank=unreachable))

    prepared = await preparer.prepare(model="gpt-5", messages=MESSAGES)
    print("found:", [candidate.passage.text for candidate in prepared.retrieval.candidates])
    print("skipped:", [(skip.stage, skip.reason) for skip in prepared.retrieval.degraded])

    strict = replace(preparer, policy=ragchat.Policy.strict())
    try:
        await strict.prepare(model="gpt-5", messages=MESSAGES)
    except ConnectionError as error:
        print("strict:", error)


if __name__ == "__main__":
    asyncio.run(main())
