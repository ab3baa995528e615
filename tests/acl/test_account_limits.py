"""
[limits] of an account over two serving processes, in the clear and by TLS, beside a neighbour.

tests/acl/test_limits.py has those of requests that are refused, tests/attacks/test_limits.py those
of addresses.
"""
from __future__ import annotations

import contextlib
import ssl
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.command import Command, encode
from tests.acl.test_broker import ADMIN, RULES, USER, Signer
from tests.attacks.honest import median
from tests.attacks.medians import FLOOR_MS, TIMES
from tests.attacks.test_limits import table
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.tls.certificates import careless
from tests.wire_live.peer import send_fields, topic_fields
from tests.workers.processes import by_role

TOPIC = "open"
SECOND = ("the-second", "second-secret")
SERVING, CONNECTIONS = 2, 6      # each process has some of them
IN_FLIGHT = 4
MESSAGES_PER_S = 100
BYTES_PER_S, SIZE = 1 << 20, 1 << 17
FREE, FLOODER = "127.0.0.1", "127.0.0.7"
SYSTEM_BUSY = 2
NEIGHBOURS_SENDS = 15

# of accounts that no test has used: rates let a second's worth pass at first
WAYS = pytest.mark.parametrize(("account", "tls"), [(USER, None), (SECOND, careless())],
                               ids=["in the clear", "by TLS"])


def limited(folder: Path, **limits: object) -> AbstractContextManager[MqcoreProcess]:
    (folder / "plain_acl.yml").write_text(
        f"{RULES}- {{accessKey: {SECOND[0]}, secretKey: {SECOND[1]}, defaultTopicPerm: PUB}}\n")
    return mqcore_up(folder, {
        "acl.enable": True, "tls.test_mode": True, "processes.serving_count": SERVING,
        **{f"limits.{name}": value for name, value in limits.items()}})


def make_topic(broker: MqcoreProcess) -> None:
    with Signer(broker.broker_addr, ADMIN) as admin:
        assert admin.does(Code.UPDATE_AND_CREATE_TOPIC, topic_fields(TOPIC, 1)).code == 0
    assert sum(role.startswith("pull-serving") for role in by_role(broker)) == SERVING


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    with limited(tmp_path_factory.mktemp("counted"), account_in_flight_count=IN_FLIGHT,
                 account_messages_per_s=MESSAGES_PER_S) as running:
        make_topic(running)
        yield running


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    """Addresses, but for 127.0.0.1, have half of what an account has."""
    with limited(tmp_path_factory.mktemp("measured"), account_bytes_per_s=BYTES_PER_S,
                 address_bytes_per_s=BYTES_PER_S // 2,
                 exempt_addresses=[f"{FREE}/32"]) as running:
        make_topic(running)
        yield running


@contextlib.contextmanager
def connections(broker: MqcoreProcess, account: tuple[str, str], tls: ssl.SSLContext | None, *,
                host: str = FREE, count: int = CONNECTIONS) -> Iterator[list[Signer]]:
    with contextlib.ExitStack() as ends:
        yield [ends.enter_context(Signer(broker.broker_addr, account, host, tls))
               for _ in range(count)]


Asked = list[tuple[Signer, Command]]


def looks(peers: list[Signer], each: int) -> Asked:
    """Requests that the coordinator answers."""
    return [(peer, peer.made(Code.GET_BROKER_RUNTIME_INFO)) for _ in range(each) for peer in peers]


def sends(peers: list[Signer], each: int, size: int = 1) -> Asked:
    return [(peer, peer.made(Code.SEND_MESSAGE_V2, send_fields(TOPIC), bytes(size)))
            for _ in range(each) for peer in peers]


def say(asked: Asked) -> None:
    """All at once; signing took its time before."""
    for peer in dict.fromkeys(peer for peer, _ in asked):
        peer.send(b"".join(encode(one) for to, one in asked if to is peer))


