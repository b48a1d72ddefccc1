"""An MCP server (Model Context Protocol) over `RagTools`. Needs the extra ``mcp``.

Its tools are those of `RagTools`, schemas and handlers as they are. Documents and passages are
resources:

    ragchat://CORPUS/DOCUMENT            a document's text
    ragchat://CORPUS/DOCUMENT#PASSAGE    one passage of it

where each part is a name or id, percent-encoded as a whole. ``rag_search`` links the passages that
it shows.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from ragchat_retrieval.errors import InvalidSetting, MissingExtra

try:
    from mcp import MCPError
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server
    from mcp.types import (
        INVALID_PARAMS,
        CallToolResult,
        ListResourcesResult,
        ListResourceTemplatesResult,
        ListToolsResult,
        ReadResourceResult,
        Resource,
        ResourceLink,
        ResourceTemplate,
        TextContent,
        TextResourceContents,
        Tool,
        ToolAnnotations,
    )
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "mcp":
        raise
    raise MissingExtra("mcp", "the MCP server") from None

if TYPE_CHECKING:
    from typing import Any

    from mcp.server import ServerRequestContext
    from mcp.types import (
        CallToolRequestParams,
        PaginatedRequestParams,
        ReadResourceRequestParams,
    )

    from ragchat.tools import RagTools
    from ragchat_retrieval.index import HybridIndex
    from ragchat_retrieval.values import Passage

    Context = ServerRequestContext[Any]

__all__ = ["ResourceName", "create_server", "serve_stdio"]

PAGE = 100
"""Most resources in one answer to ``resources/list``."""

SCHEME = "ragchat://"
PLAIN = "text/plain"

_READS = frozenset({"rag_search"})
_HINTS = {
    "rag_search": ToolAnnotations(read_only_hint=True, open_world_hint=False),
    "rag_ingest": ToolAnnotations(
        read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
    ),
    "rag_delete": ToolAnnotations(
        read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
    ),
}
_TEMPLATES = [
    ResourceTemplate(
        name="document",
        description="The text of a document, by corpus and id.",
        uri_template="ragchat://{corpus}/{document}",
        mime_type=PLAIN,
    ),
    ResourceTemplate(
        name="passage",
        description="One passage of a document, as rag_search links it.",
        uri_template="ragchat://{corpus}/{document}#{passage}",
        mime_type=PLAIN,
    ),
]


class ResourceName(NamedTuple):
    """What a resource's URI says."""

    corpus: str
    document: str
    passage: str = ""
    """A passage's id; empty for the document as a whole."""

    @classmethod
    def parse(cls, uri: str) -> ResourceName | None:
        """Reads a URI; None if it is none of ours, not percent-encoded UTF-8, or holds NUL."""
        scheme, found, rest = uri.partition(SCHEME)
        place, fragment, passage = rest.partition("#")
        corpus, slash, document = place.partition("/")
        if scheme or not found or not slash:
            return None
        try:
            name = cls(*(unquote_to_bytes(part).decode() for part in (corpus, document, passage)))
        except ValueError:  # UTF-8, and lone surrogates
            return None
        whole = name.corpus and name.document and (name.passage or not fragment)
        return name if whole and not any("\0" in part for part in name) else None

    def __str__(self) -> str:
        corpus, document, passage = (quote(part, safe="") for part in self)
        return f"{SCHEME}{corpus}/{document}" + (f"#{passage}" if passage else "")


def create_server(tools: RagTools, *, read_only: bool = False) -> Server[Any]:
    """Returns a server of the official SDK, for any of its transports.

    It is one conversation: passages are numbered on over all searches, as `RagTools` does.

    Args:
        tools: What a client may use. Their scope bounds the resources too; their corpora, which
            must be named, are those whose documents are listed.
        read_only: Offer ``rag_search`` alone.

    Raises:
        InvalidSetting: `tools` are for any corpus.
    """
    if tools.corpora is None:
        raise InvalidSetting("corpora", "must be named for an MCP server")
    handlers = _Handlers(tools, tools.corpora, read_only=read_only)
    return Server(
        "ragchat",
        version=version("ragchat-toolkit"),
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_templates,
        on_read_resource=handlers.read,
    )


