"""
What RocketMQ 5's clients say by gRPC (apache.rocketmq.v2): methods, messages, numbers.

grpc.md 1.1 to 1.5, restated. Unknown fields are passed over, so that later versions are read.
"""
from __future__ import annotations

from enum import IntEnum
from typing import Any

from mqcore.wire.protobuf import Shapes

SHAPES = Shapes("""
Resource: 1 resource_namespace str, 2 name str
Status: 1 code enum, 2 message str
Duration: 1 seconds i64, 2 nanos i32
Timestamp: 1 seconds i64, 2 nanos i32
Address: 1 host str, 2 port i32
Endpoints: 1 scheme enum, 2 addresses* Address
Broker: 1 name str, 2 id i32, 3 endpoints Endpoints
MessageQueue: 1 topic Resource, 2 id i32, 3 permission enum, 4 broker Broker, 5
    accept_message_types* enum
Assignment: 1 message_queue MessageQueue
FilterExpression: 1 type enum, 2 expression str
SubscriptionEntry: 1 topic Resource, 2 expression FilterExpression
QueryRouteRequest: 1 topic Resource, 2 endpoints Endpoints
QueryRouteResponse: 1 status Status, 2 message_queues* MessageQueue
QueryAssignmentRequest: 1 topic Resource, 2 group Resource, 3 endpoints Endpoints
QueryAssignmentResponse: 1 status Status, 2 assignments* Assignment
HeartbeatRequest: 1 group? Resource, 2 client_type enum
NotifyClientTerminationRequest: 1 group? Resource
UpdateOffsetRequest: 1 group Resource, 2 message_queue MessageQueue, 3 offset i64
GetOffsetRequest: 1 group Resource, 2 message_queue MessageQueue
GetOffsetResponse: 1 status Status, 2 offset i64
QueryOffsetRequest: 1 message_queue MessageQueue, 2 query_offset_policy enum, 3 timestamp? Timestamp
QueryOffsetResponse: 1 status Status, 2 offset i64
StatusOnly: 1 status Status
ReceiveStart: 1 status Status, 2 fifo bool, 3 attempts_max i32, 4 committed* i64
ReceiveMessageRequest: 1 group Resource, 2 message_queue MessageQueue
TelemetryCommand: 1 status? Status, 2 settings Settings, 3 thread_stack_trace ThreadStackTrace, 4
    verify_message_result Nonce, 6 print_thread_stack_trace_command Nonce
ThreadStackTrace: 1 nonce str, 2 thread_stack_trace? str
Nonce: 1 nonce str
Settings: 1 client_type? enum, 2 access_point? Endpoints, 3 backoff_policy? RetryPolicy, 4
    request_timeout? Duration, 5 publishing Publishing, 6 subscription Subscription, 7 user_agent
    UserAgent, 8 metric Metric
Publishing: 1 topics* Resource, 2 max_body_size i32, 3 validate_message_type bool
Subscription: 1 group? Resource, 2 subscriptions* SubscriptionEntry, 3 fifo? bool, 4
    receive_batch_size? i32, 5 long_polling_timeout? Duration
RetryPolicy: 1 max_attempts i32, 2 exponential_backoff ExponentialBackoff, 3 customized_backoff
    CustomizedBackoff
ExponentialBackoff: 1 initial Duration, 2 max Duration, 3 multiplier float
CustomizedBackoff: 1 next* Duration
UserAgent: 1 language enum, 2 version str, 3 platform str, 4 hostname str
Metric: 1 on bool, 2 endpoints? Endpoints
""")


class Method(IntEnum):
    """As in mqcore/net/grpc/methods.pxd."""

    QUERY_ROUTE = 1
    HEARTBEAT = 2
    SEND_MESSAGE = 3
    QUERY_ASSIGNMENT = 4
    RECEIVE_MESSAGE = 5
    ACK_MESSAGE = 6
    FORWARD_TO_DEAD_LETTERS = 7
    PULL_MESSAGE = 8
    UPDATE_OFFSET = 9
    GET_OFFSET = 10
    QUERY_OFFSET = 11
    END_TRANSACTION = 12
    TELEMETRY = 13
    NOTIFY_TERMINATION = 14
    CHANGE_INVISIBLE = 15
    RECALL_MESSAGE = 16


class StatusCode(IntEnum):
    """How a call ended (grpc.md 1.5); clients look at the number."""

    OK = 20000
    BAD_REQUEST = 40000
    ILLEGAL_TOPIC = 40002
    ILLEGAL_CONSUMER_GROUP = 40003
    INVALID_TRANSACTION_ID = 40008
    ILLEGAL_FILTER_EXPRESSION = 40010
    MESSAGE_PROPERTY_CONFLICT_WITH_TYPE = 40014
    UNRECOGNIZED_CLIENT_TYPE = 40015
    MESSAGE_CORRUPTED = 40016              # of a client
    ILLEGAL_OFFSET = 40019
    UNAUTHORIZED = 40100
    FORBIDDEN = 40300
    TOPIC_NOT_FOUND = 40402
    CONSUMER_GROUP_NOT_FOUND = 40403
    OFFSET_NOT_FOUND = 40404
    INTERNAL_SERVER_ERROR = 50001
    NOT_IMPLEMENTED = 50100
    FAILED_TO_CONSUME_MESSAGE = 60000      # of a client


class ClientType(IntEnum):
    PRODUCER = 1
    PUSH_CONSUMER = 2
    SIMPLE_CONSUMER = 3
    PULL_CONSUMER = 4


class Permission(IntEnum):
    NONE = 1
    READ = 2
    WRITE = 3
    READ_WRITE = 4


class MessageType(IntEnum):
    NORMAL = 1
    FIFO = 2
    DELAY = 3
    TRANSACTION = 4


IPV4, IPV6, DOMAIN_NAME = 1, 2, 3                  # schemes of an address
FILTER_SQL = 2
OFFSET_BEGINNING, OFFSET_END = 0, 1                # policies of QueryOffset; else a time


def status(code: StatusCode, text: str = "") -> dict[str, Any]:
    """A Status; without a text it has the code's name, as stock says it."""
    return {"code": int(code), "message": text or code.name}


def duration(milliseconds: int) -> dict[str, int]:
    """A Duration."""
    return {"seconds": milliseconds // 1000, "nanos": milliseconds % 1000 * 1_000_000}
