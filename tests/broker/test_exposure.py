"""Nobody but this machine reaches a broker unless somebody said so, and an open one says so."""
from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from mqcore.admin.run import announce
from mqcore.broker.settings import exposure
from mqcore.broker.settings.load import load
from mqcore.broker.settings.model import SettingsError
from mqcore.broker.settings.validation import first_address
from mqcore.namesrv import settings as namesrv_settings
from tests.support.mqcore_process import mqcore_namesrv, mqcore_up
from tests.support.waiting import wait_until

OPEN = "0.0.0.0"


@pytest.mark.parametrize(("host", "loopback"), [
    ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True),
    ("LocalHost", True), ("0.0.0.0", False), ("::", False), ("10.0.0.7", False),
    ("localhost.example", False), ("127.0.0.1.example", False), ("", False),
])
def test_loopback_is_told_from_other_addresses(host: str, loopback: bool) -> None:
    assert exposure.is_loopback(host) is loopback


def test_without_settings_only_this_machine_is_listened_to() -> None:
    settings = load(None, {})

    assert settings.broker.listen_host == settings.namesrv.listen_host == "127.0.0.1"
    assert settings.advertised_addr == "127.0.0.1:10911"
    assert exposure.warning(settings, embedded=True) == ""
    assert namesrv_settings.load()[0].listen_host == "127.0.0.1"


def test_a_start_that_no_terminal_sees_logs_how_to_open_the_broker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str],
) -> None:
    """As under a service manager."""
    hint = f"open to programs on this machine alone; other hosts: set {exposure.OPEN_WITH}"
    with caplog.at_level("INFO", logger="mqcore"):
        for given, told in (([], [hint]), ([f"broker.listen_host={OPEN}"], []),
                            (["broker.namesrv_addrs=10.0.0.7:9876"], [])):
            caplog.clear()
            announce(load(None, {}, list(given)))
            assert [one.getMessage() for one in caplog.records] == told
            assert capsys.readouterr().out.startswith("mqcore ready ")
    with mqcore_up(tmp_path) as broker:
        wait_until(lambda: hint in broker.output.read_text(), "the hint in the log")


