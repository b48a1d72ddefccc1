"""Every code block of README and docs runs, and every command in them exists."""

from __future__ import annotations

import ast
import doctest
import importlib.util
import pkgutil
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest
import typer.main

from ragchat.cli.app import app
from ragchat.testing import LoopbackOpenAI

HERE = Path(__file__).parent


def load(name):
    """Imports a module beside this one; test folders are no packages."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


blocks = load("blocks")
place = load("conftest")
ROOT, PAGES, EXAMPLES = place.ROOT, place.PAGES, place.EXAMPLES
SERVERS = (ROOT / "examples/servers").glob("*.py")  # tests/integration runs them
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = set(PROJECT["optional-dependencies"])
SHELL_WORDS = {
    "cd",
    "git",
    "export",
    "source",
    "cat",
    "echo",
    "mkdir",
    "cp",
    "curl",
    "head",
    "jq",
    "pytest",
    "uvicorn",
}


def page_name(page: Path) -> str:
    """Names a page by its path in the repository."""
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", [p for p in PAGES if p not in place.ELSEWHERE], ids=page_name)
async def test_the_python_blocks_of_a_page_run_in_order(page, reader):
    """Blocks share one namespace; a following text block is their output; titled ones are files."""
    found = blocks.blocks_of(page)
    blocks.write_files(found, reader)
    await blocks.run_python([block for block in found if block.language == "python"])


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_the_commands_of_a_page_exist(page):
    for block in blocks.blocks_of(page):
        if block.language in blocks.SHELLS:
            for words in blocks.commands_of(block):
                problem = problem_with(words)
                assert problem is None, f"{block}: {problem}"


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_the_links_of_a_page_lead_somewhere(page):
    """Relative links name files of the repository."""
    for target in blocks.links_of(page):
        if not re.match(r"[a-z]+:|#", target):
            assert (page.parent / target.partition("#")[0]).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_a_name_with_its_module_can_be_imported_from_there(page):
    text = page.read_text("utf-8")
    for name in re.findall(r"`(ragchat_retrieval\.[\w.]+|ragchat\.\w+\.[\w.]+)", text):
        pkgutil.resolve_name(name.rstrip("."))  # raises where there is none


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_block_says_what_it_is(page):
    written = {"html", "javascript", "markdown"}  # tests/browser runs what a page has one write
    known = {"python", "text", "json", "toml", "jinja", "sql", "http", "diff", *blocks.SHELLS}
    for block in blocks.blocks_of(page):
        assert block.language in known | written, f"{block}: {block.language!r}"
        assert block.language not in written or block.title, f"{block}: which file is it?"


def run_by_itself(example, folder, env):
    """Runs an example in a process of its own, with only these variables set."""
    return subprocess.run(
        [sys.executable, str(example)],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_runs_by_itself(example, reader, child_env, server):
    """It ends with 0, prints what stands at its head, and is quiet on stderr."""
    env = {**child_env, "OPENAI_API_KEY": "loopback", "OPENAI_BASE_URL": server.base_url}
    done = run_by_itself(example, reader, env)
    assert (done.returncode, done.stderr) == (0, "")
    assert printed_as(expected_output(example), done.stdout), done.stdout


HELPED = [example for example in EXAMPLES if "ragchat.ChatModel(" in example.read_text("utf-8")]


@pytest.mark.parametrize("example", HELPED, ids=lambda example: example.name)
def test_an_example_goes_on_where_a_model_does_not_help(example, reader, child_env):
    """A helper's answer that is of no use is skipped, as the pages promise."""
    with LoopbackOpenAI(default="I would rather not.") as server:
        env = {**child_env, "OPENAI_API_KEY": "loopback", "OPENAI_BASE_URL": server.base_url}
        done = run_by_itself(example, reader, env)
        assert server.requests
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


ASKING = [example for example in EXAMPLES if "OpenAI()" in example.read_text("utf-8")]


@pytest.mark.parametrize("example", ASKING, ids=lambda example: example.name)
def test_an_example_without_a_chat_model_says_in_a_line_what_to_set(example, reader, child_env):
    """Whoever tries an example first of all meets no traceback."""
    env = {name: value for name, value in child_env.items() if not name.startswith("OPENAI_")}
    done = run_by_itself(example, reader, env)
    assert done.returncode == 1
    assert re.fullmatch(r".* Set OPENAI_API_KEY, and OPENAI_BASE_URL if need be\.\n", done.stderr)


def test_every_example_is_listed_and_says_what_it_prints():
    listed = {Path(target) for target in blocks.links_of(ROOT / "examples/README.md")}
    servers = {path.relative_to(ROOT / "examples") for path in SERVERS}
    assert listed == servers | {Path(example.name) for example in EXAMPLES}
    for example in EXAMPLES:
        assert expected_output(example).strip(), example.name
        assert len(example.read_text("utf-8").splitlines()) <= 60, example.name


def test_the_readme_links_every_page():
    linked = {ROOT / target.partition("#")[0] for target in blocks.links_of(ROOT / "README.md")}
    assert set(PAGES) - {ROOT / "README.md"} <= linked


