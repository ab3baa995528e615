"""mqadmin 4.9.8 shows of our broker what it shows of a stock one (broker.md 10.6)."""
from __future__ import annotations

import re
from pathlib import Path

from tests.interop.mqadmin import fields, rows
from tests.interop.mqadmin_world import (
    BROKER_NAME,
    CLUSTER_NAME,
    GROUP,
    MESSAGES,
    PRODUCER,
    QUEUES,
    TOPIC,
    World,
)
from tests.support.waiting import wait_until

# The retry topic's queue is there when the member has committed it: soon, or a while later.
PROGRESS_FREE = rf"Consume TPS: \d+\.\d\d|%RETRY%{GROUP} .*"
SYSTEM_TOPICS = {"SCHEDULE_TOPIC_XXXX", "BenchmarkTest", "TBW102", "SELF_TEST_TOPIC",
                 "OFFSET_MOVED_EVENT", CLUSTER_NAME, BROKER_NAME, f"{CLUSTER_NAME}_REPLY_TOPIC"}


def test_cluster_list(mqadmin_world: World) -> None:
    (row,) = rows(mqadmin_world.mqadmin.run("clusterList"), "#Cluster Name")

    assert row[:4] == [CLUSTER_NAME, BROKER_NAME, "0", mqadmin_world.broker_addr]
    assert re.fullmatch(r"V4_9_\d", row[4])
    rates = re.findall(r"(\d+\.\d\d)\((\d+),(\d+)ms\)", " ".join(row[5:]))
    assert len(rates) == 2
    assert rates[0][1:] == rates[1][1:] == ("0", "0")
    wait_ms, hours, space = row[-3:]
    assert int(wait_ms) == 0
    assert float(hours) >= 0
    assert 0 < float(space) < 1


def test_cluster_list_with_totals(mqadmin_world: World) -> None:
    def consumed() -> bool:
        (row,) = rows(mqadmin_world.mqadmin.run("clusterList", "-m"), "#Cluster Name")
        assert row[:4] == [CLUSTER_NAME, BROKER_NAME, "0", "0"]
        stored, handed_out = int(row[4]), int(row[5])
        assert stored >= MESSAGES
        return handed_out >= MESSAGES

    wait_until(consumed, f"{MESSAGES} messages handed out today")


def test_topic_list(mqadmin_world: World) -> None:
    names = set(mqadmin_world.mqadmin.run("topicList").split())

    assert names >= SYSTEM_TOPICS | {TOPIC, f"%RETRY%{GROUP}"}


def test_topic_list_with_groups(mqadmin_world: World) -> None:
    table = rows(mqadmin_world.mqadmin.run("topicList", "-c"), "#Cluster Name")

    assert [CLUSTER_NAME, TOPIC, GROUP] in table
    assert [CLUSTER_NAME, "TBW102"] in table


def test_topic_route(mqadmin_world: World) -> None:
    mqadmin_world.check("topicRoute", "topicRoute", "-t", TOPIC)
    mqadmin_world.check("topicRoute -l", "topicRoute", "-t", TOPIC, "-l")


def test_topic_status(mqadmin_world: World) -> None:
    mqadmin_world.check("topicStatus", "topicStatus", "-t", TOPIC)


def test_topic_cluster_list(mqadmin_world: World) -> None:
    mqadmin_world.check("topicClusterList", "topicClusterList", "-t", TOPIC)


def test_consumer_progress_of_all_groups(mqadmin_world: World) -> None:
    table = rows(mqadmin_world.mqadmin.run("consumerProgress"), "#Group")

    (row,) = (row for row in table if row[0] == GROUP)
    assert row[1] == "1"
    assert row[3:] == ["PUSH", "CLUSTERING", row[5], "0"]


def test_consumer_progress_of_a_group(mqadmin_world: World) -> None:
    mqadmin_world.check("consumerProgress -g", "consumerProgress", "-g", GROUP,
                        free=PROGRESS_FREE)
    mqadmin_world.check("consumerProgress -g -s", "consumerProgress", "-g", GROUP, "-s", "true",
                        free=PROGRESS_FREE)


def test_consumer_connection(mqadmin_world: World) -> None:
    mqadmin_world.check("consumerConnection", "consumerConnection", "-g", GROUP)
    mqadmin_world.check("consumerConnection of nobody", "consumerConnection", "-g", "Nobody",
                        free=r"(?s)DESC: .*")


