"""A streamed answer, then the sources that it cites.

The provider's own chunks come through unchanged. Leaving the `async with` block closes the
connection at once, also on `break`, an exception or a cancelled task.

With an answer of the model that cites `[1]` in place of the dots, it prints:

    ...
    [1] carry.md, lines 1-3
"""

from __future__ import annotations

import asyncio

from openai import AsyncOpenAI

import ragchat

CARRY = """\
Up to five days of leave carry over to March.

Days that are left in April are lost.
"""


async def main() -> None:
    index = ragchat.quickstart()
    await index.ingest(ragchat.Document("carry", CARRY, source="carry.md"))
    preparer = ragchat.Preparer(index.retriever())

    async with AsyncOpenAI() as client:
        prepared = await preparer.prepare(
            model="gpt-5", messages=[{"role": "user", "content": "Can leave carry over?"}]
        )
        answer = ""
        async with prepared.stream(client.chat.completions.create) as chunks:
            async for chunk in chunks:
                if chunk.choices and (text := chunk.choices[0].delta.content):
                    print(text, end="", flush=True)
                    answer += text
        print()

    citations = prepared.retrieval.citations
    for mention in citations.find(answer):  # what looks like a citation in code or links is none
        for number in mention.numbers:
            passage = citations.resolve(number)
            print(f"[{number}] {passage.source}, lines {passage.lines.start}-{passage.lines.end}")


if __name__ == "__main__":
    asyncio.run(main())
