"""
Requests of RocketMQ 5's clients beside sends and receives: routes, settings, heartbeats, offsets.

grpc.md 1.7, 2.1, 2.6 (RocketMQ 5.3.3: RouteActivity, ClientActivity, AssignmentActivity). The gRPC
front hands on each call as GRPC_CALL, and messages of Telemetry as GRPC_SETTINGS; the body is the
message as it came, the answer's that of the response.
"""
from __future__ import annotations

import ipaddress
from collections.abc import Callable, Generator
from typing import Any

from mqcore.acl import needs
from mqcore.acl.rules import EXCEPTION, PUB, SUB
from mqcore.broker.core import Core
from mqcore.broker.names import check_group
from mqcore.broker.request import (
    Answer,
    FieldError,
    Fields,
    Outcome,
    OutcomeJob,
    Request,
    answers,
    refused,
)
from mqcore.broker.requests import client as clients
from mqcore.broker.requests import grpc_relay
from mqcore.broker.tables.clients import Client
from mqcore.broker.tables.config_table import TablesFull
from mqcore.broker.tables.groups import DEFAULT_STEPS, Exponential, GroupConfig
from mqcore.broker.tables.subscriptions import CLUSTERING, ConsumerEntry
from mqcore.broker.tables.topics import name_trouble
from mqcore.wire.codes import (
    DLQ_PREFIX,
    PERM_READ,
    PERM_WRITE,
    RETRY_PREFIX,
    TEMPLATE_TOPIC,
    RequestCode,
    ResponseCode,
)
from mqcore.wire.grpc import (
    DOMAIN_NAME,
    FILTER_SQL,
    IPV4,
    IPV6,
    OFFSET_BEGINNING,
    OFFSET_END,
    SHAPES,
    ClientType,
    MessageType,
    Method,
    Permission,
    StatusCode,
    duration,
    status,
)
from mqcore.wire.protobuf import ProtobufError
from mqcore.wire.tags import EXPRESSION_SQL92, EXPRESSION_TAG, Subscription, parse_subscription
from mqcore.wire.topics import TopicConfig

TOPICS_OF_A_CLIENT_MAX = 4_096
QUEUES_OF_A_TOPIC_MAX = 1_024          # QUEUES_MAX of mqcore/net/grpc/pairs.pxd
RECEIVE_BATCH = 32
LONG_POLLING_MS = 20_000
LANGUAGES = {
    "JAVA": 0, "CPP": 1, "DOTNET": 2, "PYTHON": 3, "OTHER": 7, "HTTP": 8, "GO": 9, "PHP": 10,
    "RUST": 12, "NODE_JS": 13,
}
ALL_TYPES = (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION)
Message = dict[str, Any]
Answered = Generator[None, None, tuple[str, Message]]
_NOTHING: tuple[str, Message] = "", {}    # a message of Telemetry that needs no answer


class Refused(Exception):
    """A call is answered with a Status and nothing else."""

    def __init__(self, code: StatusCode, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


@answers(RequestCode.GRPC_CALL, RequestCode.GRPC_SETTINGS)
def grpc_call(core: Core, request: Request) -> Outcome | OutcomeJob:
    """GRPC_CALL (32003), GRPC_SETTINGS (32004): of the gRPC front; other peers may not ask them."""
    if not core.is_grpc(request.connection):
        return refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                       f" request type {request.command.code} not supported")
    return _answered(core, request)


def _answered(core: Core, request: Request) -> OutcomeJob:
    method = Method(Fields.of(request.command).i32("method"))
    if method not in METHODS:
        return Answer(ResponseCode.SUCCESS, body=SHAPES.encode("StatusOnly", {
            "status": status(StatusCode.NOT_IMPLEMENTED, f"{method.name} is not served yet")}))
    shape, serve = METHODS[method]
    try:
        name, response = yield from serve(core, request, SHAPES.decode(shape, request.command.body))
    except Refused as error:
        name, response = "StatusOnly", {"status": status(error.code, error.text)}
        if method is Method.TELEMETRY:
            return refused(ResponseCode.NO_PERMISSION if error.code is StatusCode.UNAUTHORIZED
                           else ResponseCode.SYSTEM_ERROR, error.text)
    except (ProtobufError, FieldError) as error:
        if method is Method.TELEMETRY:
            return refused(ResponseCode.SYSTEM_ERROR, str(error))
        name, response = "StatusOnly", {"status": status(StatusCode.BAD_REQUEST, str(error))}
    except TablesFull as error:
        name, response = "StatusOnly", {
            "status": status(StatusCode.INTERNAL_SERVER_ERROR, str(error))}
    return Answer(ResponseCode.SUCCESS, body=SHAPES.encode(name, response) if name else b"")


