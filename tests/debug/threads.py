"""
Threads at both ends of rings, in the table of limits, and a loop beside its thread of handshakes,
under ThreadSanitizer: `make sanitize`, or `python -m tests.debug.threads`.

The functions are those that processes call; here they run in two threads of one process, without
the interpreter's lock, so that the sanitizer sees whether each byte that one side reads was handed
over by the other. It does not know fences, so copies under a sequence are left to tests/models.
That it does report is shown by two producers on one ring.
"""
from __future__ import annotations

import importlib
import os
import platform
import random
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from mmap import mmap
from pathlib import Path
from types import ModuleType

from tests.debug.building import library
from tests.imports import compiled_as, module_of
from tests.support.ci import in_ci

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "build" / "threads"
WATCHED = (
    "mqcore.shm.ring", "mqcore.shm.limits",
    *(f"mqcore.net.transport.{module}" for module in (
        "slots", "memory", "tls_pipe", "shake_thread", "tls", "connections", "wire_end", "input",
        "handshakes", "loop")),        # each behind those that it calls
)
FOUND = 66                           # status of a process in which something was found
RECORDS = 5_000
SPINS_MAX = 1 << 40
ENTRIES = 5_000
SEED = 20_261_123
CAPACITIES = (1024, 1 << 16)
ROOMY = 1 << 23
MEETINGS = 100
HANDSHAKES, CROWD = 1_000, 16
WHOLE_EACH, RENEWED_EACH = 50, 100


def watched(name: str) -> ModuleType:
    """A module as it was built for the sanitizer, in place of the ordinary one."""
    place = BUILT / (name.replace(".", "/") + EXTENSION_SUFFIXES[0])
    spec = spec_from_file_location(name, place, loader=ExtensionFileLoader(name, str(place)))
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    importlib.import_module(name.rpartition(".")[0])     # finds it there
    return module


def together(*works: Callable[[], object]) -> None:
    """Each in a thread of its own; raises what one of them raised."""
    raised: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


def rings() -> None:
    """One at each end, through a small ring and through one in which they hardly meet."""
    ring = watched("mqcore.shm._native")
    from mqcore.layout import sizes

    for capacity in CAPACITIES:
        memory = mmap(-1, sizes()["RING_CURSORS_SIZE"] + capacity)
        together(partial(ring.produce_numbered, memory, capacity, RECORDS, SEED),
                 partial(ring.consume_numbered, memory, capacity, 0, RECORDS, SEED, SPINS_MAX))


