"""The repository's layout is the one that the wheel and the docs promise."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_prompts_hold_templates_and_no_python():
    files = [path for path in (ROOT / "prompts").rglob("*") if path.is_file()]
    assert files
    assert {"".join(path.suffixes) for path in files} == {".md.j2"}


def test_the_source_root_holds_one_package():
    """A folder ``retrieval`` on a path must not become an import name of ours."""
    folder = ROOT / "retrieval"
    assert [path.name for path in folder.iterdir() if path.suffix == ".py"] == []
    assert {p.name for p in folder.iterdir() if p.is_dir()} - {"__pycache__"} == {
        "ragchat_retrieval"
    }


def test_everything_optional_is_an_extra_and_nothing_heavy_is_not():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    always = {line.split(">")[0].split("[")[0].lower() for line in project["dependencies"]}
    assert not always & {"typer", "rich", "onnxruntime", "tokenizers", "torch", "fastapi"}
    assert {"cli", "local"} <= set(project["optional-dependencies"])


def test_the_ci_script_is_executable():
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_the_workflow_runs_the_ci_script_on_every_version_that_is_promised():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    promised = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    workflow = (ROOT / ".github/workflows/ci.yml").read_text("utf-8")
    (versions,) = re.findall(r"^ +python: \[(.+)\]$", workflow, re.MULTILINE)
    assert re.findall(r"[\d.]+", versions) == promised
    assert re.search(r"^ +- run: \.ci/run$", workflow, re.MULTILINE)


def test_the_citation_file_names_the_version_and_the_licence():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines = (ROOT / "CITATION.cff").read_text("utf-8").splitlines()
    assert {f"version: {project['version']}", f"license: {project['license']}"} <= set(lines)
