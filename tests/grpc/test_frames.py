"""Frames of hostile and of broken clients; an honest one beside them is served."""
from __future__ import annotations

import socket

import pytest

from mqcore.wire.grpc import SHAPES
from tests.grpc.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    RESET,
    SETTINGS,
    WINDOW,
    Frames,
    call_fields,
    fields,
    frame,
)
from tests.grpc.world import GrpcBroker, grpc_broker

ROUTE = SHAPES.encode("QueryRouteRequest", {"topic": {"name": "Honest"}})
MESSAGE = b"\0" + len(ROUTE).to_bytes(4, "big") + ROUTE


def asks(client: Frames, stream: int = 1, message: bytes = MESSAGE) -> int | None:
    """The code of a route's Status, or None where the connection has ended."""
    if not client.send(
            frame(HEADERS, call_fields("QueryRoute", x_mq_client_id="c"), flags=END_HEADERS,
                  stream=stream)
            + frame(DATA, message, flags=END_STREAM, stream=stream)):
        return None
    answer = client.until(DATA, stream)
    if answer is None:
        return None
    return int(SHAPES.decode("QueryRouteResponse", answer[5:])["status"]["code"])


def test_one_connection_serves_call_after_call(live: GrpcBroker) -> None:
    with Frames(live.address) as client:
        assert [asks(client, stream) for stream in (1, 3, 5)] == [20000] * 3


@pytest.mark.parametrize("said", [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nXX", b"\0" * 100])
def test_what_is_no_http2_is_closed(live: GrpcBroker, said: bytes) -> None:
    host, _, port = live.address.rpartition(":")
    with socket.create_connection((host, int(port)), 60) as client:
        client.sendall(said)
        assert client.recv(1000) == b""


FLOODS = {
    "pings": lambda number: frame(PING, b"12345678"),
    "settings": lambda number: frame(SETTINGS),
    "windows": lambda number: frame(WINDOW, b"\0\0\0\1"),
    "resets": lambda number: frame(RESET, b"\0\0\0\x08", stream=1),
    "empty data": lambda number: frame(DATA, stream=1),
    "unknown frames": lambda number: frame(99, b"x" * 20),
}


@pytest.mark.parametrize("kind", FLOODS)
def test_frames_without_a_purpose_end_a_connection(live: GrpcBroker, kind: str) -> None:
    flood = b"".join(FLOODS[kind](number) for number in range(2_000))
    with Frames(live.address) as hostile, Frames(live.address) as honest:
        hostile.send(frame(HEADERS, call_fields("QueryRoute", x_mq_client_id="c"),
                           flags=END_HEADERS, stream=1))
        for _ in range(10):
            hostile.send(flood)
            hostile.send(frame(PING, b"12345678"))
        assert hostile.until(99, 99) is None           # its end
        assert asks(honest) == 20000


def test_fields_without_an_end_are_refused(live: GrpcBroker) -> None:
    with Frames(live.address) as hostile, Frames(live.address) as honest:
        hostile.send(frame(HEADERS, call_fields("QueryRoute"), stream=1))
        for number in range(200):
            hostile.send(frame(CONTINUATION, fields([(f"x-{number}", b"v" * 4000)]), stream=1))
        assert hostile.until(99, 99) is None
        assert asks(honest) == 20000


def test_fields_that_are_too_long_end_their_call_only(live: GrpcBroker) -> None:
    with Frames(live.address) as client:
        long = fields([(f"x-{number}", b"v" * 3000) for number in range(5)])
        client.send(frame(HEADERS, call_fields("QueryRoute") + long, flags=END_HEADERS, stream=1))
        client.send(frame(HEADERS, fields([("x-more", b"v" * 3000)]),
                          flags=END_HEADERS | END_STREAM, stream=3))
        assert asks(client, 5) == 20000


@pytest.mark.parametrize(("message", "status"), [
    (b"", b"13"), (b"\0\0\0", b"13"), (b"\0\0\0\0\x09abc", b"13"), (MESSAGE + b"x", b"13"),
    (b"\1" + MESSAGE[1:], b"12"), (b"\0\xff\xff\xff\xff", b"13")])
def test_messages_that_are_none(live: GrpcBroker, message: bytes, status: bytes) -> None:
    with Frames(live.address) as client:
        client.send(frame(HEADERS, call_fields("QueryRoute", x_mq_client_id="c"),
                          flags=END_HEADERS, stream=1)
                    + frame(DATA, message, flags=END_STREAM, stream=1))
        answer = client.until(HEADERS, 1)
        assert answer is not None
        assert status in answer
        assert asks(client, 3) == 20000


def test_a_call_that_is_given_up_leaves_the_others(live: GrpcBroker) -> None:
    with Frames(live.address) as client:
        for stream in range(1, 2_001, 2):
            client.send(frame(HEADERS, call_fields("QueryRoute", x_mq_client_id="c"),
                              flags=END_HEADERS, stream=stream)
                        + frame(RESET, b"\0\0\0\x08", stream=stream))
        assert asks(client, 2_001) == 20000


def test_a_client_without_a_language_gets_settings(live: GrpcBroker) -> None:
    settings = SHAPES.encode("TelemetryCommand", {
        "settings": {"client_type": 1, "publishing": {"topics": [{"name": "Honest"}]}}})
    message = b"\0" + len(settings).to_bytes(4, "big") + settings
    with Frames(live.address) as client:
        client.send(frame(HEADERS, call_fields("Telemetry", x_mq_client_id="c"),
                          flags=END_HEADERS, stream=1))
        for _ in range(2):
            client.send(frame(DATA, message, stream=1))
            answer = client.until(DATA, 1)
            assert answer is not None
            said = SHAPES.decode("TelemetryCommand", answer[5:])
            assert said["status"]["code"] == 20000
            assert said["settings"]["publishing"]["validate_message_type"]


def test_a_stop_says_goodbye(tmp_path_factory: pytest.TempPathFactory) -> None:
    with grpc_broker(tmp_path_factory.mktemp("goodbye")) as broker, \
            Frames(broker.address) as client:
        assert asks(client) == 20000
        broker.process.process.terminate()
        assert client.until(GOAWAY) is not None
