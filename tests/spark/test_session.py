"""What the builder makes of the surroundings, before a session is there."""
from __future__ import annotations

import os
import re
import socket
import struct
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from mqcore.bench.cpu import process_tree
from tests.spark.jvm import PRELOADED
from tests.support.waiting import wait_until

pyspark = pytest.importorskip("pyspark")

PROGRAM = """
import os
from mqcore.spark import builder
builder("x")
print(os.environ["PYSPARK_PYTHON"])
"""


@pytest.mark.parametrize("given", ["", "/opt/python3"])
def test_workers_run_under_this_python_unless_another_is_named(monkeypatch, given):
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    if given:
        monkeypatch.setenv("PYSPARK_PYTHON", given)
    said = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True,
                          check=True).stdout.strip()
    assert said == (given or sys.executable)


def test_parents_of_what_plans_have_loaded_the_sources_before_they_fork() -> None:
    """Those of the session of tests, and Spark's modules from where they are compiled."""
    path = [PRELOADED, *(Path(pyspark.__file__).parent / "python/lib").glob("*.zip")]
    said = subprocess.run(                      # its input has ended, and so it ends
        [sys.executable, "-m", "pyspark.daemon", "pyspark.sql.worker.create_data_source"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), "PYTHONVERBOSE": "1"}
    ).stderr
    loaded = dict(re.findall(r"^import '([\w.]+)' # <?([\w.]+)", said, re.MULTILINE))
    assert {"pyspark.sql.worker.create_data_source", "mqcore.spark.topics.source",
            "mqcore.spark.lake.writer", "mqcore.spark.store.source"} <= loaded.keys()
    assert [name for name, loader in loaded.items() if "zipimport" in loader] == []


def test_other_parents_are_forks_of_the_first_and_end_with_their_input() -> None:
    """Whatever a JVM starts: that imports once what all of them load."""
    parents: list[subprocess.Popen[bytes]] = []
    with ExitStack() as ends:
        for module in ("pyspark.daemon", "pyspark.daemon", "mqcore.spark.daemon"):
            parents.append(ends.enter_context(subprocess.Popen(
                [sys.executable, "-m", module, "pyspark.sql.worker.create_data_source"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": str(PRELOADED)})))
            ends.callback(parents[-1].kill)
            made = worker_of(parents[-1], ends)
            assert made in process_tree(parents[0].pid)
            assert (made in process_tree(parents[-1].pid)) == (len(parents) == 1)
        server = parent_of(parent_of(made))
        assert parent_of(server) == parents[0].pid
        assert parent_of_stream(ends) == server
        ended = []
        for one in reversed(parents):
            assert one.stdin is not None
            one.stdin.close()
            ended.append(one.wait(60))
        assert ended == [ended[-1]] * 3                 # as the first, which is Spark's own
        wait_until(lambda: not Path(f"/proc/{server}").exists(), "what forks them has ended", 60)


def test_a_connection_that_a_query_closes_is_no_error_of_a_worker() -> None:
    """As `.show()` does when it has its rows: workers wrote a traceback into the terminal."""
    with subprocess.Popen(
            [sys.executable, "-m", "mqcore.spark.daemon", "pyspark.worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, "PYTHON_WORKER_FACTORY_SECRET": "word",
                 "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1"}) as parent:
        assert parent.stdout is not None
        assert parent.stderr is not None
        assert parent.stdin is not None
        (port,) = struct.unpack("!i", parent.stdout.read(4))
        with socket.create_connection(("127.0.0.1", port)) as link:
            (pid,) = struct.unpack("!i", link.recv(4, socket.MSG_WAITALL))
            link.sendall(struct.pack("!i4s", 4, b"word"))
            assert link.recv(6, socket.MSG_WAITALL) == struct.pack("!i2s", 2, b"ok")
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the worker has ended", 60)
        parent.stdin.close()
        said = parent.stderr.read().decode()

    assert "BrokenPipeError" not in said
    assert "pyspark/daemon.py" not in said


def worker_of(parent: subprocess.Popen[bytes], ends: ExitStack) -> int:
    """The pid of a worker that it forks, which waits for words."""
    assert parent.stdout is not None
    (port,) = struct.unpack("!i", parent.stdout.read(4))
    link = ends.enter_context(socket.create_connection(("127.0.0.1", port)))
    return int(struct.unpack("!i", link.recv(4, socket.MSG_WAITALL))[0])


def parent_of_stream(ends: ExitStack) -> int:
    """The pid of what a stream's process is a child of; that process ends when it is told to."""
    listener = ends.enter_context(socket.create_server(("127.0.0.1", 0)))
    started = ends.enter_context(subprocess.Popen(
        [sys.executable, "-m", "pyspark.sql.streaming.python_streaming_source_runner"],
        env={**os.environ, "PYTHONPATH": str(PRELOADED), "PYTHON_WORKER_FACTORY_SECRET": "word",
             "PYTHON_WORKER_FACTORY_PORT": str(listener.getsockname()[1])}))
    ends.callback(started.kill)
    listener.settimeout(120)
    link = ends.enter_context(listener.accept()[0])
    assert link.recv(8, socket.MSG_WAITALL) == struct.pack("!i4s", 4, b"word")
    link.sendall(struct.pack("!i2s", 2, b"ok"))
    found = parent_of(int(struct.unpack("!i", link.recv(4, socket.MSG_WAITALL))[0]))
    started.terminate()
    assert link.recv(1) == b""                          # it has ended, with what was started
    assert started.wait(60) != 0
    return found


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_what_each_of_sparks_processes_loads_is_without_the_calls_of_administration() -> None:
    """These are a sixth of a start, in every parent of workers and for every stream."""
    program = "import sys, pyspark_rocketmq, pyspark_rocketmq_archive; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                            check=True).stdout.split()
    assert "mqcore.spark.topics.source" in loaded
    assert [name for name in loaded if name.startswith("mqcore.client.admin")] == []