def _ok(name: str = "StatusOnly", **members: Any) -> tuple[str, Message]:
    return name, {"status": status(StatusCode.OK), **members}


# -- names -----------------------------------------------------------------------------------------

def _name(resource: Message | None) -> str:
    name: str = (resource or {}).get("name", "")
    return name


def _permitted(core: Core, request: Request, name: str, bits: int) -> None:
    """Raises Refused if the account of a request has none of the bits."""
    refusal = core.access.may(request, name, bits)
    if refusal is not None:
        raise Refused(StatusCode.UNAUTHORIZED, (refusal.remark or "").removeprefix(EXCEPTION))


def _topic_name(core: Core, request: Request, resource: Message | None, bits: int) -> str:
    """
    bits: what an account has to be allowed, one of them. Raises Refused for a name that no topic of
    clients may have, or that the account may not touch.
    """
    name = _name(resource)
    trouble = name_trouble(name)
    if trouble is None and core.topics.is_system(name):
        trouble = f"the topic {name} is the broker's own"
    if trouble is not None:
        raise Refused(StatusCode.ILLEGAL_TOPIC, trouble)
    _permitted(core, request, name, bits)
    return name


def _group_name(core: Core, request: Request, resource: Message | None) -> str:
    name = _name(resource)
    if not name.strip():
        raise Refused(StatusCode.ILLEGAL_CONSUMER_GROUP, "the group is blank: expected a name")
    trouble = name_trouble(name) if len(name) <= 127 else None
    if trouble is not None or name.startswith("CID_RMQ_SYS_"):
        raise Refused(StatusCode.ILLEGAL_CONSUMER_GROUP,
                      f"no consumer group of clients may be called {name[:160]!r}")
    try:
        check_group(name, core.groups.has(name))
    except FieldError as error:
        raise Refused(StatusCode.ILLEGAL_CONSUMER_GROUP, str(error)) from error
    _permitted(core, request, needs.group(name), SUB)
    return name


def _topic(core: Core, request: Request, name: str) -> TopicConfig:
    """
    The topic; made as a send of a 4.x client makes it, where that is allowed; not for a client of
    remoting, which makes none. Raises Refused.
    """
    found = core.topics.get(name)
    remoting = Fields.of(request.command).text_or("form", "") == "remoting"
    if found is None and not remoting and not name.startswith((RETRY_PREFIX, DLQ_PREFIX)) and (
            not core.settings.is_slave):
        found = core.topics.create_from_template(
            name, TEMPLATE_TOPIC, core.settings.broker.default_topic_queue_count, False,
            request.now_ms)
    if found is None:
        raise Refused(StatusCode.TOPIC_NOT_FOUND,
                      f"No topic route info in name server for the topic: {name}")
    return found


# -- routes ----------------------------------------------------------------------------------------

def _endpoints(core: Core, asked: Message) -> Message:
    """The address of this broker: the one that the client asked, else the advertised one."""
    came_to: Message = asked.get("endpoints") or {}
    if came_to.get("addresses"):
        return came_to
    broker = core.settings.broker
    host = broker.advertised_host or broker.advertised_ip
    try:
        scheme = IPV6 if ipaddress.ip_address(host).version == 6 else IPV4
    except ValueError:
        scheme = DOMAIN_NAME
    return {"scheme": scheme,
            "addresses": [{"host": host, "port": core.settings.grpc.listen_port}]}


def _accepted(topic: TopicConfig) -> tuple[MessageType, ...]:
    """Kinds of messages: a topic that does not say its kind takes all, as 4.x has it."""
    return (MessageType[topic.kind],) if topic.kind else ALL_TYPES


