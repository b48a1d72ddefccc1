"""One plan instead of a rewrite and an expansion, and no model call at all for small talk.

It asks the chat model that `OPENAI_API_KEY` and `OPENAI_BASE_URL` name. It prints:

    small talk: gate, 0 model calls
    a question: 2 queries, 1 model call
"""

from __future__ import annotations

import asyncio

from openai import AsyncOpenAI, OpenAIError

import ragchat

DOCUMENTS = [
    ragchat.Document("tandem", "Hiring a tandem is 30 euros a day; a second day is half price."),
    ragchat.Document("cargo", "Hiring a cargo bike costs 40 euros a day."),
]
CONVERSATION = [
    {"role": "user", "content": "Can I hire a tandem?"},
    {"role": "assistant", "content": "Yes, you can hire a tandem for any number of days."},
]


def asked(retrieval: ragchat.Retrieval) -> int:
    """Counts the calls of the chat model; embeddings are among the calls too."""
    return sum(call.operation == "chat" for call in retrieval.trace.calls)


async def main() -> None:
    index = ragchat.quickstart()
    await index.ingest(*DOCUMENTS)
    async with AsyncOpenAI() as client:
        small = ragchat.ChatModel(client.chat.completions.create, model="gpt-5-mini")
        preparer = ragchat.Preparer(
            index.retriever(top_k=1),
            gate=ragchat.RetrievalGate(),
            query_transformer=ragchat.QueryPlanner(small, variants=1),
        )

        async def retrieve(text: str) -> ragchat.Retrieval:
            messages = [*CONVERSATION, {"role": "user", "content": text}]
            return (await preparer.prepare(model="gpt-5", messages=messages)).retrieval

        thanks = await retrieve("Great, thanks!")
        print(f"small talk: {thanks.skipped}, {asked(thanks)} model calls")
        found = await retrieve("And how much is it?")
        print(f"a question: {len(found.queries)} queries, {asked(found)} model call")


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except OpenAIError as error:
        raise SystemExit(f"{error} Set OPENAI_API_KEY, and OPENAI_BASE_URL if need be.") from None
