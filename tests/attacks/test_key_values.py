"""Key-values of any size and number leave a name server that answers, and starts again."""
from __future__ import annotations

import threading
import time
from pathlib import Path

from mqcore.wire.codes import RequestCode
from tests.attacks.key_values import flood, put
from tests.support.mqcore_process import mqcore_namesrv, mqcore_up
from tests.wire_live.peer import Peer

TEN_MB = "x" * 10_000_000
FLOOR_MS = 200.0


def ask_ms(peer: Peer) -> float:
    """How long another peer waits for a key-value of its own."""
    began = time.monotonic()
    answer = peer.ask(RequestCode.GET_KV_CONFIG, {"namespace": "honest", "key": "k"})
    assert (answer.ext or {}).get("value") == "v"
    return (time.monotonic() - began) * 1000


def change_ms(namesrv_addr: str) -> float:
    """How long one change takes: the whole table is written, and is on the disk."""
    began = time.monotonic()
    assert put(namesrv_addr, "honest", "k", "v") == (0, "")
    return (time.monotonic() - began) * 1000


def test_two_values_of_10_mb_are_refused_and_a_restart_finds_the_others(tmp_path: Path) -> None:
    with mqcore_namesrv(tmp_path) as namesrv:
        assert put(namesrv.namesrv_addr, "honest", "k", "v") == (0, "")
        for key in ("a", "b"):
            code, remark = put(namesrv.namesrv_addr, "N", key, TEN_MB)
            assert (code, "namesrv.kv_value_bytes_max" in remark) == (1, True)
        namesrv.kill()
    with mqcore_namesrv(tmp_path) as again, Peer(again.namesrv_addr) as peer:
        assert ask_ms(peer) >= 0


def test_a_flood_of_values_keeps_nobody_waiting_and_ends_at_the_limit(tmp_path: Path) -> None:
    with mqcore_namesrv(tmp_path) as namesrv, Peer(namesrv.namesrv_addr) as peer:
        assert put(namesrv.namesrv_addr, "honest", "k", "v") == (0, "")
        calm = sorted(ask_ms(peer) for _ in range(100))[98]
        value = "y" * 60_000
        attacker = threading.Thread(target=flood, args=(namesrv.namesrv_addr, 0, 120, value))
        attacker.start()
        waited = []
        while attacker.is_alive():
            waited.append(ask_ms(peer))
        attacker.join()
        assert waited
        change = max(change_ms(namesrv.namesrv_addr) for _ in range(5))
        assert sorted(waited)[len(waited) * 99 // 100] <= max(3 * calm, 3 * change, FLOOR_MS), (
            calm, change, waited)
        code, remark = put(namesrv.namesrv_addr, "N", "one more", value)
        assert (code, "namesrv.kv_bytes_max" in remark) == (1, True)
        namesrv.kill()
    with mqcore_namesrv(tmp_path) as again, Peer(again.namesrv_addr) as peer:
        assert ask_ms(peer) >= 0


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
