"""``ragchat ingest --watch`` follows a folder until it is stopped."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ragchat.cli.watch import _wanted


class Watching:
    """A watch in a process of its own; gives the reports that it prints."""

    def __init__(self, folder, env, *arguments):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ragchat.cli", "ingest", *arguments, "--watch", "--json"],
            cwd=folder,
            env={**env, "RAGCHAT_EMBEDDING_PROVIDER": "none"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.communicate()

    def report(self):
        """Waits for the next report."""
        line = self._process.stdout.readline()
        assert line, self._process.stderr.read()
        return json.loads(line)

    def until(self, what):
        """Waits for a report that has something; others may come, as one save is many events."""
        while not (report := self.report())[what]:
            pass
        return report

    def interrupt(self):
        self._process.send_signal(signal.SIGINT)
        out, err = self._process.communicate(timeout=60)
        return self._process.returncode, out, err


def test_it_reads_again_what_changes_and_ends_quietly_on_ctrl_c(tmp_path, child_env):
    """Also with the index inside the folder, whose own files are no news."""
    (tmp_path / "a.md").write_text("# A\n\nOne.\n", "utf-8")
    with Watching(tmp_path, child_env, ".") as watching:
        assert watching.report()["documents"] == 1
        (tmp_path / "b.txt").write_text("Two.\n", "utf-8")
        assert watching.until("documents")["documents"] == 1
        (tmp_path / "a.md").unlink()
        assert watching.until("deleted")["skipped"] == 1
        code, out, err = watching.interrupt()
    assert (code, "Traceback" in err) == (0, False)
    assert len(out.splitlines()) <= 2


def test_a_file_is_watched_though_it_is_saved_by_renaming(tmp_path, child_env):
    note = tmp_path / "note.md"
    note.write_text("One.\n", "utf-8")
    with Watching(tmp_path, child_env, "note.md") as watching:
        assert watching.report()["documents"] == 1
        draft = tmp_path / "note.md.new"
        draft.write_text("Two.\n", "utf-8")
        draft.replace(note)
        assert watching.until("documents")["documents"] == 1
        assert watching.interrupt()[0] == 0


@pytest.mark.parametrize("name", ["link", "link/../docs", "linked.md"])
def test_what_is_named_by_a_link_or_a_way_round_is_watched_too(tmp_path, child_env, name):
    (tmp_path / "docs").mkdir()
    note = tmp_path / "docs" / "note.md"
    note.write_text("One.\n", "utf-8")
    (tmp_path / "link").symlink_to(tmp_path / "docs")
    (tmp_path / "linked.md").symlink_to(note)
    with Watching(tmp_path, child_env, name) as watching:
        assert watching.report()["documents"] == 1
        note.write_text("Two.\n", "utf-8")
        assert watching.until("documents")["documents"] == 1
        assert watching.interrupt()[0] == 0


@pytest.mark.parametrize(
    ("name", "news"),
    [
        ("docs/a.md", True),
        ("docs/deep/b.txt", True),
        ("docs/.gitignore", True),
        ("docs/.hidden.md", False),
        ("docs/.git/index", False),
        ("docs/kb.sqlite", False),
        ("docs/kb.sqlite-wal", False),
        ("docs/kb.sqlite.arrays/x.npy", False),
        ("note.md", True),
        ("other.md", False),
    ],
)
def test_what_is_news(tmp_path, monkeypatch, name, news):
    monkeypatch.chdir(tmp_path)
    Path("docs").mkdir()
    Path("note.md").touch()
    here = tmp_path.resolve()
    wanted = _wanted({here / "docs"}, {here / "note.md"}, Path("docs/kb.sqlite"))
    assert wanted(None, str(tmp_path.resolve() / name)) is news
