"""
How processes under test begin that Spark's JVM starts in Python.

Spark's modules are in a zip for them, first on their path, without byte code: each process would
compile what it imports of them, which takes a second of a processor. The same modules are installed
beside it, compiled. And the parents of what plans reads and writes load our sources before they
fork, as mqcore.spark.daemon does for tasks. Spark has no setting for it, and each of their children
would take most of a second for that.

A JVM starts a parent for each thing that plans do, eight or so, one for tasks, and a process for
each stream that begins; what each would load takes two seconds. So the first loads everything and
leaves a child, from which the others are forked: what Spark started passes on its pipes, and the
signal to end, and ends when the fork does.
"""
from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
import warnings
from contextlib import suppress
from importlib import import_module
from typing import NoReturn

ZIPS = ("/pyspark.zip", "-src.zip")             # the other one is py4j's
PLANS, TASKS = "pyspark.daemon", "mqcore.spark.daemon"
STREAMS = "pyspark.sql.streaming."
SOURCES = ("pyspark_rocketmq", "pyspark_rocketmq_archive", "pyspark_rocketmq_lake",
           "pyspark_rocketmq_store", "pyspark_rocketmq_store_audit")
TABLES = ("mqcore.spark.lake.delta_table", "mqcore.spark.lake.iceberg_table",
          "pyiceberg.catalog.sql")              # where the extra `lake` is installed
REQUEST_BYTES_MAX = 1 << 20


def begin() -> None:
    """In a process that has imported nothing of Spark yet."""
    sys.path[:] = [entry for entry in sys.path if not entry.endswith(ZIPS)]
    name = sys.orig_argv[2] if sys.orig_argv[1:2] == ["-m"] else ""
    if name not in (PLANS, TASKS) and not name.startswith(STREAMS):
        return
    place = f"\0mqcore-tests-spark-{os.getppid()}"      # of one JVM; it goes with its socket
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    is_parent = not name.startswith(STREAMS)
    if not is_parent or not is_first(link, place):
        hand_over(link, place)
        link.close()                            # the first one has ended
        if is_parent:
            load()
        return
    link.listen(64)
    load()
    first = os.getpid()
    if os.fork() == 0:
        serve(link, first)
    link.close()


def is_first(link: socket.socket, place: str) -> bool:
    """Of a JVM's parents."""
    try:
        link.bind(place)
    except OSError:
        return False
    return True


def load() -> None:
    """What parents need, out of the way of those who look for garbage."""
    warnings.filterwarnings("ignore", ".*found in sys.modules", RuntimeWarning)
    for name in (*sys.orig_argv[3:4], *SOURCES, TASKS):
        import_module(name)
    with suppress(ImportError):
        for name in TABLES:
            import_module(name)
    gc.collect()
    gc.freeze()


def hand_over(link: socket.socket, place: str) -> None:
    """
    To a fork of the first parent, which is then what Spark talks to; this process ends when that
    does. It returns where there is none.
    """
    said = json.dumps([sys.orig_argv[2:], dict(os.environ)]).encode()
    try:
        link.connect(place)
        socket.send_fds(link, [said], [0, 1, 2])
        fork = int(link.recv(20) or 0)
    except OSError:
        fork = 0
    if fork:
        signal.signal(signal.SIGTERM, lambda number, _: os.kill(fork, number))
        for number in (0, 1, 2):
            os.close(number)
        ended = link.recv(1)
        os._exit(ended[0] if ended else 1)


def serve(listener: socket.socket, first: int) -> NoReturn:
    """Fork a parent for each that asks, until the first one ends."""
    os.setpgid(0, 0)                            # its group is told when it ends
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):                    # the first one's
        os.dup2(nothing, number)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    watched = os.pidfd_open(first)
    if os.getppid() != first:
        os._exit(0)
    while True:
        ready, _, _ = select.select([listener, watched], [], [])
        if watched in ready:
            os._exit(0)
        link, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            os.close(watched)
            become(link)
        link.close()


def become(link: socket.socket) -> NoReturn:
    """What another process was started as."""
    import runpy

    said, pipes, _, _ = socket.recv_fds(link, REQUEST_BYTES_MAX, 3)
    link.send(str(os.getpid()).encode())
    for number, pipe in enumerate(pipes):
        os.dup2(pipe, number)
        os.close(pipe)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    (name, *arguments), environment = json.loads(said)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [name, *arguments]
    code = 1
    try:
        for worker in arguments:
            import_module(worker)
        gc.freeze()
        runpy.run_module(name, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        link.send(bytes([code & 255]))
        os._exit(code & 255)