def _queues(core: Core, asked: Message, topic: TopicConfig) -> list[Message]:
    """As stock counts them: those that are only read, those only written, then those of both."""
    broker = {"name": core.settings.broker.name, "id": core.settings.broker.id,
              "endpoints": _endpoints(core, asked)}
    may = core.settings.broker.permission & topic.perm
    read = topic.read_queue_count if may & PERM_READ else 0
    write = topic.write_queue_count if may & PERM_WRITE else 0
    both = min(read, write)
    permissions = ([Permission.READ] * (read - both) + [Permission.WRITE] * (write - both)
                   + [Permission.READ_WRITE] * both)
    if not permissions:
        permissions = [Permission.NONE]
    kinds = _accepted(topic)
    return [{"topic": {"name": topic.name}, "id": number, "permission": permission,
             "broker": broker, "accept_message_types": kinds}
            for number, permission in enumerate(permissions)]


def _route(core: Core, request: Request, asked: Message) -> Answered:
    yield
    topic = _topic(core, request, _topic_name(core, request, asked.get("topic"), PUB | SUB))
    return _ok("QueryRouteResponse", message_queues=_queues(core, asked, topic))


def _assignment(core: Core, request: Request, asked: Message) -> Answered:
    yield
    topic = _topic(core, request, _topic_name(core, request, asked.get("topic"), SUB))
    group = _group_name(core, request, asked.get("group"))
    readable = [queue for queue in _queues(core, asked, topic)
                if queue["permission"] in (Permission.READ, Permission.READ_WRITE)]
    if not readable:
        raise Refused(StatusCode.FORBIDDEN, f"no queue of the topic {topic.name} may be read")
    if not is_fifo(core, group):
        readable = [{**readable[0], "id": -1}]
    return _ok("QueryAssignmentResponse",
               assignments=[{"message_queue": queue} for queue in readable])


# -- clients ---------------------------------------------------------------------------------------

def is_fifo(core: Core, group: str) -> bool:
    """Whether the group's messages of a queue are handed out one after another (grpc.md 2.6)."""
    config = core.groups.get(group)
    return config is not None and config.orderly


def _client(core: Core, request: Request) -> Client:
    fields = Fields.of(request.command)
    return Client(
        request.connection, fields.text("clientId"),
        LANGUAGES.get(fields.text_or("language", ""), LANGUAGES["OTHER"]), request.command.version,
        request.remote, request.now_ms, clients.account_of(request))


def _subscription(entry: Message, now_ms: int) -> Subscription:
    expression = entry.get("expression") or {}
    kind = EXPRESSION_SQL92 if expression.get("type") == FILTER_SQL else EXPRESSION_TAG
    try:
        return parse_subscription(
            _name(entry.get("topic")), expression.get("expression") or "*", now_ms, kind)
    except ValueError as error:
        raise Refused(StatusCode.ILLEGAL_FILTER_EXPRESSION, str(error)) from error


def _telemetry(core: Core, request: Request, command: Message) -> Answered:
    """Settings are answered with settings; what else a client says is an answer to a question."""
    settings = command.get("settings")
    if settings is None:
        yield
        grpc_relay.answered(core, request, command)
        return _NOTHING
    client = _client(core, request)
    publishing, subscription = settings.get("publishing"), settings.get("subscription")
    if publishing is None and subscription is None:
        raise Refused(StatusCode.BAD_REQUEST,
                      "there is no publishing or subscription data in settings")
    if publishing is not None:
        yield from _register_producer(core, request, client, publishing)
        merged = _for_producer(core, settings)
    else:
        group = _group_name(core, request, (subscription or {}).get("group"))
        yield from _register_consumer(core, request, client, group, settings)
        merged = _for_consumer(core, settings, group)
    return _ok("TelemetryCommand", settings=merged)


def _register_producer(
    core: Core, request: Request, client: Client, publishing: Message,
) -> Generator[None]:
    topics = publishing.get("topics", [])
    if len(topics) > TOPICS_OF_A_CLIENT_MAX:
        raise Refused(StatusCode.BAD_REQUEST, f"publishing.topics: {len(topics)}, expected at most "
                      f"{TOPICS_OF_A_CLIENT_MAX}")
    names = [_topic_name(core, request, topic, PUB) for topic in topics]
    for name in names:
        yield
        core.clients.register_producer(name, client)     # its group is called like the topic
    core.clients.remember(client, None, None)


