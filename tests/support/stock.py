"""
The stock RocketMQ name server and broker (Java, from Maven Central) as test and perf fixtures.

    with stock_cluster(tmp_path, {"flushDiskType": "SYNC_FLUSH"}) as cluster:
        cluster.namesrv_addr, cluster.broker_addr, cluster.broker_pid

Needs `java` and, the first time, `mvn` with a reachable Maven repository; `require_stock()` skips a
test that has neither. Nothing here imports the compiled core, so it works before a build.
"""
from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import hashlib
import json
import os
import random
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.ci import unavailable

STOCK_VERSION, STOCK5_VERSION = "4.9.7", "5.3.3"


def _server(version: str) -> tuple[str, ...]:
    """The artifacts of a stock broker and name server."""
    return (f"org.apache.rocketmq:rocketmq-broker:{version}",
            f"org.apache.rocketmq:rocketmq-namesrv:{version}")


STOCK_ARTIFACTS = _server(STOCK_VERSION)
CACHE = Path(os.environ.get("MQCORE_TEST_CACHE", Path.home() / ".cache" / "mqcore-test"))

MAVEN_TIMEOUT_S = 300
JAVAC_TIMEOUT_S = 90
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 20
PROBE_TIMEOUT_S = 2
POLL_INTERVAL_S = 0.05
SEND_QUEUE_MS = 10_000                  # 200 as shipped, but others use the machine
PORT_RANGE = range(20_000, 32_000)      # below the ephemeral range: no client socket sits there
CHOSEN_MAX = 48                         # ports of one process that others do not choose
GET_BROKER_CLUSTER_INFO = 106
PR_SET_PDEATHSIG = 1

# RocketMQ 4.9 was written for Java 8: newer ones must be told that its reflection is welcome.
JAVA_OPENS = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
)
# A JVM of a test lives for seconds: the compiler that is quick at its work, one collecting thread.
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
ARCHIVING, UNSHARED = "-XX:ArchiveClassesAtExit", "-Xshare:off"
# System properties. Else a start makes two keys and certificates, which is half of what it takes.
WITHOUT_TLS = {"tls.server.mode": "disabled"}
NAMESRV_JVM = ("-Xms64m", "-Xmx256m", *SHORT_LIVED)
BROKER_JVM = ("-Xms128m", "-Xmx1g", *SHORT_LIVED)
# Properties: files of megabytes, which are made with the first message, and not of gigabytes.
SMALL_STOCK: dict[str, object] = {
    "mappedFileSizeCommitLog": 64 << 20, "mappedFileSizeConsumeQueue": 20_000 * 20,
    "maxHashSlotNum": 50_000, "maxIndexNum": 200_000}

_LOGBACK = """<configuration>
  <appender name="file" class="ch.qos.logback.core.FileAppender">
    <file>{log}</file>
    <encoder><pattern>%d %p %t %c - %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="file"/></root>
</configuration>
"""


class StockError(RuntimeError):
    """The stock programs could not be resolved, started or reached."""


def have_stock(version: str = STOCK_VERSION) -> bool:
    """Whether the stock broker can be run: `java`, and its jars cached or `mvn` to get them."""
    if shutil.which("java") is None:
        return False
    return _cache_folder(_server(version)).is_dir() or shutil.which("mvn") is not None


def require_stock() -> None:
    """Skip the calling test unless the stock broker can be run; in CI, fail it."""
    if not have_stock():
        unavailable("needs java, and mvn or an earlier download of the stock broker")


# -- jars ------------------------------------------------------------------------------------------


def stock_classpath(artifacts: Sequence[str] = STOCK_ARTIFACTS) -> str:
    """
    The class path of Maven artifacts and all they depend on at run time.

    artifacts: `group:artifact:version` each. Resolved once into a folder below CACHE (or
    $MQCORE_TEST_CACHE); later calls with the same artifacts touch no network. Raises StockError.
    """
    folder = _cache_folder(artifacts)
    with alone(folder.name):
        if not folder.is_dir():
            _download(artifacts, folder)
    jars = sorted(str(jar) for jar in folder.glob("*.jar"))
    if not jars:
        raise StockError(f"no jars in {folder}: delete the folder to resolve it again")
    return os.pathsep.join(jars)


