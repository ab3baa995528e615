"""Several clients of a process on one connection, as the libraries of Node and Python do it."""
from __future__ import annotations

import struct

from mqcore.wire.grpc import SHAPES
from tests.grpc.caller import NATIVE, Caller, Message
from tests.grpc.frames import DATA, END_HEADERS, END_STREAM, HEADERS, Frames, call_fields, frame
from tests.grpc.world import GrpcBroker

PRODUCER, CONSUMER = 1, 3                            # streams of Telemetry


def prefixed(message: bytes) -> bytes:
    return b"\0" + struct.pack(">I", len(message)) + message


def begin(client: Frames, stream: int, method: str, message: bytes, client_id: str,
          flags: int = 0) -> None:
    client.send(frame(HEADERS, call_fields(method, x_mq_client_id=client_id), flags=END_HEADERS,
                      stream=stream)
                + frame(DATA, prefixed(message), flags=flags, stream=stream))


def settings(client: Frames, stream: int, client_id: str, **more: Message) -> None:
    begin(client, stream, "Telemetry", SHAPES.encode("TelemetryCommand", {"settings": more}),
          client_id)
    assert client.until(DATA, stream) is not None


def test_a_transaction_is_asked_of_the_producer(live: GrpcBroker, caller: Caller) -> None:
    with Frames(live.address) as client:
        settings(client, PRODUCER, "producer", publishing={"topics": [{"name": "Shared"}]})
        settings(client, CONSUMER, "consumer", subscription={"group": {"name": "SharedGroup"}})
        caller.send("Shared", b"open", message_type=4)
        while True:
            one = client.next()
            assert one is not None
            if one[0] == DATA:
                assert one[2] == PRODUCER
                break
        assert b"open" in one[3]


def test_the_end_of_one_client_leaves_the_others_messages(
        live: GrpcBroker, caller: Caller) -> None:
    caller.send("Kept", b"held")
    with Frames(live.address) as client:
        for stream, name in ((1, "one"), (3, "other")):
            settings(client, stream, name, subscription={"group": {"name": "KeptGroup"}})
        begin(client, 5, "ReceiveMessage", NATIVE.encode("ReceiveMessageRequest", {
            "group": {"name": "KeptGroup"}, "message_queue": {"topic": {"name": "Kept"}},
            "batch_size": 1, "auto_renew": True, "long_polling_timeout": {"seconds": 20}}),
            "one", END_STREAM)
        assert client.until(DATA, 5) is not None
        begin(client, 7, "NotifyClientTermination", SHAPES.encode(
            "NotifyClientTerminationRequest", {"group": {"name": "KeptGroup"}}),
            "other", END_STREAM)
        assert client.until(DATA, 7) is not None
        assert caller.receive("Kept", "KeptGroup", wait_s=5) == (40401, [])
