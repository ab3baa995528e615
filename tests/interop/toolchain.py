"""
Builds the client programs below tests/interop/clients, each once, into the test cache.

A build lives in a folder named by a hash of its sources, so an edit makes a new one. A missing tool
or a failed set-up skips the tests that need it; with CI=true in the environment it fails them.
"""
from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from mqcore.testing import MemoryBroker
from tests.support.ci import unavailable
from tests.support.stock import CACHE, JAVA_OPENS, alone

SOURCES = Path(__file__).parent / "clients"
BUILD_TIMEOUT_S = 600
JVM_OPTIONS = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8",
               "-Drocketmq.client.rebalance.waitInterval=1000",     # milliseconds, not 20 s
               *JAVA_OPENS)


class SetupError(RuntimeError):
    """A client program could not be built on this machine."""


@functools.cache
def command_of(client: str) -> tuple[str, ...] | SetupError:
    """The command line that starts the program of `client`, or why there is none."""
    try:
        return _BUILDERS[client]()
    except SetupError as error:
        return error


def require_client(client: str) -> tuple[str, ...]:
    """The command line of `client`, or the end of the calling test (see `unavailable`)."""
    found = command_of(client)
    if isinstance(found, SetupError):
        unavailable(f"no {client} client: {found}")
    return found


# -- one builder for each client -------------------------------------------------------------------


