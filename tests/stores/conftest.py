"""An OpenSearch node for the tests, built of Maven Central's jars and started on loopback.

The jars and the compiled launcher are kept under ``build/``; a node's data is temporary. All test
processes share one node: the first that asks starts it, and stops it when the others are done.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
import subprocess
import sys
import uuid
import zipfile
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import filelock
import pytest
from opensearchpy import AsyncOpenSearch

from ragchat_retrieval.stores.opensearch import OpenSearchStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

SOURCES = Path(__file__).with_name("opensearch")
BUILD = Path(__file__).parents[2] / "build"
OLDEST_JAVA = 21
JVM_FOLDERS = (
    *("/usr/lib/jvm/*", "/usr/java/*", "/opt/java/*"),
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "C:/Program Files/*/jdk*",
)
IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - a folder of its own there
"""Where a node's data is: each index that is made is synced to the disk several times."""

UNSAFE = {"number_of_replicas": 0, "translog.durability": "async"}
"""Settings of indexes that need not outlive the node."""

MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class OpenSearchNode:
    """A node that runs."""

    url: str
    transport: str
    """Where other nodes find it."""

    process: subprocess.Popen[str]


@pytest.fixture
def stranger() -> Callable[[str], AbstractAsyncContextManager[tuple[str, list[str]]]]:
    """Runs servers that are no store, such as a proxy, and answer a page with a given status.

    Each yields its URL and the heads of the requests that it was sent.
    """

    @asynccontextmanager
    async def run(status: str) -> AsyncIterator[tuple[str, list[str]]]:
        heads: list[str] = []
        body = "<p>secret"

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
            head = f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {len(body)}"
            writer.write(f"{head}\r\n\r\n{body}".encode())
            await writer.drain()
            writer.close()

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", heads

    return run


@pytest.fixture(scope="session")
def launch_opensearch() -> Callable[..., AbstractContextManager[OpenSearchNode]]:
    """Starts nodes with settings of their own; skips the test where a machine cannot."""
    java, maven = _java_home(), shutil.which("mvn")
    if java is None:
        pytest.skip(f"no JDK of Java {OLDEST_JAVA} or newer in JAVA_HOME, PATH or the usual places")
    if maven is None:
        pytest.skip("Maven is not installed")
    BUILD.mkdir(exist_ok=True)
    with filelock.FileLock(BUILD / "opensearch.lock"):
        built = _built(java, maven)

    @contextmanager
    def launch(settings: dict[str, str]) -> Iterator[OpenSearchNode]:
        given = {
            "network.host": "127.0.0.1",
            "http.port": "0",
            "transport.port": "0",
            "cluster.routing.allocation.disk.threshold_enabled": "false",
            **settings,
        }
        owner = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
        command = [java / "bin/java", "-Xms512m", "-Xmx512m", "-XX:TieredStopAtLevel=1"]
        command += ["--enable-native-access=ALL-UNNAMED"]
        command += ["-cp", f"{built}{os.pathsep}{built / 'jars/*'}", "Launcher", str(owner)]
        with TemporaryDirectory(prefix="ragchat-opensearch-", dir=IN_MEMORY) as folder:
            home, log = Path(folder), Path(folder) / "log"
            (home / "config").mkdir()
            command += [home, *(f"{name}={value}" for name, value in given.items())]
            with (
                log.open("w") as errors,
                subprocess.Popen(
                    command, stdout=subprocess.PIPE, stderr=errors, text=True
                ) as process,
            ):
                try:
                    ready = re.search(r"^(\S+:\d+) (\S+:\d+)$", process.stdout.readline())
                    assert ready, f"the node did not start:\n{log.read_text()[-4000:]}"
                    yield OpenSearchNode(f"http://{ready[1]}", ready[2], process)
                finally:
                    process.kill()  # an orderly end would first write out what is deleted next

    return launch