@contextlib.contextmanager
def alone(name: str) -> Iterator[None]:
    """One process at a time makes what CACHE has under `name`."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _cache_folder(artifacts: Sequence[str]) -> Path:
    for version in (STOCK_VERSION, STOCK5_VERSION):
        if tuple(artifacts) == _server(version):
            return CACHE / f"stock-{version}"
    first = artifacts[0].split(":")
    digest = hashlib.sha256("\n".join(artifacts).encode()).hexdigest()[:10]
    return CACHE / f"{first[1]}-{first[2]}-{digest}"


def _download(artifacts: Sequence[str], folder: Path) -> None:
    if shutil.which("mvn") is None:
        raise StockError("mvn is not installed, so the stock jars cannot be resolved")
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="resolving-") as scratch:
        jars = Path(scratch, "jars")
        Path(scratch, "pom.xml").write_text(_pom(artifacts))
        run = subprocess.run(
            ["mvn", "-B", "-q", "dependency:copy-dependencies", "-DincludeScope=runtime",
             f"-DoutputDirectory={jars}"],
            cwd=scratch, capture_output=True, text=True, timeout=MAVEN_TIMEOUT_S, check=False,
        )
        if run.returncode:
            raise StockError(f"maven could not resolve {list(artifacts)}:\n{run.stdout[-2000:]}")
        jars.rename(folder)


@functools.cache
def java_classes(source: Path, classpath: str) -> Path:
    """
    The folder with the classes of a Java file, compiled once into CACHE: the compiler takes more
    than most of what it compiles here. Ends the calling test where there is none.
    """
    compiler = shutil.which("javac")
    if compiler is None:
        unavailable("needs javac")
    said = f"{compiler} {Path(compiler).stat().st_mtime_ns} {classpath} {source.read_text()}"
    folder = CACHE / f"{source.stem}-{hashlib.sha256(said.encode()).hexdigest()[:10]}"
    with alone(folder.name):
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=CACHE, prefix="compiling-") as scratch:
                classes = Path(scratch, "classes")
                subprocess.run(
                    [compiler, *(f"-J{option}" for option in SHORT_LIVED), "-proc:none",
                     "-cp", classpath, "-d", classes, source], check=True, timeout=JAVAC_TIMEOUT_S)
                classes.rename(folder)
    return folder


@functools.cache
def _shared_classes(version: str) -> tuple[str, ...]:
    """
    Options for what brokers and name servers load, ready in a file: half of what a start takes. A
    JVM before 13 knows no such file, and makes none.
    """
    java = Path(shutil.which("java") or "java").resolve()
    classpath = stock_classpath(_server(version))
    digest = hashlib.sha256(f"{java} {java.stat().st_mtime_ns} {classpath}".encode()).hexdigest()
    archive = CACHE / f"stock-{version}-{digest[:10]}.jsa"
    with alone(archive.name):
        if not archive.exists():
            _archive_classes(archive, version)
    there = archive.exists() and archive.stat().st_size
    return (f"-XX:SharedArchiveFile={archive}",) if there else ()


def _archive_classes(archive: Path, version: str) -> None:
    """Write it as a broker ends: empty when the JVM makes none, not at all when it is killed."""
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="archiving-") as scratch:
        made = Path(scratch, archive.name)
        namesrv = start_namesrv(Path(scratch, "namesrv"), jvm_options=(*NAMESRV_JVM, UNSHARED),
                                version=version)
        try:
            broker = start_broker(Path(scratch, "broker"), namesrv.addr, {
                "mappedFileSizeCommitLog": 64 << 20, "maxHashSlotNum": 500, "maxIndexNum": 2_000,
            }, jvm_options=(*BROKER_JVM, "-XX:+IgnoreUnrecognizedVMOptions",
                            f"{ARCHIVING}={made}"), version=version)
            broker.stop()
        finally:
            namesrv.stop()
        if broker.process.returncode != -signal.SIGKILL:
            made.touch()
            made.rename(archive)


def _pom(artifacts: Sequence[str]) -> str:
    dependencies = []
    for artifact in artifacts:
        group, name, version = artifact.split(":")
        dependencies.append(
            f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
            f"<version>{version}</version></dependency>"
        )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>mqcore.test</groupId><artifactId>classpath</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{''.join(dependencies)}</dependencies></project>"
    )


# -- ports and probing -----------------------------------------------------------------------------

_chosen: deque[int] = deque()           # descriptors of locks, the oldest first


def free_broker_port() -> int:
    """A port that is free together with its fast port (-2) and its replication port (+1)."""
    for _ in range(200):
        port = random.choice(PORT_RANGE)
        if _take([port - 2, port, port + 1]):
            return port
    raise StockError(f"no three free ports in {PORT_RANGE}")


def free_port() -> int:
    """A free TCP port outside the ephemeral range."""
    for _ in range(200):
        port = random.choice(PORT_RANGE)
        if _take([port]):
            return port
    raise StockError(f"no free port in {PORT_RANGE}")


def _take(ports: Sequence[int]) -> bool:
    """
    Whether all are free, and no test's process has chosen one of them that is not in use yet: each
    locks a file for each of its last choices.
    """
    folder = Path(tempfile.gettempdir()) / f"mqcore-test-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    locks: list[int] = []
    for port in ports:
        locks.append(os.open(folder / str(port), os.O_RDWR | os.O_CREAT, 0o600))
        try:
            fcntl.flock(locks[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
            taken = not _is_free(port)
        except BlockingIOError:
            taken = True
        if taken:
            for lock in locks:
                os.close(lock)
            return False
    _chosen.extend(locks)
    while len(_chosen) > CHOSEN_MAX:
        os.close(_chosen.popleft())
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


def registered_brokers(namesrv_addr: str, tls: ssl.SSLContext | None = None) -> set[str]:
    """
    Names of the brokers that a name server knows (code 106), asked by TLS with a context. OSError
    when it is away.
    """
    header = json.dumps(
        {"code": GET_BROKER_CLUSTER_INFO, "flag": 0, "language": "PYTHON", "opaque": 1,
         "version": 409}
    ).encode()
    host, port = namesrv_addr.rsplit(":", 1)
    with contextlib.ExitStack() as opened:
        peer = socket.create_connection((host, int(port)), timeout=PROBE_TIMEOUT_S)
        if tls is not None:
            peer = tls.wrap_socket(peer, server_hostname=host)
        opened.enter_context(peer)
        peer.sendall(struct.pack(">II", 4 + len(header), len(header)) + header)
        stream = peer.makefile("rb")
        size, header_size = struct.unpack(">II", stream.read(8))
        stream.read(header_size)
        body = stream.read(size - 4 - header_size).decode()
    # fastjson writes the ids bare ({0:"addr"}), so this is not JSON: brokerName is what we need
    return {part.split('"')[0] for part in body.split('"brokerName":"')[1:]}


# -- processes -------------------------------------------------------------------------------------


@dataclass
class StockProcess:
    """One running Java program of the stock distribution."""

    name: str
    addr: str
    home: Path
    process: subprocess.Popen[bytes]
    output: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        """End it like a power cut ends a process: no shutdown hook runs."""
        self.process.kill()
        self.process.wait(STOP_TIMEOUT_S)

    def stop(self) -> None:
        """Clean stop; a process that does not end within STOP_TIMEOUT_S is killed."""
        if self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def tail(self) -> str:
        """The end of its output and log, for a failure's message."""
        files = (self.output, self.home / "logs" / f"{self.name}.log")
        found = (file for file in files if file.exists())
        return "\n".join(file.read_text(errors="replace")[-1500:] for file in found)


