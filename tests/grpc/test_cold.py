"""Old messages are received by way of the reading thread (GP5 of net/grpc/pairs.pxd)."""
from __future__ import annotations

from pathlib import Path

from tests.grpc.caller import calling
from tests.grpc.test_calls import OK
from tests.grpc.world import grpc_broker
from tests.pull.puller import Puller
from tests.pull.test_cold import disk_reads
from tests.support.cold_files import make_cold

COUNT, BODY_BYTES = 800, 80_000
SETTINGS: dict[str, object] = {"store.segment_size_bytes": 16 << 20}


def test_a_thread_reads_what_is_on_the_disk(tmp_path: Path) -> None:
    """A receive that does not wait gets it too; the loop's own thread reads nearly nothing."""
    with (grpc_broker(tmp_path, SETTINGS) as broker,
          Puller(broker.process.broker_addr) as puller):
        puller.topic("Old", 1)
        puller.batch("Old", [{"n": str(number)} for number in range(COUNT)], b"x" * BODY_BYTES)
    with grpc_broker(tmp_path, SETTINGS) as broker, calling(broker.address) as caller:
        make_cold(tmp_path / "store")
        loop, others = disk_reads(broker.serving_pid())
        found: list[int] = []
        while len(found) < COUNT:
            code, messages = caller.receive("Old", "Cold", wait_s=0, invisible_s=600)
            assert code == OK
            found += [one["system_properties"]["queue_offset"] for one in messages]
        assert sorted(found) == list(range(COUNT))
        loop_after, others_after = disk_reads(broker.serving_pid())
    assert others_after - others > 8 << 20
    assert loop_after - loop < 2 << 20
