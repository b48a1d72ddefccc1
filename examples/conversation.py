"""A follow-up that says nothing by itself finds its evidence through the turns before it.

No chat model is asked: earlier turns join the search as texts with a weight of their own, which is
what a `Preparer` does by default. `query_transformer=None` searches with the bare last turn.

It prints:

    the last turn alone: The second tour leaves at noon.
    with the conversation: Hiring a tandem is 30 euros a day; a second day is half price.
"""

from __future__ import annotations

import asyncio

import ragchat

DOCUMENTS = [
    ragchat.Document("tandem", "Hiring a tandem is 30 euros a day; a second day is half price."),
    ragchat.Document("cargo", "Hiring a cargo bike costs 40 euros a day."),
    ragchat.Document("room", "A second room is 90 euros a night."),
    ragchat.Document("tour", "The second tour leaves at noon."),
]
CONVERSATION = [
    {"role": "user", "content": "Can I hire a tandem?"},
    {"role": "assistant", "content": "Yes, you can hire a tandem for any number of days."},
    {"role": "user", "content": "And how much is it for the second one?"},
]


async def main() -> None:
    index = ragchat.quickstart()
    await index.ingest(*DOCUMENTS)
    retriever = index.retriever(top_k=1)

    for name, preparer in [
        ("the last turn alone", ragchat.Preparer(retriever, query_transformer=None)),
        ("with the conversation", ragchat.Preparer(retriever)),
    ]:
        prepared = await preparer.prepare(model="gpt-5", messages=CONVERSATION)
        print(f"{name}: {prepared.retrieval.candidates[0].passage.text}")


if __name__ == "__main__":
    asyncio.run(main())