def test_producer_connection(mqadmin_world: World) -> None:
    mqadmin_world.check("producerConnection", "producerConnection", "-g", PRODUCER, "-t", TOPIC)


def test_producer(mqadmin_world: World) -> None:
    mqadmin_world.check("producer", "producer", "-b", mqadmin_world.broker_addr, unordered=True)


def test_broker_status(mqadmin_world: World) -> None:
    table = fields(mqadmin_world.mqadmin.run("brokerStatus", "-b", mqadmin_world.broker_addr))

    assert int(table["msgPutTotalTodayNow"]) >= MESSAGES
    assert table["msgPutTotalTodayMorning"] == table["msgPutTotalYesterdayMorning"] == "0"
    assert table["commitLogMinOffset"] == "0"
    assert int(table["commitLogMaxOffset"]) > 0
    assert 0 < float(table["commitLogDiskRatio"]) < 1
    assert re.fullmatch(r"\d+(\.\d)? (B|KiB|MiB)", table["remainHowManyDataToFlush"])
    assert table["brokerVersionDesc"].startswith("V4_9_")
    assert table["runtime"].startswith("[ 0 days, 0 hours, ")


def test_broker_consume_stats(mqadmin_world: World) -> None:
    text = mqadmin_world.mqadmin.run("brokerConsumeStats", "-b", mqadmin_world.broker_addr)

    mine = [row for row in rows(text, "#Topic") if row[1] == GROUP]
    assert [row[:7] for row in mine] == [
        [TOPIC, GROUP, BROKER_NAME, str(queue_id), "2", "2", "0"] for queue_id in range(QUEUES)]
    assert re.search(r"Diff Total: \d+", text)


def test_query_by_offset_id(mqadmin_world: World) -> None:
    text = mqadmin_world.check("queryMsgById", "queryMsgById", "-i", mqadmin_world.sent[5]["id"],
                               free=r"MessageTrack \[consumerGroup=(?!AdminGroup\b).*")
    body = Path(fields(text)["Message Body Path"])

    assert body.read_bytes() == b"body 5"
    body.unlink()


def test_query_by_offset_id_with_direct_consumption(mqadmin_world: World) -> None:
    mqadmin_world.check(
        "queryMsgById -d", "queryMsgById", "-i", mqadmin_world.sent[0]["id"], "-g", GROUP,
        "-d", mqadmin_world.client_id(GROUP), free=r"spentTimeMills=\d+")


def test_query_by_key(mqadmin_world: World) -> None:
    text = mqadmin_world.check("queryMsgByKey", "queryMsgByKey", "-t", TOPIC, "-k", "key3")

    assert mqadmin_world.sent[3]["key"] in text


def test_query_by_unique_key(mqadmin_world: World) -> None:
    text = mqadmin_world.check(
        "queryMsgByUniqueKey", "queryMsgByUniqueKey", "-t", TOPIC,
        "-i", mqadmin_world.sent[2]["key"],
        free=r"MessageTrack \[consumerGroup=(?!AdminGroup\b).*")
    Path(fields(text)["Message Body Path"]).unlink()
    mqadmin_world.check("queryMsgByUniqueKey of nothing", "queryMsgByUniqueKey", "-t", TOPIC,
                        "-i", "0" * 32, free=r"(?s)\s+at .*")


def test_query_by_queue_offset(mqadmin_world: World) -> None:
    text = mqadmin_world.check(
        "queryMsgByOffset", "queryMsgByOffset", "-t", TOPIC, "-b", BROKER_NAME, "-i", 1, "-o", 1,
        free=r"MessageTrack \[consumerGroup=(?!AdminGroup\b).*")
    Path(fields(text)["Message Body Path"]).unlink()


def test_query_of_a_messages_trace(mqadmin_world: World) -> None:
    world = mqadmin_world
    world.topic("Traced")
    world.mqadmin.ask("producer", "TracedProducer", "traced")
    key = world.mqadmin.send("TracedProducer", "Traced", 0, "traced", "traced")["key"]
    wait_until(lambda: "#ProducerGroup" in world.mqadmin.run("queryMsgTraceById", "-i", key),
               "the trace of a message")

    world.check("queryMsgTraceById", "queryMsgTraceById", "-i", key, free=r"\d+ms")
    world.mqadmin.ask("stop", "TracedProducer")


