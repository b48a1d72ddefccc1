"""Which files of a folder are ingested: a deterministic, bounded walk.

Hidden files and folders are left out, and what ``.gitignore`` files exclude (those of the folder
and below it, and those above it up to the top of its Git work tree). Only regular files are read. A
symbolic link to a file inside the root is; one that leads out of it, or to a folder, is not.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ragchat_retrieval.errors import InvalidSetting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pathspec import GitIgnoreSpec

_TEXT_SUFFIXES = """
.adoc .asciidoc .bat .bib .c .cc .cfg .clj .cmake .conf .cpp .cs .css .csv .cxx .dart .diff .el .erl
.ex .exs .f90 .go .gradle .graphql .groovy .h .hpp .hs .htm .html .ini .java .jl .js .json .jsonc
.jsx .kt .kts .less .lisp .log .lua .m .markdown .md .mdx .mjs .ml .nim .org .patch .php .pl .pm .po
.properties .proto .ps1 .py .pyi .r .rb .rst .rs .sass .scala .scm .scss .sh .sql .srt .svelte
.swift .tcl .tex .text .textile .toml .ts .tsv .tsx .txt .vb .vtt .vue .wiki .xml .yaml .yml .zig
"""
TEXT_SUFFIXES = frozenset(_TEXT_SUFFIXES.split())
"""Suffixes of files that are read as text; other files are read only if a glob names them."""

_CODE_SUFFIXES = """
.bat .c .cc .clj .cmake .cpp .cs .css .cxx .dart .el .erl .ex .exs .f90 .go .gradle .graphql .groovy
.h .hpp .hs .java .jl .js .jsx .kt .kts .less .lisp .lua .m .mjs .ml .nim .php .pl .pm .proto .ps1
.py .pyi .r .rb .rs .sass .scala .scm .scss .sh .sql .swift .tcl .ts .tsx .vb .zig
"""
CODE_SUFFIXES = frozenset(_CODE_SUFFIXES.split())
"""Suffixes of program text."""

DELIMITED_SUFFIXES = frozenset({".csv", ".tsv"})
"""Suffixes of tables of one row a line."""

RECORD_SUFFIXES = (".jsonl", ".jsonl.gz", ".ndjson")
"""Files with one document a line."""

_IGNORE_FILE = ".gitignore"
_LONGEST_IGNORE_FILE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to read."""

    path: Path
    """Where to open it."""

    name: str
    """Its POSIX path below the root."""

    size: int
    """Bytes, when the folder was walked."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What a walk found."""

    files: tuple[SourceFile, ...]
    """In ascending order of their names."""

    errors: tuple[tuple[str, OSError], ...]
    """Folders and files that could not be looked at, by name. With any, the walk is incomplete."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which files are wanted."""

    glob: tuple[str, ...] = ()
    """Patterns of ``.gitignore`` syntax; empty takes the files that `is_text_file` knows, and those
    of the suffixes below."""

    suffixes: frozenset[str] = frozenset()
    """Suffixes taken beside those of text."""

    exclude: tuple[str, ...] = ()
    follow_gitignore: bool = True
    max_files: int = 100_000


@dataclass(frozen=True, slots=True)
class _Rules:
    """The patterns of one ``.gitignore``, with where its folder lies in relation to the root."""

    spec: GitIgnoreSpec
    above: str = ""
    """Path from its folder down to the root, for a folder above."""

    below: int = 0
    """Length of the path from the root down to its folder."""

    def verdict(self, name: str) -> bool | None:
        """Says whether a path below the root is ignored; None if no pattern speaks of it."""
        return self.spec.check_file(self.above + name[self.below :]).include


