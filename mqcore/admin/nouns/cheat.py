"""`mqcore cheat`: the words of mqadmin, Kafka and NATS, and the commands that do the same here."""
from __future__ import annotations

import json
from typing import NamedTuple

import click

from mqcore.admin.lines import say
from mqcore.admin.shell.exits import Exit, Failure
from mqcore.admin.shell.view import Column, Facts, Table, View


class Row(NamedTuple):
    """
    One task.

    mqcore               a line that can be typed; capital words and `orders`, `billing` stand for
                         names
    mqadmin, kafka, nats what others type for it; "" = they cannot
    """

    task: str
    mqcore: str
    mqadmin: str = ""
    kafka: str = ""
    nats: str = ""


_GROUPS = "kafka-consumer-groups.sh"
_TOPICS = "kafka-topics.sh"
SHEET = (
    Row("list topics", "mqcore topic ls", "topicList", f"{_TOPICS} --list", "nats stream ls"),
    Row("show a topic", "mqcore topic show orders", "topicStatus -t orders",
        f"{_TOPICS} --describe --topic orders", "nats stream info ORDERS"),
    Row("make a topic", "mqcore topic create orders --queues 8",
        "updateTopic -t orders -r 8 -w 8 -c C",
        f"{_TOPICS} --create --topic orders --partitions 8",
        "nats stream add ORDERS --subjects orders"),
    Row("give a topic more queues", "mqcore topic edit orders --queues 16",
        "updateTopic -t orders -r 16 -w 16 -c C", f"{_TOPICS} --alter --topic orders "
        "--partitions 16"),
    Row("let no producer write to a topic", "mqcore topic edit orders --perm r",
        "updateTopicPerm -t orders -p 4 -c C"),
    Row("delete a topic", "mqcore topic rm orders", "deleteTopic -t orders -c C",
        f"{_TOPICS} --delete --topic orders", "nats stream rm ORDERS"),
    Row("list groups with their lag", "mqcore group ls", "consumerProgress",
        f"{_GROUPS} --all-groups --describe", "nats consumer report ORDERS"),
    Row("show a group: members, owners, lag", "mqcore group show billing",
        "consumerProgress -g billing", f"{_GROUPS} --describe --group billing",
        "nats consumer info ORDERS billing"),
    Row("watch a group", "mqcore group show billing --watch"),
    Row("stop a group, and let it continue", "mqcore group pause billing",
        "updateSubGroup -g billing -s false -c C", "", "nats consumer pause ORDERS billing"),
    Row("delete a group", "mqcore group rm billing", "deleteSubGroup -g billing -c C",
        f"{_GROUPS} --delete --group billing", "nats consumer rm ORDERS billing"),
    Row("see threads of members", "mqcore group stack billing", "consumerStatus -g billing -s"),
    Row("find groups that stand still", "mqcore check stalled"),
    Row("start again an hour ago", "mqcore offset reset billing orders --to '1h ago'",
        "resetOffsetByTime -g billing -t orders -s TIME",
        f"{_GROUPS} --reset-offsets --by-duration PT1H --group billing --topic orders --execute"),
    Row("skip what waits", "mqcore offset reset billing orders --to end",
        "skipAccumulatedMessage -g billing -t orders",
        f"{_GROUPS} --reset-offsets --to-latest --group billing --topic orders --execute"),
    Row("only look at what a reset would do",
        "mqcore offset reset billing orders --to begin --dry-run", "",
        f"{_GROUPS} --reset-offsets --to-earliest --group billing --topic orders --dry-run"),
    Row("give a new group the offsets of another", "mqcore offset copy billing billing2 orders",
        "cloneGroupOffset -s billing -d billing2 -t orders"),
    Row("send a message", "mqcore message send -t orders --body hello",
        "sendMessage -t orders -p hello",
        "kafka-console-producer.sh --topic orders", "nats pub orders hello"),
    Row("send lines of JSON", "mqcore message send -t orders --ndjson -", "",
        "kafka-console-producer.sh --topic orders --property parse.key=true"),
    Row("see messages as they come", "mqcore message tail -t orders", "consumeMessage -t orders",
        "kafka-console-consumer.sh --topic orders", "nats sub orders"),
    Row("see all messages of an hour", "mqcore message find -t orders --since '1h ago'",
        "printMsg -t orders -b TIME",
        "kafka-console-consumer.sh --topic orders --from-beginning",
        "nats stream view ORDERS --since 1h"),
    Row("consume as a member of a group", "mqcore message consume -t orders -g billing",
        "consumeMessage -t orders -g billing",
        "kafka-console-consumer.sh --topic orders --group billing",
        "nats consumer next ORDERS billing"),
    Row("get one message", "mqcore message get ID", "queryMsgById -i ID", "",
        "nats stream get ORDERS 7"),
    Row("get messages by key", "mqcore message get KEY -t orders",
        "queryMsgByKey -t orders -k KEY"),
    Row("see what groups did with a message", "mqcore message get ID --groups",
        "queryMsgById -i ID"),
    Row("trace a message", "mqcore message trace ID", "queryMsgTraceById -i ID", "",
        "nats trace orders"),
    Row("look at dead letters", "mqcore dlq show billing"),
    Row("send dead letters again", "mqcore dlq redrive billing"),
    Row("list open transactions", "mqcore transaction ls", "", "kafka-transactions.sh list"),
    Row("list connected clients", "mqcore client ls", "producer -b HOST:10911", "",
        "nats server report connections"),
    Row("list brokers", "mqcore cluster show", "clusterList",
        "kafka-broker-api-versions.sh", "nats server ls"),
    Row("ask whether all is well", "mqcore cluster health", "brokerStatus -b HOST:10911",
        f"{_TOPICS} --describe --unavailable-partitions", "nats server check connection"),
    Row("measure a round trip", "mqcore cluster test -t orders", "clusterRT", "", "nats rtt"),
    Row("see rates every second", "mqcore top", "statsAll", "", "nats server report jetstream"),
    Row("show settings of a broker", "mqcore broker show BROKER --settings",
        "getBrokerConfig -b HOST:10911", "kafka-configs.sh --describe --entity-type brokers"),
    Row("change a setting", "mqcore broker set fileReservedTime=48 -b BROKER",
        "updateBrokerConfig -b HOST:10911 -k fileReservedTime -v 48",
        "kafka-configs.sh --alter --entity-type brokers --add-config log.retention.hours=48"),
    Row("send producers elsewhere", "mqcore broker drain BROKER", "wipeWritePerm -b BROKER", "",
        "nats server request lame-duck"),
    Row("keep topics and groups in a file", "mqcore cluster export", "exportMetadata", "",
        "nats stream backup ORDERS DIR"),
    Row("create an account", "mqcore acl user KEY --topic orders=PUB",
        "updateAclConfig -a KEY -s SECRET -t orders=PUB -c C",
        "kafka-acls.sh --add --allow-principal User:KEY --producer --topic orders",
        "nats auth user add KEY"),
    Row("ask whether an account may", "mqcore acl test FOLDER KEY --send orders", "",
        "kafka-acls.sh --list --topic orders"),
    Row("name a cluster for later commands", "mqcore context add prod HOST:9876", "", "",
        "nats context add prod -s HOST"),
    Row("copy a store", "mqcore store backup STORE TO", "", "", "nats stream backup ORDERS DIR"),
    Row("look into files of a log", "mqcore store dump STORE", "",
        "kafka-dump-log.sh --files LOG"),
    Row("measure a broker", "mqcore bench produce", "",
        "kafka-producer-perf-test.sh --topic orders", "nats bench pub orders"),
)
OTHERS = ("mqadmin", "kafka", "nats")


