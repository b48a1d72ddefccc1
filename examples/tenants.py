"""Two projects in one index: a filter narrows, a scope protects.

A filter is what the user asked for, and any form of it will do. A scope is the boundary that the
app sets; it is ANDed to everything, and no query, filter or stage can widen it.

It prints:

    all: ['gemini/restart', 'apollo/restart', 'apollo/rollback']
    filter: ['gemini/restart']
    recent: ['apollo/rollback']
    scope: ['apollo/restart', 'apollo/rollback']
    both: []
    removed: 0
"""

from __future__ import annotations

import asyncio

import ragchat

RUNBOOKS = [
    ragchat.Document(
        f"{project}/{title}", text, title=title, metadata={"project": project, "year": year}
    )
    for project, title, year, text in [
        ("apollo", "restart", 2025, "Restart the Apollo service with systemctl restart apollo."),
        ("apollo", "rollback", 2026, "Roll the Apollo service back with the deploy tool."),
        ("gemini", "restart", 2026, "Restart the Gemini service from its dashboard."),
    ]
]


def ids(found: ragchat.SearchResult) -> list[str]:
    return [candidate.passage.document_id for candidate in found]


async def main() -> None:
    index = ragchat.quickstart()
    await index.ingest(*RUNBOOKS)
    question = "restart the service"

    print("all:", ids(await index.search(question)))
    print("filter:", ids(await index.search(question, filter={"project": "gemini"})))

    recent = ragchat.Filter(ragchat.Eq("project", "apollo"), ragchat.Gte("year", 2026))
    print("recent:", ids(await index.search(question, filter=recent)))

    tenant = {"project": "apollo"}
    print("scope:", ids(await index.search(question, scope=tenant)))
    print("both:", ids(await index.search(question, scope=tenant, filter={"project": "gemini"})))
    print("removed:", await index.remove("gemini/restart", scope=tenant))


if __name__ == "__main__":
    asyncio.run(main())
