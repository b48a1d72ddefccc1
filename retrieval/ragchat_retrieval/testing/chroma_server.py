"""A Chroma server of one's own on loopback, for tests and benchmarks."""

from __future__ import annotations

import os
import queue
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ragchat_retrieval.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

START: Final = 60.0
"""Seconds after which a server that does not listen is given up."""

_LISTENS = b"listening on"


@contextmanager
def chroma_server(folder: Path) -> Iterator[str]:
    """Runs ``chroma run`` beside this interpreter, and stops it at the end.

    Args:
        folder: Where it keeps its data.

    Yields:
        Its URL; it listens by then.

    Raises:
        StoreUnavailable: It ended, or did not listen within `START` seconds.
    """
    with socket.socket() as probe:  # given port 0, it does not tell which one it took
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = Path(sys.executable).with_name("chroma")
    with subprocess.Popen(  # noqa: S603 - the extra's own program, with arguments of ours
        [program, "run", "--host", "127.0.0.1", "--port", str(port), "--path", folder],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "ANONYMIZED_TELEMETRY": "False"},
    ) as server:
        assert server.stdout is not None
        told: queue.SimpleQueue[bool] = queue.SimpleQueue()
        reader = threading.Thread(target=_follow, args=(server.stdout, told))
        reader.start()
        try:
            if not _answered(told):
                raise StoreUnavailable("does not listen", store="chroma", retryable=False)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            reader.join()


def _follow(log: Iterable[bytes], told: queue.SimpleQueue[bool]) -> None:
    """Tells whether the server listens, and reads on, so that its log never stops it."""
    for line in log:
        if _LISTENS in line:
            told.put(True)
    told.put(False)


def _answered(told: queue.SimpleQueue[bool]) -> bool:
    try:
        return told.get(timeout=START)
    except queue.Empty:
        return False
