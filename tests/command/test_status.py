"""`mqcore status --broker HOST`: one broker, over the network."""
from __future__ import annotations

import json

import pytest

from mqcore.admin.remote import described, pairs, with_port, wrapped
from mqcore.client.admin import BrokerStatus
from tests.command.conftest import Cluster
from tests.support.command import mqcore
from tests.support.stock import free_port


def test_a_broker_says_where_and_what_it_is(cluster: Cluster) -> None:
    done = mqcore("status", "--broker", cluster.broker, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)

    assert f"{found['address']}:{found['port']}" == cluster.broker
    assert (found["name"], found["id"]) == (cluster.broker_name, 0)
    assert found["version"] == cluster.version
    assert found["role"] == "ASYNC_MASTER"
    assert found["store"]["path"]
    assert found["rates"].keys() == {"in", "out", "inToday", "outToday"}


def test_messages_are_counted_and_have_a_place_in_the_log(cluster: Cluster) -> None:
    def now() -> tuple[int, int]:
        found = json.loads(mqcore("status", "--broker", cluster.broker, "--json").stdout)
        return found["rates"]["inToday"], found["store"]["lastPosition"]

    counted, position = now()
    cluster.send("status-counts", "one", "two", "three")

    assert now()[0] == counted + 3
    assert now()[1] > position


def test_a_screen_has_a_line_for_each_fact(cluster: Cluster) -> None:
    lines = mqcore("status", "--broker", cluster.broker).stdout.splitlines()
    names = [line.split()[0] for line in lines if not line.startswith(" ")]

    assert names == ["address", "broker", "version", "up", "role", "store", "log", "oldest",
                     "dispatch", "in", "out"]
    assert max(map(len, lines)) <= 80


def test_long_values_continue_below_and_no_line_is_wider_than_80_columns() -> None:
    values = {"failoverLeader": "a-rather-long-broker-name-of-a-set", "failoverEpoch": "12",
              "failoverInSync": "7", "replicationRole": "master"}
    status = BrokerStatus("n", 0, "[fd00::1]:10911", "V4_9_8", None, 12345.6, 0.0, 10**9, 0, 0, 0,
                          None, 0.5, values)
    settings = {"brokerName": "broker " * 8, "storePathRootDir": "/srv/broker data/" * 6,
                "brokerClusterName": "a cluster", "brokerId": "0", "brokerRole": "SYNC_MASTER"}
    document = described(status, settings)
    lines = [f"{name:<12}  {text}" for name, text in wrapped(pairs(document))]

    assert max(map(len, lines)) <= 80
    assert len(lines) > len(list(pairs(document)))
    assert (document["address"], document["port"]) == ("fd00::1", 10911)
    assert "/srv/broker data/" in "".join(lines)


@pytest.mark.parametrize(("given", "asked"), [
    ("broker-1", "broker-1:10911"), ("broker-1:10921", "broker-1:10921"),
    ("10.0.0.7", "10.0.0.7:10911"), ("fd00::1", "[fd00::1]:10911"),
    ("[fd00::1]", "[fd00::1]:10911"), ("[fd00::1]:10921", "[fd00::1]:10921")])
def test_a_host_without_a_port_is_asked_at_the_usual_one(given: str, asked: str) -> None:
    assert with_port(given) == asked


def test_a_broker_that_is_not_there_ends_with_4() -> None:
    done = mqcore("status", "--broker", f"127.0.0.1:{free_port()}")

    assert done.returncode == 4
    assert done.stderr.startswith("Error: ")
    assert done.stdout == ""


def test_options_that_belong_to_this_machine_are_refused_beside_a_broker() -> None:
    done = mqcore("status", "--explain", "--broker", "127.0.0.1")

    assert done.returncode == 2
    assert "--explain" in done.stderr
