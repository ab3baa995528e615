"""A broker that signs what it asks of name servers, at stock's and at one of ours that checks."""
from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import stock
from tests.support.ci import unavailable
from tests.support.mqcore_process import mqcore_namesrv, mqcore_up
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(300)
RULES = "accounts:\n- {accessKey: broker-a, secretKey: its-secret, admin: true}\n"


@pytest.mark.slow
def test_a_signed_registration_is_taken_by_stock_and_by_who_checks_it(tmp_path: Path):
    if not stock.have_stock():
        unavailable("needs java, and mvn or an earlier download of the stock broker")
    (tmp_path / "plain_acl.yml").write_text(RULES)
    secret = tmp_path / "secret"
    secret.write_text("its-secret\n")
    theirs = stock.start_namesrv(tmp_path / "stock")
    try:
        with mqcore_namesrv(tmp_path / "ours", {
                "acl.enable": True, "acl.folder": tmp_path}) as ours:
            addresses = [theirs.addr, ours.namesrv_addr]
            with mqcore_up(tmp_path / "broker", {
                    "namesrv.embedded": False, "broker.namesrv_addrs": addresses,
                    "broker.name": "signed", "acl.client_access_key": "broker-a",
                    "acl.client_secret_key_file": secret}):
                for address in addresses:
                    assert "signed" in stock.registered_brokers(address)
            for address in addresses:      # its goodbye is signed as well
                wait_until(lambda at=address: not stock.registered_brokers(at),  # type: ignore[misc]
                           "it has gone")
            with mqcore_up(tmp_path / "broker", {
                    "namesrv.embedded": False, "broker.namesrv_addrs": addresses,
                    "broker.name": "unsigned"}) as broker:
                assert "unsigned" in stock.registered_brokers(addresses[0])
                assert stock.registered_brokers(addresses[1]) == set()
                assert "No accessKey is configured" in broker.tail()
    finally:
        theirs.stop()
