"""A model that calls tools: one retrieval for the user's turn, however many rounds follow.

`prepare` searches once and writes its evidence into the user's message; `with_messages` appends
each round and keeps it. Meanwhile the model stores, searches and deletes by tools of its own, whose
results go on with the numbers of the evidence. A scripted model stands in for yours.

It prints:

    rag_ingest: {"file_id": "rule", "status": "stored", "passages": 1}
    rag_search: [2] in rule.md
    rag_delete: {"deleted": 1}
    You get 25 days [1], and five may be carried over [2].
    retrievals: 1, calls: 4, cited: ['leave.md', 'rule.md']
"""

from __future__ import annotations

import asyncio
import json

import ragchat
from ragchat.testing import Reply, ScriptedChatModel, tool_call

NOTE = {"corpus": "notes", "file_id": "rule"}
ROUNDS = [
    ("rag_ingest", {**NOTE, "filename": "rule.md", "text": "Five days may be carried over."}),
    ("rag_search", {"corpus": "notes", "query": "days carried over", "top_k": 1}),
    ("rag_delete", NOTE),
]


async def main() -> None:
    index = ragchat.quickstart()
    await index.ingest(ragchat.Document("leave", "You get 25 days of leave.", source="leave.md"))
    tools = ragchat.RagTools(index, corpora=["notes"])
    calls = [Reply(tool_calls=[tool_call(name, json.dumps(given))]) for name, given in ROUNDS]
    model = ScriptedChatModel([*calls, "You get 25 days [1], and five may be carried over [2]."])

    prepared = await ragchat.Preparer(index.retriever(top_k=1)).prepare(
        model="any",
        tools=tools.definitions,
        messages=[{"role": "user", "content": "How many days of leave do I get?"}],
    )
    tools = tools.after(prepared.retrieval.citations)
    message = (await prepared.call(model.create)).choices[0].message
    while message.tool_calls:
        said = await tools.answer(message)
        shown = "[2] in rule.md" if '"citation":2' in said[1]["content"] else said[1]["content"]
        print(f"{message.tool_calls[0].function.name}: {shown}")
        prepared = prepared.with_messages(said, shown=tools.citations)
        message = (await prepared.call(model.create)).choices[0].message

    print(message.content)
    cited = [p.source for p in prepared.retrieval.citations.cited(message.content).values()]
    searches = len(prepared.retrieval.trace.of("retrieve"))
    print(f"retrievals: {searches}, calls: {len(model.calls)}, cited: {cited}")


if __name__ == "__main__":
    asyncio.run(main())
