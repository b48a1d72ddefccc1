"""Watching folders and files for changes."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragchat_retrieval.errors import MissingExtra

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Sequence

_SETTLE = 50
"""Milliseconds without a further change after which changes are told."""

_LONGEST = 1600
"""Milliseconds after which they are told though more are coming."""

_BREATH = 300
"""Milliseconds after which the watcher looks whether it shall stop."""


async def changes(paths: Sequence[Path], *, but: Path | None = None) -> AsyncIterator[None]:
    """Yields once when the watch stands, and then after each burst of changes.

    What changes while the caller is busy is told when it asks again, so that nothing is missed
    between reading and watching.

    Args:
        paths: Folders, and files, whose folders are watched for them alone: an editor that saves
            by renaming makes another file of the same name. Of links, what they lead to as well.
        but: The index, whose files are written by what reads the changes.

    Raises:
        MissingExtra: ``watchfiles`` is not installed.
    """
    try:
        watchfiles: Any = import_module("watchfiles")
    except ModuleNotFoundError:
        raise MissingExtra("cli", "--watch") from None
    # By their real paths, for a change is told by the path that is watched.
    folders = {path.resolve() for path in paths if path.is_dir()}
    files = {place for path in paths if not path.is_dir() for place in _places(path)}
    bursts = watchfiles.awatch(
        *folders,
        *{file.parent for file in files},
        watch_filter=_wanted(folders, files, but),
        debounce=_LONGEST,
        step=_SETTLE,
        rust_timeout=_BREATH,
        yield_on_timeout=True,
        recursive=bool(folders),
    )
    stands = False
    async for burst in bursts:
        # A first timeout without a change says that the watch stands.
        if burst or not stands:
            stands = True
            yield


def _places(file: Path) -> tuple[Path, Path]:
    """Returns where a file is named and, if the name is a link, where it is."""
    return file.parent.resolve() / file.name, file.resolve()


def _wanted(
    folders: Collection[Path], files: Collection[Path], but: Path | None
) -> Callable[[object, str], bool]:
    own = None if but is None else but.resolve()

    def wanted(_change: object, name: str) -> bool:
        path = Path(name)
        if own is not None and _is_own(path, own):
            return False
        if path in files:
            return True
        # Hidden files are not read, but a .gitignore says what is.
        return any(
            path.is_relative_to(folder) and not _is_hidden(path.relative_to(folder))
            for folder in folders
        )

    return wanted


def _is_own(path: Path, index: Path) -> bool:
    """Says whether a path is the index or one of the files beside it that begin with its name."""
    if not path.is_relative_to(index.parent):
        return False
    parts = path.relative_to(index.parent).parts
    return bool(parts) and parts[0].startswith(index.name)


def _is_hidden(path: Path) -> bool:
    *above, last = path.parts or ("",)
    if any(part.startswith(".") for part in above):
        return True
    return last.startswith(".") and last != ".gitignore"