def two_producers() -> None:
    """Against R2: they write over each other; there is room for all of it."""
    ring = watched("mqcore.shm._native")
    from mqcore.layout import sizes

    for _ in range(MEETINGS):            # on a full machine one may end before the other begins
        memory = mmap(-1, sizes()["RING_CURSORS_SIZE"] + ROOMY)
        together(*[partial(ring.produce_fixed, memory, ROOMY, ROOMY // 64, 8)] * 2)


def limits() -> None:
    """Two processes' worth of threads want the same few places for different keys."""
    module = watched("mqcore.shm._native")
    from tests.store.harness import new_segment

    table = module.LimitTable(new_segment(serving_count=2))

    def come_and_go(serving: int) -> None:
        for number in range(ENTRIES):
            place = table.enter((number * 7 + serving) % 24 << 32 | 1, serving, number)
            if place >= 0:
                table.leave(place, serving)

    together(lambda: come_and_go(0), lambda: come_and_go(1))
    assert all(now == 0 for now, _ in table.places().values())


def handshakes() -> None:
    """
    A loop and its thread; whoever begins a handshake ends it, goes in the middle of it, or waits
    until others push him out, while certificates are replaced. OpenSSL is not watched.
    """
    sources = (ROOT / f"{name.replace('.', '/')}.pyx" for name in WATCHED)
    for compiled in dict.fromkeys(map(compiled_as, sources)):
        watched(module_of(compiled))
    from mqcore.net.serving.loop import ServingLoop
    from mqcore.net.transport.tls import TlsMode
    from mqcore.net.transport.tls_context import TlsContext, self_signed
    from mqcore.participants import SERVING
    from tests.store.harness import Run
    from tests.tls.certificates import careless
    from tests.tls.floods import client_hello

    with tempfile.TemporaryDirectory() as folder:
        store = Run(Path(folder, "store"))
        store.recover(clean=True)
        store.segment.begin_incarnation(SERVING.slot)
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        loop = ServingLoop(
            store.segment, 0, [(listener, False)], os.fsencode(store.log_folder),
            os.fsencode(store.queue_folder), store_address=("127.0.0.1", 10911), cluster="C",
            file_entries=store.file_entries, connection_max=64, held_max=8, body_bytes_max=4096,
            seed=1, region="R", trace_on=True, idle_ms_max=60_000, memory_bytes=1 << 30,
            memory_count_max=32, memory_bytes_max=1 << 18, disk_count_max=32,
            disk_bytes_max=1 << 18, replay_count_max=32, replay_bytes_max=1 << 18,
            long_polling=True, short_polling_ms=1000)
        certificate = Path(folder, "certificate.pem")

        def renew() -> None:
            certificate.write_bytes(self_signed("threads"))
            loop.secure(TlsMode.TLS_PERMISSIVE, TlsContext(
                certificate=str(certificate), key=str(certificate)), 10_000, CROWD)

        ended = threading.Event()

        def serve() -> None:
            turns = 0
            while not ended.is_set():
                turns += 1
                if turns % RENEWED_EACH == 0:
                    renew()
                loop.run(1)
            loop.drain()

        def begin() -> None:
            dice, hello, held = random.Random(SEED), client_hello(), []
            for number in range(HANDSHAKES):
                one = socket.create_connection(listener.getsockname(), 60)
                if number % WHOLE_EACH == 0:
                    with suppress(OSError):              # others may push it out
                        one = careless().wrap_socket(one)
                else:
                    one.sendall(hello[:dice.choice((len(hello), 100))])
                held.append(one)
                if len(held) > dice.randrange(2 * CROWD):
                    held.pop(dice.randrange(len(held))).close()
            ended.set()

        renew()
        together(serve, begin)


PARTS: dict[str, Callable[[], None]] = {
    "rings": rings, "limits": limits, "handshakes": handshakes, "two producers": two_producers}
REPORTED = {"two producers"}         # what is wrong by itself


def build() -> None:
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", BUILT, "--build-temp",
         BUILT / "objects"], cwd=ROOT, check=True,
        env={**os.environ, "MQCORE_THREADS": "1", "MQCORE_BUILD_ONLY": " ".join(WATCHED)})


def run(part: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*fixed_layout(), sys.executable, "-m", "tests.debug.threads", part],
        cwd=ROOT, capture_output=True, text=True, check=False, env={
            **os.environ, "LD_PRELOAD": library("gcc", "libtsan.so"), "PYTHONPATH": str(ROOT),
            "TSAN_OPTIONS": f"exitcode={FOUND}:halt_on_error=1:ignore_noninstrumented_modules=1"})


def fixed_layout() -> list[str]:
    """
    The sanitizer's shadow has fixed places, which a random layout may take; how a process gets
    none, where that is allowed.
    """
    command = ["setarch", platform.machine(), "-R"]
    allowed = subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0
    return command if allowed else []


def main() -> int:
    build()
    failed = 0
    for part in PARTS:
        done = run(part)
        if "unexpected memory mapping" in done.stderr:
            print(f"threads: {'failed' if in_ci() else 'skipped'}, "
                  "this machine gives each process a random layout")
            return int(in_ci())
        expected = FOUND if part in REPORTED else 0
        print(f"threads: {part} ended with {done.returncode}, expected {expected}")
        if done.returncode != expected:
            failed = 1
            print(done.stdout + done.stderr)
    return failed


if __name__ == "__main__":
    if len(sys.argv) > 1:
        PARTS[sys.argv[1]]()
    else:
        sys.exit(main())
