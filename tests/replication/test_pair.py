"""Two brokers of one name, as processes: what the name server, clients and each other see."""
from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mqcore.wire import fastjson
from mqcore.wire.command import encode, request
from mqcore.wire.records import decode_records
from tests.replication.pairs import NAME, Pair, addresses, pair, slave_up, table
from tests.support.command import mqcore
from tests.support.mqcore_process import MqcoreError, MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.tls.certificates import Authority
from tests.tls.conftest import authority, served
from tests.wire_live.peer import Peer, pull_fields, send_fields
from tests.wire_live.state import State
from tests.workers.processes import kill

__all__ = ["authority", "served"]
SUSPENDS, HAS_SUBSCRIPTION = 2, 4


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with pair(tmp_path_factory.mktemp("pair")) as running:
        yield running


def test_both_are_known_by_their_ids(both: Pair) -> None:
    assert addresses(both.names) == {"0": both.master.broker_addr, "1": both.slave.broker_addr}


def test_topics_groups_and_offsets_reach_the_slave(both: Pair) -> None:
    with State(both.master.broker_addr) as peer:
        peer.topic("Followed", 3)
        peer.consumer("FollowedGroup", "Followed")
        assert peer.ask(15, {"consumerGroup": "FollowedGroup", "topic": "Followed", "queueId": "2",
                             "commitOffset": "41"}).code == 0

    def of(broker: MqcoreProcess, code: int) -> dict[str, Any]:
        found = table(broker.broker_addr, code)
        found.get("offsetTable", {}).pop("BenchmarkTest@Beside", None)   # committed at the slave
        return found

    for code in (21, 201, 43):
        wait_until(lambda code=code: of(both.slave, code) == of(both.master, code),
                   f"equal answers to {code}")
    assert "Followed@FollowedGroup" in table(both.slave.broker_addr, 43)["offsetTable"]


@pytest.mark.parametrize("code", [10, 310, 320])
def test_a_slave_takes_no_messages(both: Pair, code: int) -> None:
    fields = send_fields("BenchmarkTest", batch=code == 320)
    if code == 10:
        fields = {"producerGroup": "P", "topic": "NewTopic", "defaultTopic": "TBW102", "flag": "0",
                  "defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "0",
                  "bornTimestamp": "1", "properties": ""}
    with Peer(both.slave.broker_addr) as peer:
        answer = peer.ask(code, fields, b"body")

    assert (answer.code, answer.remark) == (
        14, "service not available now: this broker is a slave, its master takes messages")
    assert "NewTopic" not in table(both.slave.broker_addr, 21)["topicConfigTable"]


def test_a_slave_ends_no_transaction(both: Pair) -> None:
    with Peer(both.slave.broker_addr) as peer:
        answer = peer.ask(37, {"producerGroup": "P", "tranStateTableOffset": "0",
                               "commitLogOffset": "0", "commitOrRollback": "8"})
    assert answer.code == 11


def test_a_slave_delivers_and_checks_nothing(both: Pair) -> None:
    done = mqcore("status")
    assert done.returncode == 0, done.stderr

    def of(pid: int) -> str:
        return done.stdout.partition(f"-{pid}\n")[2].partition("\nbroker ")[0]

    for process in ("scheduler", "transaction-check"):
        assert process in of(both.master.pid)
        assert process not in of(both.slave.pid)


def test_a_pull_of_what_is_still_to_come_waits_at_the_slave(both: Pair) -> None:
    with State(both.slave.broker_addr) as peer:
        at_once = peer.ask(11, pull_fields("BenchmarkTest", offset=9))
        fields = pull_fields("BenchmarkTest", offset=9, sys_flag=SUSPENDS | HAS_SUBSCRIPTION,
                             suspend_ms=300)
        waited = peer.ask(11, fields)

    assert (at_once.code, (at_once.ext or {})["nextBeginOffset"]) == (20, "9")
    assert (waited.code, (waited.ext or {})["nextBeginOffset"]) == (19, "9")
    assert (at_once.ext or {})["suggestWhichBrokerId"] == "0"


def test_offsets_that_come_with_pulls_are_not_taken_at_a_slave(both: Pair) -> None:
    with State(both.slave.broker_addr) as peer:
        fields = pull_fields("BenchmarkTest", group="Pulling", commit_offset=5,
                             sys_flag=1 | HAS_SUBSCRIPTION)
        for _ in range(2):
            peer.ask(11, fields)
        assert peer.ask(15, {"consumerGroup": "Beside", "topic": "BenchmarkTest", "queueId": "0",
                             "commitOffset": "3"}).code == 0
        assert peer.committed("Beside", "BenchmarkTest", 0) == 3
        assert "BenchmarkTest@Pulling" not in table(both.slave.broker_addr, 43)["offsetTable"]


