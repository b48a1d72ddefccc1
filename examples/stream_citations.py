"""A streamed answer whose citations become links while it streams, then the sources that it cites.

The sources come before the first word. A marker is an event as soon as it is certain; text that
could still become one waits, at most 64 characters of it. Leaving the `async with` block closes the
connection at once, also on `break`, an exception or a cancelled task.

With an answer of the model that cites `[1]` in place of the dots, it prints:

    1 source may be cited.
    ... [1](ragchat:document/carry#L1-L3)
    cited: [1] carry.md, lines 1-3
"""

from __future__ import annotations

import asyncio

from openai import AsyncOpenAI, OpenAIError

import ragchat

CARRY = """\
Up to five days of leave carry over to March.

Days that are left in April are lost.
"""


async def main() -> None:
    index = ragchat.quickstart()
    await index.ingest(ragchat.Document("carry", CARRY, source="carry.md"))
    preparer = ragchat.Preparer(index.retriever())
    folding = ragchat.EventFold()

    async with AsyncOpenAI() as client:
        prepared = await preparer.prepare(
            model="gpt-5", messages=[{"role": "user", "content": "Can leave carry over?"}]
        )
        async with prepared.events(client.chat.completions.create, citations="link") as events:
            async for event in events:
                folding.add(event)
                if isinstance(event, ragchat.Sources):
                    print(len(event.presented), "source may be cited.")
                if isinstance(event, ragchat.TextDelta):
                    print(event.text, end="", flush=True)
        print()

    (answer,) = folding.answers.choices  # the same as `prepared.answers(…)` makes of a call
    for number, passage in answer.cited.items():
        lines = passage.lines
        print(f"cited: [{number}] {passage.source}, lines {lines.start}-{lines.end}")


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except OpenAIError as error:
        raise SystemExit(f"{error} Set OPENAI_API_KEY, and OPENAI_BASE_URL if need be.") from None