def _register_consumer(
    core: Core, request: Request, client: Client, group: str, settings: Message,
) -> Generator[None]:
    entries = settings["subscription"].get("subscriptions", [])
    if len(entries) > TOPICS_OF_A_CLIENT_MAX:
        raise Refused(StatusCode.BAD_REQUEST, f"subscription.subscriptions: {len(entries)}, "
                      f"expected at most {TOPICS_OF_A_CLIENT_MAX}")
    subscriptions = {}
    for entry in entries:
        yield
        _topic_name(core, request, entry.get("topic"), SUB)
        one = _subscription(entry, request.now_ms)
        subscriptions[one.topic] = one
    passive = settings.get("client_type") == ClientType.PUSH_CONSUMER
    core.groups.find_or_create(group, request.now_ms)
    yield from core.clients.register_consumer(ConsumerEntry(
        group, "CONSUME_PASSIVELY" if passive else "CONSUME_ACTIVELY", CLUSTERING,
        "CONSUME_FROM_LAST_OFFSET", False, subscriptions), client)
    yield from core.filters.register(group, subscriptions.values(), request.now_ms)
    core.clients.remember(client, None, None)


def _for_producer(core: Core, settings: Message) -> Message:
    publishing = settings["publishing"]
    return {
        **settings,
        "backoff_policy": {"max_attempts": 3, "exponential_backoff": {
            "initial": duration(10), "max": duration(1000), "multiplier": 2.0}},
        "publishing": {**publishing, "max_body_size": core.settings.store.message_size_max_bytes,
                       "validate_message_type": True},
        "metric": {"on": False},
    }


def _for_consumer(core: Core, settings: Message, group: str) -> Message:
    config = core.groups.get(group)
    attempts = (config.retry_times_max if config is not None else 16) + 1
    return {
        **settings,
        "backoff_policy": {"max_attempts": attempts, **_strategy(config)},
        "subscription": {**settings["subscription"], "fifo": is_fifo(core, group),
                         "receive_batch_size": RECEIVE_BATCH,
                         "long_polling_timeout": duration(LONG_POLLING_MS)},
        "metric": {"on": False},
    }


def _strategy(config: GroupConfig | None) -> Message:
    """How a policy of retries says the times between them."""
    backoff = DEFAULT_STEPS if config is None else config.backoff
    if isinstance(backoff, Exponential):
        return {"exponential_backoff": {
            "initial": duration(backoff.initial_ms), "max": duration(backoff.max_ms),
            "multiplier": float(backoff.multiplier)}}
    return {"customized_backoff": {"next": [duration(step) for step in backoff]}}


def _heartbeat(core: Core, request: Request, asked: Message) -> Answered:
    """Of a client whose settings are not known, too: they come with its next Telemetry."""
    yield
    kind = asked.get("client_type", 0)
    if kind not in (ClientType.PRODUCER, ClientType.PUSH_CONSUMER, ClientType.SIMPLE_CONSUMER):
        raise Refused(StatusCode.UNRECOGNIZED_CLIENT_TYPE, f"the client type {kind} is not known")
    if kind != ClientType.PRODUCER:
        _group_name(core, request, asked.get("group"))
    core.clients.heard(request.connection, request.now_ms)
    return _ok()


def _termination(core: Core, request: Request, asked: Message) -> Answered:
    groups = yield from core.clients.connection_closed(request.connection)
    yield from clients.notify(core, groups)
    return _ok()


# -- receives --------------------------------------------------------------------------------------