def list_files(root: Path, selection: Selection) -> Listing:
    """Walks a folder.

    Args:
        root: The folder.
        selection: Which files are wanted.

    Raises:
        InvalidSetting: A pattern is malformed, or there are more files than ``max_files``.
    """
    real = root.resolve()
    wanted = _wanted(selection)
    outer = tuple(_outer_rules(real)) if selection.follow_gitignore else ()
    errors: list[tuple[str, OSError]] = []
    found: list[SourceFile] = []
    pending: list[tuple[str, tuple[_Rules, ...]]] = [("", outer)]
    while pending:
        folder, rules = pending.pop()
        try:
            with os.scandir(real / folder) as entries:
                names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
            if selection.follow_gitignore and (_IGNORE_FILE, False) in names:
                rules = (*rules, _read_rules(real / folder / _IGNORE_FILE, below=len(folder)))
        except OSError as error:
            errors.append((folder or ".", error))
            continue
        for name, is_folder in names:
            path = folder + name
            if name.startswith(".") or _ignored(rules, f"{path}/" if is_folder else path):
                continue
            if is_folder:
                if wanted(f"{path}/", True):
                    pending.append((f"{path}/", rules))
            elif wanted(path, False):
                _look_at(real, path, found, errors)
                if len(found) > selection.max_files:
                    raise InvalidSetting("max_files", f"more than {selection.max_files} files")
    found.sort(key=lambda file: file.name)
    return Listing(tuple(found), tuple(errors))


def is_record_file(name: str) -> bool:
    """Says whether a file holds one document a line."""
    return name.lower().endswith(RECORD_SUFFIXES)


def is_text_file(name: str) -> bool:
    """Says whether a file is read without being named by a glob."""
    return is_record_file(name) or Path(name).suffix.lower() in TEXT_SUFFIXES


def _look_at(
    root: Path, name: str, found: list[SourceFile], errors: list[tuple[str, OSError]]
) -> None:
    """Adds a file if it is a regular one inside the root."""
    try:
        path = (root / name).resolve(strict=True)
        state = path.stat()
    except (FileNotFoundError, RuntimeError):
        return  # gone since, or a link to nothing or to itself
    except OSError as error:
        if error.errno != errno.ELOOP:  # what Python 3.13 calls a link to itself
            errors.append((name, error))
        return
    if stat.S_ISREG(state.st_mode) and path.is_relative_to(root):
        found.append(SourceFile(path, name, state.st_size))


def _wanted(selection: Selection) -> Callable[[str, bool], bool]:
    globs = _compile("glob", selection.glob) if selection.glob else None
    excluded = _compile("exclude", selection.exclude)

    def wanted(path: str, is_folder: bool) -> bool:  # noqa: FBT001 - called in one place
        if excluded.match_file(path):
            return False
        if is_folder:
            return True
        if globs is not None:
            return globs.match_file(path)
        return is_text_file(path) or Path(path).suffix.lower() in selection.suffixes

    return wanted


def _compile(setting: str, patterns: Sequence[str]) -> GitIgnoreSpec:
    try:
        return _spec(patterns)
    except (ValueError, re.error):
        raise InvalidSetting(setting, "is no pattern of .gitignore syntax") from None


def _spec(lines: Iterable[str]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec  # noqa: PLC0415 - needed by ingestion alone

    return GitIgnoreSpec.from_lines(lines)


def _read_rules(path: Path, *, above: str = "", below: int = 0) -> _Rules:
    """Reads a ``.gitignore``. As in Git, a malformed line is no pattern."""
    with path.open("rb") as stream:
        text = stream.read(_LONGEST_IGNORE_FILE).decode("utf-8-sig", "surrogateescape")
    lines = text.splitlines()
    try:
        spec = _spec(lines)
    except (ValueError, re.error):
        spec = _spec(line for line in lines if _is_pattern(line))
    return _Rules(spec, above=above, below=below)


def _is_pattern(line: str) -> bool:
    try:
        _spec([line])
    except (ValueError, re.error):
        return False
    return True


def _outer_rules(root: Path) -> Iterator[_Rules]:
    """Yields the rules of the folders above the root, from the top of its Git work tree down.

    A folder that was named explicitly is read even if it is ignored itself; rules that ignore it
    say nothing about what is in it.
    """
    chain = [root, *root.parents]
    top = next((depth for depth, folder in enumerate(chain) if (folder / ".git").exists()), 0)
    for folder in reversed(chain[1 : top + 1]):
        path = folder / _IGNORE_FILE
        if path.is_file():
            above = root.relative_to(folder).as_posix() + "/"
            rules = _read_rules(path, above=above)
            if not rules.verdict(""):
                yield rules


def _ignored(rules: Sequence[_Rules], path: str) -> bool:
    """Says whether the innermost rules that speak of a path ignore it."""
    for rule in reversed(rules):
        verdict = rule.verdict(path)
        if verdict is not None:
            return verdict
    return False
