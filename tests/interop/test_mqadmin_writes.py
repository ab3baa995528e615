"""What mqadmin 4.9.8 changes at our broker and name server, as at stock ones (broker.md 10.6)."""
from __future__ import annotations

import json
import os
import re

import pytest

from tests.interop.ask import ask, has_route
from tests.interop.mqadmin import fields, rows
from tests.interop.mqadmin_world import (
    BROKER_NAME,
    CLUSTER_NAME,
    GROUP,
    MESSAGES,
    QUEUES,
    TOPIC,
    World,
)
from tests.support.waiting import wait_until

READ, READ_WRITE = 4, 6
SEND_TIMES_MS = 10_000            # of clusterRT, which has no end; a first round warms a JVM
OTHER = "OtherTopic"              # of groups that come and go; what is looked at stays as it is


@pytest.fixture(scope="module", autouse=True)
def _other_topic(mqadmin_world: World) -> None:
    """OTHER with two messages in each queue."""
    mqadmin_world.topic(OTHER, QUEUES)
    mqadmin_world.mqadmin.ask("producer", "OtherProducer")
    for number in range(2 * QUEUES):
        mqadmin_world.mqadmin.send("OtherProducer", OTHER, number % QUEUES, "other", "other")
    mqadmin_world.mqadmin.ask("stop", "OtherProducer")


def queues_of(world: World, topic: str) -> dict[str, int]:
    """The queue counts and permission in a topic's route."""
    text = world.mqadmin.run("topicRoute", "-t", topic)
    (found,) = re.findall(r'"perm":(\d+),\s*"readQueueNums":(\d+),.*?"writeQueueNums":(\d+)', text,
                          re.S)
    return dict(zip(("perm", "read", "write"), map(int, found), strict=True))


def test_a_topic_is_made_changed_and_deleted(mqadmin_world: World) -> None:
    world = mqadmin_world
    world.check("updateTopic", "updateTopic", "-c", CLUSTER_NAME, "-t", "Made", "-r", 3, "-w", 2)
    assert queues_of(world, "Made") == {"perm": READ_WRITE, "read": 3, "write": 2}

    world.check("updateTopicPerm", "updateTopicPerm", "-b", world.broker_addr, "-t", "Made",
                "-p", READ)
    assert queues_of(world, "Made") == {"perm": READ, "read": 3, "write": 2}
    world.check("updateTopicPerm -c", "updateTopicPerm", "-c", CLUSTER_NAME, "-t", "Made",
                "-p", READ_WRITE)
    assert queues_of(world, "Made")["perm"] == READ_WRITE

    world.check("deleteTopic", "deleteTopic", "-c", CLUSTER_NAME, "-t", "Made")
    assert not has_route(world.namesrv_addr, "Made")
    assert "Made" not in world.mqadmin.run("topicList").split()


def test_a_topic_with_a_bad_name_or_a_systems_name_is_refused(mqadmin_world: World) -> None:
    for name in ("bad.name", "SCHEDULE_TOPIC_XXXX"):
        text = mqadmin_world.mqadmin.run("updateTopic", "-b", mqadmin_world.broker_addr,
                                         "-t", name)
        assert "CODE: 1 " in text


def test_an_ordered_topic_and_its_order_configuration(mqadmin_world: World) -> None:
    world = mqadmin_world
    world.check("updateTopic -o", "updateTopic", "-b", world.broker_addr, "-t", "Ordered",
                "-r", 2, "-w", 2, "-o", "true")
    world.check("updateOrderConf get", "updateOrderConf", "-t", "Ordered", "-m", "get")
    world.check("updateOrderConf put", "updateOrderConf", "-t", "Ordered", "-m", "put",
                "-v", f"{BROKER_NAME}:1")
    world.check("updateOrderConf get again", "updateOrderConf", "-t", "Ordered", "-m", "get")
    world.check("updateOrderConf delete", "updateOrderConf", "-t", "Ordered", "-m", "delete")
    world.check("updateOrderConf get nothing", "updateOrderConf", "-t", "Ordered", "-m", "get")


def test_a_group_is_made_changed_and_deleted(mqadmin_world: World) -> None:
    world = mqadmin_world
    world.check("updateSubGroup", "updateSubGroup", "-b", world.broker_addr, "-g", "MadeGroup",
                "-s", "false", "-m", "false", "-d", "false", "-q", 2, "-r", 5, "-i", 0, "-w", 3,
                "-a", "false")
    world.check("getConsumerConfig of a made group", "getConsumerConfig", "-g", "MadeGroup")
    world.check("updateSubGroup -c", "updateSubGroup", "-c", CLUSTER_NAME, "-g", "MadeGroup")
    world.check("getConsumerConfig of a changed group", "getConsumerConfig", "-g", "MadeGroup")

    world.commit("MadeGroup", OTHER, 0, 1)
    world.check("deleteSubGroup", "deleteSubGroup", "-c", CLUSTER_NAME, "-g", "MadeGroup",
                "-r", "true")
    world.check("getConsumerConfig of nobody", "getConsumerConfig", "-g", "MadeGroup")
    assert not has_route(world.namesrv_addr, "%RETRY%MadeGroup")
    groups = world.mqadmin.run("topicList", "-c").split()
    assert "MadeGroup" not in groups


