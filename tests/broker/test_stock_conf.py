"""A stock broker.conf is taken as it is: mapped, refused where it matters, or reported."""
from __future__ import annotations

from pathlib import Path

import pytest

from mqcore.broker.settings import stock_conf
from mqcore.broker.settings.load import defaults, load
from mqcore.broker.settings.model import Settings, SettingsError
from mqcore.replication.role import Role
from mqcore.wire.java_properties import parse_properties

STOCK = """\
# a broker.conf as the handbook shows it
brokerClusterName = DefaultCluster
brokerName=broker-a
brokerId: 0
deleteWhen = 04
fileReservedTime = 48
brokerRole = ASYNC_MASTER
flushDiskType = ASYNC_FLUSH
namesrvAddr = 10.0.0.1:9876;10.0.0.2:9876
! another comment
storePathRootDir = /data/rocket\\
    mq/store
brokerIP1 = 10.0.0.9
listenPort 20911
registerNameServerPeriod = 5000
mappedFileSizeConsumeQueue = 6000001
destroyMapedFileIntervalForcibly = 1
myOwnKey = 1
"""


def read(tmp_path: Path, content: str, name: str = "broker.conf") -> Settings:
    file = tmp_path / name
    file.write_text(content)
    return load(file, {})


def test_stock_keys_set_their_counterparts(tmp_path: Path) -> None:
    settings = read(tmp_path, STOCK)

    assert settings.broker.name == "broker-a"
    assert settings.advertised_addr == "10.0.0.9:20911"
    assert settings.broker.namesrv_addrs == ("10.0.0.1:9876", "10.0.0.2:9876")
    assert settings.store.path == "/data/rocketmq/store"
    assert settings.store.flush == "async"
    assert settings.broker.register_interval_ms == 10_000
    assert settings.store.queue_file_entry_count == 300_001
    assert settings.store.delete_when_hours == (4,)
    assert settings.store.reserved_hours == 48


def test_the_advertised_address_may_be_a_name(tmp_path: Path) -> None:
    settings = read(tmp_path, "brokerIP1=localhost\nlistenPort=20911\n")

    assert (settings.advertised_addr, settings.store_addr) == ("localhost:20911", "127.0.0.1:20911")


def test_unknown_keys_and_keys_without_effect_make_one_warning(tmp_path: Path) -> None:
    settings = read(tmp_path, STOCK)

    assert settings.stock.unknown == ("myOwnKey",)
    assert settings.stock.without_effect == ("destroyMapedFileIntervalForcibly",)
    assert settings.stock.warning() == (
        "unknown keys: myOwnKey; keys without effect here: destroyMapedFileIntervalForcibly"
    )


SLAVE = "brokerRole=SLAVE\nbrokerId=2\nnamesrvAddr=a:1\n"


def test_a_stock_role_brings_its_id_and_its_port(tmp_path: Path) -> None:
    master = read(tmp_path, "brokerId=3\nlistenPort=20911\nhaListenPort=7\nslaveTimeout=50\n"
                            "brokerIP2=10.0.0.8\nbrokerRole=SYNC_MASTER\n")
    slave = read(tmp_path, SLAVE + "transientStorePoolEnable=true\nhaMasterAddress=m:20912\n")

    assert (master.replication.role, master.broker.id) == (Role.SYNC_MASTER, 0)
    assert (master.replication.listen, master.ha_addr) == (True, "10.0.0.8:20912")
    assert master.replication.slave_timeout_ms == 50
    assert master.stock.without_effect == ("haListenPort",)
    assert (slave.is_slave, slave.broker.id, slave.replication.listen) == (True, 2, False)
    assert slave.replication.master_address == "m:20912"
    assert slave.store.flush == "async"                       # no pool, as with a stock slave


@pytest.mark.parametrize(("lines", "flush"), [
    ("flushDiskType=SYNC_FLUSH", "sync"),
    ("flushDiskType=ASYNC_FLUSH", "async"),
    ("transientStorePoolEnable=true", "transient-pool"),
    ("transientStorePoolEnable=true\nflushDiskType=SYNC_FLUSH", "sync"),
    ("transientStorePoolEnable=false", "async"),
])
def test_two_stock_keys_choose_the_flush_mode(tmp_path: Path, lines: str, flush: str) -> None:
    assert read(tmp_path, lines).store.flush == flush


@pytest.mark.parametrize(("line", "text"), [
    ("brokerRole=OTHER", 'brokerRole = "OTHER": expected one of "ASYNC_MASTER", "SYNC_MASTER", '),
    ("enableDLegerCommitLog=true", "DLedger"),
    ("flushDiskType=FAST", 'flushDiskType = "FAST": expected "ASYNC_FLUSH" or "SYNC_FLUSH"'),
    ("listenPort=many", 'listenPort = "many": expected a whole number from 1 to 65535'),
    ("maxMessageSize=1", 'maxMessageSize = "1": expected a whole number from 10'),
    ("registerNameServerPeriod=soon", 'registerNameServerPeriod = "soon"'),
])
def test_what_may_not_be_ignored_is_refused(tmp_path: Path, line: str, text: str) -> None:
    with pytest.raises(SettingsError, match=r"broker\.conf: ") as caught:
        read(tmp_path, line)
    assert text in str(caught.value)


def test_the_content_decides_before_the_extension(tmp_path: Path) -> None:
    assert read(tmp_path, "[store]\nflush = 'sync'\n", "b.conf").store.flush == "sync"
    assert read(tmp_path, "flushDiskType=SYNC_FLUSH\n", "b").store.flush == "sync"
    assert read(tmp_path, "flushDiskType=SYNC_FLUSH\n", "b.properties").store.flush == "sync"


def test_every_mapped_key_has_a_real_target_and_one_meaning() -> None:
    targets = [*stock_conf.RENAMED.values(), *(key for key, _ in stock_conf.CONVERTED.values())]
    known = {f"{section}.{key}" for section, keys in defaults().items() for key in keys}

    assert set(targets) <= known
    assert len(targets) == len(set(targets))
    names = [
        *stock_conf.RENAMED, *stock_conf.CONVERTED, *stock_conf.FLUSH_KEYS, *stock_conf.REFUSED,
        *stock_conf.WITHOUT_EFFECT,
    ]
    assert len(names) == len(set(names))


def test_properties_are_read_as_java_reads_them() -> None:
    text = "a=1\r\n b : 2\nc   3\n#d=4\n!e=5\nf\\ g=h\\u0041\\tx\ni=\\\n  j\n\nk\n"

    assert parse_properties(text.encode("latin-1")) == {
        "a": "1", "b": "2", "c": "3", "f g": "hA\tx", "i": "j", "k": "",
    }
