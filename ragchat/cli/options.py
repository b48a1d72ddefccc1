"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping
from typing import Annotated, Literal, TypedDict

import typer

from ragchat.cli.output import ROOM
from ragchat_retrieval.errors import InvalidFilter, InvalidMetadata
from ragchat_retrieval.filters import Filter
from ragchat_retrieval.metadata import Metadata


class HelpSettings(TypedDict):
    """What decides how help is laid out, for a `typer.Typer`."""

    rich_markup_mode: Literal["rich"] | None
    context_settings: dict[str, object]


def help_settings() -> HelpSettings:
    """Returns settings that frame help in columns where there is room, and else leave it plain.

    In a narrow terminal the columns would cut the names of options.
    """
    columns = shutil.get_terminal_size().columns
    return {
        "rich_markup_mode": "rich" if columns >= ROOM else None,
        "context_settings": {"help_option_names": ["-h", "--help"], "terminal_width": columns},
    }


def flag(name: str, says: str) -> typer.models.OptionInfo:
    """Returns an option that takes no value, and whose help names no type of one."""
    option: typer.models.OptionInfo = typer.Option(name, metavar="", help=says)
    return option


SCALARS = 'A value is read as JSON where it is a number, true, false, null or "quoted".'

Index = Annotated[
    str,
    typer.Option(
        "--index",
        "-i",
        envvar="RAGCHAT_INDEX",
        metavar="PATH|URL",
        help="The index.",
    ),
]
Corpus = Annotated[str, typer.Option("--corpus", metavar="NAME", help="The corpus inside it.")]
Json = Annotated[bool, flag("--json", "Print one JSON document and nothing else.")]
TopK = Annotated[int, typer.Option("--top-k", "-k", metavar="N", min=1, help="How many passages.")]
Model = Annotated[
    str | None,
    typer.Option(envvar="RAGCHAT_MODEL", metavar="NAME", help="The chat model."),
]
MaxContextTokens = Annotated[
    int, typer.Option(metavar="N", min=1, help="Most tokens of evidence in a prompt.")
]
Filters = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        "-f",
        metavar="KEY=VALUE|JSON",
        help=f"Only passages whose metadata match; may be given several times. {SCALARS}",
    ),
]

NoRerank = Annotated[bool, flag("--no-rerank", "Leave out the reranker of RAGCHAT_RERANK_URL.")]

DEFAULT_INDEX = "ragchat.sqlite"
DEFAULT_CORPUS = "default"


def require_question(text: str) -> None:
    """Refuses a question without a word.

    Raises:
        typer.BadParameter: It is blank.
    """
    if not text.strip():
        raise typer.BadParameter("is blank", param_hint="QUESTION")


def read_filter(given: list[str] | None, option: str = "--filter") -> Filter:
    """Returns the conjunction of all options of one kind.

    Args:
        given: Each ``KEY=VALUE``, a JSON mapping, or a JSON list of ``{"key", "op", "value"}``.
        option: Names them in errors.

    Raises:
        typer.BadParameter: One of them is malformed.
    """
    whole = Filter()
    for text in given or ():
        try:
            whole &= Filter.of(_condition(text, option))
        except InvalidFilter as error:
            raise typer.BadParameter(str(error), param_hint=option) from None
    return whole


def _condition(text: str, option: str) -> Mapping[str, object] | list[object]:
    if text.lstrip().startswith(("{", "[")):
        try:
            parsed: Mapping[str, object] | list[object] = json.loads(text)
        except json.JSONDecodeError as error:
            problem = f"not JSON at character {error.pos + 1}"
            raise typer.BadParameter(problem, param_hint=option) from None
        return parsed
    return dict([_pair(text, option)])


def read_metadata(given: list[str] | None, option: str) -> Metadata:
    """Returns the metadata of all options of one kind, each ``KEY=VALUE``; the last of a key wins.

    Args:
        given: What they say.
        option: Names them in errors.

    Raises:
        typer.BadParameter: One of them is malformed.
    """
    try:
        return Metadata(dict(_pair(text, option) for text in given or ()))
    except InvalidMetadata as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def _pair(text: str, option: str) -> tuple[str, object]:
    key, sign, value = text.partition("=")
    if not sign:
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint=option)
    return key.strip(), _scalar(value.strip())


def _scalar(text: str) -> object:
    """Reads a JSON scalar; whatever is none is a string as it stands."""
    try:
        value: object = json.loads(text)
    except ValueError:
        return text
    if isinstance(value, dict | list) or (isinstance(value, float) and not math.isfinite(value)):
        return text
    return value