def _receive_start(core: Core, request: Request, asked: Message) -> Answered:
    """The front asks this before a group's first receive from a topic, and now and then."""
    yield
    group = _group_name(core, request, asked.get("group"))
    queue = asked.get("message_queue") or {}
    topic = _topic(core, request, _topic_name(core, request, queue.get("topic"), SUB))
    config = core.groups.find_or_create(group, request.now_ms)
    if config is None:
        raise Refused(StatusCode.CONSUMER_GROUP_NOT_FOUND, f"the group {group} does not exist")
    if not config.consume_enable:
        raise Refused(StatusCode.FORBIDDEN, f"the group {group} may not consume")
    if not core.settings.broker.permission & topic.perm & PERM_READ:
        raise Refused(StatusCode.FORBIDDEN, f"no queue of the topic {topic.name} may be read")
    if topic.read_queue_count > QUEUES_OF_A_TOPIC_MAX:
        raise Refused(StatusCode.INTERNAL_SERVER_ERROR, f"the topic {topic.name} has "
                      f"{topic.read_queue_count} queues: clients of gRPC receive from at most "
                      f"{QUEUES_OF_A_TOPIC_MAX}")
    committed = [core.offsets.committed(group, topic.name, queue)
                 for queue in range(topic.read_queue_count)]
    return _ok("ReceiveStart", fifo=is_fifo(core, group), attempts_max=config.retry_times_max + 1,
               committed=[-1 if offset is None else offset for offset in committed])


# -- offsets ---------------------------------------------------------------------------------------

def _queue(core: Core, request: Request, asked: Message) -> tuple[str, int]:
    queue = asked.get("message_queue") or {}
    topic = _topic(core, request, _topic_name(core, request, queue.get("topic"), SUB))
    number = queue.get("id", 0)
    if not 0 <= number < max(topic.read_queue_count, topic.write_queue_count):
        raise Refused(StatusCode.BAD_REQUEST, f"message_queue.id: {number}, expected one of the "
                      f"topic's queues")
    return topic.name, number


def _update_offset(core: Core, request: Request, asked: Message) -> Answered:
    yield
    group = _group_name(core, request, asked.get("group"))
    topic, queue = _queue(core, request, asked)
    offset = asked.get("offset", 0)
    if offset < 0:
        raise Refused(StatusCode.ILLEGAL_OFFSET, f"offset: {offset}, expected 0 or more")
    if not core.offsets.commit(group, topic, queue, offset):
        raise Refused(StatusCode.INTERNAL_SERVER_ERROR, core.offsets.full)
    return _ok()


def _get_offset(core: Core, request: Request, asked: Message) -> Answered:
    yield
    group = _group_name(core, request, asked.get("group"))
    topic, queue = _queue(core, request, asked)
    offset = core.offsets.query(group, topic, queue, core.ports.store)
    if offset is None:
        raise Refused(StatusCode.OFFSET_NOT_FOUND,
                      f"group {group} has no offset for queue {queue} of topic {topic}")
    return _ok("GetOffsetResponse", offset=offset)


def _query_offset(core: Core, request: Request, asked: Message) -> Answered:
    yield
    topic, queue = _queue(core, request, asked)
    policy = asked.get("query_offset_policy", 0)
    bounds = core.ports.store.queue_range(topic, queue) or (0, 0)
    if policy == OFFSET_BEGINNING:
        return _ok("QueryOffsetResponse", offset=bounds[0])
    if policy == OFFSET_END:
        return _ok("QueryOffsetResponse", offset=bounds[1])
    at = asked.get("timestamp")
    if at is None:
        raise Refused(StatusCode.BAD_REQUEST, "timestamp: it is missing")
    at_ms = at.get("seconds", 0) * 1000 + at.get("nanos", 0) // 1_000_000
    return _ok("QueryOffsetResponse",
               offset=core.ports.store.offset_by_time(topic, queue, at_ms))


Serve = Callable[[Core, Request, Message], Answered]
METHODS: dict[Method, tuple[str, Serve]] = {
    Method.QUERY_ROUTE: ("QueryRouteRequest", _route),
    Method.QUERY_ASSIGNMENT: ("QueryAssignmentRequest", _assignment),
    Method.HEARTBEAT: ("HeartbeatRequest", _heartbeat),
    Method.TELEMETRY: ("TelemetryCommand", _telemetry),
    Method.NOTIFY_TERMINATION: ("NotifyClientTerminationRequest", _termination),
    Method.UPDATE_OFFSET: ("UpdateOffsetRequest", _update_offset),
    Method.GET_OFFSET: ("GetOffsetRequest", _get_offset),
    Method.RECEIVE_MESSAGE: ("ReceiveMessageRequest", _receive_start),
    Method.QUERY_OFFSET: ("QueryOffsetRequest", _query_offset),
}