def start_namesrv(
    folder: Path, properties: Mapping[str, object] | None = None, port: int | None = None,
    jvm_options: Sequence[str] = NAMESRV_JVM, system: Mapping[str, object] = WITHOUT_TLS,
    names_tls: ssl.SSLContext | None = None, version: str = STOCK_VERSION,
) -> StockProcess:
    """
    Start a stock name server whose files live in `folder`; returns once it answers. names_tls: what
    it is asked with, when it speaks TLS alone.
    """
    port = port or free_port()
    started = _start(
        "namesrv", "org.apache.rocketmq.namesrv.NamesrvStartup", folder,
        {"listenPort": port, **(properties or {})}, f"127.0.0.1:{port}", jvm_options, system,
        version=version,
    )

    def answers() -> bool:
        registered_brokers(started.addr, names_tls)
        return True

    _wait_until(answers, started)
    return started


def start_broker(
    folder: Path, namesrv_addr: str, properties: Mapping[str, object] | None = None,
    port: int | None = None, jvm_options: Sequence[str] = BROKER_JVM,
    conf_files: Mapping[str, str] | None = None, system: Mapping[str, object] = WITHOUT_TLS,
    names_tls: ssl.SSLContext | None = None, ip: str = "127.0.0.1", program: Sequence[str] = (),
    version: str = STOCK_VERSION,
) -> StockProcess:
    """
    Start a stock broker; returns once `namesrv_addr` knows it and it accepts connections.

    folder: ROCKETMQ_HOME and, unless `properties` names another storePathRootDir, parent of the
    store (`folder/store`). conf_files: further files below conf/, such as `plain_acl.yml`.
    system: Java's system properties; with none it starts as users start it, without an archive.
    names_tls: what the name server is asked with, when it speaks TLS alone.
    It refuses sends that waited for SEND_QUEUE_MS, unless `properties` say otherwise.
    ip: where it is reached. program: a command that runs another one: Java goes behind it.
    """
    port = port or free_broker_port()
    given = dict(properties or {})
    store = Path(str(given.setdefault("storePathRootDir", folder / "store")))
    settings = {
        "brokerName": "stock-a", "brokerClusterName": "DefaultCluster", "brokerId": 0,
        "brokerIP1": ip, "brokerIP2": ip, "listenPort": port,
        "haListenPort": port + 1, "namesrvAddr": namesrv_addr,
        "storePathCommitLog": store / "commitlog",
        "waitTimeMillsInSendQueue": SEND_QUEUE_MS, **given,
    }
    started = _start("broker", "org.apache.rocketmq.broker.BrokerStartup", folder, settings,
                     f"{ip}:{port}", jvm_options, system, conf_files or {}, program, version)

    def is_ready() -> bool:
        with socket.create_connection((ip, port), timeout=PROBE_TIMEOUT_S):
            return str(settings["brokerName"]) in registered_brokers(namesrv_addr, names_tls)

    _wait_until(is_ready, started)
    return started


