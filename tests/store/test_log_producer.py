"""Records of the broker's own processes carry what they were given, and are answered."""
from __future__ import annotations

from pathlib import Path

import pytest

from mqcore.layout import PUT_OK
from mqcore.shm.retention import LogWords
from mqcore.store.log.producer import LogProducer
from tests.store.harness import Run

COORDINATOR = 16
HERE = ("127.0.0.2", 10911)
TURN_MS = 1000


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "store")


def producer(run: Run) -> LogProducer:
    return LogProducer(run.segment, COORDINATOR, HERE, 1)


def test_a_record_carries_the_given_hosts_and_says_where_it_is(run: Run) -> None:
    writer, own = run.writer("async", 0), producer(run)
    own.append("T", 3, b"one", b"a\x01b", born_ms=5)
    assert not own.has_results()
    own.append("T", 3, b"two", b"", born_ms=6, flag=7, sys_flag=1, reconsume_times=2, tag=9,
               born_host=("2001:db8::1", 81), store_host=("10.0.0.9", 82))
    writer.run(TURN_MS)
    assert own.has_results()

    first, second = run.records(run.segment.log_state()["published"])
    assert own.take_results() == [(0, PUT_OK, 0, 0), (9, PUT_OK, 1, first["size"])]
    assert not own.has_results()
    assert (first["properties"], first["bornTimestamp"], first["sysFlag"]) == (b"a\x01b", 5, 0)
    born_host_v6 = 0x10
    assert (second["sysFlag"], second["flag"], second["queueOffset"]) == (1 | born_host_v6, 7, 1)
    raw = (run.log_folder / f"{0:020d}").read_bytes()[first["size"]:][:second["size"]]
    assert bytes.fromhex("20010db8000000000000000000000001") + (81).to_bytes(4, "big") in raw
    assert bytes((10, 0, 0, 9)) + (82).to_bytes(4, "big") in raw
    assert raw.count(bytes((127, 0, 0, 2))) == 0


def test_a_message_that_fits_no_record_is_refused_and_does_not_block_the_next(run: Run) -> None:
    writer, own = run.writer("async", 0), producer(run)
    with pytest.raises(ValueError, match=r"message: \d+ bytes, at most"):
        own.append("T", 0, b"x" * (64 << 20), b"", born_ms=1)
    with pytest.raises(ValueError, match="properties: 40000 bytes"):
        own.append("T", 0, b"", b"x" * 40_000, born_ms=1)

    assert own.append("T", 0, b"small", b"", born_ms=1)
    writer.run(TURN_MS)
    assert [status for _, status, _, _ in own.take_results()] == [PUT_OK]


def test_a_store_that_takes_no_writes_says_so(run: Run) -> None:
    own = producer(run)
    assert not own.refused()

    words = LogWords(run.segment)
    words.set_disk_full(91)
    assert own.refused()
    words.set_disk_full(0)
    assert not own.refused()
