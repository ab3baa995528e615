"""A /dev/shm of 64 MiB, as containers have it, or one that others fill: no process dies of it."""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mqcore.bench.control import find_target
from mqcore.bench.load import ProduceOptions, Span, produce
from mqcore.wire.codes import RequestCode
from tests.attacks.honest import Honest
from tests.hostile.watch import Watch
from tests.support.ci import unavailable
from tests.support.mqcore_process import MQCORE, MqcoreProcess, mqcore_up, start
from tests.wire_live.peer import Peer, send_fields, topic_fields
from tests.workers.processes import by_role

SENDS = 60_000
QUEUES = 2500                   # more than their table has memory for at the start
MIB = 1 << 20
FOUR = {"processes.serving_count": 4}
MOUNT = """
mount -t tmpfs -o size="$0" mqcore-test /dev/shm && mkdir -p "$1" &&
mount -t tmpfs -o size=1g mqcore-test "$1" && shift && exec "$@"
"""


def small_shm(size: str, folder: Path) -> list[str]:
    """
    A command's own /dev/shm of `size`, and its own store in memory: a stop brings thousands of
    queue files to a disk, and whatever others have for it. Skips the test where that is not
    permitted, and fails it in CI.
    """
    within = ["unshare", "-m", "sh", "-c", MOUNT, size, str(folder / "store")]
    done = subprocess.run([*within, "true"], capture_output=True, text=True)
    if done.returncode != 0:
        unavailable(f"/dev/shm cannot be mounted here: {done.stderr.strip()}")
    return within


def send_many(broker: MqcoreProcess, count: int = SENDS) -> None:
    target = find_target("many", broker=None, namesrv=broker.namesrv_addr, queues=8)
    sent = produce(target, ProduceOptions(
        span=Span(count=count), connections=8, depth=32, size=1024, keys=True))
    assert (sent.errors, sent.lost) == (0, 0), sent.first_error
    assert sent.items >= count


def started_and_ended(within: list[str], folder: Path, *settings: str) -> tuple[int, str]:
    words = [word for one in (f"store.path={folder}/store", *settings) for word in ("--set", one)]
    one = start(["up", *words], folder, [*within, *MQCORE])
    code = one.process.wait(30)
    return code, one.tail()


@pytest.mark.slow
def test_four_serving_processes_serve_with_64_mib_of_dev_shm(tmp_path: Path) -> None:
    with mqcore_up(tmp_path, FOUR, program=[*small_shm("64m", tmp_path), *MQCORE]) as broker:
        watch = Watch(broker)
        with Honest(broker.broker_addr) as honest:
            send_many(broker)
            honest.caught_up()
        honest.check()
        watch.assert_unharmed()
        assert "it lies in a memfd" in broker.tail()


def test_status_finds_a_broker_whose_memory_has_no_name(tmp_path: Path) -> None:
    with mqcore_up(tmp_path, {"processes.shared_memory": "memfd"}) as broker:
        done = subprocess.run([sys.executable, "-m", "mqcore.admin.cli", "status", "--json"],
                              capture_output=True, text=True, check=True)
        (run,) = [run for name, run in json.loads(done.stdout).items()
                  if name.endswith(f"-{broker.pid}")]
        assert {process["role"] for process in run["processes"]} == set(by_role(broker))
        assert broker.shared_memory() == set()


def test_named_memory_that_dev_shm_cannot_hold_is_one_sentence_at_the_start(
    tmp_path: Path,
) -> None:
    code, said = started_and_ended(
        small_shm("64m", tmp_path), tmp_path, "processes.shared_memory=named")

    assert code == 1
    assert "Traceback" not in said
    (line,) = [line for line in said.splitlines() if line.startswith("mqcore: ")]
    assert "/dev/shm has 64 MiB free, and the shared memory needs" in line
    assert "processes.shared_memory" in line


@pytest.mark.slow
def test_a_dev_shm_that_others_fill_ends_no_process(tmp_path: Path) -> None:
    """Named memory was reserved; the tables say that they are full when they cannot grow."""
    with mqcore_up(tmp_path, FOUR, program=[*small_shm("600m", tmp_path), *MQCORE]) as broker:
        before = broker.family()
        with Honest(broker.broker_addr) as honest:
            fill(Path(f"/proc/{broker.pid}/root", "dev/shm/filler"))
            assert "memfd" not in broker.tail()
            send_many(broker)
            send_until_full(broker)
            honest.caught_up()
        honest.check()
        assert broker.family() == before, broker.tail()
        assert " ERROR " not in broker.tail()


def send_until_full(broker: MqcoreProcess) -> None:
    """New queues until their table gets no more memory; queues that are there are served on."""
    with Peer(broker.broker_addr) as peer:
        made = peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields("wide", QUEUES))
        assert made.code == 0, made.remark
        answers = [peer.ask(RequestCode.SEND_MESSAGE_V2, send_fields("wide", queue_id=i), b"x")
                   for i in range(QUEUES)]
        refused = [answer.remark for answer in answers if answer.code != 0]
        assert set(refused) == {"no room for another queue: /dev/shm is full"}
        again = peer.ask(RequestCode.SEND_MESSAGE_V2, send_fields("wide"), b"x")
        assert again.code == 0, again.remark


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * MIB)
        except OSError:
            return
