"""[limits] of accounts and of addresses whose requests are refused."""
from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.command import encode
from tests.acl.test_broker import ADMIN, NO_TOPIC, RULES, USER, Signer, refused
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import Closed, send_fields, topic_fields

FREE, FLOODER, NEIGHBOUR = "127.0.0.1", "127.0.0.7", "127.0.0.8"
CONNECTIONS, BYTES_PER_S, MESSAGES_PER_S = 2, 65_536, 10
COUNT, SIZE = 6, 32_768
SYSTEM_BUSY = 2


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    folder = tmp_path_factory.mktemp("limits")
    (folder / "plain_acl.yml").write_text(RULES)
    with mqcore_up(folder, {
            "acl.enable": True, "processes.serving_count": 1,
            "limits.exempt_addresses": [f"{FREE}/32"],
            "limits.address_bytes_per_s": BYTES_PER_S,
            "limits.address_messages_per_s": MESSAGES_PER_S,
            "limits.account_connection_count": CONNECTIONS,
            "limits.account_bytes_per_s": BYTES_PER_S}) as running:
        with Signer(running.broker_addr, ADMIN) as admin:
            for topic in ("open", "closed"):
                assert admin.does(Code.UPDATE_AND_CREATE_TOPIC, topic_fields(topic, 1)).code == 0
        yield running


def lives(one: Signer) -> bool:
    try:
        return one.does(Code.GET_BROKER_RUNTIME_INFO).code == 0
    except (Closed, ConnectionError):
        return False


def takes(asked: Signer, wrong: bool) -> float:
    """Seconds until COUNT requests of SIZE bytes, which the coordinator decides, are answered."""
    commands = [asked.made(Code.GET_BROKER_RUNTIME_INFO, {}, bytes(SIZE)) for _ in range(COUNT)]
    began = time.monotonic()
    asked.send(b"".join(map(encode, commands)))
    for one in commands:
        answer = asked.answer_to(one.opaque, 30)
        assert refused(answer, "Check signature") if wrong else answer.code == 0
    return time.monotonic() - began


def test_an_account_has_so_many_connections_whatever_it_asks(broker: MqcoreProcess):
    made = [Signer(broker.broker_addr, USER) for _ in range(2 * CONNECTIONS)]
    try:
        assert sum(map(lives, made)) == CONNECTIONS
        with Signer(broker.broker_addr, ADMIN) as other:
            assert lives(other)
    finally:
        for one in made:
            one.close()


@pytest.mark.parametrize(("account", "host", "neighbour"), [
    (USER, FREE, (ADMIN, FREE)), ((USER[0], "wrong-secret"), FLOODER, (ADMIN, NEIGHBOUR))],
    ids=["account", "refused"])
def test_bytes_of_requests_that_the_coordinator_decides_or_nobody(
        broker: MqcoreProcess, account: tuple[str, str], host: str,
        neighbour: tuple[tuple[str, str], str]):
    with Signer(broker.broker_addr, account, host) as greedy:
        # a second's worth, and the request that exceeds it, pass at once
        assert takes(greedy, host == FLOODER) >= (COUNT - 1) * SIZE / BYTES_PER_S - 1.2
        with Signer(broker.broker_addr, *neighbour) as other:
            assert lives(other)


def test_refused_sends_count_as_messages_and_shut_nobody_out_for_long(broker: MqcoreProcess):
    with Signer(broker.broker_addr, USER, "127.0.0.9") as user:
        for _ in range(10 * MESSAGES_PER_S):
            assert refused(user.does(Code.SEND_MESSAGE_V2, send_fields("closed"), b"x"), NO_TOPIC)

        def sends() -> int:
            return user.does(Code.SEND_MESSAGE_V2, send_fields("open"), b"x").code

        assert sends() == SYSTEM_BUSY
        wait_until(lambda: sends() == 0, "a send passes", 3)