def consume(namesrv_addr: str, topic: str, group: str, count: int) -> int:
    """How many messages a consumer of ours reads."""
    done = subprocess.run(
        [sys.executable, "-m", "mqcore.admin.cli", "message", "consume", "-n", namesrv_addr,
         "-t", topic, "-g", group, "--count", str(count), "--timeout", "30"],
        capture_output=True, text=True, check=True)
    return len(done.stdout.splitlines())


def test_offsets_of_a_time_without_a_master_go_back_to_it(tmp_path: Path) -> None:
    with pair(tmp_path) as both:
        with State(both.master.broker_addr) as peer:
            peer.topic("Moving", 1)
            for number in range(3):
                peer.message("Moving", body=b"m%d" % number)
            for _ in range(9):
                peer.message("BenchmarkTest")
            for queue_id in "01":
                assert peer.ask(15, {"consumerGroup": "G", "topic": "BenchmarkTest",
                                     "queueId": queue_id, "commitOffset": "5"}).code == 0
        wait_until(lambda: "BenchmarkTest@G" in table(both.slave.broker_addr, 43)["offsetTable"],
                   "the slave has the offsets")
        wait_until(lambda: len(stored(both.slave.broker_addr, "Moving")) == 3, "and the log")
        port = int(both.master.broker_addr.rpartition(":")[2])
        both.master.stop()
        wait_until(lambda: addresses(both.names) == {"1": both.slave.broker_addr},
                   "the slave stays alone")
        with State(both.slave.broker_addr) as peer:
            for queue_id, offset in (("0", "9"), ("1", "2")):
                assert peer.ask(15, {"consumerGroup": "G", "topic": "BenchmarkTest",
                                     "queueId": queue_id, "commitOffset": offset}).code == 0
        assert consume(both.names.namesrv_addr, "Moving", "movers", 3) == 3
        with mqcore_up(tmp_path / "master", {"broker.name": NAME, "broker.listen_port": port},
                       namesrv_addr=both.names.namesrv_addr) as again:
            wait_until(lambda: table(again.broker_addr, 43)["offsetTable"].get("BenchmarkTest@G")
                       == {0: 9, 1: 5}, "what was committed meanwhile, and nothing backwards")
            wait_until(lambda: table(again.broker_addr, 43)["offsetTable"].get("Moving@movers")
                       == {0: 3}, "what a consumer has read at the slave")
            wait_until(lambda: table(both.slave.broker_addr, 43) == table(again.broker_addr, 43),
                       "the slave has the same")


def test_a_slave_that_begins_before_its_master_finds_it(tmp_path: Path) -> None:
    with mqcore_up(tmp_path / "names") as names, slave_up(
            tmp_path / "slave", names.namesrv_addr, {"broker.name": "late"}) as slave:
        wait_until(lambda: "name servers know no master yet" in slave.tail(), "it says so")
        with mqcore_up(tmp_path / "master", {"broker.name": "late"},
                       namesrv_addr=names.namesrv_addr) as master:
            wait_until(lambda: f"the master is {master.broker_addr}" in slave.tail(),
                       "the slave hears of its master")


RULES = """\
globalWhiteRemoteAddresses:
accounts:
- accessKey: replicator
  secretKey: replicates1
  admin: true
"""


def test_a_slave_asks_by_tls_and_as_its_account(
    tmp_path: Path, served: dict[str, object], authority: Authority,
) -> None:
    (tmp_path / "plain_acl.yml").write_text(RULES)
    (tmp_path / "secret").write_text("replicates1\n")
    follows = {
        "broker.name": "guarded", "tls.client_enable": True,
        "tls.client_trust": authority.certificate, "acl.client_access_key": "replicator",
        "acl.client_secret_key_file": tmp_path / "secret"}
    with mqcore_up(tmp_path / "master", {
        **served, "broker.name": "guarded", "tls.mode": "enforcing", "acl.enable": True,
        "replication.listen": True,
        "acl.folder": tmp_path, "acl.namesrv_enable": False, "broker.trace_topic_enable": True,
    }) as master:
        with slave_up(tmp_path / "slave", master.namesrv_addr, follows) as slave:
            wait_until(lambda: "RMQ_SYS_TRACE_TOPIC" in table(
                slave.broker_addr, 21)["topicConfigTable"], "a topic of the master")
            assert "are not taken over" not in slave.tail().partition("the master is")[2]
            wait_until(lambda: "following the master" in slave.tail(), "the log comes")
        (tmp_path / "secret").write_text("wrong\n")
        with slave_up(tmp_path / "stranger", master.namesrv_addr, follows) as stranger:
            wait_until(lambda: "are not taken over: topics: " in stranger.tail(), "a refusal")
            wait_until(lambda: "has not shown the account of this broker" in master.tail(),
                       "another one at the port of slaves")
            assert "RMQ_SYS_TRACE_TOPIC" not in table(
                stranger.broker_addr, 21)["topicConfigTable"]


