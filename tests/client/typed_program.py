"""
A program as users write it, with every public name: test_types.py has type checkers read it, at
their strictest. Nobody runs it.
"""
from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, assert_type

from sqlalchemy import Connection, Engine, MetaData, text

from mqcore.client import (
    AccessDenied,
    Admin,
    AdminError,
    AsyncAdmin,
    AsyncConsumer,
    AsyncLitePullConsumer,
    AsyncProducer,
    AsyncPullConsumer,
    AsyncPushConsumer,
    AsyncReader,
    AsyncTransaction,
    AsyncTransactionProducer,
    BlockingDelivery,
    BrokerError,
    CallResult,
    ClientConfig,
    ClientError,
    ClosedError,
    Compression,
    ConfigError,
    Connected,
    ConnectError,
    ConsumeContext,
    ConsumeFrom,
    ConsumeHookContext,
    Consumer,
    ConsumeStatus,
    Credentials,
    Delivery,
    Disconnected,
    EndTransactionContext,
    Event,
    FilterHookContext,
    LitePullConsumer,
    LocalTransactionState,
    Message,
    MessageQueue,
    MessageTooLarge,
    MQBrokerException,
    MQClientException,
    NoRouteError,
    Producer,
    PullConsumer,
    PullResult,
    PullStatus,
    PushConsumer,
    QueueFull,
    RawBatch,
    Reader,
    ReadGap,
    Rebalanced,
    RecallOutcome,
    RecallResult,
    ReceivedMessage,
    Reject,
    RemotingConnectException,
    RemotingError,
    RemotingException,
    RemotingTimeoutException,
    RemotingTooMuchRequestException,
    RequestTimeout,
    RequestTimeoutException,
    Retry,
    RocketMQError,
    RocketMQException,
    RouteChanged,
    SendCallContext,
    SendContext,
    SendManyError,
    SendResult,
    SendStatus,
    SlowListener,
    Sql92,
    Transaction,
    TransactionProducer,
    TransactionSendResult,
    add_hook,
    arrow_schema,
    assign_message_id,
    create_reply,
    remove_hook,
)
from mqcore.client import Produzer as Misspelt  # type: ignore # pyright: ignore
from mqcore.client.admin import DeadLetter, Found, GroupLag
from mqcore.client.patterns import (
    CheckBack,
    Compensation,
    IdempotentConsumer,
    Outbox,
    OutboxRelay,
    ParkedMessage,
    PendingMessage,
    RolledBack,
    Run,
    RunState,
    Step,
    StepCall,
    TransactionLog,
    confirmation,
    create_tables,
    metadata,
)
from mqcore.testing import Broker, MemoryBroker, TestingError, broker

CLUSTER = ClientConfig(
    namesrv=["ns1:9876", "ns2:9876"], credentials=Credentials("key", "secret"), call_timeout=5.0)

KINDS = (
    AccessDenied, BrokerError, ClientError, ClosedError, ConfigError, ConnectError, MessageTooLarge,
    MQBrokerException, MQClientException, NoRouteError, QueueFull, RemotingConnectException,
    RemotingError, RemotingException, RemotingTimeoutException, RemotingTooMuchRequestException,
    RequestTimeout, RequestTimeoutException, RocketMQException,
)


# -- producers ------------------------------------------------------------------------------------


def first(queues: Sequence[MessageQueue], message: Message, arg: Any) -> MessageQueue:
    return queues[hash((message.topic, arg)) % len(queues)]


def send() -> None:
    with Producer("shop", config=CLUSTER, compression=Compression.ZLIB, retry_count=1) as producer:
        message = Message("orders", "text", tags="paid", keys=["1", "2"], properties={"a": "b"})
        result = assert_type(producer.send(message, timeout=1.0, selector=first, arg=7), SendResult)
        assert_type(result.status, SendStatus)
        assert_type(result.queue.queue_id, int)
        producer.send_soon(message, on_done=lambda future: print(future.result().message_id))
        assert_type(producer.send_soon(message).result(), SendResult)
        assert_type(producer.recall(result), RecallResult)
        assert_type(producer.recall(result).outcome, RecallOutcome)
        assert_type(producer.send_many([message], shard=lambda one: one.tags), list[SendResult])
        producer.send_oneway(message, shard="1")
        assert_type(producer.request(message), ReceivedMessage)
        assert_type(producer.client_id, str)
        assert_type(producer.send("orders", {"id": 7}, key="7", tags="new"), SendResult)
        assert_type(producer.message("orders", [1, 2], delay_level=3), Message)
        producer.send(message, 3)  # type: ignore[call-overload] # pyright: ignore[reportArgumentType]


async def send_with_asyncio() -> None:
    async with AsyncProducer("shop", namesrv="127.0.0.1:9876", linger=0.01) as producer:
        assert_type(await producer.send(Message("orders", b"1")), SendResult)
        assert_type(await producer.send_batch([Message("orders", bytearray(b"1"))]), SendResult)
        assert_type(await producer.send_soon(Message("orders")), SendResult)
    AsyncProducer("shop", namesvr="127.0.0.1")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]