def test_consumer_status(mqadmin_world: World) -> None:
    text = mqadmin_world.check("consumerStatus", "consumerStatus", "-g", GROUP)
    (file,) = re.findall(r"\d{13}/\S+", text)
    saved = (mqadmin_world.mqadmin.folder / file).read_text()

    assert f"{TOPIC}" in saved
    assert "#Consume Offset" in saved or "#Consumer Offset" in saved, saved
    mqadmin_world.check(
        "consumerStatus -i", "consumerStatus", "-g", GROUP,
        "-i", mqadmin_world.client_id(GROUP), "-s", free=r"(?s)#Consumer Properties#.*")


def test_query_consume_queue(mqadmin_world: World) -> None:
    asked = ("-t", TOPIC, "-q", 2, "-c", 3, "-b", mqadmin_world.broker_addr)
    sizes = r"physicOffset=\d+, physicSize=\d+"
    mqadmin_world.check("queryCq", "queryCq", *asked, "-i", 0, free=sizes)
    mqadmin_world.check("queryCq behind the end", "queryCq", *asked, "-i", 9)
    text = mqadmin_world.check("queryCq -g", "queryCq", *asked, "-i", 0, "-g", GROUP,
                               free=sizes + "|eval=(true|false)")
    evaluated = "true" if mqadmin_world.kind == "mqcore" else "false"
    assert set(re.findall(r"eval=(\w+)", text)) == {evaluated}      # tests/wire_live/differences
    mqadmin_world.check("queryCq -g of nobody", "queryCq", *asked, "-i", 0, "-g", "Nobody",
                        free=sizes)


def test_broker_config(mqadmin_world: World) -> None:
    text = mqadmin_world.mqadmin.run("getBrokerConfig", "-b", mqadmin_world.broker_addr)
    table = fields(text)

    assert {key: table[key] for key in (
        "brokerName", "brokerClusterName", "brokerId", "brokerRole", "brokerPermission",
        "autoCreateTopicEnable", "flushDiskType", "transientStorePoolEnable", "deleteWhen",
        "fileReservedTime", "maxMessageSize", "messageIndexEnable", "maxMsgsNumBatch",
        "mappedFileSizeConsumeQueue", "serverChannelMaxIdleTimeSeconds",
    )} == {
        "brokerName": BROKER_NAME, "brokerClusterName": CLUSTER_NAME, "brokerId": "0",
        "brokerRole": "ASYNC_MASTER", "brokerPermission": "6", "autoCreateTopicEnable": "true",
        "flushDiskType": "ASYNC_FLUSH", "transientStorePoolEnable": "false", "deleteWhen": "04",
        "fileReservedTime": "72", "maxMessageSize": "4194304", "messageIndexEnable": "true",
        "maxMsgsNumBatch": "64", "mappedFileSizeConsumeQueue": "400000",
        "serverChannelMaxIdleTimeSeconds": "120",
    }


def test_consumer_config(mqadmin_world: World) -> None:
    mqadmin_world.check("getConsumerConfig", "getConsumerConfig", "-g", GROUP)


def test_allocation_of_queues(mqadmin_world: World) -> None:
    mqadmin_world.check("allocateMQ", "allocateMQ", "-t", TOPIC, "-i", "10.0.0.1,10.0.0.2")


def test_messages_are_printed(mqadmin_world: World) -> None:
    mqadmin_world.check("printMsg", "printMsg", "-t", TOPIC, "-d", "true", unordered=True,
                        free=r"bornTimestamp=\d+|storeTimestamp=\d+|bodyCRC=\d+|storeSize=\d+"
                             r"|commitLogOffset=\d+")
    mqadmin_world.check(
        "printMsgByQueue", "printMsgByQueue", "-t", TOPIC, "-a", BROKER_NAME, "-i", 1,
        "-p", "true", "-d", "true", "-f", "true",
        free=r"storeSize=\d+|commitLogOffset=\d+|bodyCRC=\d+")


def test_messages_are_consumed_by_the_tool(mqadmin_world: World) -> None:
    mqadmin_world.check("consumeMessage", "consumeMessage", "-t", TOPIC, "-b", BROKER_NAME,
                        "-i", 0, "-o", 0, "-c", 2, free=r"storeSize=\d+|commitLogOffset=\d+")