def test_stock_files_listen_to_all_as_stock_does(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=a\n")
    settings = load(conf, {})

    assert settings.broker.listen_host == settings.namesrv.listen_host == OPEN
    assert settings.broker.advertised_ip == first_address()
    assert load(conf, {"MQCORE_BROKER_LISTEN_HOST": "127.0.0.1"}).broker.listen_host == "127.0.0.1"
    assert namesrv_settings.load(conf)[0].listen_host == OPEN


@pytest.mark.parametrize(("opened", "embedded", "found"), [
    ("broker.listen_host=0.0.0.0", False, True), ("broker.listen_host=10.0.0.7", False, True),
    ("namesrv.listen_host=0.0.0.0", True, True), ("namesrv.listen_host=0.0.0.0", False, False),
])
def test_an_open_port_of_either_is_an_open_broker(opened: str, embedded: bool, found: bool) -> None:
    settings = load(None, {}, [opened])

    assert exposure.is_open(settings, embedded=embedded) is found
    said = exposure.warning(settings, embedded=embedded)
    assert ("every peer may do everything" in said) is found


def test_a_port_that_asks_for_certificates_of_clients_is_not_open() -> None:
    asked = ["broker.listen_host=0.0.0.0", "tls.certificate=c.pem", "tls.trust=t.pem",
             "tls.client_auth=require"]
    assert exposure.is_open(load(None, {}, asked), embedded=True)      # in the clear nobody asks
    asked.append("tls.mode=enforcing")
    assert not exposure.is_open(load(None, {}, asked), embedded=True)
    assert exposure.is_open(load(None, {}, [*asked, "tls.verify_client=false"]), embedded=True)


def test_the_port_of_slaves_is_open_where_it_asks_for_nothing() -> None:
    every = "replication.unsigned_addresses=10.0.0.7,0.0.0.0/0"
    asked = ["broker.listen_host=0.0.0.0", "acl.enable=true", "replication.listen=true", every]
    settings = load(None, {}, asked)

    assert exposure.is_open(settings, embedded=False)
    assert "0.0.0.0:10912" in exposure.warning(settings, embedded=False)
    assert not exposure.is_open(load(None, {}, asked[:3]), embedded=False)
    assert not exposure.is_open(load(None, {}, asked[:2]), embedded=False)
    secured = [one for one in asked if not one.startswith("acl")]
    assert exposure.is_open(load(None, {}, secured), embedded=False)
    for key in ("tls.certificate", "tls.trust"):
        secured.append(f"{key}=a.pem")
    assert not exposure.is_open_to_slaves(load(None, {}, [
        *secured, "replication.tls_mode=enforcing"]))


@pytest.mark.parametrize(("given", "key"), [
    (["replication.tls_mode=enforcing"], "replication.tls_mode"),
    (["replication.tls_mode=enforcing", "tls.certificate=a.pem"], "replication.tls_mode"),
    (["replication.tls_mode=enforcing", "tls.certificate=a.pem", "tls.trust=a.pem",
      "tls.mode=disabled"], "replication.tls_mode"),
    (["replication.master_tls=true"], "replication.master_tls")])
def test_settings_of_tls_at_the_port_of_slaves_fit_each_other(given: list[str], key: str) -> None:
    with pytest.raises(SettingsError, match=rf"{key}.*expected"):
        load(None, {}, given)


def test_the_address_that_is_listened_at_is_the_one_that_clients_are_told() -> None:
    assert load(None, {}, ["broker.listen_host=10.0.0.7"]).store_addr == "10.0.0.7:10911"
    assert load(None, {}, ["broker.listen_host=localhost"]).store_addr == "127.0.0.1:10911"
    six = load(None, {}, ["broker.listen_host=::1", "replication.listen=true"])
    assert (six.advertised_addr, six.store_addr, six.ha_addr) == (
        "[::1]:10911", "[::1]:10911", "[::1]:10912")
    named = load(None, {}, ["broker.listen_host=fd00::7", "broker.advertised_host=b.example",
                            "broker.advertised_ip=10.0.0.7"])
    assert (named.advertised_addr, named.store_addr) == ("b.example:10911", "10.0.0.7:10911")
    with pytest.raises(SettingsError, match=r'%eth0".* set broker.advertised_host'):
        load(None, {}, ["broker.listen_host=fe80::1%eth0"])
    assert load(None, {}, ["broker.listen_host=::"]).broker.advertised_ip == first_address()


def test_a_broker_that_registers_elsewhere_and_listens_here_alone_is_told() -> None:
    settings = load(None, {}, ["broker.namesrv_addrs=mq.example:9876,127.0.0.1:9876"])

    said = exposure.warning(settings, embedded=False)
    assert re.search(r"mq\.example:9876 .* cannot reach", said)


def test_a_broker_that_others_reach_says_so_once_and_in_its_status(tmp_path: Path) -> None:
    with mqcore_up(tmp_path, {"broker.listen_host": OPEN}) as broker:
        done = subprocess.run([sys.executable, "-m", "mqcore.admin.cli", "status"],
                              capture_output=True, text=True)
        assert broker.tail().count("every peer may do everything") == 1

    own = done.stdout.partition(f"-{broker.pid}\n")[2].partition("\nbroker ")[0]
    assert "other hosts reach it, and nothing asks who they are" in own


@pytest.mark.parametrize(("settings", "said"), [
    ({"namesrv.listen_host": OPEN}, 1), ({"namesrv.listen_host": OPEN, "acl.enable": True}, 0)])
def test_a_name_server_that_others_reach_says_so_unless_it_asks_for_accounts(
        tmp_path: Path, settings: dict[str, object], said: int) -> None:
    with mqcore_namesrv(tmp_path, settings) as running:
        assert running.tail().count("and it asks nobody who they are") == said


def test_an_open_name_server_beside_a_broker_with_accounts_is_one_that_does_not_ask() -> None:
    given = ["acl.enable=true", "broker.listen_host=0.0.0.0", "namesrv.listen_host=0.0.0.0"]
    assert not exposure.is_open(load(None, {}, given), embedded=True)
    assert "this name server" in exposure.warning(
        load(None, {}, [*given, "acl.namesrv_enable=false"]), embedded=True)