def test_offsets_of_a_group_that_is_offline_are_reset_by_time(mqadmin_world: World) -> None:
    world = mqadmin_world
    for queue_id in range(QUEUES):
        world.commit("OfflineGroup", OTHER, queue_id, 2)

    world.check("resetOffsetByTime offline", "resetOffsetByTime", "-g", "OfflineGroup",
                "-t", OTHER, "-s", 1_600_000_000_000, unordered=True)
    assert world.committed("OfflineGroup", OTHER, QUEUES) == [0] * QUEUES

    world.check("skipAccumulatedMessage offline", "skipAccumulatedMessage", "-g", "OfflineGroup",
                "-t", OTHER, unordered=True)
    assert world.committed("OfflineGroup", OTHER, QUEUES) == [2] * QUEUES


@pytest.mark.slow
def test_offsets_of_a_group_that_is_online_are_reset_at_its_members(mqadmin_world: World) -> None:
    world = mqadmin_world
    world.topic("Again")
    world.mqadmin.ask("producer", "AgainProducer")
    for number in range(MESSAGES):
        world.mqadmin.send("AgainProducer", "Again", 0, f"k{number}", f"again {number}")
    world.mqadmin.ask("consumer", "AgainGroup", "Again")

    def committed(offset: int) -> bool:
        world.mqadmin.ask("commit", "AgainGroup")
        return world.committed("AgainGroup", "Again") == [offset]

    wait_until(lambda: committed(MESSAGES), "all messages consumed")
    world.check("skipAccumulatedMessage online", "skipAccumulatedMessage", "-g", "AgainGroup",
                "-t", "Again")
    world.check("resetOffsetByTime online", "resetOffsetByTime", "-g", "AgainGroup",
                "-t", "Again", "-s", 1_600_000_000_000)
    world.mqadmin.ask("stop", "AgainGroup")
    world.mqadmin.ask("stop", "AgainProducer")


def test_a_reset_of_an_unknown_group_is_refused(mqadmin_world: World) -> None:
    text = mqadmin_world.mqadmin.run("resetOffsetByTime", "-g", "Nobody", "-t", TOPIC, "-s", "now")

    assert "Exception" in text or "CODE:" in text


def test_offsets_are_cloned(mqadmin_world: World) -> None:
    world = mqadmin_world
    world.topic("%RETRY%Clone")
    for queue_id in range(QUEUES):
        world.commit("CloneSource", OTHER, queue_id, queue_id)
    world.check("cloneGroupOffset", "cloneGroupOffset", "-s", "CloneSource", "-d", "Clone",
                "-t", OTHER, "-o", "true")

    assert world.committed("Clone", OTHER, QUEUES) == list(range(QUEUES))


def test_cleaning(mqadmin_world: World) -> None:
    world = mqadmin_world
    for command in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        world.check(command, command, "-b", world.broker_addr)
        world.check(f"{command} -c", command, "-c", CLUSTER_NAME)
    world.check("topicStatus after cleaning", "topicStatus", "-t", TOPIC)


def test_broker_settings_are_changed_while_it_runs(mqadmin_world: World) -> None:
    world = mqadmin_world
    try:
        world.check("updateBrokerConfig", "updateBrokerConfig", "-b", world.broker_addr,
                    "-k", "autoCreateTopicEnable", "-v", "false")
        table = fields(world.mqadmin.run("getBrokerConfig", "-b", world.broker_addr))
        assert table["autoCreateTopicEnable"] == "false"
    finally:
        world.check("updateBrokerConfig -c", "updateBrokerConfig", "-c", CLUSTER_NAME,
                    "-k", "autoCreateTopicEnable", "-v", "true")


def test_broker_settings_that_cannot_change_are_refused(mqadmin_world: World) -> None:
    if mqadmin_world.kind == "stock":
        pytest.skip("the stock broker here is 4.9.7, which takes them")
    for key, code in (("brokerConfigPath", 16), ("storePathRootDir", 16), ("nonsense", 1)):
        refused = mqadmin_world.mqadmin.run(
            "updateBrokerConfig", "-b", mqadmin_world.broker_addr, "-k", key, "-v", "1")
        assert f"CODE: {code} " in refused
        assert key in refused


def test_write_permission_is_wiped_and_added_again(mqadmin_world: World) -> None:
    world = mqadmin_world
    count = r"OK, \d+"                    # of topics
    try:
        world.check("wipeWritePerm", "wipeWritePerm", "-b", BROKER_NAME, free=count)
        assert queues_of(world, TOPIC)["perm"] == READ
    finally:
        world.check("addWritePerm", "addWritePerm", "-b", BROKER_NAME, free=count)
    assert queues_of(world, TOPIC)["perm"] == READ_WRITE


