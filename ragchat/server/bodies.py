"""What clients send, checked at the edge."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ragchat.server.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

    from ragchat.access import Foreign

Model = TypeVar("Model", bound=BaseModel)

_HALF = re.compile(r"\\u[dD][89a-fA-F]")
_MOST_ID = 1024


class ChatOptions(BaseModel):
    """What a chat request may ask of the retrieval."""

    model_config = ConfigDict(extra="forbid", strict=True)

    filter: dict[str, Any] | list[dict[str, Any]] | None = Field(
        default=None,
        description="Metadata that passages must have: a mapping, or a list of conditions.",
    )
    top_k: int | None = Field(default=None, ge=1, description="Most passages.")
    sources_event: bool = Field(
        default=False, description="Sends the sources first, as a chunk without choices."
    )


class ChatMessage(BaseModel):
    """A message of a chat request; further fields reach the model as they are."""

    model_config = ConfigDict(extra="allow", strict=True)

    role: Literal["developer", "system", "user", "assistant", "tool", "function"]
    content: str | list[dict[str, Any]] | None = None


class ChatBody(BaseModel):
    """A chat request; every further parameter of the API reaches the model as it is."""

    model_config = ConfigDict(extra="allow", strict=True)

    messages: list[ChatMessage] = Field(min_length=1)
    model: str | None = Field(
        default=None, description="Any name: the model that the server is configured with answers."
    )
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    ragchat: ChatOptions | None = None


class SearchBody(BaseModel):
    """A search."""

    model_config = ConfigDict(extra="forbid", strict=True)

    query: str = Field(min_length=1, max_length=100_000)
    top_k: int | None = Field(default=None, ge=1, description="Most passages.")
    filter: dict[str, Any] | list[dict[str, Any]] | None = None
    explain: bool = Field(default=False, description="Says what each lane made of each passage.")


class DocumentBody(BaseModel):
    """A document to write; it replaces the one of the same id."""

    model_config = ConfigDict(extra="forbid", strict=True)

    text: str
    title: str | None = None
    source: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)


class AnswerBody(BaseModel):
    """A turn of the page's conversation."""

    model_config = ConfigDict(extra="forbid", strict=True)

    messages: list[ChatMessage] = Field(min_length=1)
    filter: dict[str, Any] | list[dict[str, Any]] | None = None
    top_k: int | None = Field(default=None, ge=1)


DocumentID = Annotated[str, Field(min_length=1, max_length=_MOST_ID)]


async def read_body(request: Request, model: type[Model]) -> tuple[dict[str, Any], Model]:
    """Returns a JSON body as it came and as it was read.

    Raises:
        Problem: 400 or 415: it is no JSON, or not of the form.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Problem(415, "the body must be application/json", code="unsupported_media_type")
    data = await request.body()
    try:
        # Decoded here: `json.loads` would take UTF-16, and half a surrogate pair as bytes.
        text = data.decode("utf-8-sig")
        value = json.loads(text, parse_constant=_refused)
        if _HALF.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        # Half a surrogate pair is JSON, and yet no text that could be sent on.
        raise Problem(400, "the body is not JSON in UTF-8", code="invalid_json") from None
    try:
        return value, model.model_validate(value)
    except ValidationError as error:
        raise invalid(error.errors(include_url=False, include_input=False)) from None


def invalid(errors: Sequence[Foreign]) -> Problem:
    """Returns the answer for a form that is not kept: the first place at fault, and what is."""
    first = errors[0]
    place = ".".join(str(part) for part in first["loc"])
    return Problem(400, f"{place or 'body'}: {first['msg']}", code="invalid_value", param=place)


def _refused(name: str) -> object:
    raise ValueError(name)
