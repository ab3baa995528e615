"""The brokers that perf.compare puts side by side: each one started fresh on an empty store."""
from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mqcore.bench.cpu import process_tree
from mqcore.thread_times import processor_ns
from tests.support.mqcore_process import MqcoreError, mqcore_up
from tests.support.stock import free_port, have_stock, stock_cluster

START_TIMEOUT_S = 20
POLL_INTERVAL_S = 0.02
STOCK_JVM_OPTIONS = ("-Xms2g", "-Xmx2g", "-XX:+UseG1GC")
# What a broker has when nobody sets anything: the stock defaults, which are ours too.
MQCORE_STORE = {
    "store.segment_size_bytes": 1 << 30, "store.queue_file_entry_count": 300_000,
    "store.index_slot_count": 5_000_000, "store.index_entry_count": 20_000_000,
}
UNKNOWN_KEY = re.compile(r"unknown key ([a-z_.]+);")
BARE_SOURCE = Path(__file__).with_name("bare_broker.c")
BARE_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Werror")
BARE_LIBRARY = "-l:libz.so.1"                   # of crc32
STOCK_FLUSH = {"async": "ASYNC_FLUSH", "sync": "SYNC_FLUSH"}


class ContenderError(RuntimeError):
    """A broker could not be started for the comparison."""


@dataclass(frozen=True)
class Running:
    """
    A broker that answers: where, and which process (with all below it) is to be charged; how long
    its start took, and how much processor time.
    """

    addr: str
    pid: int
    start_s: float
    start_cpu_s: float = 0.0


@dataclass(frozen=True)
class Contender:
    """
    One column of the comparison.

    start: runs the broker with a flush mode on an empty folder. is_whole: it has topics, queues and
    consumers; the yardstick program only takes sends. warmup: messages before the first measured
    one, so that a JIT compiler has done its work.
    """

    name: str
    start: Callable[[Path, str], AbstractContextManager[Running]]
    is_whole: bool = True
    warmup: int = 20_000


@contextlib.contextmanager
def run_mqcore(folder: Path, flush: str, program: Sequence[str] = ()) -> Iterator[Running]:
    """Our broker, as `mqcore up` runs it; program: the `mqcore` command of another state of it."""
    settings: dict[str, object] = {**MQCORE_STORE, "store.flush": flush}
    with contextlib.ExitStack() as stack:
        while True:
            began = time.monotonic()
            try:
                broker = stack.enter_context(mqcore_up(folder, settings, program=program))
                break
            except MqcoreError as error:
                unknown = UNKNOWN_KEY.search(str(error))
                if not program or unknown is None or settings.get(unknown[1], "") is None:
                    raise
                settings[unknown[1]] = None         # an older state has no such setting
        yield Running(broker.broker_addr, broker.pid, time.monotonic() - began,
                      processor_ns(*broker.family())[0] / 1e9)


@contextlib.contextmanager
def run_stock(folder: Path, flush: str) -> Iterator[Running]:
    """The stock Java broker with a 2 GB heap."""
    began = time.monotonic()
    properties = {"flushDiskType": STOCK_FLUSH[flush], "waitTimeMillsInSendQueue": 200}
    with stock_cluster(folder, properties, jvm_options=STOCK_JVM_OPTIONS, system={}) as cluster:
        yield Running(cluster.broker_addr, cluster.broker_pid, time.monotonic() - began)


def bare_program(folder: Path) -> Path | None:
    """The yardstick, compiled into `folder`; None: there is no compiler. Raises ContenderError."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    program = folder / BARE_SOURCE.stem
    made = subprocess.run([compiler, *BARE_FLAGS, "-o", str(program), str(BARE_SOURCE),
                           BARE_LIBRARY], capture_output=True, text=True)
    if made.returncode:
        raise ContenderError(f"the yardstick cannot be compiled: {made.stderr}")
    return program


def bare_runner(
    program: Path, mode: str
) -> Callable[[Path, str], AbstractContextManager[Running]]:
    """The yardstick, which only appends records and answers: `PROGRAM PORT FILE MODE`."""

    @contextlib.contextmanager
    def run(folder: Path, flush: str) -> Iterator[Running]:
        folder.mkdir(parents=True, exist_ok=True)
        port = free_port()
        began = time.monotonic()
        process = subprocess.Popen([str(program), str(port), str(folder / "log"), mode],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            _wait_for_port(port, process)
            yield Running(f"127.0.0.1:{port}", process.pid, time.monotonic() - began)
        finally:
            for pid in process_tree(process.pid):       # its writer is a child of its own
                os.kill(pid, signal.SIGKILL)
            process.wait()

    return run


def _wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:                                 # not yet: it fills its file first
            if process.poll() is not None:
                raise ContenderError(f"the yardstick ended with {process.returncode}") from None
            time.sleep(POLL_INTERVAL_S)
    raise ContenderError(f"the yardstick: no answer on port {port} after {START_TIMEOUT_S} s")


def contenders(
    bare: Path | None, bare_mode: str, wanted: set[str], before: Sequence[Path] = (),
) -> list[Contender]:
    """The columns that were asked for and can run here, ours first."""
    found = []
    if "mqcore" in wanted:
        found.append(Contender("mqcore", run_mqcore))
    for number, program in enumerate(before, 1):
        name = "before" if len(before) == 1 else f"before {number}"
        found.append(Contender(name, partial(run_mqcore, program=[str(program.absolute())])))
    if bare is not None and "bare" in wanted:
        found.append(Contender("bare", bare_runner(bare, bare_mode), is_whole=False))
    if "stock" in wanted and have_stock():
        found.append(Contender("stock", run_stock, warmup=300_000))
    return found
