"""``ragchat keys``: the API keys of the server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ragchat.cli.options import DEFAULT_CORPUS, Json, help_settings, read_filter
from ragchat.cli.output import Face
from ragchat.cli.running import CommandFailed, run
from ragchat_retrieval.filters import Op

if TYPE_CHECKING:
    from ragchat.server.keys import Key
    from ragchat_retrieval.filters import Filter

File = Annotated[
    Path,
    typer.Option("--file", envvar="RAGCHAT_KEYS", metavar="FILE", help="Where keys are kept."),
]
DEFAULT_FILE = Path("ragchat-keys.json")

keys = typer.Typer(
    name="keys",
    help="Make, list and remove API keys of the server.",
    no_args_is_help=True,
    **help_settings(),
)


@keys.command()
def add(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A name for the key, such as that of its holder.")
    ],
    *,
    file: File = DEFAULT_FILE,
    corpus: Annotated[
        str, typer.Option(metavar="NAME", help="The corpus that the key opens.")
    ] = DEFAULT_CORPUS,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Metadata of all that the key may read; stamped on what it writes.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Make a key and print it, this once."""
    face = Face.open(json=json)
    bounds = read_filter(scope, "--scope")
    if any(condition.op is not Op.EQ for condition in bounds):
        raise typer.BadParameter("must be KEY=VALUE", param_hint="--scope")
    run(_add(face, file, name, corpus, bounds), face)


async def _add(face: Face, file: Path, name: str, corpus: str, bounds: Filter) -> None:
    from ragchat.server.keys import new_key, save_keys  # noqa: PLC0415 - --help stays quick

    known = _known(file)
    if any(key.name == name for key in known):
        raise CommandFailed(f"{file} has a key named {name!r} already")
    scope = {condition.key: condition.value for condition in bounds}
    secret, key = new_key(name, corpus=corpus, scope=scope)
    save_keys(file, (*known, key))
    if face.json:
        face.document({"name": name, "key": secret, "corpus": corpus, "scope": scope})
        return
    face.line(secret)
    face.note(f"kept in {file} as a hash: it cannot be shown again")


@keys.command("list")
def list_(*, file: File = DEFAULT_FILE, json: Json = False) -> None:
    """Say which keys there are and what they open."""
    face = Face.open(json=json)
    run(_list(face, file), face)


async def _list(face: Face, file: Path) -> None:
    known = _known(file)
    if face.json:
        records = [{"name": k.name, "corpus": k.corpus, "scope": dict(k.scope)} for k in known]
        face.document({"keys": records})
        return
    if not known:
        face.note(f"{file} has no keys; make one with: ragchat keys add NAME")
    for key in known:
        scope = " ".join(f"{name}={value}" for name, value in key.scope.items())
        face.line(f"{key.name}  corpus {key.corpus}" + (f"  {scope}" if scope else ""))


@keys.command()
def remove(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The key's name.")],
    *,
    file: File = DEFAULT_FILE,
    json: Json = False,
) -> None:
    """Remove a key; a running server refuses it from the next request on."""
    face = Face.open(json=json)
    run(_remove(face, file, name), face)


async def _remove(face: Face, file: Path, name: str) -> None:
    from ragchat.server.keys import save_keys  # noqa: PLC0415 - --help stays quick

    known = _known(file)
    left = [key for key in known if key.name != name]
    if len(left) == len(known):
        raise CommandFailed(f"{file} has no key named {name!r}")
    save_keys(file, left)
    if face.json:
        face.document({"removed": name})
    else:
        face.line(f"removed {name}")


def _known(file: Path) -> tuple[Key, ...]:
    from ragchat.server.keys import load_keys  # noqa: PLC0415 - --help stays quick

    return load_keys(file) if file.exists() else ()
