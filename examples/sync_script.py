"""The same without `async`, for scripts and notebooks.

`ragchat.sync` runs everything on one background loop. A sync `create` is called in your own thread
and an async one on that loop; either will do.

With an answer of the model in place of the dots, it prints:

    ...
    [1] is carry.md
"""

from __future__ import annotations

from openai import OpenAI, OpenAIError

import ragchat
from ragchat import sync

MESSAGES = [{"role": "user", "content": "Can I carry leave over?"}]


def main() -> None:
    with OpenAI() as client, sync.open_index("memory://") as index:
        index.ingest(
            ragchat.Document("leave", "Employees get 25 days of paid leave.", source="leave.md"),
            ragchat.Document("carry", "Up to five days of leave carry over.", source="carry.md"),
        )
        preparer = sync.Preparer(index.retriever(top_k=1))
        prepared = preparer.prepare(model="gpt-5", messages=MESSAGES)

        with prepared.stream(client.chat.completions.create) as chunks:
            for chunk in chunks:
                if chunk.choices and (text := chunk.choices[0].delta.content):
                    print(text, end="", flush=True)
        print()
        print("[1] is", prepared.retrieval.citations.resolve("[1]").source)


if __name__ == "__main__":
    try:
        main()
    except OpenAIError as error:
        raise SystemExit(f"{error} Set OPENAI_API_KEY, and OPENAI_BASE_URL if need be.") from None
