"""Key-values of any size and number leave a name server that answers, and starts again."""
from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from mqcore.thread_times import processor_ns
from mqcore.wire.codes import RequestCode
from tests.attacks.key_values import flood, put
from tests.support.mqcore_process import MqcoreProcess, mqcore_namesrv, mqcore_up
from tests.wire_live.peer import Peer

TEN_MB = "x" * 10_000_000
TABLE_BYTES = 4 << 20                    # namesrv.kv_bytes_max
CHANGES_MAX = 3                          # that one answer may wait for
WAIT_CPU_MS = 200.0


@dataclass(frozen=True)
class Work:
    """What processes have done: processor time, bytes given to files and sockets."""

    cpu_ms: float
    written_bytes: int

    @classmethod
    def of(cls, pids: list[int]) -> Self:
        places = [Path(f"/proc/{pid}") for pid in pids]
        lines = [line for place in places for line in (place / "io").read_text().splitlines()]
        return cls(
            processor_ns(*pids)[0] / 1e6,
            sum(int(line.split()[1]) for line in lines if line.startswith("wchar:")))

    def since(self, before: Work) -> Work:
        return Work(self.cpu_ms - before.cpu_ms, self.written_bytes - before.written_bytes)


def work_for(peer: Peer, namesrv: MqcoreProcess) -> Work:
    """What the name server does until another peer has a key-value of its own."""
    pids = namesrv.family()
    before = Work.of(pids)
    ask(peer)
    return Work.of(pids).since(before)


def p99(values: list[float]) -> float:
    return sorted(values)[len(values) * 99 // 100]


def ask(peer: Peer) -> None:
    """A key-value of its own."""
    answer = peer.ask(RequestCode.GET_KV_CONFIG, {"namespace": "honest", "key": "k"})
    assert (answer.ext or {}).get("value") == "v"


def test_two_values_of_10_mb_are_refused_and_a_restart_finds_the_others(tmp_path: Path) -> None:
    with mqcore_namesrv(tmp_path) as namesrv:
        assert put(namesrv.namesrv_addr, "honest", "k", "v") == (0, "")
        for key in ("a", "b"):
            code, remark = put(namesrv.namesrv_addr, "N", key, TEN_MB)
            assert (code, "namesrv.kv_value_bytes_max" in remark) == (1, True)
        namesrv.kill()
    with mqcore_namesrv(tmp_path) as again, Peer(again.namesrv_addr) as peer:
        ask(peer)


def test_a_flood_of_values_keeps_nobody_waiting_and_ends_at_the_limit(tmp_path: Path) -> None:
    with mqcore_namesrv(tmp_path) as namesrv, Peer(namesrv.namesrv_addr) as peer:
        assert put(namesrv.namesrv_addr, "honest", "k", "v") == (0, "")
        value = "y" * 60_000
        attacker = threading.Thread(target=flood, args=(namesrv.namesrv_addr, 0, 120, value))
        before = Work.of(namesrv.family())
        attacker.start()
        waited = []
        while attacker.is_alive():
            waited.append(work_for(peer, namesrv))
        attacker.join()
        assert waited
        flooded = Work.of(namesrv.family()).since(before)
        # one network has half of the table: its file is as long
        assert flooded.written_bytes > 5 * CHANGES_MAX * TABLE_BYTES // 2
        assert p99([one.written_bytes for one in waited]) <= CHANGES_MAX * TABLE_BYTES // 2, waited
        assert p99([one.cpu_ms for one in waited]) <= WAIT_CPU_MS, waited
        code, remark = put(namesrv.namesrv_addr, "N", "one more", value)
        assert (code, "namesrv.kv_bytes_max" in remark) == (1, True)
        namesrv.kill()
    with mqcore_namesrv(tmp_path) as again, Peer(again.namesrv_addr) as peer:
        ask(peer)


def test_a_broken_table_of_the_embedded_name_server_ends_the_start_with_one_line(
    tmp_path: Path
) -> None:
    folder = tmp_path / "store" / "namesrv"
    folder.mkdir(parents=True)
    (folder / "kvConfig.json").write_text('{"configTable":{"N":')
    try:
        with mqcore_up(tmp_path):
            text = ""
    except AssertionError as error:
        text = str(error)
    assert "kvConfig.json: not JSON" in text
    assert "Traceback" not in text
