"""Any function of a query is a retriever, and any function like `create` is a chat model.

Here the evidence comes from a plain function, `IdentityAugmenter` leaves the message as it is, and
the model is scripted, so that nothing leaves the machine: the shape of a test of your own app.

It prints:

    It costs 30 euros.
    1 candidate
    sent: [{'role': 'user', 'content': 'What does a tandem cost?'}]
"""

from __future__ import annotations

import asyncio

import ragchat
from ragchat.testing import ScriptedChatModel

PRICES = {"tandem": "A tandem costs 30 euros a day.", "city bike": "A city bike costs 12 euros."}


def look_up(query: ragchat.Query) -> list[ragchat.Candidate]:
    """A sync function runs in a worker thread, an `async def` on the loop."""
    return [
        ragchat.Candidate(ragchat.Passage(text, document_id=name), 1.0)
        for name, text in PRICES.items()
        if name in query.text.lower()
    ]


async def main() -> None:
    model = ScriptedChatModel(["It costs 30 euros."])
    preparer = ragchat.Preparer(look_up, augmenter=ragchat.IdentityAugmenter())

    prepared = await preparer.prepare(
        model="any", messages=[{"role": "user", "content": "What does a tandem cost?"}]
    )
    reply = await prepared.call(model.create)

    print(reply.choices[0].message.content)
    print(len(prepared.retrieval.candidates), "candidate")
    print("sent:", model.calls[0]["messages"])


if __name__ == "__main__":
    asyncio.run(main())
