"""Brokers and name servers that answer nonsense: errors of the client's, and no others."""
from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import json
import random

import pytest

from mqcore.client import AsyncAdmin, RocketMQError
from mqcore.wire.codes import RequestCode
from mqcore.wire.command import response
from mqcore.wire.topics import BrokerData, QueueData, TopicRoute
from tests.client.admin.calls import CALLS

BROKER = "127.0.0.1:10911"
ROUTE = TopicRoute((QueueData("b", 2, 2, 6),), (BrokerData("c", "b", {0: BROKER}),))
CLUSTER = json.dumps({
    "brokerAddrTable": {"b": {"brokerAddrs": {"0": BROKER}, "brokerName": "b", "cluster": "c"}},
    "clusterAddrTable": {"c": ["b"]}}).encode()
MIXED = 60
REFUSALS = (1, 19, 22, 206, 999)
REFUSED = 8                     # bodies that each call meets with each of them: few read these
# By a producer's own connections
SENDS = {"send", "resend", "recall", "send_times", "resend_dead_letters"}
# Members of all bodies: with each kind of value, every reader meets what it does not expect.
NAMES = ("table", "offsetTable", "topicList", "groupList", "topicConfigTable", "data",
         "subscriptionGroupTable", "consumeStatsList", "connectionSet", "subscriptionTable",
         "queueData", "subscriptionData", "consumeTimeSpanSet", "consumerTable", "mqTable",
         "statusTable", "properties", "subscriptionSet", "correctionOffsets", "statsMinute",
         "brokerAddrTable", "timed", "timingCount", "consumeTps", "minQueueIndex",
         "spentTimeMills", "brokerAddr")
QUEUE_KEY = '{"brokerName":"b","queueId":0,"topic":"T"}'
VALUES = ("5", '"x"', "[]", "{}", "null", "[5]", '["x"]', "[[]]", "[{}]", '{"T":5}', '{"T":[]}',
          '{"T":{}}', '{"T":[{}]}', '{"T":[5]}', '[{"G":[{}]}]', '[{"G":5}]', f"{{{QUEUE_KEY}:5}}",
          f"{{{QUEUE_KEY}:{{}}}}", f"{{{QUEUE_KEY}:[]}}", "{0:1}", '{0:"x"}', "1e400", "true",
          '{0:1,"T":2}', f'{{{QUEUE_KEY}:{{}},0:{{}},"a":{{}}}}', '{0:[{}],"T":[{}]}',
          '[{"messageQueue":{}}]', '[{"tagsSet":5}]', '[{"codeSet":["x"]}]')
BODIES = [b"", b"[]", b"{", b"\xff\x00", b"5", b"null", *(
    ("{" + ",".join(f'"{name}":{value}' for name in NAMES) + "}").encode() for value in VALUES)]
EXTS: list[dict[str, str | None] | None] = [
    None, {}, *(dict.fromkeys(
        ("offset", "timestamp", "nextBeginOffset", "value", "version", "allAclFileVersion",
         "wipeTopicCount", "addTopicCount"), value) for value in ("x", "3", None))]


def plain_calls():
    named = {name for name in dir(AsyncAdmin) if not name.startswith("_")
             and hasattr(getattr(AsyncAdmin, name), "__wrapped__")}
    return {name: CALLS.get(name, ((), {})) for name in sorted(named - SENDS)}


@pytest.mark.parametrize("knows", [True, False], ids=["with routes", "all of it nonsense"])
@pytest.mark.parametrize("name", list(plain_calls()))
def test_nonsense_is_an_error_of_the_client(name, knows):
    args, given = plain_calls()[name]

    draw = random.Random(name)

    def answers_with(code, body):
        async def answer(address, command, **more):
            if knows and command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
                return response(command, 0, body=ROUTE.encode(strict=True))
            if knows and command.code == RequestCode.GET_BROKER_CLUSTER_INFO:
                return response(command, 0, body=CLUSTER)
            return response(command, code, "remark", draw.choice(EXTS), body)
        return answer

    def mixed():
        """A body whose members are of different kinds."""
        return ("{" + ",".join(f'"{member}":{draw.choice(VALUES)}'
                               for member in NAMES if draw.random() < 0.5) + "}").encode()

    async def scenario():
        async with AsyncAdmin("127.0.0.1:9876", timeout=0.01) as admin:
            for code, body in itertools.chain(
                    itertools.product((0, 0), BODIES), ((0, mixed()) for _ in range(MIXED)),
                    ((code, body) for code in REFUSALS for body in draw.sample(BODIES, REFUSED))):
                admin._instance.pool.invoke = answers_with(code, body)
                with contextlib.suppress(RocketMQError):
                    await getattr(admin, name)(*args, **given)
    asyncio.run(scenario())


def test_every_call_that_needs_arguments_has_some():
    for name, (args, given) in plain_calls().items():
        inspect.signature(getattr(AsyncAdmin, name)).bind(None, *args, **given)
