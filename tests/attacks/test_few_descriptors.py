"""Few descriptors: a broker serves with what there is, or says in one sentence what is missing."""
from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from mqcore.wire.codes import RequestCode
from tests.attacks.honest import Honest
from tests.hostile.watch import Watch
from tests.support.mqcore_process import MQCORE, MqcoreProcess, mqcore_up, start
from tests.wire_live.peer import Peer, send_fields, topic_fields

QUEUES = 300                     # more than the broker may have open files


def limited(count: int) -> list[str]:
    return ["prlimit", f"--nofile={count}", *MQCORE]


@pytest.mark.parametrize("limit", [64, 128, 160])
def test_too_few_are_one_sentence_that_names_the_limit(tmp_path: Path, limit: int) -> None:
    one = start(["up", "--set", f"store.path={tmp_path}/store"], tmp_path, limited(limit))

    assert one.process.wait(30) == 1, one.tail()
    (line,) = one.tail().splitlines()
    assert line.startswith(f"mqcore: RLIMIT_NOFILE allows {limit} open files and sockets")
    assert "expected at least" in line


@pytest.mark.slow
@pytest.mark.parametrize("limit", [192, 256, 1024, 4352, 4353, 8192])
def test_a_broker_serves_within_a_low_limit_and_says_what_it_lacks(
    tmp_path: Path, limit: int,
) -> None:
    with mqcore_up(tmp_path, program=limited(limit)) as broker:
        assert f"RLIMIT_NOFILE is {limit}: " in broker.tail()
        with Honest(broker.broker_addr) as honest:
            honest.measure(20)
            honest.caught_up()
        honest.check()
        assert "Traceback" not in broker.tail()


@pytest.mark.slow
def test_queues_and_connections_beyond_the_limit_end_nobody(tmp_path: Path) -> None:
    with mqcore_up(tmp_path, program=limited(256)) as broker:
        watch = Watch(broker)
        with Honest(broker.broker_addr) as honest:
            send_to_all(broker)
            crowd = connect(broker, 300)
            honest.caught_up()
            for one in crowd:
                one.close()
        honest.check()
        watch.assert_unharmed()


def send_to_all(broker: MqcoreProcess) -> None:
    with Peer(broker.broker_addr) as peer:
        made = peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields("wide", QUEUES))
        assert made.code == 0, made.remark
        for round_ in range(2):
            for queue_id in range(QUEUES):
                answer = peer.ask(RequestCode.SEND_MESSAGE_V2,
                                  send_fields("wide", queue_id=queue_id), b"x")
                assert answer.code == 0, (round_, queue_id, answer.remark)


def connect(broker: MqcoreProcess, count: int) -> list[socket.socket]:
    """More connections than there may be; further ones are closed by the broker."""
    host, port = broker.broker_addr.split(":")
    crowd = [socket.create_connection((host, int(port)), 10) for _ in range(count)]
    deadline = time.monotonic() + 10
    while not any(closed(one) for one in crowd):
        assert time.monotonic() < deadline, "no connection was refused"
    return crowd


def closed(one: socket.socket) -> bool:
    one.setblocking(False)
    try:
        return one.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_the_soft_limit_is_raised_to_the_hard_one(tmp_path: Path) -> None:
    with mqcore_up(tmp_path, program=["prlimit", "--nofile=256:15000", *MQCORE]) as broker:
        assert "RLIMIT_NOFILE" not in broker.tail()
        for pid in broker.family():
            limits = Path(f"/proc/{pid}/limits").read_text().splitlines()
            (line,) = [line for line in limits if line.startswith("Max open files")]
            assert line.split()[3] == "15000"