def test_a_secret_that_is_not_there_ends_the_start_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(MqcoreError, match=r"secret: cannot be read"), slave_up(
            tmp_path, "127.0.0.1:1", {"acl.client_access_key": "replicator",
                                      "acl.client_secret_key_file": tmp_path / "secret"}):
        pass


def stored(address: str, topic: str) -> list[bytes]:
    with State(address) as peer:
        return [record.body for record in peer.stored(topic)]


def test_what_is_sent_to_the_master_is_read_at_the_slave_at_once(both: Pair) -> None:
    with State(both.master.broker_addr) as sender, State(both.slave.broker_addr) as reader:
        sender.topic("Read", 1)
        wait_until(lambda: "Read" in table(both.slave.broker_addr, 21)["topicConfigTable"],
                   "the slave knows the topic")
        waiting = request(11, pull_fields("Read", sys_flag=SUSPENDS | HAS_SUBSCRIPTION,
                                          suspend_ms=30_000))
        reader.send(encode(waiting))
        sender.message("Read", body=b"first")
        found = reader.answer_to(waiting.opaque)

    assert found.code == 0                      # an arrival has woken the pull
    assert [record.body for record in decode_records(found.body)] == [b"first"]


def test_a_topic_that_was_made_again_is_whole_at_a_cleaned_slave(both: Pair) -> None:
    """Others go on at a slave that was not cleaned, too."""
    with State(both.master.broker_addr) as peer, State(both.slave.broker_addr) as at_slave:
        for topic in ("Again", "AgainBeside"):
            peer.topic(topic, 1)
        for number in range(3):
            peer.message("Again", body=b"old-%d" % number)
        wait_until(lambda: at_slave.queue_end("Again", 0) == 3, "the slave has the old ones")
        assert peer.ask(215, {"topic": "Again"}).code == 0
        wait_until(lambda: "Again" not in table(both.slave.broker_addr, 21)["topicConfigTable"],
                   "the slave has heard of it")
        assert at_slave.ask(316).code == 0
        peer.topic("Again", 1)
        peer.message("Again", body=b"new")
        peer.message("AgainBeside", body=b"beside")
        wait_until(lambda: stored(both.slave.broker_addr, "AgainBeside") == [b"beside"],
                   "the slave goes on")
        wait_until(lambda: stored(both.slave.broker_addr, "Again") == [b"new"], "and has it")


def test_a_topic_that_was_made_again_holds_up_no_other(both: Pair) -> None:
    with State(both.master.broker_addr) as peer, State(both.slave.broker_addr) as at_slave:
        for topic in ("Twice", "TwiceBeside"):
            peer.topic(topic, 1)
        for number in range(3):
            peer.message("Twice", body=b"old-%d" % number)
        wait_until(lambda: at_slave.queue_end("Twice", 0) == 3, "the slave has the old ones")
        assert peer.ask(215, {"topic": "Twice"}).code == 0
        peer.topic("Twice", 1)
        peer.message("Twice", body=b"new")
        peer.message("TwiceBeside", body=b"beside")
        wait_until(lambda: stored(both.slave.broker_addr, "TwiceBeside") == [b"beside"],
                   "the slave goes on")


def test_a_killed_coordinator_of_a_slave_finds_its_master_again(both: Pair) -> None:
    kill(both.slave, "coordinator")
    with State(both.master.broker_addr) as peer:
        peer.topic("AfterKill", 1)
    wait_until(lambda: "AfterKill" in table(both.slave.broker_addr, 21)["topicConfigTable"],
               "its successor follows")


def runtime(address: str) -> dict[str, str]:
    with State(address) as peer:
        return fastjson.loads(peer.ask(28).body)["table"]


def test_status_shows_a_set_of_brokers(both: Pair) -> None:
    wait_until(lambda: int(runtime(both.slave.broker_addr)["replicationTablesAgeMillis"]) >= 0,
               "the slave has taken over all tables once")
    wait_until(lambda: runtime(both.master.broker_addr)["replicationSlaves"] == "1",
               "the slave follows")
    master, slave = runtime(both.master.broker_addr), runtime(both.slave.broker_addr)
    done = mqcore("status", "--json")
    shown = {name.rpartition("-")[2]: run["replication"]
             for name, run in json.loads(done.stdout).items()}

    assert int(master["replicationLagBytes"]) >= 0
    assert slave["replicationMasterLink"] == "1"
    assert 0 <= int(slave["replicationTablesAgeMillis"]) < 60_000
    ours, theirs = shown[str(both.master.pid)], shown[str(both.slave.pid)]
    assert (ours["role"], ours["slaves"]) == ("master", 1)
    assert (theirs["role"], theirs["master_link"]) == ("slave", 1)
    assert theirs["tables_age_ms"] >= 0
    text = mqcore("status").stdout
    lines = [line for line in text.splitlines() if line.startswith("  replication ")]
    assert [line for line in lines if "role master" in line and "tables_age_ms" not in line]
    assert [line for line in lines if "role slave" in line and "slave_lag_bytes" not in line]
