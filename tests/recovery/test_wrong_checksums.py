"""
Files of checksums that are wrong while the log is whole: a start serves every message, and says
what it did not believe.
"""
from __future__ import annotations

import random
import shutil
import struct
import time
from pathlib import Path

import pytest

from mqcore.store.verify.store import verify
from mqcore.wire.codes import RequestCode
from mqcore.wire.records import decode_records
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.verify.stores import OWN_SETTINGS
from tests.wire_live.peer import Peer, pull_fields, send_fields, topic_fields

TOPIC = "checked"
MESSAGES = 350
LONG = 16_000                    # of bodies: a dozen of them fill a segment
PULL_S = 20.0
BITS = 32                       # of either field
SEED = 20261122


def fill(broker: MqcoreProcess, seed: int, longest: int = 700) -> list[bytes]:
    """Send messages of many lengths into one queue; their bodies."""
    dice = random.Random(seed)
    bodies = [b"%d:" % number + dice.randbytes(dice.randrange(longest))
              for number in range(MESSAGES)]
    with Peer(broker.broker_addr) as peer:
        assert peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(TOPIC, 1)).code == 0
        for body in bodies:
            wait_until(lambda body=body: is_stored(peer, body), "a message is stored")
    return bodies


def is_stored(peer: Peer, body: bytes) -> bool:
    """Not while the next segment, which a dozen long ones need, is on its way."""
    answer = peer.ask(RequestCode.SEND_MESSAGE_V2, send_fields(TOPIC), body)
    assert answer.code == 0 or "create mapped file failed" in (answer.remark or ""), answer.remark
    return answer.code == 0


def pulled(broker: MqcoreProcess, end: int = MESSAGES, skip: int = 1) -> list[bytes]:
    """All bodies that the queue hands out; `skip`: how far to go on where a pull is refused."""
    bodies: list[bytes] = []
    offset = 0
    deadline = time.monotonic() + PULL_S
    with Peer(broker.broker_addr) as peer:
        while offset < end:
            assert time.monotonic() < deadline, offset
            answer = peer.ask(RequestCode.PULL_MESSAGE, pull_fields(TOPIC, offset=offset))
            if answer.code == 0:
                bodies += [record.body for record in decode_records(answer.body)]
                offset = int((answer.ext or {})["nextBeginOffset"])
            else:
                assert answer.code == 1, (answer.code, answer.remark)
                offset += skip
    return bodies


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, list[bytes]]:
    """(folder of a broker that was stopped, one of another broker, bodies of the first)."""
    folder, other = tmp_path_factory.mktemp("checked"), tmp_path_factory.mktemp("other")
    with mqcore_up(folder, OWN_SETTINGS) as broker:
        bodies = fill(broker, SEED)
    with mqcore_up(other, OWN_SETTINGS) as broker:
        fill(broker, SEED + 1)
    return folder, other, bodies


@pytest.fixture
def folder(made: tuple[Path, Path, list[bytes]], tmp_path: Path) -> Path:
    shutil.copytree(made[0] / "store", tmp_path / "store")
    return tmp_path


def checksums(folder: Path) -> list[Path]:
    return sorted((folder / "store" / "checksums").iterdir())


def flip(path: Path, at: int, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << bit
    path.write_bytes(content)


@pytest.fixture(scope="module")
def of_many_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[bytes]]:
    """(folder of a broker that was stopped, bodies): a dozen messages to a segment."""
    folder = tmp_path_factory.mktemp("many-files")
    with mqcore_up(folder, OWN_SETTINGS) as broker:
        return folder, fill(broker, SEED, LONG)


@pytest.mark.parametrize("field", ["end", "CRC"])
def test_one_wrong_bit_of_a_checksum_hides_no_message(
    of_many_files: tuple[Path, list[bytes]], tmp_path: Path, field: str,
) -> None:
    """
    Not that of its own record, nor others that the search for theirs leads past it. Each bit is
    wrong in a file of its own.
    """
    made, bodies = of_many_files
    shutil.copytree(made / "store", tmp_path / "store")
    files = checksums(tmp_path)[:-1]
    assert len(files) >= BITS
    for number, path in enumerate(files):
        used = len(path.read_bytes().rstrip(b"\0")) // 8
        entry = used // 2 if number // BITS % 2 else used // 3
        bit = number % BITS
        flip(path, 8 * entry + 4 * (field == "CRC") + 3 - bit // 8, bit % 8)
    assert verify(tmp_path / "store").status == 1
    with mqcore_up(tmp_path, OWN_SETTINGS) as broker:
        assert pulled(broker) == bodies
        assert "is damaged" not in broker.output.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("lock", ["ours", "lock"])
@pytest.mark.parametrize("files", ["all", "the first", "the last"])
def test_checksums_of_another_log_are_set_aside_by_the_next_start(
    folder: Path, made: tuple[Path, Path, list[bytes]], files: str, lock: str,
) -> None:
    """lock: who started on the store last, as its file says."""
    own, others = checksums(folder), checksums(made[1])
    chosen = [number for number in range(min(len(own), len(others)))
              if files == "all" or number == (0 if files == "the first" else len(own) - 1)]
    for number in chosen:
        shutil.copy(others[number], own[number])
    (folder / "store" / "lock").write_bytes(lock.encode())
    assert verify(folder / "store").status == (1 if lock == "ours" else 0)
    with mqcore_up(folder, OWN_SETTINGS) as broker:
        assert pulled(broker) == made[2]
        said = broker.output.read_text()
        assert said.count("checksums of another log are set aside") == len(chosen)
        more = fill(broker, SEED + 2)
        broker.kill()
    assert sorted(path.name for path in (folder / "store" / "checksums.foreign").iterdir()) == [
        own[number].name for number in chosen]
    with mqcore_up(folder, OWN_SETTINGS) as broker:
        wait_until(lambda: len(pulled(broker, 2 * MESSAGES)) == 2 * MESSAGES, "all messages")
        assert pulled(broker, 2 * MESSAGES) == made[2] + more
    assert verify(folder / "store").status == 0


def test_checksums_that_fit_stay_and_a_record_that_differs_is_refused_and_logged_once(
    folder: Path, made: tuple[Path, Path, list[bytes]],
) -> None:
    """A wrong byte that no CRC of a body covers, in the first record of a segment."""
    segment = min((folder / "store" / "commitlog").iterdir())
    before = checksums(folder)
    flags = bytearray(segment.read_bytes())
    flags[16:20] = struct.pack(">i", 0x5A5A)
    segment.write_bytes(flags)
    with mqcore_up(folder, OWN_SETTINGS) as broker:
        for _ in range(3):
            assert pulled(broker) == made[2][1:]
        wait_until(lambda: "at log position 0 is damaged and is not handed out" in
                   broker.output.read_text(), "a line about it")
        assert broker.output.read_text().count("is damaged and is not handed out") == 1
    assert checksums(folder) == before
    assert verify(folder / "store").status == 1
