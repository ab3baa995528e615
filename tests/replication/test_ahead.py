"""
A slave's tables come by another way than its log, and may be ahead of it: what the master settled
behind the end of the log here, a delivery or a transaction, is open here.
"""
from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mqcore.broker.tables import config_file
from mqcore.wire.codes import HALF_TOPIC, OP_TOPIC
from mqcore.workers.replication.following import Ahead
from tests.broker.fakes import Bench
from tests.replication.pairs import NAME, addresses, slave_up, table
from tests.replication.test_given_back import PARTED, Link, bench, round_of
from tests.replication.test_metadata import commit, delays
from tests.replication.test_promotion import ha_port, same_log
from tests.replication.test_slave_rules import SLAVE
from tests.support.command import mqcore
from tests.support.mqcore_process import MqcoreProcess, mqcore_namesrv, mqcore_up
from tests.support.relay import Relay
from tests.support.waiting import wait_until
from tests.transactions.producer import COMMIT, Producer
from tests.wire_live.state import State

SYSTEM_GROUP = "CID_RMQ_SYS_TRANS"
HALF_KEY = f"{HALF_TOPIC}@{SYSTEM_GROUP}"
TOPIC = "Later"
DELAYED = {1: 5, 18: 7}
UNKNOWN = {"offsetTable": {}, "logPosition": 0}      # who leads with that asks all of its log
QUICK: dict[str, object] = {
    "broker.message_delay_levels": "8s", "broker.transaction_check_interval_ms": 200,
    "broker.delay_offsets_persist_interval_ms": 100}


# -- the words that wait ---------------------------------------------------------------------------

def test_a_word_waits_for_its_place_in_the_log_and_the_newest_behind_it() -> None:
    said: Ahead[str] = Ahead()
    assert said.take(1000) is None
    for end in (100, 200, 300):
        said.put(end, f"at {end}")

    assert said.take(99) is None
    assert said.take(250) == "at 100"            # 200 gave way to 300
    said.put(400, "at 400")
    assert said.take(400) == "at 400"
    assert said.take(1000) is None


def test_a_master_that_lost_its_logs_end_takes_its_word_back() -> None:
    said: Ahead[str] = Ahead()
    said.put(300, "of the log that is gone")
    said.put(200, "of the one that is")

    assert said.take(500) == "of the one that is"


# -- one slave, one master -------------------------------------------------------------------------

@pytest.fixture
def master(tmp_path: Path) -> Bench:
    """Its log ends at 300; it has delivered, and ended transactions."""
    made = bench(tmp_path / "master", 300)
    config_file.save(made.broker.core.settings.config_dir / "delayOffset.json",
                     {"offsetTable": DELAYED, "logPosition": 90})
    made.figures.delays = DELAYED
    for topic in (HALF_TOPIC, OP_TOPIC):
        commit(made, 4, topic=topic, group=SYSTEM_GROUP)
    commit(made, 9)
    return made


@pytest.fixture
def slave(tmp_path: Path) -> Bench:
    return bench(tmp_path / "slave", 200, *SLAVE)


def transactions(of: Bench) -> list[int | None]:
    return [of.broker.core.offsets.committed(SYSTEM_GROUP, topic, 0)
            for topic in (HALF_TOPIC, OP_TOPIC)]


@pytest.mark.parametrize("stock", [False, True], ids=["ours", "stock"])
def test_what_the_master_settled_counts_when_the_log_is_here(
    master: Bench, slave: Bench, stock: bool, monkeypatch: pytest.MonkeyPatch,
) -> None:
    if stock:
        monkeypatch.setattr(Link, "_is_ours", property(lambda _: False, lambda *_: None),
                            raising=False)
    link = Link(slave, master)

    round_of(link)

    assert slave.broker.core.offsets.committed("G", "T", 0) == 9
    assert (transactions(slave), delays(slave)) == ([None, None], UNKNOWN)
    master.store.records[500] = master.store.records[300]      # it goes on, and so does this one
    slave.store.records[299] = slave.store.records[200]
    round_of(link)
    assert (transactions(slave), delays(slave)) == ([None, None], UNKNOWN)
    slave.store.records[300] = slave.store.records[200]
    round_of(link)
    assert transactions(slave) == [4, 4]
    assert delays(slave) == {"offsetTable": DELAYED, "logPosition": 200 if stock else 90,
                             "delivered": {}}


def test_another_master_does_not_stand_by_the_formers_word(master: Bench, slave: Bench) -> None:
    link = Link(slave, master)
    round_of(link)
    slave.store.records[300] = slave.store.records[200]
    link.adopt("10.0.0.9:10911")

    link._keep_delays()
    link._keep_transactions()

    assert (transactions(slave), delays(slave)) == ([None, None], UNKNOWN)