@click.command("cheat")
@click.argument("words", nargs=-1, metavar="[WORD...]")
@click.option("--from", "tool", type=click.Choice(OTHERS), help="With the words of this tool.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def cheat_command(words: tuple[str, ...], tool: str | None, as_json: bool) -> None:
    """
    Tasks, and the commands that do them.

    With words, only tasks that have all words, in any tool's command: `mqcore cheat nats sub`.
    """
    rows = [row for row in map(_texts, SHEET) if (not tool or row[tool]) and all(
        any(word.lower() in text.lower() for text in row.values()) for word in words)]
    if not rows:
        raise Failure(f"no task has {' and '.join(map(repr, words))} in it: `mqcore cheat` lists "
                      "all", Exit.NOT_FOUND)
    if as_json:
        click.echo(json.dumps({"tasks": rows}, indent=2))
    elif words and not tool:
        say(View({}, [Facts([(name, row[name]) for name in ("mqcore", *OTHERS) if row[name]],
                            row["task"]) for row in rows]).lines())
    else:
        columns = [Column("TASK", "task"), Column("MQCORE", "mqcore")]
        if tool:
            columns[1:1] = [Column(tool.upper(), tool)]
        say(View({}, [Table(columns, rows)]).lines())


def _texts(row: Row) -> dict[str, str]:
    found: dict[str, str] = row._asdict()
    return found | {"mqadmin": f"mqadmin {row.mqadmin}" if row.mqadmin else ""}
