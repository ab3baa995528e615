"""
A table of consumer offsets that grew beyond what any frame may hold is read back after a kill, and
who invents groups leaves room for those who have some.
"""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mqcore.wire.codes import RequestCode
from mqcore.wire.command import encode, request
from tests.attacks.honest import Honest
from tests.attacks.offset_flood import connect, flood, group_of, topic_of
from tests.support.mqcore_process import MqcoreError, MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer

PAIRS_EACH = 18_000            # of each source: together more than a frame in the file
FRAME_BYTES_MAX = 16 << 20
OFFSET = 7                      # there are more messages: a start takes back what lies beyond them
LAST_COMMIT = b'"honest@honest-group":{0:%d' % (OFFSET + 1)
SOURCES = ("127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5")


def flood_apart(address: str) -> None:
    """From a process of its own: it takes no time of the honest client's interpreter."""
    code = (f"from tests.attacks.offset_flood import flood\n"
            f"for number, source in enumerate({SOURCES}):\n"
            f"    flood({address!r}, source, number * {PAIRS_EACH}, {PAIRS_EACH})")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def commit(address: str, group: str, topic: str, offset: int) -> tuple[int, str]:
    with Peer(address) as peer:
        answer = peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {
            "consumerGroup": group, "topic": topic, "queueId": "0", "commitOffset": str(offset)})
    return answer.code, answer.remark or ""


def committed(address: str, group: str, topic: str) -> str | None:
    with Peer(address) as peer:
        answer = peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, {
            "consumerGroup": group, "topic": topic, "queueId": "0"})
    return (answer.ext or {}).get("offset")


def config(broker: MqcoreProcess, name: str) -> Path:
    return broker.store / "config" / name


def content(file: Path) -> tuple[int, int]:
    """How large it is and when it was written; (0, 0): it is just being changed for the next."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_size, found.st_mtime_ns


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_table_larger_than_a_frame_costs_an_honest_group_neither_its_offset_nor_a_start(
    tmp_path: Path
) -> None:
    with mqcore_up(tmp_path) as broker, Honest(broker.broker_addr, rest=2.0) as honest:
        calm = honest.measure()
        assert commit(broker.broker_addr, "honest-group", "honest", OFFSET)[0] == 0
        with honest.span() as attacked:
            flood_apart(broker.broker_addr)
        honest.assert_served(attacked, calm)
        honest.caught_up()
    with mqcore_up(tmp_path) as broker:
        assert committed(broker.broker_addr, "honest-group", "honest") == str(OFFSET)
        file, journal = (config(broker, f"consumerOffset.{end}") for end in ("json", "journal"))
        # -- a run writes the file anew for what it is told first; then it goes on in the journal
        before = content(file)[1]
        assert commit(broker.broker_addr, group_of(0), topic_of(0), 1)[0] == 0
        wait_until(lambda: content(file)[0] > FRAME_BYTES_MAX and content(file)[1] != before,
                   "the table is in its file", 120)
        assert commit(broker.broker_addr, "honest-group", "honest", OFFSET + 1)[0] == 0
        wait_until(lambda: journal.exists() and LAST_COMMIT in journal.read_bytes(),
                   "the last commit is in the journal", 60)
        broker.kill()
    with mqcore_up(tmp_path) as again:
        assert committed(again.broker_addr, "honest-group", "honest") == str(OFFSET + 1)
        last = PAIRS_EACH - 1
        assert committed(again.broker_addr, group_of(last), topic_of(last)) == str(last)
        honest.check(again.broker_addr)
        again.kill()


@pytest.mark.slow
def test_who_fills_the_table_leaves_room_for_others(tmp_path: Path) -> None:
    with mqcore_up(tmp_path, {"broker.consumer_offsets_bytes_max": 1 << 20}) as broker:
        for source in SOURCES:
            flood(broker.broker_addr, source, 0, 2_500)
            flood(broker.broker_addr, source, 10_000, 2_500)
        with connect(broker.broker_addr, SOURCES[0]) as connection:
            connection.sendall(encode(request(RequestCode.UPDATE_CONSUMER_OFFSET, {
                "consumerGroup": "one-more", "topic": "T", "queueId": "0", "commitOffset": "1"})))
            answer = connection.recv(4096)

        assert b"broker.consumer_offsets_bytes_max" in answer
        assert commit(broker.broker_addr, "an-honest-group", "T", 5) == (0, "")


def test_a_broken_table_ends_the_start_with_one_line(tmp_path: Path) -> None:
    with mqcore_up(tmp_path) as broker:
        folder = config(broker, "topics.json").parent
    for path in folder.glob("topics.json*"):
        path.write_text('{"topicConfigTable":{"T":' + json.dumps({"perm": "much"}) + "}}")
    named = pytest.raises(MqcoreError, match=r"topics\.json: entry 'T'")
    with named as raised, mqcore_up(tmp_path):
        pass
    assert "Traceback" not in str(raised.value)