def test_what_the_map_of_the_code_names_is_there():
    table = (ROOT / "docs/architecture.md").read_text("utf-8").partition("## Where things are")[2]
    rows = [row.split("|")[2] for row in table.splitlines() if row.startswith("| ")]
    assert len(rows) > 20
    for row in rows:
        places = [ROOT, ROOT / "retrieval/ragchat_retrieval"]
        for name in re.findall(r"`([^`]+)`", row):
            found = next((path for place in places for path in place.glob(name)), None)
            assert found is not None, name
            places.append(found if found.is_dir() else found.parent)


def test_contributors_are_told_of_every_make_target():
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    told = re.findall(
        r"^\| `make ([a-z-]+)`", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.MULTILINE
    )
    assert set(told) == set(targets) - {"help"}


def expected_output(example: Path) -> str:
    """Returns the indented end of an example's docstring; ``...`` stands for any text."""
    docstring = ast.get_docstring(ast.parse(example.read_text("utf-8"))) or ""
    return textwrap.dedent(docstring.partition("prints:\n\n")[2])


def printed_as(expected: str, printed: str) -> bool:
    """Says whether an output is the expected one, as doctest compares them."""
    checker = doctest.OutputChecker()
    return checker.check_output(f"{expected}\n", printed, doctest.ELLIPSIS)


def problem_with(words: list[str]) -> str | None:
    """Says what is wrong with a command; None if it exists with its options."""
    name, *rest = words
    if name == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
        unknown = [w for w in rest if not w.startswith("-") and "=" not in w and w not in targets]
        return f"no make target {unknown}" if unknown else None
    if name == "ragchat":
        return problem_with_ragchat(rest)
    if name == "pip":
        asked = " ".join(rest)
        extras = re.findall(r"ragchat-toolkit\[([\w,-]+)\]|\.\[([\w,-]+)\]", asked)
        unknown = {e for pair in extras for e in ",".join(filter(None, pair)).split(",")} - EXTRAS
        return f"no extra {sorted(unknown)}" if unknown else None
    if name in {"python", "python3"}:
        scripts = [word for word in rest if word.endswith(".py")]
        missing = [script for script in scripts if not (ROOT / script).exists()]
        return f"no file {missing}" if missing else None
    return None if name in SHELL_WORDS else f"unknown command {name!r}"


def problem_with_ragchat(words: list[str]) -> str | None:
    """Says which subcommand or option of the command line does not exist."""
    commands = typer.main.get_command(app).commands
    if not words or words[0] in {"--help", "-h", "--version"}:
        return None
    name = words[0]
    if name not in commands:
        return f"no command ragchat {name}"
    command = commands[name]
    below = getattr(command, "commands", {})
    if below and len(words) > 1 and words[1] not in {"--help", "-h"}:
        name = f"{name} {words[1]}"
        if words[1] not in below:
            return f"no command ragchat {name}"
        command = below[words[1]]
    known = {o for param in command.params for o in param.opts} | {"--help", "-h"}
    given = {word.partition("=")[0] for word in words[1:] if re.match(r"-{1,2}[a-z]", word)}
    unknown = sorted(given - known)
    return f"ragchat {name} has no option {unknown}" if unknown else None


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("make demo", None),
        ("make dmeo", "no make target ['dmeo']"),
        ('pip install "ragchat-toolkit[cli,local]"', None),
        ("pip install ragchat-toolkit[gpu]", "no extra ['gpu']"),
        ("ragchat search 'a - b' --explain", None),
        ("ragchat serch x", "no command ragchat serch"),
        ("ragchat search x --explian", "ragchat search has no option ['--explian']"),
        ("ragchat keys add alice --scope team=legal", None),
        ("ragchat keys ad alice", "no command ragchat keys ad"),
        ("A=1 B=2 ragchat stats | head > out.txt", None),
        ("python examples/nothing.py", "no file ['examples/nothing.py']"),
        ("frobnicate", "unknown command 'frobnicate'"),
    ],
)
def test_a_command_that_does_not_exist_is_noticed(command, problem):
    block = blocks.Block(Path("x.md"), 1, "bash", command + "\n")
    problems = [problem_with(words) for words in blocks.commands_of(block)]
    assert problems[0] == problem


def test_the_page_of_the_command_line_has_every_command_and_every_variable():
    """What is read of the environment stands there, in full."""
    page = (ROOT / "docs/command-line.md").read_text("utf-8")
    for name in typer.main.get_command(app).commands:
        assert re.search(rf"^\|.*`{name}\b.*\|$", page, re.MULTILINE), name
    sources = [*(ROOT / "ragchat").rglob("*.py"), *(ROOT / "retrieval").rglob("*.py")]
    read = r"\b(?:RAGCHAT|OPENSEARCH|QDRANT|OPENAI|OTEL)_[A-Z_]*[A-Z]\b"
    variables = {
        found for source in sources for found in re.findall(read, source.read_text("utf-8"))
    }
    assert sorted(name for name in variables if f"`{name}`" not in page) == []


async def test_a_block_that_prints_something_else_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n", "utf-8")
    with pytest.raises(AssertionError, match=r"output of page\.md:2"):
        await blocks.run_python(blocks.blocks_of(page)[:1])
