"""The image: the Dockerfile's own instructions, carried out, and containers of what they make."""
from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from mqcore.bench.control import find_target
from mqcore.bench.load import ProduceOptions, Span, produce
from tests.deploy.image import Builder, Stage, container, inside, instructions, process_one
from tests.http.asking import checks, raw
from tests.support.ci import unavailable
from tests.support.control_group import control_group
from tests.support.stock import free_broker_port, free_port
from tests.support.waiting import WAIT_S, wait_until
from tests.test_wheel import EXTENSION, SHARED, compiled

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "Dockerfile"
MIB = 1 << 20
TRY = "mkdir u w m && mount -t overlay overlay -o lowerdir=/,upperdir=u,workdir=w m"
SMALL = """
[broker]
namesrv_addrs = ["127.0.0.1:{namesrv}"]
[store]
segment_size_bytes = 67108864
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """Made as the file says, only that the modules are compiled already: that takes a minute."""
    folder = tmp_path_factory.mktemp("image")
    tried = subprocess.run(["unshare", "--mount", "--pid", "--fork", "sh", "-c", TRY], cwd=folder,
                           capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        unavailable(f"no overlay can be mounted here: {tried.stderr.strip()}")
    builder = Builder(FILE, ROOT, folder)
    if not os.environ.get("MQCORE_TEST_COMPILE"):
        version = f"{sys.version_info.major}{sys.version_info.minor}"
        machine = os.uname().machine
        built = folder / "built"
        for name in compiled():
            (built / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / f"{name}{EXTENSION}", built / f"{name}{EXTENSION}")
        builder.added.append((built, f"/src/build/lib.linux-{machine}-cpython-{version}"))
        builder.environment["MQCORE_BUILD_ONLY"] = SHARED
    return builder.build()


@dataclass
class Running:
    """A broker in a container. pid: of its process 1, outside; http: its port."""

    process: subprocess.Popen[bytes]
    pid: int
    broker: str
    http: int
    output: Path

    def stopped(self) -> tuple[int, str]:
        os.kill(self.pid, signal.SIGTERM)
        return self.process.wait(WAIT_S), self.output.read_text(encoding="utf-8")


@contextmanager
def broker_of(image: Stage, folder: Path, within: list[str]) -> Iterator[Running]:
    settings = folder / "settings"
    settings.mkdir()
    port, namesrv, http = free_broker_port(), free_port(), free_port()
    (settings / "broker.toml").write_text(SMALL.format(namesrv=namesrv), encoding="utf-8")
    output = folder / "output"
    # the network is this machine's: ports are free ones, and no other host reaches them
    environment = {
        "MQCORE_BROKER_LISTEN_HOST": "127.0.0.1", "MQCORE_BROKER_LISTEN_PORT": str(port),
        "MQCORE_BROKER_ADVERTISED_HOST": "localhost", "MQCORE_NAMESRV_LISTEN_HOST": "127.0.0.1",
        "MQCORE_NAMESRV_LISTEN_PORT": str(namesrv), "MQCORE_HTTP_LISTEN": f"127.0.0.1:{http}"}
    with container(image, folder, ["up", "-c", "/etc/mqcore/broker.toml"], environment,
                   settings=settings, within=within, output=output) as process:
        wait_until(lambda: process.poll() is not None or "mqcore ready" in output.read_text(),
                   "the line that says ready")
        assert process.poll() is None, output.read_text()
        yield Running(process, process_one(process.pid), f"127.0.0.1:{port}", http, output)


def said_of(pid: int, key: str) -> list[str]:
    text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    found = re.search(rf"^{key}:(.*)$", text, re.MULTILINE)
    assert found is not None
    return found[1].split()


def zombies(pid: int) -> list[str]:
    """Of the children of a process."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
    return [child for child in children if said_of(int(child), "State")[0] == "Z"]


def test_a_dockerfile_is_read_with_its_continued_lines() -> None:
    assert instructions("# one\nFROM a AS b\nRUN x \\\n    && y\n# two\nENV A=1 \\\n    B=2\n") == [
        ("FROM", "a AS b"), ("RUN", "x      && y"), ("ENV", "A=1      B=2")]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_image_has_the_command_and_nothing_of_the_build(image: Stage) -> None:
    names = {str(path.relative_to(image.layer)) for path in image.layer.rglob("*")}
    assert "opt/mqcore/bin/mqcore" in names
    assert {name.partition("/")[0] for name in names} <= {
        "opt", "usr", "etc", "var", "mnt", "root", "tmp"}
    ours = [name for name in names if re.search(r"site-packages/mqcore\b", name)]
    assert len([name for name in ours if name.endswith(".so")]) >= len(compiled()) - 1
    assert not [name for name in ours if name.endswith((".c", ".pyx", ".o")) or "/probes" in name]
    owner = (image.layer / "var/lib/mqcore").stat()
    assert (owner.st_uid, owner.st_gid, owner.st_mode & 0o777) == (10911, 10911, 0o750)
    assert (image.user, image.said["STOPSIGNAL"]) == ("10911", "SIGTERM")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_broker_is_process_1_of_a_small_container(image: Stage, tmp_path: Path) -> None:
    """
    As a stranger to the machine: another account without capabilities, a root that cannot be
    written, 64 MiB of /dev/shm, 256 MiB of memory.
    """
    with control_group(256 * MIB) as within, broker_of(image, tmp_path, within) as broker:
        assert said_of(broker.pid, "NSpid")[1:] == ["1"]
        assert said_of(broker.pid, "Uid") == ["10911"] * 4
        assert said_of(broker.pid, "CapEff") == said_of(broker.pid, "CapBnd") == ["0" * 16]
        refused = inside(image, broker.pid, "touch", "/opt/file")
        assert "Read-only file system" in refused.stderr, refused
        assert "65536" in inside(image, broker.pid, "df", "-k", "/dev/shm").stdout

        target = find_target("many", broker=broker.broker, namesrv=None, queues=4)
        sent = produce(target, ProduceOptions(
            span=Span(count=60_000), connections=4, depth=16, size=1024))
        assert (sent.errors, sent.lost) == (0, 0), sent.first_error
        assert checks(broker.http, "/healthz") == (200, {})
        assert checks(broker.http, "/readyz") == (200, {})

        probe = image.words["HEALTHCHECK"]
        ours = [word.replace("10980", str(broker.http)) for word in probe]
        assert inside(image, broker.pid, *ours).returncode == 0
        assert inside(image, broker.pid, *probe).returncode == 1       # at another port
        status = inside(image, broker.pid, "mqcore", "status")
        assert (status.returncode, "writer" in status.stdout) == (0, True), status

        # an engine's `exec` whose command leaves a process behind
        assert inside(image, broker.pid, "sh", "-c", "true & exec sleep 0").returncode == 0
        raw(broker.http, b"GET /healthz HTTP/1.0\r\n\r\n")
        wait_until(lambda: not zombies(broker.pid), "the end of the processes that were left")

        code, output = broker.stopped()
        assert (code, "Traceback" in output) == (0, False), output
        assert not (tmp_path / "volume" / "abort").exists()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_stop_right_after_the_start_is_heard_by_process_1(image: Stage, tmp_path: Path) -> None:
    """The kernel drops a signal to process 1 that it has no handler for."""
    with broker_of(image, tmp_path, []) as broker:
        assert broker.stopped()[0] == 0