def neighbours_ms(broker: MqcoreProcess) -> float:
    """What sends of another account of the same address take, the median; none is refused."""
    took_ms = []
    with Signer(broker.broker_addr, ADMIN) as other:
        for _ in range(NEIGHBOURS_SENDS):
            began = time.monotonic()
            assert other.does(Code.SEND_MESSAGE_V2, send_fields(TOPIC), b"x").code == 0
            took_ms.append(1000 * (time.monotonic() - began))
    return median(took_ms)


@contextlib.contextmanager
def a_neighbour_waits_little(broker: MqcoreProcess) -> Iterator[None]:
    """At the end of the block, which leaves much unanswered."""
    calm_ms = neighbours_ms(broker)
    yield
    assert neighbours_ms(broker) <= max(TIMES * calm_ms, FLOOR_MS)


@pytest.mark.slow
@WAYS
def test_requests_of_an_account_in_flight_stay_below_their_number(
    counted: MqcoreProcess, account: tuple[str, str], tls: ssl.SSLContext | None,
) -> None:
    look, most = table(counted), 0
    with connections(counted, account, tls) as peers:
        asked = sends(peers, 10) + looks(peers, 10)
        with a_neighbour_waits_little(counted):
            say(asked)
        for peer, one in asked:
            most = max([most, *(flying for _, flying in look.places().values())])
            assert peer.answer_to(one.opaque).code == 0
    assert most < IN_FLIGHT + SERVING            # each may take one at the same moment


@pytest.mark.slow
@WAYS
def test_sends_of_an_account_beyond_the_rate_are_refused(
    counted: MqcoreProcess, account: tuple[str, str], tls: ssl.SSLContext | None,
) -> None:
    with connections(counted, account, tls) as peers:
        asked = sends(peers, MESSAGES_PER_S)
        began = time.monotonic()
        with a_neighbour_waits_little(counted):
            say(asked)
        answers = [peer.answer_to(one.opaque) for peer, one in asked]
        took_s = time.monotonic() - began
    refused = [one for one in answers if one.code]
    assert len(answers) - len(refused) <= MESSAGES_PER_S * (took_s + 1) + SERVING
    assert {one.code for one in refused} == {SYSTEM_BUSY}
    assert all("limits.account_messages_per_s" in (one.remark or "") for one in refused)


@pytest.mark.slow
@WAYS
def test_bytes_of_an_account_beyond_the_rate_wait_and_arrive(
    measured: MqcoreProcess, account: tuple[str, str], tls: ssl.SSLContext | None,
) -> None:
    each = 3
    with connections(measured, account, tls) as peers:
        asked = sends(peers, each, SIZE)
        began = time.monotonic()
        with a_neighbour_waits_little(measured):
            say(asked)
        assert {peer.answer_to(one.opaque).code for peer, one in asked} == {0}
        took_s = time.monotonic() - began
    # a second's worth, and what exceeds it in each connection, pass at once
    assert took_s >= CONNECTIONS * (each - 1) * SIZE / BYTES_PER_S - 1.2


@pytest.mark.slow
@WAYS
def test_the_narrower_limit_holds_and_the_account_goes_on_at_another_address(
    measured: MqcoreProcess, account: tuple[str, str], tls: ssl.SSLContext | None,
) -> None:
    each = 6
    with connections(measured, account, tls, host=FLOODER, count=2) as peers, connections(
            measured, account, tls, count=1) as (elsewhere,):
        asked = sends(peers, each, SIZE)
        began = time.monotonic()
        with a_neighbour_waits_little(measured):
            say(asked)
        assert elsewhere.does(Code.SEND_MESSAGE_V2, send_fields(TOPIC), b"x").code == 0
        elsewhere_s = time.monotonic() - began
        assert {peer.answer_to(one.opaque).code for peer, one in asked} == {0}
        took_s = time.monotonic() - began
    assert took_s >= len(peers) * (each - 1) * SIZE / (BYTES_PER_S // 2) - 1.2
    assert elsewhere_s < took_s