def _java() -> tuple[str, ...]:
    java = _tool("java")
    folder = _built("java", _build_java, Path(java).resolve())
    archive = folder / "classes.jsa"
    shared = [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []
    return (java, *shared, *_program(folder))


def _program(folder: Path) -> tuple[str, ...]:
    classpath = os.pathsep.join([str(folder / "interop-clients.jar"), str(folder / "lib" / "*")])
    return (*JVM_OPTIONS, "-cp", classpath, "mqcore.interop.Main")


def _build_java(source: Path, target: Path) -> None:
    libraries = target / "lib"
    _run([_tool("mvn"), "-B", "-q", "package", "dependency:copy-dependencies",
          "-DincludeScope=runtime", f"-DoutputDirectory={libraries}"], source)
    shutil.copy(source / "target" / "interop-clients.jar", target)
    _archive_classes(target)


def _archive_classes(folder: Path) -> None:
    """
    What clients load, ready in a file: half the processor time of one that sends a few messages.
    A JVM before 13 knows no such file, and makes none.
    """
    topic = {"topic": "T", "group": "G", "expression": "*", "from": "CONSUME_FROM_FIRST_OFFSET",
             "batch": 1, "maxReconsume": -1}
    commands = (
        {"do": "create-topic", "topic": "T", "queues": 1},
        {"do": "push", "member": "a", "routes": 1000, "heartbeats": 30_000, **topic},
        {"do": "pull", "member": "b", "autoCommit": True, **topic, "group": "H"},
        {"do": "send", "topic": "T", "messages": [{"key": "k", "tags": None, "queue": 0}]},
    )
    with MemoryBroker() as broker:
        _run([_tool("java"), "-XX:+IgnoreUnrecognizedVMOptions",
              f"-XX:ArchiveClassesAtExit={folder / 'classes.jsa'}", f"-Duser.home={folder}",
              *_program(folder), "members", "--namesrv", broker.namesrv,
              "--out", str(folder / "seen.jsonl")],
             folder, "".join(f"{json.dumps(one)}\n" for one in commands))


def _go() -> tuple[str, ...]:
    return (str(_built("go", _build_go) / "client"),)


def _go_tls() -> tuple[str, ...]:
    return (str(_built("go", _build_go_tls, variant="-tls") / "client"),)


def _build_go(source: Path, target: Path, *options: str) -> None:
    _run([_tool("go"), "build", "-mod=readonly", *options, "-o", str(target / "client"), "."],
         source)


def _build_go_tls(source: Path, target: Path) -> None:
    """With the first client that has TLS: no release has it."""
    _build_go(source, target, "-modfile=tls.mod", "-tags=tls")


def _node() -> tuple[str, ...]:
    return (_tool("node"), str(_built("node", _build_node) / "client.js"))


def _build_node(source: Path, target: Path) -> None:
    _run([_tool("npm"), "ci", "--no-audit", "--no-fund"], source)
    shutil.copytree(source, target, dirs_exist_ok=True, symlinks=True)


def _cpp() -> tuple[str, ...]:
    folder = _built("python", _build_cpp)
    return (str(folder / "venv" / "bin" / "python"), str(SOURCES / "python" / "client.py"))


def _build_cpp(source: Path, target: Path) -> None:
    """A virtual environment knows its own path, so this one cannot be moved: see _built."""
    _run([sys.executable, "-m", "venv", str(target / "venv")], source)
    python = str(target / "venv" / "bin" / "python")
    _run([python, "-m", "pip", "install", "-q", "-r", "requirements.txt"], source)
    _run([python, "-c", "import rocketmq.client"], source)


def _grpc() -> tuple[str, ...]:
    """A Python with the official client of RocketMQ 5, and gRPC."""
    folder = _built("python_grpc", _build_grpc)
    return (str(folder / "venv" / "bin" / "python"),)


def _build_grpc(source: Path, target: Path) -> None:
    _run([sys.executable, "-m", "venv", str(target / "venv")], source)
    python = str(target / "venv" / "bin" / "python")
    _run([python, "-m", "pip", "install", "-q", "-r", "requirements.txt"], source)
    _run([python, "-c", "import rocketmq, grpc"], source)


def _go_grpc() -> tuple[str, ...]:
    return (str(_built("go_grpc", _build_go) / "client"),)


def _node_grpc() -> tuple[str, ...]:
    return (_tool("node"), str(_built("node_grpc", _build_node) / "client.js"))


def _rust_grpc() -> tuple[str, ...]:
    return (str(_built("rust_grpc", _build_rust) / "client"),)


def _build_rust(source: Path, target: Path) -> None:
    _run([_tool("cargo"), "build", "--locked", "--quiet"], source)
    shutil.copy(source / "target" / "debug" / "client", target)


_BUILDERS: dict[str, Callable[[], tuple[str, ...]]] = {
    "java": _java, "go": _go, "go-tls": _go_tls, "cpp": _cpp, "node": _node,
    "grpc": _grpc, "go-grpc": _go_grpc, "node-grpc": _node_grpc, "rust-grpc": _rust_grpc,
}


# -- the cache -------------------------------------------------------------------------------------


def _built(name: str, build: Callable[[Path, Path], None], tool: Path | None = None,
           variant: str = "") -> Path:
    """
    The finished build of clients/`name`: a folder that holds the file `finished`.

    tool: another one has a build of its own. variant: one of several builds of the sources.

    Built in a copy of the sources, so that the working tree stays clean, by one process: others
    that want it wait.
    """
    folder = CACHE / f"interop-{name}{variant}-{_fingerprint(SOURCES / name, tool)}"
    marker = folder / "finished"
    with alone(folder.name):
        if marker.exists():
            return folder
        with tempfile.TemporaryDirectory(dir=CACHE, prefix="building-") as scratch:
            source = Path(scratch, "source")
            shutil.copytree(SOURCES / name, source,
                            ignore=shutil.ignore_patterns("node_modules", "target"))
            folder.mkdir(exist_ok=True)
            build(source, folder)
        marker.touch()
    return folder


def _fingerprint(source: Path, tool: Path | None) -> str:
    digest = hashlib.sha256(sys.version.encode())
    if tool is not None:
        digest.update(f"{tool} {tool.stat().st_mtime_ns}".encode())
    for file in sorted(path for path in source.rglob("*") if path.is_file()):
        relative = file.relative_to(source)
        if {"node_modules", "target", "__pycache__"} & set(relative.parts):
            continue
        digest.update(f"{relative}\0".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise SetupError(f"{name} is not installed")
    return found


def _run(command: list[str], folder: Path, told: str = "") -> None:
    try:
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True, input=told,
                             timeout=BUILD_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise SetupError(f"{command[0]} took more than {BUILD_TIMEOUT_S} s") from error
    if run.returncode:
        raise SetupError(f"{' '.join(command)} failed:\n{(run.stdout + run.stderr)[-3000:]}")