def _start(
    name: str, main_class: str, home: Path, properties: Mapping[str, object], addr: str,
    jvm_options: Sequence[str], system: Mapping[str, object],
    conf_files: Mapping[str, str] | None = None, program: Sequence[str] = (),
    version: str = STOCK_VERSION,
) -> StockProcess:
    classpath = stock_classpath(_server(version))
    home = home.absolute()
    for sub in ("conf", "logs"):
        (home / sub).mkdir(parents=True, exist_ok=True)
    (home / "conf" / f"logback_{name}.xml").write_text(
        _LOGBACK.format(log=home / "logs" / f"{name}.log"))
    for file_name, text in (conf_files or {}).items():
        target = home / "conf" / file_name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    conf = home / f"{name}.conf"
    conf.write_text("".join(f"{key}={_property(value)}\n" for key, value in properties.items()))
    output = home / f"{name}.out"
    shared = _shared_classes(version) if system and not any(
        option.startswith((ARCHIVING, UNSHARED)) for option in jvm_options) else ()
    command = [*program, "java", *jvm_options, *shared, *JAVA_OPENS, f"-Duser.home={home}",
               *(f"-D{name}={value}" for name, value in system.items()), "-cp", classpath,
               main_class, "-c", str(conf)]
    with output.open("wb") as sink:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, cwd=home,
            env={**os.environ, "ROCKETMQ_HOME": str(home)}, preexec_fn=die_with_parent,
        )
    return StockProcess(name, addr, home, process, output)


def _property(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def die_with_parent() -> None:
    """For preexec_fn: a test run that is killed leaves no program behind."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def end_input(process: subprocess.Popen[bytes], timeout_s: float) -> None:
    """Wait for what ends with its input; what has not ended in time is killed."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait_until(condition: Callable[[], bool], started: StockProcess) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, struct.error):        # not up yet: try again
            if condition():
                return
        with contextlib.suppress(subprocess.TimeoutExpired):
            started.process.wait(POLL_INTERVAL_S)
            raise StockError(f"stock {started.name} ended at start:\n{started.tail()}")
    text = started.tail()
    started.stop()
    raise StockError(f"stock {started.name} not ready after {START_TIMEOUT_S} s:\n{text}")


# -- the pair --------------------------------------------------------------------------------------


@dataclass
class StockCluster:
    """A stock name server with one stock master broker."""

    namesrv: StockProcess
    broker: StockProcess
    store: Path
    processes: list[StockProcess] = field(default_factory=list)

    @property
    def namesrv_addr(self) -> str:
        return self.namesrv.addr

    @property
    def broker_addr(self) -> str:
        return self.broker.addr

    @property
    def broker_pid(self) -> int:
        return self.broker.pid


@contextlib.contextmanager
def stock_cluster(
    tmp_path: Path, broker_properties: Mapping[str, object] | None = None, *,
    namesrv_properties: Mapping[str, object] | None = None,
    jvm_options: Sequence[str] = BROKER_JVM, conf_files: Mapping[str, str] | None = None,
    system: Mapping[str, object] = WITHOUT_TLS, names_tls: ssl.SSLContext | None = None,
    is_kept: bool = True, version: str = STOCK_VERSION,
) -> Iterator[StockCluster]:
    """
    Run a stock name server and a stock broker on free ports, with all their files below `tmp_path`.

    system, names_tls: as for start_broker. Both end with the block: the broker first and cleanly,
    so that its store can be read afterwards (`cluster.store`), which takes it six seconds and half
    of one of a processor; with is_kept=False it is killed. Raises StockError when either does not
    come up.
    """
    processes: list[StockProcess] = []
    try:
        namesrv = start_namesrv(tmp_path / "stock-namesrv", namesrv_properties, system=system,
                                names_tls=names_tls, version=version)
        processes.append(namesrv)
        broker = start_broker(tmp_path / "stock-broker", namesrv.addr, broker_properties,
                              jvm_options=jvm_options, conf_files=conf_files, system=system,
                              names_tls=names_tls, version=version)
        processes.append(broker)
        given = (broker_properties or {}).get("storePathRootDir", broker.home / "store")
        yield StockCluster(namesrv, broker, Path(str(given)), processes)
    finally:
        for started in reversed(processes):
            if is_kept and started.name == "broker":
                started.stop()
            else:
                started.kill()
