"""Settings come from four places in a fixed order, and a wrong one is named exactly."""
from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from docs.settings import toml
from mqcore.broker.settings.load import defaults, load
from mqcore.broker.settings.model import SECTIONS, SettingsError
from mqcore.tls.settings import SECRETS

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "config" / "broker.toml"


def test_the_shipped_file_holds_every_key_with_its_default() -> None:
    assert tomllib.loads(SHIPPED.read_text()) == defaults()


def test_the_shipped_file_explains_every_key_above_it() -> None:
    lines = SHIPPED.read_text().splitlines()
    bare = [
        line for before, line in pairwise(lines)
        if re.match(r"[a-z_]+ = ", line) and not before.startswith("#")
        and not re.match(r"(transfer|topic|queue|group|subscription)_", line)
    ]
    assert bare == []


def test_the_document_describes_every_key_with_its_default() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text()
    described = set(re.findall(r"^\| `([a-z_]+\.[a-z_]+)` \| `([^`]*)` \|", text, re.M))
    shown = {
        (f"{section}.{key}", toml(value))
        for section, keys in defaults().items() for key, value in keys.items()
    }
    assert described == shown


def test_the_shipped_file_changes_nothing(tmp_path: Path) -> None:
    given, none = load(SHIPPED, {}), load(None, {})

    assert given.acl.folder == str(SHIPPED.parent)            # files lie beside their broker's
    assert [getattr(given, name) for name in SECTIONS if name != "acl"] == [
        getattr(none, name) for name in SECTIONS if name != "acl"
    ]
    assert replace(given.acl, folder="") == replace(none.acl, folder="")


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "b.toml"
    file.write_text('[store]\nflush = "sync"\nflush_interval_ms = 1\n[log]\nlevel = "debug"\n')
    environment = {"MQCORE_STORE_FLUSH_INTERVAL_MS": "2", "MQCORE_LOG_LEVEL": "error"}

    settings = load(file, environment, ["log.level=warning"])

    assert (settings.store.flush, settings.store.flush_interval_ms, settings.log.level) == (
        "sync", 2, "warning"
    )


def test_texts_become_numbers_booleans_and_lists() -> None:
    settings = load(None, {
        "MQCORE_BROKER_LISTEN_PORT": "20911", "MQCORE_BROKER_TRACE_ON": "false",
        "MQCORE_BROKER_NAMESRV_ADDRS": "a:9876;b:9877",
    })

    assert settings.broker.listen_port == 20911
    assert settings.broker.trace_on is False
    assert settings.broker.namesrv_addrs == ("a:9876", "b:9877")


def test_environment_names_outside_the_sections_are_not_ours() -> None:
    assert load(None, {"MQCORE_TEST_STOCK": "1", "MQCORE_BUILD_ONLY": "x"}) == load(None, {})


def test_stock_environment_gives_name_servers_below_any_other_place() -> None:
    stock = {"NAMESRV_ADDR": "a:9876"}

    assert load(None, stock).broker.namesrv_addrs == ("a:9876",)
    overridden = load(None, stock, ["broker.namesrv_addrs=b:1"])
    assert overridden.broker.namesrv_addrs == ("b:1",)


def test_what_is_empty_is_filled_in() -> None:
    settings = load(None, {}, ["store.path=~/x"])

    assert settings.broker.name
    assert settings.broker.advertised_ip == "127.0.0.1"
    assert settings.store.path == str(Path.home() / "x")
    assert settings.advertised_addr == f"{settings.broker.advertised_ip}:10911"
    assert settings.fast_port == 10909


def test_clients_are_told_a_name_and_messages_carry_its_address() -> None:
    settings = load(None, {}, ["broker.advertised_host=localhost"])

    assert settings.advertised_addr == "localhost:10911"
    assert settings.store_addr == "127.0.0.1:10911"
    both = load(None, {}, ["broker.advertised_host=no.invalid", "broker.advertised_ip=10.0.0.7"])
    assert (both.advertised_addr, both.store_addr) == ("no.invalid:10911", "10.0.0.7:10911")


def test_a_name_without_an_address_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.invalid.*has no IPv4 address"):
        load(None, {}, ["broker.advertised_host=nowhere.invalid"])


