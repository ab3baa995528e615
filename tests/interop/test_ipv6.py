"""Clients reach a broker that listens at an IPv6 address; its messages carry that address."""
from __future__ import annotations

import socket
from pathlib import Path

import pytest

from mqcore.client import Admin
from tests.interop.messages import mids, plain
from tests.interop.runner import Programs
from tests.support.mqcore_process import mqcore_up


@pytest.mark.parametrize("client", ["java", "go"])
def test_a_client_sends_to_an_ipv6_address_and_consumes_there(
    client: str, tmp_path: Path, programs: Programs,
) -> None:
    """By the IPv4 address of its name server: Go's client takes no other."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"this machine has no address ::1: {error}")
    with mqcore_up(tmp_path, {"broker.listen_host": "::1", "broker.advertised_ip": None}) as broker:
        sent = plain([f"{client}-{number}" for number in range(4)])
        programs.produce(client, broker.namesrv_addr, "six", sent, group="p").finish()
        run = programs.consume(client, broker.namesrv_addr, "six", "g", len(sent), 60)

        assert sorted(mids(run.finish())) == mids(sent)
        with Admin(broker.namesrv_addr) as admin:
            (found,) = admin.topic_route("six").brokers
        assert list(found.addresses.values()) == [
            f"[::1]:{broker.broker_addr.rpartition(':')[2]}"]
