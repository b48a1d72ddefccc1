"""What the OpenAPI document says of bodies that the routes read themselves, and of failures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ragchat.access import Foreign


class ErrorDetail(BaseModel):
    """What went wrong."""

    message: str
    type: str | None = None
    param: str | None = None
    code: str | int | None = None


class ErrorBody(BaseModel):
    """The body of every failure."""

    error: ErrorDetail


_SAID = {
    400: "The request is not one that can be served",
    401: "A valid API key is needed",
    403: "Not from this origin",
    404: "There is no such thing inside the key's corpus and scope",
    408: "The body did not come in time",
    409: "The corpus or the document is not what the request takes it for",
    413: "Too large",
    415: "Not a kind of body that is read here",
    429: "Too many requests",
    502: "The chat model's server failed",
    503: "The store or the embedder is not available",
    504: "Not done in time",
}

_EVENT = {
    "type": "object",
    "required": ["data"],
    "properties": {"data": {"type": "string"}, "event": {"type": "string"}},
}

STREAMED: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": _EVENT}}}
}
"""The answer of a route that can stream it."""


def failures(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Returns the failures of a route."""
    said = {403: _SAID[403], **{status: _SAID[status] for status in statuses}}
    return {status: {"model": ErrorBody, "description": text} for status, text in said.items()}


def body_of(model: type[BaseModel]) -> dict[str, Any]:
    """Returns the description of a JSON body."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    return {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": _flat(schema)}},
        }
    }


def _flat(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Puts a schema's definitions where they are used: ours are not recursive."""
    definitions = schema.get("$defs", {})

    def put(value: Foreign) -> Foreign:
        if isinstance(value, list):
            return [put(item) for item in value]
        if not isinstance(value, dict):
            return value
        if "$ref" in value:
            return put(definitions[value["$ref"].rpartition("/")[2]])
        return {name: put(item) for name, item in value.items() if name != "$defs"}

    flat: dict[str, Any] = put(schema)
    return flat