async def serve_stdio(server: Server[Any]) -> None:
    """Serves one client over stdin and stdout, until stdin ends."""
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


class _Handlers:
    """What the server answers."""

    def __init__(self, tools: RagTools, corpora: tuple[str, ...], *, read_only: bool) -> None:
        self._tools = tools
        self._corpora = corpora
        functions = [definition["function"] for definition in tools.definitions]
        self._offered = {
            function["name"]: Tool(
                name=function["name"],
                description=function["description"],
                input_schema=function["parameters"],
                annotations=_HINTS[function["name"]],
            )
            for function in functions
            if not read_only or function["name"] in _READS
        }

    async def list_tools(
        self, _context: Context, _params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        return ListToolsResult(tools=list(self._offered.values()))

    async def call_tool(self, _context: Context, params: CallToolRequestParams) -> CallToolResult:
        if params.name not in self._offered:
            raise MCPError(INVALID_PARAMS, f"unknown tool; there are {', '.join(self._offered)}")
        result = await self._tools.run(params.name, params.arguments or {})
        links = [
            _link(result.corpus, number, passage) for number, passage in result.citations.items()
        ]
        text = TextContent(type="text", text=result.content)
        return CallToolResult(content=[text, *links], is_error=result.failed)

    async def list_resources(
        self, _context: Context, params: PaginatedRequestParams | None
    ) -> ListResourcesResult:
        """Lists documents by corpus and id, a page at a time; a cursor is the last one's URI."""
        cursor = params.cursor if params else None
        last = None if cursor is None else ResourceName.parse(cursor)
        if cursor is not None and (last is None or last.corpus not in self._corpora):
            raise MCPError(INVALID_PARAMS, "the cursor is none of this server's")
        begun = 0 if last is None else self._corpora.index(last.corpus)
        names: list[ResourceName] = []
        for corpus in self._corpora[begun:]:
            ids = await self._index(corpus).document_ids(scope=self._tools.scope)
            after = last.document if last is not None and last.corpus == corpus else ""
            names += [ResourceName(corpus, each) for each in ids if each > after]
            if len(names) > PAGE:
                break
        page = names[:PAGE]
        return ListResourcesResult(
            resources=[Resource(uri=str(n), name=n.document, mime_type=PLAIN) for n in page],
            next_cursor=str(page[-1]) if len(names) > PAGE else None,
        )

    async def list_templates(
        self, _context: Context, _params: PaginatedRequestParams | None
    ) -> ListResourceTemplatesResult:
        return ListResourceTemplatesResult(resource_templates=_TEMPLATES)

    async def read(
        self, _context: Context, params: ReadResourceRequestParams
    ) -> ReadResourceResult:
        name = ResourceName.parse(params.uri)
        text = None if name is None else await self._text(name)
        if text is None:
            # What lies out of bounds is answered as what does not exist.
            raise MCPError(INVALID_PARAMS, "there is no such resource", {"uri": params.uri})
        content = TextResourceContents(uri=params.uri, mime_type=PLAIN, text=text)
        return ReadResourceResult(contents=[content])

    async def _text(self, name: ResourceName) -> str | None:
        if name.corpus not in self._corpora:
            return None
        store, scope = self._index(name.corpus).store, self._tools.scope
        if not name.passage:
            document = await store.document(name.document, scope=scope)
            return None if document is None else document.text
        passage = (await store.get([name.passage], scope=scope)).get(name.passage)
        if passage is None or passage.document_id != name.document:
            return None
        return passage.text

    def _index(self, corpus: str) -> HybridIndex:
        return self._tools.index.corpus(corpus)


def _link(corpus: str, number: int, passage: Passage) -> ResourceLink:
    return ResourceLink(
        uri=str(ResourceName(corpus, passage.document_id, passage.id)),
        name=f"[{number}] {passage.title or passage.source or passage.document_id}",
        mime_type=PLAIN,
    )
