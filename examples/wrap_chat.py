"""Evidence in front of a chat completion call that you already make.

`prepare` takes what `create` takes, and `call` returns what `create` returns. The message list is
not touched. Set OPENAI_API_KEY, and OPENAI_BASE_URL for any other server that speaks the protocol.

With an answer of the model in place of the dots, it prints:

    ...
    [1] is leave.md
"""

from __future__ import annotations

import asyncio

from openai import AsyncOpenAI, OpenAIError

import ragchat

MESSAGES = [{"role": "user", "content": "How many days of leave do I get?"}]


async def main() -> None:
    async with AsyncOpenAI() as client, ragchat.open_index("kb.sqlite") as index:
        await index.ingest(
            ragchat.Document("leave", "Employees get 25 days of paid leave.", source="leave.md")
        )
        preparer = ragchat.Preparer(index.retriever(top_k=5))

        prepared = await preparer.prepare(model="gpt-5", messages=MESSAGES)
        reply = await prepared.call(client.chat.completions.create)

        print(reply.choices[0].message.content)
        print("[1] is", prepared.retrieval.citations.resolve("[1]").source)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except OpenAIError as error:
        raise SystemExit(f"{error} Set OPENAI_API_KEY, and OPENAI_BASE_URL if need be.") from None
