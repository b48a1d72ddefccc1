"""The wheel does the main job where it is installed, beside an app with clashing folder names."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
INFO = f"ragchat_toolkit-{VERSION}.dist-info"
pytestmark = pytest.mark.packaging

APP = """
import asyncio, json, sys
import prompts, retrieval
import ragchat
from ragchat.testing import ScriptedChatModel

async def main():
    index = ragchat.quickstart()
    text = "Employees get 25 days of paid leave.\\n\\nThe office closes at six."
    await index.ingest(ragchat.Document("leave", text, source="leave.md"))
    model = ScriptedChatModel(['{"query": "days of paid leave"}', "25 days [1]."])
    small = ragchat.ChatModel(model.create, model="small")
    preparer = ragchat.Preparer(
        retriever=index.retriever(top_k=1),
        query_transformer=ragchat.CompressionTransformer(small),
    )
    messages = [
        {"role": "user", "content": "What about leave?"},
        {"role": "assistant", "content": "Which kind?"},
        {"role": "user", "content": "The paid one, how many days?"},
    ]
    prepared = await preparer.prepare(model="large", messages=messages)
    reply = await prepared.call(model.create)
    passage = prepared.retrieval.citations.resolve("[1]")
    print(json.dumps({
        "whose": [retrieval.WHO, prompts.WHO],
        "answer": reply.choices[0].message.content,
        "query": prepared.retrieval.queries[0].text,
        "source": passage.source,
        "text": passage.text,
        "home": ragchat.__file__,
        "degraded": [str(d) for d in prepared.retrieval.degraded],
    }))

asyncio.run(main())
"""


def build(source, target, kind="wheel"):
    """Builds with the backend alone, so that nothing is downloaded."""
    code = f"import hatchling.build, sys; print(hatchling.build.build_{kind}(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(target)],
        cwd=source,
        capture_output=True,
        text=True,
        check=True,
    )
    return target / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """A fresh environment with the wheel installed, its dependencies lent by this one."""
    folder = tmp_path_factory.mktemp("env")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    install = ["--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([*pip, *install], check=True)
    # A path in a .pth file brings packages, but not the .pth file of this checkout's own install.
    purelib = next((folder / "lib").glob("python*")) / "site-packages"
    (purelib / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n", "utf-8")
    return folder


def names(archive):
    with zipfile.ZipFile(archive) as opened:
        return set(opened.namelist())


def test_the_wheel_holds_both_packages_and_nothing_else(wheel):
    tops = {name.partition("/")[0] for name in names(wheel)}
    assert tops == {"ragchat", "ragchat_retrieval", INFO}


def test_the_wheel_holds_every_prompt_and_page_and_the_demo_s_texts(wheel):
    inside = names(wheel)
    for folder, pattern, home in [
        ("prompts", "*.md.j2", "ragchat/_prompts"),
        ("docs", "*.md", "ragchat/_docs"),
        ("ragchat/demo/corpus", "*.md", "ragchat/demo/corpus"),
    ]:
        files = {
            path.relative_to(ROOT / folder).as_posix() for path in (ROOT / folder).rglob(pattern)
        }
        assert files
        assert {f"{home}/{file}" for file in files} <= inside


def test_the_wheel_holds_types_licences_and_the_console_script(wheel):
    inside = names(wheel)
    assert {"ragchat/py.typed", "ragchat_retrieval/py.typed"} <= inside
    assert f"{INFO}/licenses/LICENSE" in inside
    with zipfile.ZipFile(wheel) as opened:
        scripts = opened.read(f"{INFO}/entry_points.txt").decode()
        metadata = Parser().parsestr(opened.read(f"{INFO}/METADATA").decode())
    assert "ragchat = ragchat.cli:main" in scripts
    assert metadata["Name"] == "ragchat-toolkit"
    assert {"cli", "documents", "local"} <= set(metadata.get_all("Provides-Extra"))


def test_the_source_archive_builds_the_same_wheel(wheel, tmp_path):
    archive = build(ROOT, tmp_path, "sdist")
    with tarfile.open(archive) as opened:
        opened.extraction_filter = getattr(tarfile, "data_filter", None)  # since Python 3.11.4
        opened.extractall(tmp_path)  # noqa: S202 - built a moment ago by ourselves
    again = build(tmp_path / archive.name.removesuffix(".tar.gz"), tmp_path)
    assert names(again) == names(wheel)


def test_the_main_job_runs_beside_an_app_with_packages_of_the_same_names(
    environment, tmp_path, child_env
):
    """The app's own ``retrieval`` and ``prompts`` stay the app's, and ours find their files."""
    app, elsewhere = tmp_path / "app", tmp_path / "elsewhere"
    for package in ("retrieval", "prompts"):
        (app / package).mkdir(parents=True)
        (app / package / "__init__.py").write_text(f'WHO = "app {package}"\n', "utf-8")
    (app / "main.py").write_text(APP, "utf-8")
    elsewhere.mkdir()
    done = subprocess.run(
        [str(environment / "bin" / "python"), str(app / "main.py")],
        cwd=elsewhere,
        env=child_env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    said = json.loads(done.stdout)
    assert said["whose"] == ["app retrieval", "app prompts"]
    assert said["answer"] == "25 days [1]."
    assert said["query"] == "days of paid leave"
    assert said["source"] == "leave.md"
    assert "25 days of paid leave" in said["text"]
    assert said["degraded"] == []
    assert Path(said["home"]).is_relative_to(environment)


def test_the_console_script_runs_where_the_wheel_is_installed(environment, tmp_path, child_env):
    note = tmp_path / "note.md"
    note.write_text("# Leave\n\nEmployees get 25 days of paid leave.\n", "utf-8")
    env = {**child_env, "RAGCHAT_EMBEDDING_PROVIDER": "none"}
    script = str(environment / "bin" / "ragchat")
    for arguments in (["ingest", "note.md", "--json"], ["search", "paid leave", "--json"]):
        done = subprocess.run(
            [script, *arguments],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert "25 days" in json.loads(done.stdout)["results"][0]["text"]


def test_without_the_extra_the_command_line_names_it(environment, tmp_path, child_env):
    code = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name in {'typer', 'rich'}: raise ModuleNotFoundError(name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "from ragchat.cli import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [str(environment / "bin" / "python"), "-c", code],
        cwd=tmp_path,
        env=child_env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert 'pip install "ragchat-toolkit[cli]"' in done.stderr
    assert "Traceback" not in done.stderr
