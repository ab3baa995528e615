"""A broker of a few lines for the load generator's tests: stores, answers, holds, misbehaves."""
from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mqcore.wire.codes import RequestCode, ResponseCode
from mqcore.wire.command import Command, decode, encode, response

HOST = struct.pack(">4BI", 127, 0, 0, 1, 10911)
MAGIC = -626843481
STOP_TIMEOUT_S = 10
Answer = Callable[["FakeBroker", Command], list[Command]]


def record(queue: int, offset: int, body: bytes, topic: bytes = b"T") -> bytes:
    """One stored message (remoting.md 6.2) without properties."""
    rest = struct.pack(">iiiiqqiq8sq8siq", MAGIC, 0, queue, 0, offset, 0, 0, 0, HOST, 0, HOST, 0, 0)
    rest += struct.pack(">i", len(body)) + body + bytes([len(topic)]) + topic + b"\0\0"
    return struct.pack(">i", len(rest) + 4) + rest


class FakeBroker:
    """
    Serves each connection in a thread of its own.

    answer: makes the answers to one request from it; by default what a healthy broker says. Sends
    are kept in `sent`, bodies by queue in `queues`.
    """

    def __init__(self, answer: Answer | None = None) -> None:
        self._answer = answer or FakeBroker.healthy
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self._connections: list[socket.socket] = []
        self.changed = threading.Condition()
        self.sent: list[Command] = []
        self.queues: dict[int, list[bytes]] = {}
        host, port = self._listener.getsockname()
        self.addr = f"{host}:{port}"

    def healthy(self, request: Command) -> list[Command]:
        ext = request.ext or {}
        if request.code == RequestCode.SEND_MESSAGE_V2:
            return self.store(request)
        if request.code == RequestCode.PULL_MESSAGE:
            return self.pull(request)
        if request.code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET):
            size = len(self.queues.get(int(ext["queueId"] or 0), []))
            low = request.code == RequestCode.GET_MIN_OFFSET
            return [response(request, 0, ext={"offset": "0" if low else str(size)})]
        return [response(request, 0)]

    def store(self, request: Command) -> list[Command]:
        queue = int((request.ext or {})["e"] or 0)
        with self.changed:
            self.sent.append(request)
            bodies = self.queues.setdefault(queue, [])
            bodies.append(request.body)
            self.changed.notify_all()
        if request.is_oneway:
            return []
        return [response(request, 0, ext={
            "msgId": "00", "queueId": str(queue), "queueOffset": str(len(bodies) - 1)})]

    def pull(self, request: Command) -> list[Command]:
        ext = request.ext or {}
        queue, offset = int(ext["queueId"] or 0), int(ext["queueOffset"] or 0)
        hold_s = int(ext["suspendTimeoutMillis"] or 0) / 1000
        with self.changed:
            bodies = self.queues.setdefault(queue, [])
            self.changed.wait_for(lambda: len(bodies) > offset, hold_s)
            found = bodies[offset:offset + int(ext["maxMsgNums"] or 0)]
        code = ResponseCode.SUCCESS if found else ResponseCode.PULL_NOT_FOUND
        return [response(request, code, ext={"nextBeginOffset": str(offset + len(found))},
                         body=b"".join(record(queue, offset + i, b) for i, b in enumerate(found)))]

    # -- connections ------------------------------------------------------------------------------

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:                                 # closed by stop
                return
            self._connections.append(connection)
            thread = threading.Thread(target=self._serve_one, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve_one(self, connection: socket.socket) -> None:
        buffer = b""
        with connection:
            while True:
                try:
                    received = connection.recv(1 << 20)
                except OSError:
                    return
                if not received:
                    return
                buffer += received
                requests = []
                while len(buffer) >= 4 and len(buffer) >= 4 + int.from_bytes(buffer[:4], "big"):
                    end = 4 + int.from_bytes(buffer[:4], "big")
                    requests.append(decode(buffer[4:end]))
                    buffer = buffer[end:]
                for request in requests:
                    for answer in self._answer(self, request):
                        if answer.body == b"close":
                            return
                        try:
                            connection.sendall(encode(answer))
                        except OSError:                     # the client has left
                            return

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:                                 # the other side was first
                continue
        for thread in self._threads:
            thread.join(STOP_TIMEOUT_S)


@contextmanager
def fake_broker(answer: Answer | None = None) -> Iterator[FakeBroker]:
    """A running FakeBroker, stopped at the end."""
    broker = FakeBroker(answer)
    accepting = threading.Thread(target=broker.serve, daemon=True)
    accepting.start()
    try:
        yield broker
    finally:
        broker.stop()
        accepting.join(STOP_TIMEOUT_S)