@pytest.fixture(scope="session")
def opensearch_url(
    launch_opensearch: Callable[..., AbstractContextManager[OpenSearchNode]], shared_folder: Path
) -> Iterator[str]:
    """The address of the node that all test processes share."""
    address, lock = shared_folder / "address", filelock.FileLock(shared_folder / "address.lock")
    users = shared_folder / "users"
    users.mkdir(exist_ok=True)
    mine = filelock.FileLock(users / f"{os.getpid()}.lock")
    with lock:
        if address.exists():
            node = None
            mine.acquire()
        else:
            node = launch_opensearch({"discovery.type": "single-node"})
            address.write_text(node.__enter__().url)
        url = address.read_text()
    yield url
    if node is None:
        mine.release()
        return
    with lock:
        address.unlink()
    for user in users.glob("*.lock"):
        with filelock.FileLock(user):  # when it is free, that process is done
            pass
    node.__exit__(None, None, None)


@pytest.fixture
async def opensearch_prefix(opensearch_url: str) -> AsyncIterator[str]:
    """Begins the names of the indexes of one test, which are removed after it."""
    prefix = f"test-{uuid.uuid4().hex}"
    yield prefix
    async with AsyncOpenSearch(opensearch_url) as client:
        await client.indices.delete(index=f"{prefix}.*")


@pytest.fixture
async def open_opensearch(
    opensearch_url: str, opensearch_prefix: str
) -> AsyncIterator[Callable[..., OpenSearchStore]]:
    """Opens stores over the test's indexes, and closes them after it."""
    opened: list[OpenSearchStore] = []

    def open_store(**options: Any) -> OpenSearchStore:
        settings = {**UNSAFE, **options.pop("settings", {})}
        store = OpenSearchStore(
            opensearch_url, prefix=opensearch_prefix, settings=settings, **options
        )
        opened.append(store)
        return store

    yield open_store
    for store in opened:
        await store.aclose()


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A temporary folder of all test processes together."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


def _java_home() -> Path | None:
    """Returns where a JDK is that is new enough."""
    on_path = shutil.which("javac")
    homes = [
        *([Path(os.environ["JAVA_HOME"])] if "JAVA_HOME" in os.environ else []),
        *([Path(on_path).resolve().parents[1]] if on_path else []),
        *(Path(home) for folder in JVM_FOLDERS for home in sorted(_glob(folder), reverse=True)),
    ]
    return next((home for home in homes if _version(home) >= OLDEST_JAVA), None)


def _glob(pattern: str) -> list[Path]:
    anchor = Path(pattern).anchor
    return [*Path(anchor).glob(pattern.removeprefix(anchor))] if anchor else []


def _version(home: Path) -> int:
    """Returns the version of a JDK, 0 if there is none."""
    release, compiler = home / "release", shutil.which("javac", path=home / "bin")
    if compiler is None or not release.is_file():
        return 0
    found = re.search(r'JAVA_VERSION="(\d+)', release.read_text())
    return int(found[1]) if found else 0


def _built(java: Path, maven: str) -> Path:
    """Returns the folder of the launcher and its jars, which is made once for each launcher."""
    sources = sorted(path for path in SOURCES.rglob("*") if path.suffix in {".java", ".xml"})
    digest = hashlib.sha256(str(java).encode() + b"".join(map(Path.read_bytes, sources)))
    built = BUILD / f"opensearch-{digest.hexdigest()[:16]}"
    if built.exists():
        return built
    draft = built.with_suffix(".draft")
    shutil.rmtree(draft, ignore_errors=True)
    jars = draft / "jars"
    command = [maven, "-q", "-B", "-f", SOURCES / "pom.xml", "dependency:copy-dependencies"]
    subprocess.run(
        [*command, f"-DoutputDirectory={jars}"],
        check=True,
        stdout=sys.stderr,
        env={**os.environ, "JAVA_HOME": str(java)},
        timeout=10 * MINUTE,
    )
    for plugin in jars.glob("*.zip"):
        with zipfile.ZipFile(plugin) as archive:
            archive.extractall(jars, [n for n in archive.namelist() if n.endswith(".jar")])
    code = [path for path in sources if path.suffix == ".java"]
    command = [java / "bin/javac", "-cp", jars / "*", "-d", draft, *code]
    subprocess.run(command, check=True, timeout=MINUTE)
    draft.rename(built)
    return built
