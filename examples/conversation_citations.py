"""Citation numbers that stay with their passages over a conversation.

The ledger is kept between the turns as JSON, as a web application would. The second turn finds
another passage, which gets the next number; the passage that the first answer cited is presented
again under its old number.

With answers of the model that cite the first passage of each prompt, it prints:

    How many days of paid leave are there? [1] leave.md
    answered with [1]
    Do they carry over? [1] leave.md, [2] carry.md
    answered with [2]
"""

from __future__ import annotations

import asyncio

from openai import AsyncOpenAI, OpenAIError

import ragchat

DOCUMENTS = [
    ragchat.Document("leave", "There are 25 days of paid leave.", source="leave.md"),
    ragchat.Document("carry", "Up to five carry over to March.", source="carry.md"),
]
QUESTIONS = ["How many days of paid leave are there?", "Do they carry over?"]


async def main() -> None:
    index = ragchat.quickstart()
    await index.ingest(*DOCUMENTS)
    # The last turn alone is searched, so that each turn finds one passage of its own.
    preparer = ragchat.Preparer(index.retriever(top_k=1), query_transformer=None, readmit=2)
    stored = ragchat.CitationLedger().to_json()
    messages = []

    async with AsyncOpenAI() as client:
        for question in QUESTIONS:
            messages.append({"role": "user", "content": question})
            ledger = ragchat.CitationLedger.from_json(stored)
            prepared = await preparer.with_options(ledger=ledger).prepare(
                model="gpt-5", messages=messages
            )
            presented = prepared.retrieval.citations
            print(question, ", ".join(f"[{n}] {p.source}" for n, p in presented.items()))

            reply = await prepared.call(client.chat.completions.create)
            (answer,) = prepared.answers(reply).choices
            print("answered with", *(f"[{number}]" for number in answer.cited))
            messages.append(answer.message)
            stored = prepared.retrieval.ledger.cite(answer.cited).to_json()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except OpenAIError as error:
        raise SystemExit(f"{error} Set OPENAI_API_KEY, and OPENAI_BASE_URL if need be.") from None
