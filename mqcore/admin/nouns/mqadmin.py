"""`mqcore mqadmin`: which command replaces one of RocketMQ's mqadmin (client.md 6.3)."""
from __future__ import annotations

import json

import click

from mqcore.admin.lines import say
from mqcore.admin.shell.exits import NotFound
from mqcore.admin.shell.view import Column, Table, View

# mqadmin's name -> ours; of several the first is the nearest
REPLACED: dict[str, tuple[str, ...]] = {
    "updateTopic": ("topic create", "topic edit"),
    "updateTopicPerm": ("topic edit",),
    "deleteTopic": ("topic rm",),
    "topicList": ("topic ls",),
    "topicRoute": ("topic show",),
    "topicStatus": ("topic show",),
    "topicClusterList": ("topic show",),
    "updateOrderConf": ("namesrv kv",),
    "allocateMQ": ("group plan",),
    "cleanUnusedTopic": ("topic clean",),
    "cleanExpiredCQ": ("topic clean",),
    "deleteExpiredCommitLog": ("broker gc",),
    "updateSubGroup": ("group create", "group edit", "group pause", "group resume"),
    "deleteSubGroup": ("group rm",),
    "getConsumerConfig": ("group show",),
    "consumerProgress": ("group ls", "group show"),
    "consumerStatus": ("group show", "group stack"),
    "consumerConnection": ("group show",),
    "producerConnection": ("client ls",),
    "producer": ("client ls",),
    "startMonitoring": ("check lag", "check stalled", "check dlq"),
    "cloneGroupOffset": ("offset copy",),
    "resetOffsetByTime": ("offset reset",),
    "skipAccumulatedMessage": ("offset reset",),
    "queryMsgById": ("message get", "message resend"),
    "queryMsgByKey": ("message get",),
    "queryMsgByUniqueKey": ("message get",),
    "queryMsgByOffset": ("message get",),
    "queryMsgTraceById": ("message trace",),
    "queryCq": ("topic queue",),
    "printMsg": ("message find",),
    "printMsgByQueue": ("message find",),
    "consumeMessage": ("message tail", "message consume"),
    "sendMessage": ("message send",),
    "sendMsgStatus": ("cluster test",),
    "checkMsgSendRT": ("cluster test",),
    "clusterRT": ("cluster test",),
    "clusterList": ("cluster show",),
    "brokerStatus": ("broker show", "cluster health"),
    "brokerConsumeStats": ("group ls",),
    "statsAll": ("topic ls", "group ls", "top"),
    "getBrokerConfig": ("broker show",),
    "updateBrokerConfig": ("broker set",),
    "exportMetadata": ("cluster export",),
    "exportConfigs": ("broker show",),
    "exportMetrics": ("cluster show",),
    "wipeWritePerm": ("broker drain",),
    "addWritePerm": ("broker undrain",),
    "getNamesrvConfig": ("namesrv show",),
    "updateNamesrvConfig": ("namesrv set",),
    "updateKvConfig": ("namesrv kv",),
    "deleteKvConfig": ("namesrv kv",),
    "updateAclConfig": ("acl user",),
    "deleteAclConfig": ("acl rm",),
    "clusterAclConfigVersion": ("acl versions",),
    "updateGlobalWhiteAddr": ("acl white",),
}

ROWS = (Column("MQADMIN", "name"), Column("MQCORE", "commands"))


@click.command("mqadmin", context_settings={"ignore_unknown_options": True})
@click.argument("name", required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def mqadmin_command(name: str | None, arguments: tuple[str, ...], as_json: bool) -> None:
    """Print the command that replaces NAME of mqadmin; without NAME, all."""
    if name is not None and name not in REPLACED:
        raise NotFound("mqadmin command", name, tuple(REPLACED), "mqcore mqadmin")
    rows = [{"name": one, "commands": [f"mqcore {ours}" for ours in commands]}
            for one, commands in REPLACED.items() if name in (None, one)]
    if as_json:
        click.echo(json.dumps({"commands": rows}, indent=2))
    elif name is None:
        say(View({}, [Table(ROWS, rows)]).lines())
    else:
        say(f"{command}    (mqcore {command.removeprefix('mqcore ')} -h)"
            for command in rows[0]["commands"])
