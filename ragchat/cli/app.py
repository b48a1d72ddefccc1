"""The Typer application: the commands and what they share."""

from __future__ import annotations

from inspect import getdoc

import typer

from ragchat.cli.ask import ask
from ragchat.cli.chat import chat
from ragchat.cli.demo import demo
from ragchat.cli.embed import embed
from ragchat.cli.evaluation import evaluate
from ragchat.cli.ingest import ingest
from ragchat.cli.keys import keys
from ragchat.cli.mcp_server import mcp_server
from ragchat.cli.migrate import migrate
from ragchat.cli.options import help_settings
from ragchat.cli.removal import remove, reset
from ragchat.cli.search import search
from ragchat.cli.serve import serve
from ragchat.cli.stats import stats

EPILOG = (
    "RAGCHAT_INDEX names the index, RAGCHAT_MODEL the chat model (its client reads OPENAI_API_KEY "
    "and OPENAI_BASE_URL), RAGCHAT_EMBEDDING_PROVIDER, _URL, _MODEL and _API_KEY the embedder. "
    "Exit codes: 0 done, 1 failed, 2 misused."
)

app = typer.Typer(
    name="ragchat",
    help="Search documents and answer questions about them, every claim with its source.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    **help_settings(),
)

for command in (ingest, search, ask, chat, serve, stats, embed, migrate, remove, reset, demo):
    app.command()(command)
app.command("eval")(evaluate)
app.command("mcp")(mcp_server)
app.add_typer(keys, short_help=keys.info.help)
for registered in (*app.registered_commands, *keys.registered_commands):
    # Plain help shows a short help whole, and of any other only what fits a line.
    registered.short_help = (getdoc(registered.callback) or "").partition("\n")[0]


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    *,
    version: bool = typer.Option(
        False, "--version", metavar="", help="Print the version and exit."
    ),
) -> None:
    """Search documents and answer questions about them, every claim with its source."""
    if version:
        from importlib.metadata import version as version_of  # noqa: PLC0415 - rarely asked

        typer.echo(version_of("ragchat-toolkit"))
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