def on_event(event: Event) -> None:
    if isinstance(event, Connected | Disconnected):
        assert_type(event.address, str)
    elif isinstance(event, RouteChanged):
        assert_type(event.queues, tuple[MessageQueue, ...])
    elif isinstance(event, Rebalanced):
        assert_type(event.taken, tuple[MessageQueue, ...])
    elif isinstance(event, SlowListener):
        assert_type(event.messages, tuple[ReceivedMessage, ...])


def watched() -> ClientConfig:
    return ClientConfig(on_event=on_event)


class Watcher:
    """A hook."""

    def end_send(self, context: SendCallContext) -> None:
        assert_type(context.result, SendResult | None)

    def before_send(self, context: SendContext) -> None:
        assert_type(context.queue, MessageQueue)

    def end_transaction(self, context: EndTransactionContext) -> None:
        assert_type(context.from_check, bool)

    def filter_messages(self, context: FilterHookContext) -> None:
        context.messages.clear()

    def after_consume(self, context: ConsumeHookContext) -> None:
        assert_type(context.result, CallResult | None)
        assert_type(context.success, bool)


def hooked(consumer: PushConsumer, message: Message) -> str:
    watcher = Watcher()
    add_hook(watcher)
    remove_hook(watcher)
    consumer.add_hook(watcher)
    return assign_message_id(message)


def what_failed(error: RocketMQError) -> tuple[bool | None, bool, int, str, str, str]:
    if isinstance(error, SendManyError):
        assert_type(error.results, list[SendResult | RocketMQError])
    if isinstance(error, AdminError):
        print([failure.error.code for failure in error.failures], error.done)
    if isinstance(error, ReadGap):
        assert_type(error.end - error.begin, int)
    for kind in KINDS:
        print(error.code == kind.default_code)
    return error.stored, error.retryable, error.code, error.remark, error.broker, error.topic


# -- transactions ---------------------------------------------------------------------------------


def check(message: ReceivedMessage) -> LocalTransactionState:
    return LocalTransactionState.COMMIT if message.keys else LocalTransactionState.UNKNOWN


async def check_soon(message: ReceivedMessage) -> LocalTransactionState | None:
    return check(message)


def execute(message: Message, arg: Any) -> LocalTransactionState:
    return LocalTransactionState.ROLLBACK if arg else LocalTransactionState.COMMIT


def transact(db: sqlite3.Connection) -> None:
    with TransactionProducer("shop", check=check, check_threads=2) as producer:
        with producer.transaction(Message("orders")) as transaction, db:
            assert_type(transaction, Transaction)
            transaction.rollback()
        assert_type(transaction.result, SendResult)
        result = producer.send_in_transaction(Message("orders"), execute, "arg")
        assert_type(result, TransactionSendResult)
        assert_type(result.local_state, LocalTransactionState)


async def transact_with_asyncio() -> None:
    async with (
        AsyncTransactionProducer("shop", check=check_soon) as producer,
        producer.transaction(Message("orders")) as transaction,
    ):
        assert_type(transaction, AsyncTransaction)


# -- consumers ------------------------------------------------------------------------------------


def handle(message: ReceivedMessage) -> None:
    if message.reconsume_times > 3:
        raise Reject
    if message.tags is None:
        raise Retry(3)
    print(message.text(), message.body, message.properties["a"], message.json()["order"])


async def handle_soon(message: ReceivedMessage) -> None:
    handle(message)


def handle_many(messages: list[ReceivedMessage], context: ConsumeContext) -> ConsumeStatus:
    context.ack_count = len(messages) - 1
    return ConsumeStatus.SUCCESS


def consume() -> None:
    paid = {"orders": Sql92("amount > 100"), "parcels": "new || lost"}
    with PushConsumer("billing", paid, handle, start=datetime.now(UTC), max_retries=3) as consumer:
        assert_type(consumer.assignment, list[MessageQueue])
        consumer.run()
    PushConsumer(
        "billing", ["orders"], handle_many, batch=32, orderly=True, start="earliest").start()
    with Consumer("billing", "orders", ack="manual") as consumer:
        for message in consumer:
            assert_type(message, BlockingDelivery)
            with message.processing():
                print(create_reply(message, "done").topic)
        assert_type(consumer.receive(max=100, timeout=1.0), list[BlockingDelivery])
    Consumer("billing", "orders", ack="never")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


async def consume_with_asyncio() -> None:
    async with AsyncPushConsumer("billing", "orders", handle_soon, concurrency=5) as pushed:
        await pushed.reset_offsets(0.0)
    async with AsyncConsumer("billing", "orders") as consumer:
        async for message in consumer:
            assert_type(message, Delivery)
            assert_type(message.ack(), bool)
        assert_type(await consumer.receive(), list[Delivery])