def test_key_values_of_the_name_server(mqadmin_world: World) -> None:
    world = mqadmin_world
    world.check("updateKvConfig", "updateKvConfig", "-s", "space", "-k", "key", "-v", "value")
    found = ask(world.namesrv_addr, 101, {"namespace": "space", "key": "key"})
    assert (found.ext or {})["value"] == "value"

    world.check("deleteKvConfig", "deleteKvConfig", "-s", "space", "-k", "key")
    assert ask(world.namesrv_addr, 101, {"namespace": "space", "key": "key"}).code == 22


def test_settings_of_the_name_server(mqadmin_world: World) -> None:
    world = mqadmin_world
    world.check("updateNamesrvConfig", "updateNamesrvConfig", "-k", "orderMessageEnable",
                "-v", "true")
    table = fields(world.mqadmin.run("getNamesrvConfig"))
    assert table["orderMessageEnable"] == "true"
    world.mqadmin.run("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "false")


def test_messages_are_sent_by_the_tool_and_found(mqadmin_world: World) -> None:
    world = mqadmin_world
    world.topic("Sent", 2)
    text = world.check("sendMessage", "sendMessage", "-t", "Sent", "-p", "by hand", "-k", "hand",
                       "-c", "TagB", "-b", BROKER_NAME, "-i", 1)
    (row,) = rows(text, "#Broker Name")
    assert row[:3] == [BROKER_NAME, "1", "SEND_OK"]

    found = world.mqadmin.run("queryMsgByKey", "-t", "Sent", "-k", "hand")
    assert row[3] in found
    world.check("consumeMessage of a sent one", "consumeMessage", "-t", "Sent", "-c", 1,
                "-b", BROKER_NAME, "-i", 1, free=r"storeSize=\d+|commitLogOffset=\d+")


def test_the_filter_of_a_group_is_shown_with_its_rows(mqadmin_world: World) -> None:
    world = mqadmin_world
    world.mqadmin.ask("consumer", "FilterGroup", OTHER, "a > 5")
    wait_until(lambda: OTHER in world.mqadmin.run("consumerConnection", "-g", "FilterGroup"),
               "the consumer's heartbeat")
    world.check("queryCq -g with SQL", "queryCq", "-t", OTHER, "-q", 0, "-i", 0, "-c", 1,
                "-b", world.broker_addr, "-g", "FilterGroup",
                free=r"physicOffset=\d+, physicSize=\d+|eval=(true|false)|\b\d{1,3}\b,?$")
    world.mqadmin.ask("stop", "FilterGroup")


def test_statistics_tell_what_was_put_and_got(mqadmin_world: World) -> None:
    def row() -> list[str]:
        table = rows(mqadmin_world.mqadmin.run("statsAll", "-t", TOPIC), "#Topic")
        (found,) = (row for row in table if row[:2] == [TOPIC, GROUP])
        return found

    # a window of a minute has its first part after 10 s; it stands for those of hour and day
    wait_until(lambda: row()[5:] == [str(MESSAGES)] * 2, f"{MESSAGES} messages put and got")
    accumulated, put_tps, got_tps = row()[2:5]
    assert accumulated == "0"
    assert 0 < float(put_tps) < MESSAGES
    assert 0 < float(got_tps) < MESSAGES


@pytest.mark.parametrize(("command", "options", "head"), [
    ("sendMsgStatus", ("-b", BROKER_NAME, "-s", 64, "-c", 3), "rt="),
    ("checkMsgSendRT", ("-t", TOPIC + "RT", "-a", 3, "-s", 64), "Avg RT:"),
    ("clusterRT", ("-a", 3, "-s", 64, "-i", 1, "-c", CLUSTER_NAME), BROKER_NAME),
])
def test_send_times_are_measured(
    mqadmin_world: World, command: str, options: tuple[object, ...], head: str
) -> None:
    mqadmin_world.topic(TOPIC + "RT")
    text = mqadmin_world.mqadmin.run(command, *options, limit_ms=SEND_TIMES_MS)

    assert head in text
    assert "CODE:" not in text


def test_metadata_is_exported(mqadmin_world: World) -> None:
    world = mqadmin_world
    folder = world.mqadmin.folder / "export"
    for command in ("exportMetadata", "exportConfigs", "exportMetrics"):
        text = world.mqadmin.run(command, "-c", CLUSTER_NAME, "-f", folder)
        assert "success" in text, text
    metadata = json.loads((folder / "metadata.json").read_text())
    assert TOPIC in metadata["topicConfigTable"]
    configs = json.loads((folder / "configs.json").read_text())
    assert configs["clusterScale"]["slaveBrokerSize"] == 0
    metrics = json.loads((folder / "metrics.json").read_text())
    assert BROKER_NAME in json.dumps(metrics)
    (runtime,) = [one["runtimeEnv"] for one in metrics["evaluateReport"].values()]
    assert int(runtime["cpuNum"]) == len(os.sched_getaffinity(0))
