"""A standalone cluster on loopback, started from the pip package: two executors fit in."""
from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mqcore.bench.cpu import process_tree
from tests.spark.jvm import LAUNCHER, jvm_options
from tests.support.stock import free_port
from tests.support.waiting import wait_until

REGISTERED = "Registering worker"       # in the master's log
EXECUTOR_CLASS = b"CoarseGrainedExecutorBackend"


@dataclass(frozen=True)
class Cluster:
    """master: its URL; worker: the pid of its JVM."""

    master: str
    worker: int

    def executors(self) -> list[int]:
        """Pids of the executors' JVMs."""
        found = []
        for pid in process_tree(self.worker):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if EXECUTOR_CLASS in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found


@contextlib.contextmanager
def standalone(folder: Path) -> Iterator[Cluster]:
    """Master and worker; their logs and work are below `folder`."""
    import pyspark

    home = Path(pyspark.__file__).parent
    folder.mkdir(parents=True)
    environment = {
        **os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "128m", "SPARK_DAEMON_JAVA_OPTS": jvm_options(),
        "SPARK_LAUNCHER_OPTS": LAUNCHER,
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false"}
    for name in ("PYTHONPATH", "SPARK_CONF_DIR"):   # a class path like the driver's
        environment.pop(name, None)
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> int:
        with (folder / f"{name}.log").open("wb") as log:
            started.append(subprocess.Popen(
                [home / "bin/spark-class", f"org.apache.spark.deploy.{arguments[0]}",
                 *arguments[1:]],
                env=environment, stdout=log, stderr=log, start_new_session=True))
        return started[-1].pid

    port = free_port()
    said = folder / "master.log"
    url = f"spark://127.0.0.1:{port}"
    try:
        start("master", "master.Master", "--host", "127.0.0.1", "--port", str(port),
              "--webui-port", "0")
        worker = start(
            "worker", "worker.Worker", "--host", "127.0.0.1", "--cores", "8", "--memory", "1536m",
            "--webui-port", "0", "--work-dir", str(folder / "work"), url)
        wait_until(lambda: REGISTERED in said.read_text(), "the worker is registered", 240)
        yield Cluster(url, worker)
    finally:
        for process in reversed(started):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