def test_what_the_master_of_another_log_settled_is_not_believed(
    tmp_path: Path, slave: Bench,
) -> None:
    """Its log is longer and parted from this one, whose queues have other messages."""
    master = bench(tmp_path / "other", 300, history=PARTED)
    for topic in (HALF_TOPIC, OP_TOPIC):
        commit(master, 4, topic=topic, group=SYSTEM_GROUP)
    master.figures.delays = DELAYED
    slave.store.records[400] = slave.store.records[200]
    link = Link(slave, master)

    for _ in range(2):
        round_of(link)

    assert (transactions(slave), delays(slave)) == ([None, None], UNKNOWN)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"table":{}}',
                                  b'{"table":{"commitLogMaxOffset":"-3"}}',
                                  b'{"table":{"commitLogMaxOffset":[]}}'])
def test_a_stock_master_that_does_not_say_where_its_log_ends_settles_nothing(
    master: Bench, slave: Bench, body: bytes, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Link, "_is_ours", property(lambda _: False, lambda *_: None),
                        raising=False)
    asked = Link._call

    async def call(link: Link, code: int, *arguments: object, **more: object) -> object:
        answer = await asked(link, code, *arguments, **more)         # type: ignore[arg-type]
        if code == 28:
            answer.body = body
        return answer

    monkeypatch.setattr(Link, "_call", call)
    slave.store.records[300] = slave.store.records[200]
    link = Link(slave, master)

    for _ in range(2):
        round_of(link)

    assert link.age_ms == -1                                  # no whole round
    assert link.asked.count(43) == 1                          # all offsets: only in their time
    assert (transactions(slave), delays(slave)) == ([None, None], None)


# -- as processes ----------------------------------------------------------------------------------

@dataclass
class Stalled:
    names: MqcoreProcess
    master: MqcoreProcess
    slave: MqcoreProcess
    way: Relay                       # of the log


@contextlib.contextmanager
def apart(folder: Path) -> Iterator[Stalled]:
    """A master and a slave whose log comes through a relay."""
    with (
        mqcore_namesrv(folder / "names") as names,
        mqcore_up(folder / "master", {"broker.name": NAME, "replication.listen": True, **QUICK},
                  namesrv_addr=names.namesrv_addr) as master,
        Relay(ha_port(master)) as way,
        slave_up(folder / "slave", names.namesrv_addr, {
            "replication.master_address": way.address, **QUICK,
            "broker.transaction_timeout_ms": 300}) as slave,
    ):
        yield Stalled(names, master, slave, way)


def stored(address: str) -> Counter[bytes]:
    with State(address) as peer:
        return Counter(record.body for record in peer.stored(TOPIC))


def hears_of_a_commit(pair: Stalled, offset: int) -> None:
    """A consumer's offset goes from the master to the slave: a round of questions is over."""
    with State(pair.master.broker_addr) as peer:
        assert peer.ask(15, {"consumerGroup": "G", "topic": TOPIC, "queueId": "0",
                             "commitOffset": str(offset)}).code == 0
    with State(pair.slave.broker_addr) as peer:
        wait_until(lambda: peer.committed("G", TOPIC, 0) == offset, "the slave has asked")


def settle_behind_the_slaves_log(pair: Stalled) -> None:
    """A delayed message and a half message are at both; what settles them is at the master."""
    at = pair.master.broker_addr
    with State(at) as peer:
        peer.topic(TOPIC, 1)
    with Producer(at, "Group") as producer:
        half = producer.prepare(TOPIC, b"ended")
        with State(at) as peer:
            peer.message(TOPIC, body=b"delayed", properties={"DELAY": "1"})
        wait_until(lambda: same_log(pair.master, pair.slave), "the slave has both")
        pair.way.stall()
        assert stored(at) == Counter()
        assert producer.end(half, COMMIT).code == 0
    wait_until(lambda: stored(at) == Counter([b"ended", b"delayed"]), "both are settled")
    wait_until(lambda: table(at, 43)["offsetTable"].get(HALF_KEY) == {0: 1}, "as is known")
    kept = pair.master.store / "config" / "delayOffset.json"
    wait_until(lambda: (config_file.load(kept) or {}).get("offsetTable") == {1: 1}, "and written")
    for offset in range(1, 5):
        hears_of_a_commit(pair, offset)
    assert stored(pair.slave.broker_addr) == Counter()


@pytest.mark.slow
def test_what_the_master_settled_behind_the_slaves_log_is_settled_by_who_is_promoted(
    tmp_path: Path,
) -> None:
    with apart(tmp_path) as pair:
        settle_behind_the_slaves_log(pair)
        pair.master.kill()
        assert mqcore("replication", "promote", "--yes", pair.slave.store).returncode == 0
        at = pair.slave.broker_addr
        wait_until(lambda: addresses(pair.names).get("0") == at, "the slave leads")

        with Producer(at, "Group") as producer:
            (asked,) = producer.wait_asked(1, b"ended")
            assert producer.end(asked, COMMIT).code == 0
        wait_until(lambda: stored(at) >= Counter([b"ended", b"delayed"]), "both arrive")
        assert stored(at) == Counter([b"ended", b"delayed"])
