"""Checks an answer against its sources: what is supported, by which sentence, what is not.

No chat model is asked: words, phrases and numbers are compared. `embedder=` would add meaning.

It prints:

    supported: Employees get 25 days of paid leave.
      handbook, 14-50: Employees get 25 days of paid leave.
    weak: Unused days expire in June.
      handbook, 51-79: Unused days expire in March.
    uncited: Sabbaticals last six months.
    cited, but not there: 4
"""

from __future__ import annotations

import asyncio

import ragchat

HANDBOOK = "# Paid leave\n\nEmployees get 25 days of paid leave. Unused days expire in March.\n"
ANSWER = (
    "Employees get 25 days of paid leave [1]. Unused days expire in June [1][4]. "
    "Sabbaticals last six months."
)


async def main() -> None:
    index = ragchat.quickstart()
    await index.ingest(ragchat.Document("handbook", HANDBOOK))
    preparer = ragchat.Preparer(index.retriever(top_k=1))
    prepared = await preparer.prepare(
        model="any", messages=[{"role": "user", "content": "How long is paid leave?"}]
    )

    checked = await ragchat.verify(ANSWER, prepared.retrieval.citations)
    for claim in checked.claims:
        print(f"{claim.status}: {claim.text}")
        for support in claim.supports:
            source = prepared.retrieval.citations[support.citation].document_id
            if support.span is not None:
                start, end = support.span
                print(f"  {source}, {start}-{end}: {HANDBOOK[start:end]}")
    print("cited, but not there:", *checked.unknown)


if __name__ == "__main__":
    asyncio.run(main())
