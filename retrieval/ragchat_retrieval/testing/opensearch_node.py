"""An OpenSearch node of one's own on loopback, for tests and benchmarks.

No archive of the distribution is on Maven Central, but its jars are: Maven brings them, and a
launcher runs a node with its plugins on the class path. Both are made once and kept.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ragchat_retrieval.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

OLDEST_JAVA: Final = 21

MINUTE: Final = 60.0

_JVM_FOLDERS: Final = (
    *("/usr/lib/jvm/*", "/usr/java/*", "/opt/java/*"),
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "C:/Program Files/*/jdk*",
)


@dataclass(frozen=True, slots=True)
class OpenSearchNode:
    """A node that runs."""

    url: str
    transport: str
    """Where other nodes find it."""

    process: subprocess.Popen[str]


@dataclass(frozen=True, slots=True)
class OpenSearchProgram:
    """What runs nodes."""

    java: Path
    """Home of the JDK."""

    built: Path
    """Folder of the launcher and its jars."""

    @contextmanager
    def node(
        self,
        folder: Path,
        settings: Mapping[str, str],
        *,
        jvm: Sequence[str] = (),
        owner: int | None = None,
    ) -> Iterator[OpenSearchNode]:
        """Runs a node, and ends it at once when it is not needed any more.

        Args:
            folder: For its data; exists and is empty.
            settings: Of the node, beside those that keep it on loopback.
            jvm: Options of the virtual machine.
            owner: Id of a process with which the node ends too; this one unless given.

        Yields:
            The node, which answers by then.

        Raises:
            StoreUnavailable: It did not start; the end of its log is in the message.
        """
        given = {
            "network.host": "127.0.0.1",
            "http.port": "0",
            "transport.port": "0",
            "cluster.routing.allocation.disk.threshold_enabled": "false",
            **settings,
        }
        command: list[str | Path] = [
            self.java / "bin/java",
            *jvm,
            "--enable-native-access=ALL-UNNAMED",
        ]
        command += ["-cp", f"{self.built}{os.pathsep}{self.built / 'jars/*'}", "Launcher"]
        command += [str(owner or os.getpid()), folder]
        command += [f"{name}={value}" for name, value in given.items()]
        (folder / "config").mkdir()
        log = folder / "log"
        with (
            log.open("w") as errors,
            subprocess.Popen(  # noqa: S603 - a JDK's program, with arguments of ours
                command, stdout=subprocess.PIPE, stderr=errors, text=True
            ) as process,
        ):
            try:
                assert process.stdout is not None
                ready = re.search(r"^(\S+:\d+) (\S+:\d+)$", process.stdout.readline())
                if ready is None:
                    problem = f"did not start:\n{log.read_text()[-4000:]}"
                    raise StoreUnavailable(problem, store="opensearch")
                yield OpenSearchNode(f"http://{ready[1]}", ready[2], process)
            finally:
                process.kill()  # an orderly end would first write out what is deleted next


def opensearch_program(sources: Path, build: Path) -> OpenSearchProgram:
    """Builds what runs nodes, unless that was done before. Call it in one process at a time.

    Args:
        sources: Folder of the launcher and of the Maven project that names the jars.
        build: Folder to keep both in.

    Raises:
        StoreUnavailable: The machine has no JDK that is new enough, or no Maven.
    """
    java, maven = _java_home(), shutil.which("mvn")
    if java is None:
        problem = f"no JDK of Java {OLDEST_JAVA} or newer in JAVA_HOME, PATH or the usual places"
        raise StoreUnavailable(problem, store="opensearch")
    if maven is None:
        raise StoreUnavailable("Maven is not installed", store="opensearch")
    return OpenSearchProgram(java, _built(java, maven, sources, build))


def _java_home() -> Path | None:
    """Returns where a JDK is that is new enough."""
    on_path = shutil.which("javac")
    homes = [
        *([Path(os.environ["JAVA_HOME"])] if "JAVA_HOME" in os.environ else []),
        *([Path(on_path).resolve().parents[1]] if on_path else []),
        *(Path(home) for folder in _JVM_FOLDERS for home in sorted(_glob(folder), reverse=True)),
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


def _built(java: Path, maven: str, sources: Path, build: Path) -> Path:
    """Returns the folder of the launcher and its jars, which is made once for each launcher."""
    files = sorted(path for path in sources.rglob("*") if path.suffix in {".java", ".xml"})
    digest = hashlib.sha256(str(java).encode() + b"".join(map(Path.read_bytes, files)))
    built = build / f"opensearch-{digest.hexdigest()[:16]}"
    if built.exists():
        return built
    draft = built.with_suffix(".draft")
    shutil.rmtree(draft, ignore_errors=True)
    jars = draft / "jars"
    command: list[str | Path] = [
        maven,
        "-q",
        "-B",
        "-f",
        sources / "pom.xml",
        "dependency:copy-dependencies",
    ]
    subprocess.run(  # noqa: S603 - the build tool, with arguments of ours
        [*command, f"-DoutputDirectory={jars}"],
        check=True,
        stdout=sys.stderr,
        env={**os.environ, "JAVA_HOME": str(java)},
        timeout=10 * MINUTE,
    )
    for plugin in jars.glob("*.zip"):
        with zipfile.ZipFile(plugin) as archive:
            archive.extractall(jars, [n for n in archive.namelist() if n.endswith(".jar")])
    command = [java / "bin/javac", "-cp", jars / "*", "-d", draft]
    command += [path for path in files if path.suffix == ".java"]
    subprocess.run(command, check=True, timeout=MINUTE)  # noqa: S603 - the JDK's compiler
    draft.rename(built)
    return built
