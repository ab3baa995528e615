"""With read_replicated_only consumers see what slaves have: D5 of store/queue/dispatch.pxd."""
from __future__ import annotations

from pathlib import Path

from mqcore.participants import DISPATCHER
from mqcore.shm.replica_gate import ReplicaPen
from mqcore.wire.codes import RequestCode
from mqcore.workers.writer.dispatch_watch import DispatchWatch
from tests.interop.ask import stored_count
from tests.replication.pairs import NAME, slave_up
from tests.store.harness import Run
from tests.support.mqcore_process import MqcoreProcess, mqcore_namesrv, mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer, send_fields

STALL_MS = 100


def test_a_queue_grows_as_others_get_its_records(tmp_path: Path) -> None:
    run = Run(tmp_path)
    writer, probe, pen = run.writer("async", 0), run.probe(), ReplicaPen(run.segment)
    ends = []
    for number in range(3):
        assert probe.send("topic", 0, [b"x"], opaque=number)
        writer.run(1000)
        ends.append(run.segment.log_state()["published"])
    dispatcher = run.dispatcher(replicated_only=True)
    for position, found in ((0, {}), (ends[0] - 1, {}), (ends[0], {("topic", 0): (0, 1)}),
                            (ends[2] - 1, {("topic", 0): (0, 2)}),
                            (ends[2] + 99, {("topic", 0): (0, 3)})):
        pen.move(position)
        dispatcher.run(1000)
        assert run.queue_ranges() == found
    dispatcher.close()


def test_a_dispatcher_that_waits_for_slaves_is_not_blamed(tmp_path: Path) -> None:
    run = Run(tmp_path)
    writer, probe = run.writer("async", 0), run.probe()
    watch = DispatchWatch(run.segment, STALL_MS, 1 << 30, replicated_only=True)
    blamed = DispatchWatch(run.segment, STALL_MS, 1 << 30)
    for each in (watch, blamed):
        each.look(0)
    assert probe.send("topic", 0, [b"x"], opaque=1)
    writer.run(1000)
    for now_ms in range(0, 10 * STALL_MS, STALL_MS // 2):
        watch.look(now_ms)
        blamed.look(now_ms)
    assert (watch.refuses, blamed.refuses) == (False, True)
    assert run.segment.slot(DISPATCHER.slot)["pid"] == 0


def test_consumers_of_a_broker_wait_for_its_slave(tmp_path: Path) -> None:
    """Over a restart, too, which waits for nobody; the slave's settings may say the same."""
    settings: dict[str, object] = {"broker.name": NAME, "replication.listen": True,
                                   "replication.read_replicated_only": True}

    def send_one(broker: MqcoreProcess) -> None:
        with Peer(broker.broker_addr) as peer:
            assert peer.ask(RequestCode.SEND_MESSAGE_V2, send_fields("TopicTest"), b"x").code == 0

    def seen(broker: MqcoreProcess) -> int:
        return stored_count(broker.broker_addr, "TopicTest", range(4))

    with mqcore_namesrv(tmp_path / "names") as names:
        with mqcore_up(tmp_path / "master", settings, namesrv_addr=names.namesrv_addr) as master:
            send_one(master)
            assert seen(master) == 0
        with mqcore_up(tmp_path / "master", settings, namesrv_addr=names.namesrv_addr) as master:
            send_one(master)
            assert seen(master) == 0
            port = int(master.broker_addr.rpartition(":")[2]) + 1
            with slave_up(tmp_path / "slave", names.namesrv_addr, {
                    "replication.read_replicated_only": True,
                    "replication.master_address": f"127.0.0.1:{port}"}) as slave:
                wait_until(lambda: seen(slave) == 2, "both at the slave")
                wait_until(lambda: seen(master) == 2, "both at the master")