@pytest.mark.parametrize(("override", "text"), [
    ("store.flush=fast", 'store.flush = "fast": expected one of "async", "sync", "transient-pool"'),
    ("broker.listen_port=0", 'listen_port = "0": expected a whole number from 1 to 65535'),
    ("broker.listen_port=2", "expected 3 or more"),
    ("broker.trace_on=maybe", 'trace_on = "maybe": expected true or false'),
    ("broker.permission=3", "permission = 3: expected 2 (write), 4 (read) or 6 (both)"),
    ("broker.namesrv_addrs=a:1;b", "expected host:port in each entry"),
    ("broker.advertised_ip=here", 'advertised_ip = "here": expected an IPv4 or IPv6'),
    ("broker.advertised_host=a b", 'advertised_host = "a b": expected a host name or an IPv4'),
    ("broker.advertised_host=x/y", "expected a host name or an IPv4 address"),
    ("broker.accept_sends_from_ms=1" + "0" * 30, "a whole number from 0 to 9007199254740992"),
    ("broker.transaction_timeout_ms=1" + "0" * 30, "a whole number from 0 to 9007199254740992"),
    ("store.segment_size_bytes=4096", "expected more than 4259848"),
    ("store.segment_size_bytes=1073741825", "expected a multiple of 4096"),
    ("namesrv.listen_port=10911", "namesrv.listen_port = 10911"),
    ("store.flushh=sync", "unknown key store.flushh; did you mean flush?"),
    ("stor.flush=sync", "unknown section [stor]; did you mean store?"),
    ("broker.flush=sync", "unknown key broker.flush; did you mean store.flush?"),
    ("xyz.flush=sync", "unknown section [xyz]; expected one of broker, store"),
    ("flush=sync", "--set flush=sync: expected section.key=value"),
])
def test_a_wrong_setting_is_named_with_what_was_expected(override: str, text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(None, {}, [override])

    assert text in str(caught.value)
    assert str(caught.value).startswith(f"--set {override}")


def test_no_message_shows_a_password(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    for name in SECRETS:
        for value in ("1234567", '"123456\\u00007"'):
            file.write_text(f"[tls]\n{name} = {value}\n")
            with pytest.raises(SettingsError, match=f"^{file}: tls.{name}: expected text") as error:
                load(file, {})
            assert "123456" not in str(error.value)


@pytest.mark.parametrize(("content", "text"), [
    ("[broker]\nlisten_port = \"x\"\n", 'broker.listen_port = "x": expected a whole number'),
    ("[broker]\nnames = 1\n", "unknown key broker.names"),
    ("[brokers]\nname = 1\n", "unknown section [brokers]"),
    ("name = 1\n[broker]\n", "key name stands outside a section"),
    ("[broker\n", "not a TOML file"),
    ("[store]\nsegment_size_bytes = 8192\n", "store.segment_size_bytes = 8192: expected more"),
])
def test_a_wrong_file_is_named_with_the_key(tmp_path: Path, content: str, text: str) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(content)

    with pytest.raises(SettingsError) as caught:
        load(file, {})

    assert str(caught.value).startswith(f"{file}: ")
    assert text in str(caught.value)


def test_a_file_that_is_missing_is_named() -> None:
    with pytest.raises(SettingsError, match=r"/nowhere\.toml: cannot be read"):
        load(Path("/nowhere.toml"), {})


def test_importing_settings_loads_nothing_heavy() -> None:
    code = (
        "import sys, mqcore.broker.settings.load as s; s.load(None, {});"
        "print([m for m in ('numpy', 'click', 'asyncio', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


MASTER_KNOWN = "replication.master_address=h:10912"
CHAINED = ["replication.role=slave", "broker.id=1", "replication.listen=true"]


@pytest.mark.parametrize(("overrides", "text"), [
    (["replication.role=none"], 'expected one of "async-master", "sync-master", "slave"'),
    (["replication.role=slave", MASTER_KNOWN], "broker.id = 0: expected 1 or more in a slave"),
    (["replication.role=slave", "broker.id=1"], "namesrv_addrs = []: expected a name server"),
    (["replication.role=slave", "broker.id=1", MASTER_KNOWN, "store.flush=transient-pool"],
     'store.flush = "transient-pool": expected "async" or "sync" in a slave'),
    (["broker.id=3"], 'broker.id = 3: expected 0 with replication.role = "async-master"'),
    (["replication.role=sync-master"], "replication.listen = false: expected true"),
    (["replication.read_replicated_only=true"], "replication.listen = false: expected true"),
    (["replication.listen=true", "replication.port=10911"], "a port that nothing else here uses"),
    (["replication.listen=true", "broker.listen_port=65535"], "a port that nothing else here uses"),
    (["replication.listen=true", "namesrv.listen_port=10912"], "a port that nothing else here"),
    (["replication.master_address=h"], "expected host:port"),
    *[([*CHAINED, *own], "another broker's address, not this one's own") for own in (
        ["replication.master_address=localhost:10912"],
        ["replication.master_address=10.0.0.2:700", "broker.advertised_ip=10.0.0.2",
         "replication.port=700"],
        ["replication.master_address=inside:10912", "replication.advertised_host=inside"])],
    (["replication.advertised_host=a b"], "expected a host name or an IPv4 address"),
])
def test_what_does_not_fit_the_role_is_refused(overrides: list[str], text: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(text)):
        load(None, {}, overrides)


def test_slaves_are_let_in_beside_the_main_port_unless_another_is_named() -> None:
    plain = load(None, {}, ["replication.listen=true"])
    named = load(None, {}, ["replication.port=700", "replication.advertised_host=inside"])

    assert (plain.is_slave, plain.ha_port, plain.ha_addr) == (False, 10912, "127.0.0.1:10912")
    assert (named.ha_port, named.ha_addr) == (700, "inside:700")
    assert load(None, {}, ["replication.role=slave", "broker.id=1", MASTER_KNOWN]).is_slave
    assert load(None, {}, [*CHAINED, "replication.master_address=127.0.0.1:10913"]).is_slave
    assert load(None, {}, [*CHAINED, "replication.master_address=127.0.0.1:10912",
                           "broker.listen_host=127.0.0.2"]).is_slave


ELECTED = ["failover.enable=true", "replication.role=sync-master", "replication.listen=true",
           "broker.id=2", "broker.namesrv_addrs=n:9876"]


@pytest.mark.parametrize(("overrides", "only"), [
    ([], False), (ELECTED, True), ([*ELECTED, "replication.read_replicated_only=false"], False),
    (["replication.listen=true", "replication.read_replicated_only=true"], True)])
def test_consumers_of_an_elected_set_see_what_is_replicated_unless_told_otherwise(
    overrides: list[str], *, only: bool,
) -> None:
    assert load(None, {}, overrides).shows_replicated_only is only


def test_what_consumers_see_is_true_false_or_auto() -> None:
    assert load(None, {}, ["replication.read_replicated_only=auto"]) == load(None, {}, [])
    with pytest.raises(SettingsError, match='expected true or false, or one of "auto"'):
        load(None, {}, ["replication.read_replicated_only=often"])


@pytest.mark.parametrize(("override", "text"), [
    ("replication.role=async-master", 'expected "sync-master" with failover.enable'),
    ("replication.role=slave", 'expected "sync-master" with failover.enable'),
    ("replication.listen=false", "replication.listen = false: expected true"),
    ("broker.id=0", "broker.id = 0: expected 1 or more with failover.enable"),
    ("broker.namesrv_addrs=", "expected a name server"),
    ("replication.master_address=h:1", "etcd says who leads"),
    ("store.flush=transient-pool", 'expected "async" or "sync" with failover.enable'),
    ("failover.etcd=h:2379", "1 to 16 addresses, http://host:port"),
    ("failover.etcd=http://h", "1 to 16 addresses"),
    ("failover.etcd=", "1 to 16 addresses"),
    ("failover.request_timeout_ms=1000", "at most half of failover.lease_seconds"),
    ("failover.etcd_cert_file=c", "its key in failover.etcd_key_file"),
    ("failover.etcd_user=u", "its password in the file"),
    ("replication.port=10911", "a port that nothing else here uses"),
])
def test_what_does_not_fit_an_election_is_refused(override: str, text: str) -> None:
    load(None, {}, ELECTED)
    with pytest.raises(SettingsError, match=re.escape(text)):
        load(None, {}, [*ELECTED, "failover.lease_seconds=1", override])
