"""A small model helps to search: other wordings of the question, then a rerank of what they found.

Helper calls send a model name and messages, and no parameter that you did not set. If one fails,
the search goes on without it and `degraded` says so.

With what the model makes of it in place of the dots, it prints:

    searched: How many days of leave?
    searched: ...
    searched: ...
    ...: ... -> 1
    ...: ... -> 2
    skipped: []
"""

from __future__ import annotations

import asyncio

from openai import AsyncOpenAI, OpenAIError

import ragchat


async def main() -> None:
    index = ragchat.quickstart()
    await index.ingest(
        ragchat.Document("leave", "Employees get 25 days of paid leave a year."),
        ragchat.Document("sick", "Sick days are not counted as leave."),
        ragchat.Document("desk", "Desks are booked a day ahead."),
    )
    async with AsyncOpenAI() as client:
        small = ragchat.ChatModel(client.chat.completions.create, model="gpt-5-mini")
        preparer = ragchat.Preparer(
            index.retriever(
                top_k=2,
                expander=ragchat.MultiQueryExpander(small, n=2),
                rerank=ragchat.Rerank(ragchat.LLMReranker(small), pool=20),
                explain=True,
            )
        )
        prepared = await preparer.prepare(
            model="gpt-5", messages=[{"role": "user", "content": "How many days of leave?"}]
        )

    retrieval = prepared.retrieval
    for query in retrieval.queries:
        print("searched:", query.text)
    for rank, candidate in enumerate(retrieval.candidates, 1):
        moved = candidate.explain.rerank  # None if the rerank was skipped
        before = moved.rank_in if moved else rank
        print(f"{candidate.passage.document_id}: {before} -> {rank}")
    print("skipped:", [stage.stage for stage in retrieval.degraded])


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except OpenAIError as error:
        raise SystemExit(f"{error} Set OPENAI_API_KEY, and OPENAI_BASE_URL if need be.") from None