def pull(queue: MessageQueue) -> None:
    with LitePullConsumer("lab", start="earliest", auto_commit=False) as consumer:
        consumer.subscribe("readings")
        assert_type(consumer.poll(timeout=1.0), list[ReceivedMessage])
        consumer.commit_sync({queue: 3})
        assert_type(consumer.committed(queue), int | None)
    with PullConsumer("archive") as puller:
        result = assert_type(puller.pull(queue, 0), PullResult[ReceivedMessage])
        assert_type(result.status is PullStatus.FOUND, bool)
        assert_type(result.messages, list[ReceivedMessage])
    print([point.name for point in ConsumeFrom])


async def pull_with_asyncio(queue: MessageQueue) -> None:
    async with AsyncLitePullConsumer("lab") as consumer:
        consumer.assign([queue])
        assert_type(await consumer.poll(), list[ReceivedMessage])
    async with AsyncPullConsumer("archive") as puller:
        assert_type((await puller.pull(queue, 0)).next_begin_offset, int)


# -- reader, administration, tests ----------------------------------------------------------------


def read(queue: MessageQueue) -> None:
    with Reader("orders", start={queue: 7}, stop="end", filter="paid") as reader:
        for message in reader:
            assert_type(message, ReceivedMessage)
        for batch in reader.batches():
            assert_type(batch, RawBatch)
        for table in reader.batches(arrow=True, rows=1000):
            print(table.num_rows, arrow_schema())


async def read_with_asyncio() -> None:
    async with AsyncReader(["orders"], start=datetime.now(UTC)) as reader:
        assert_type(await reader.read(10, timeout=1.0), list[ReceivedMessage])
        async for batch in reader.batches():
            assert_type(batch.messages(), list[ReceivedMessage])


def administer() -> None:
    with Admin("127.0.0.1:9876") as admin:
        assert_type(admin.create_topic("orders", queues=4), tuple[str, ...])
        assert_type(admin.topics(user_only=True), tuple[str, ...])
        assert_type(admin.reset_offsets("billing", "orders", to="1h ago").dry_run, bool)
        admin.reset_offsets("billing", "orders", to=datetime.now(UTC), dry_run=True)
        assert_type(admin.lag("billing"), GroupLag)
        assert_type(admin.dead_letters("billing", count=3), Found[DeadLetter])
        assert_type([letter.message.body for letter in admin.dead_letters("billing")], list[bytes])
        assert_type(admin.max_offset(MessageQueue("orders", "b", 0)), int)
        admin.create_topic("orders", queue=4)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
        admin.lag(5)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        admin.missing()  # type: ignore[attr-defined] # pyright: ignore


async def administer_with_asyncio() -> None:
    async with AsyncAdmin(config=CLUSTER) as admin:
        assert_type(await admin.topics(), tuple[str, ...])
        assert_type((await admin.lag("billing")).total, int)
        assert_type(await admin.max_offset(MessageQueue("orders", "b", 0)), int)
        await admin.lag(5)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    AsyncAdmin(namesrf="h")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]


def with_a_database(engine: Engine, message: ReceivedMessage) -> None:
    create_tables(engine, prefix="shop_")
    assert_type(metadata(), MetaData)
    once = IdempotentConsumer(engine, "billing", key=lambda message: message.keys[0])

    def effect(message: ReceivedMessage, connection: Connection) -> None:
        connection.execute(text("select 1"))

    assert_type(once.consume(message, effect), bool)
    log = TransactionLog(engine, grace=10)
    with TransactionProducer("shop", check=log.check) as producer, \
            PushConsumer("billing", "orders", once.listener(effect)), \
            PushConsumer("audit", "orders", once.async_listener(effect)):
        try:
            with log.transaction(producer, Message("orders", "x")) as connection:
                assert_type(connection, Connection)
        except RolledBack as error:
            assert_type(error.stored, bool | None)
    outbox = Outbox(engine)
    assert_type(assign_message_id(Message("orders", "x")), str)
    with engine.begin() as connection, Producer("shop") as plain:
        assert_type(outbox.add(connection, Message("orders", "x"), key="7"), str)
        with OutboxRelay(outbox, plain) as relay:
            assert_type(relay.run_once(), int)
        assert_type(outbox.parked(), list[ParkedMessage])
        pending = CheckBack(engine, plain, ask=lambda message: None)
        pending.add(connection, confirmation(message, "shipped"))
        assert_type(pending.given_up(), list[PendingMessage])

    def do(call: StepCall) -> int:
        return len(call.run_id)

    run = assert_type(Compensation(engine, "stays", [Step("room", do)]).start("1"), Run)
    assert_type(run.state is RunState.DONE, bool)


def with_a_broker() -> None:
    try:
        with broker({"broker.name": "b"}) as real, MemoryBroker() as memory:
            assert_type(real, Broker)
            assert_type(memory, MemoryBroker)
            Producer("shop", namesrv=assert_type(memory.namesrv, str)).close()
    except TestingError as error:
        print(error)


def misspelt() -> object:
    return Misspelt  # pyright: ignore[reportUnknownVariableType]
