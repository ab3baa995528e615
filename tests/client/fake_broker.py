"""A broker in memory that knows enough of the protocol to drive a client, and can misbehave.

It is no model of a broker's rules: those are proved against real ones.
"""
from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

from mqcore.client.network.registration import Registration
from mqcore.namesrv.settings import NamesrvSettings
from mqcore.wire import fastjson
from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.codes import ResponseCode
from mqcore.wire.command import Command, decode, encode, request, response
from mqcore.wire.properties import decode_properties
from mqcore.wire.records import Record, body_crc, decode_batch, encode_record
from mqcore.wire.tags import java_string_hash
from mqcore.wire.topics import DataVersion, TopicConfig, TopicTable, encode_registration
from tests.namesrv.harness import name_server

HOLD_S = 0.3


class FakeBroker:
    """Queues of records, members of groups, committed offsets."""

    def __init__(self, name: str, queue_count: int = 2) -> None:
        self.name = name
        self.queue_count = queue_count
        self.topics: dict[str, TopicConfig] = {"TBW102": TopicConfig("TBW102", 8, 8, 7)}
        self.queues: dict[tuple[str, int], list[bytes]] = {}
        self.tag_codes: dict[tuple[str, int], list[int]] = {}
        self.members: dict[str, dict[str, asyncio.StreamWriter]] = {}
        self.committed: dict[tuple[str, str, int], int] = {}
        self.requests: list[Command] = []
        self.answers: dict[int, list[int]] = {}     # code -> response codes to give instead
        self.silent: set[int] = set()               # codes that get no answer
        self.grown = asyncio.Condition()
        self.registration = Registration()
        self.address = ""
        self.name_server = ""
        self.server: asyncio.Server | None = None
        self.writers: set[asyncio.StreamWriter] = set()

    # -- life -------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Listen: at the port that it had before, if it had one."""
        port = int(self.address.rpartition(":")[2] or 0)
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", port)
        self.address = f"127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    def end(self) -> None:
        """Listen no more, and cut all connections."""
        assert self.server is not None
        self.server.close()
        for writer in list(self.writers):
            writer.close()

    async def register(self) -> None:
        table = TopicTable(DataVersion(len(self.topics), 1), dict(self.topics))
        body = encode_registration(table)
        ext = {
            "brokerName": self.name, "brokerAddr": self.address, "clusterName": "C",
            "brokerId": "0", "haServerAddr": self.address, "compressed": "false",
            "bodyCrc32": str(body_crc(body)),
        }
        assert len(await self.registration.register([self.name_server], ext, body)) == 1

    async def create(self, topic: str) -> None:
        self.topics[topic] = TopicConfig(topic, self.queue_count, self.queue_count)
        await self.register()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks = set()
        self.writers.add(writer)
        try:
            while True:
                length = int.from_bytes(await reader.readexactly(4), "big")
                command = decode(await reader.readexactly(length))
                self.requests.append(command)
                task = asyncio.create_task(self.answer(command, writer))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            for task in tasks:
                task.cancel()
        finally:
            for members in self.members.values():
                for client, held in list(members.items()):
                    if held is writer:
                        del members[client]
            self.writers.discard(writer)
            writer.close()

    async def answer(self, command: Command, writer: asyncio.StreamWriter) -> None:
        planned = self.answers.get(command.code)
        if command.code in self.silent:
            return
        if planned:
            answer = response(command, planned.pop(0), "planned")
        else:
            answer = await getattr(self, f"on_{Code(command.code).name.lower()}")(command, writer)
        if not command.is_oneway:
            writer.write(encode(answer))

    # -- requests ---------------------------------------------------------------------------------

    async def on_send_message_v2(self, command: Command, writer: asyncio.StreamWriter) -> Command:
        ext = command.ext
        return await self.store(
            command, [(command.body, decode_properties(ext["i"]), int(ext["f"]))]
        )

    async def on_send_batch_message(
        self, command: Command, writer: asyncio.StreamWriter
    ) -> Command:
        return await self.store(
            command, [(item.body, item.properties, 0) for item in decode_batch(command.body)]
        )

    async def store(self, command: Command, items: list[tuple[bytes, dict, int]]) -> Command:
        topic, queue_id = command.ext["b"], int(command.ext["e"])
        if topic not in self.topics:
            await self.create(topic)
        queue_id %= self.topics[topic].write_queue_count
        first = len(self.queues.setdefault((topic, queue_id), []))
        for body, properties, sys_flag in items:
            self.append(topic, queue_id, body, properties, sys_flag)
        async with self.grown:
            self.grown.notify_all()
        return response(command, 0, ext={
            "msgId": "0A" * 16, "queueId": str(queue_id), "queueOffset": str(first),
            "MSG_REGION": "DefaultRegion", "TRACE_ON": "true",
        })

    def append(
        self, topic: str, queue_id: int, body: bytes, properties: dict, sys_flag: int = 0,
        reconsume_times: int = 0,
    ) -> None:
        queue = self.queues.setdefault((topic, queue_id), [])
        record = Record(
            topic=topic, queue_id=queue_id, queue_offset=len(queue),
            physical_offset=sum(map(len, self.queues.values())), flag=0, sys_flag=sys_flag,
            body_crc=body_crc(body), born_timestamp_ms=1, born_host=("127.0.0.1", 1),
            store_timestamp_ms=1, store_host=("127.0.0.1", 1), reconsume_times=reconsume_times,
            prepared_transaction_offset=0, body=body, properties=properties, size=0,
        )
        queue.append(encode_record(replace(record)))
        codes = self.tag_codes.setdefault((topic, queue_id), [])
        codes.append(java_string_hash(properties.get("TAGS", "")))

    async def on_heart_beat(self, command: Command, writer: asyncio.StreamWriter) -> Command:
        body = fastjson.loads(command.body)
        for group in body["consumerDataSet"]:
            name = group["groupName"]
            retry = f"%RETRY%{name}"
            if retry not in self.topics:
                self.topics[retry] = TopicConfig(retry, 1, 1)
                await self.register()
            members = self.members.setdefault(name, {})
            is_new = body["clientID"] not in members
            members[body["clientID"]] = writer
            if is_new:
                self.notify(name)
        return response(command, 0)

    def notify(self, group: str) -> None:
        for held in self.members.get(group, {}).values():
            held.write(encode(request(
                Code.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group}, oneway=True
            )))

    async def on_unregister_client(
        self, command: Command, writer: asyncio.StreamWriter
    ) -> Command:
        group = command.ext.get("consumerGroup")
        self.members.get(group, {}).pop(command.ext["clientID"], None)
        self.notify(group)
        return response(command, 0)

    async def on_get_consumer_list_by_group(
        self, command: Command, writer: asyncio.StreamWriter
    ) -> Command:
        ids = list(self.members.get(command.ext["consumerGroup"], {}))
        return response(command, 0, body=fastjson.dumps({"consumerIdList": ids}))

    async def on_get_consumer_connection_list(
        self, command: Command, writer: asyncio.StreamWriter
    ) -> Command:
        return response(command, ResponseCode.CONSUMER_NOT_ONLINE, "nobody is asked for")

    async def on_lock_batch_mq(self, command: Command, writer: asyncio.StreamWriter) -> Command:
        asked = fastjson.loads(command.body)["mqSet"]
        return response(command, 0, body=fastjson.dumps({"lockOKMQSet": asked}))

    async def on_unlock_batch_mq(self, command: Command, writer: asyncio.StreamWriter) -> Command:
        return response(command, 0)

    async def on_query_consumer_offset(
        self, command: Command, writer: asyncio.StreamWriter
    ) -> Command:
        offset = self.committed.get(self.key(command))
        if offset is None:
            return response(command, ResponseCode.QUERY_NOT_FOUND, "none")
        return response(command, 0, ext={"offset": str(offset)})

    @staticmethod
    def key(command: Command) -> tuple[str, str, int]:
        ext = command.ext
        return ext["consumerGroup"], ext["topic"], int(ext["queueId"])

    async def on_update_consumer_offset(
        self, command: Command, writer: asyncio.StreamWriter
    ) -> Command:
        self.committed[self.key(command)] = int(command.ext["commitOffset"])
        return response(command, 0)

    async def on_get_max_offset(self, command: Command, writer: asyncio.StreamWriter) -> Command:
        queue = self.queues.get((command.ext["topic"], int(command.ext["queueId"])), [])
        return response(command, 0, ext={"offset": str(len(queue))})

    async def on_pull_message(self, command: Command, writer: asyncio.StreamWriter) -> Command:
        ext = command.ext
        key, offset = (ext["topic"], int(ext["queueId"])), int(ext["queueOffset"])
        queue = self.queues.setdefault(key, [])
        if not self.members.get(ext["consumerGroup"]):
            return response(command, ResponseCode.SUBSCRIPTION_NOT_EXIST, "no such member")
        if int(ext["sysFlag"]) & 1:
            self.committed[self.key(command)] = int(ext["commitOffset"])
        if int(ext["sysFlag"]) & 2 and offset == len(queue):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HOLD_S), self.grown:
                    await self.grown.wait_for(lambda: len(queue) > offset)
        end = min(len(queue), offset + int(ext["maxMsgNums"]))
        if offset > len(queue):
            code, end = ResponseCode.PULL_OFFSET_MOVED, len(queue)
        else:
            code = ResponseCode.SUCCESS if end > offset else ResponseCode.PULL_NOT_FOUND
        return response(command, code, "x", {
            "nextBeginOffset": str(end), "minOffset": "0", "maxOffset": str(len(queue)),
            "suggestWhichBrokerId": "0",
        }, b"".join(queue[offset:end]))

    async def on_consumer_send_msg_back(
        self, command: Command, writer: asyncio.StreamWriter
    ) -> Command:
        ext = command.ext
        retry = f"%RETRY%{ext['group']}"
        properties = {"RETRY_TOPIC": ext["originTopic"], "UNIQ_KEY": ext["originMsgId"]}
        self.append(retry, 0, b"again", properties, reconsume_times=1)
        async with self.grown:
            self.grown.notify_all()
        return response(command, 0)


@contextlib.asynccontextmanager
async def fake_cluster(
    settings: NamesrvSettings, *names: str
) -> AsyncIterator[tuple[str, list[FakeBroker]]]:
    """Our name server and fake brokers; yields its address and them."""
    async with name_server(settings, lambda: 1_000_000) as port:
        address = f"127.0.0.1:{port}"
        brokers = []
        for name in names or ("broker-a",):
            broker = FakeBroker(name)
            await broker.begin()
            broker.name_server = address
            await broker.register()
            brokers.append(broker)
        try:
            yield address, brokers
        finally:
            for broker in brokers:
                broker.end()
                await broker.registration.close()
