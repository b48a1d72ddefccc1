"""What the tools take: checked by pydantic, told to models as strict JSON Schemas.

A strict schema (OpenAI's structured outputs) closes every object and requires every property; what
may be left out is nullable instead. Models that are not held to it may leave such properties out,
and may give a filter as a mapping.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)

from ragchat_retrieval.filters import Op

MOST_PASSAGES = 50

_Name = Annotated[str, StringConstraints(strict=True, strip_whitespace=True, min_length=1)]


def _whole(value: object) -> object:
    """Returns 5 for 5.0, which is an integer in JSON Schema, and anything else as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_Count = Annotated[int, BeforeValidator(_whole), Field(ge=1, le=MOST_PASSAGES)]
_Value = str | int | float | bool | None


class Arguments(BaseModel):
    """Arguments of a tool; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    corpus: _Name


class Ingest(Arguments):
    """Arguments of ``rag_ingest``."""

    file_id: _Name
    filename: _Name
    text: Annotated[str, StringConstraints(pattern=r"\S")]


class Search(Arguments):
    """Arguments of ``rag_search``."""

    query: _Name
    top_k: _Count | None = None
    hybrid_weight: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    filter: list[dict[str, Any]] | dict[str, _Value] | None = None
    """As `ragchat_retrieval.filters.Filter.of` takes it, which checks what is in it."""


class Delete(Arguments):
    """Arguments of ``rag_delete``."""

    file_id: _Name | None = None


def problem_of(error: ValidationError) -> str:
    """Says what is wrong with arguments, without what they hold."""
    problems = []
    for fault in error.errors(include_url=False, include_input=False, include_context=False):
        unknown = fault["type"] == "extra_forbidden"
        name = "an argument" if unknown or not fault["loc"] else str(fault["loc"][0])
        problems.append(f"{name}: {'unknown' if unknown else fault['msg']}")
    return "; ".join(dict.fromkeys(problems))


def definition(name: str, description: str, properties: dict[str, Any]) -> dict[str, Any]:
    """Returns a strict tool definition for ``chat.completions``."""
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    function = {
        "name": name,
        "description": description,
        "strict": True,
        "parameters": parameters,
    }
    return {"type": "function", "function": function}


def definitions(corpora: tuple[str, ...] | None) -> list[dict[str, Any]]:
    """Returns the definitions of the three tools.

    Args:
        corpora: The corpora that a model may name; None is any.
    """
    corpus: dict[str, Any] = {"type": "string", "description": "Name of the corpus."}
    if corpora is not None:
        corpus["enum"] = list(corpora)
    file_id = "Id of the file, unique in the corpus."
    scalars = [{"type": kind} for kind in ("string", "number", "boolean", "null")]
    value = {
        "anyOf": [*scalars, {"type": "array", "items": {"anyOf": scalars}}],
        "description": "What to compare with; a list for in, true or false for exists.",
    }
    condition = {
        "type": "object",
        "properties": {
            "key": {"type": "string", "description": "A metadata key, document_id or source."},
            "op": {"type": "string", "enum": [op.value for op in Op]},
            "value": value,
        },
        "required": ["key", "op", "value"],
        "additionalProperties": False,
    }
    return [
        definition(
            "rag_ingest",
            "Store a text file in a corpus so that rag_search finds it. A file with the same"
            " file_id is replaced.",
            {
                "corpus": corpus,
                "file_id": {"type": "string", "description": file_id},
                "filename": {"type": "string", "description": "Name of the file, for people."},
                "text": {"type": "string", "description": "The whole text of the file."},
            },
        ),
        definition(
            "rag_search",
            "Search a corpus for passages that answer a question. Cite what you use by its"
            " citation number, such as [1].",
            {
                "corpus": corpus,
                "query": {"type": "string", "description": "A question, or keywords."},
                "top_k": {
                    "type": ["integer", "null"],
                    "description": f"Most passages, 1 to {MOST_PASSAGES}; null for 5.",
                },
                "hybrid_weight": {
                    "type": ["number", "null"],
                    "description": "Weight of keywords against meaning, from 0 (meaning only) to 1"
                    " (keywords only); null for the default.",
                },
                "filter": {
                    "anyOf": [{"type": "array", "items": condition}, {"type": "null"}],
                    "description": "Conditions that passages must all meet; null for none.",
                },
            },
        ),
        definition(
            "rag_delete",
            "Delete one file of a corpus, or the whole corpus.",
            {
                "corpus": corpus,
                "file_id": {
                    "type": ["string", "null"],
                    "description": "The file to delete; null deletes the whole corpus.",
                },
            },
        ),
    ]
