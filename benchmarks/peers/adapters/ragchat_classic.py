"""ragchat through the openai client: condense, expand, rerank, as the floor does."""

from __future__ import annotations

from adapters.ragchat_core import Core
from openai import AsyncOpenAI

import ragchat


class Adapter(Core):
    """The classic path."""

    name = "ragchat"
    planned = False

    def connect(self, base_url: str) -> None:
        """Makes the clients and the preparer."""
        self.client = AsyncOpenAI(base_url=base_url, api_key="x")
        embedder = ragchat.OpenAIEmbedder("emb", client=self.client, dimension=self.dimension)
        self.assemble(self.client.chat.completions.create, embedder, planned=self.planned)

    async def aclose(self) -> None:
        """Closes the client."""
        await self.client.close()
