"""A plain blocking socket that sends bytes as they are and reads whole frames."""
from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Mapping
from typing import Self

from mqcore.wire.command import Codec, Command, decode, encode, request

DEADLINE_S = 60.0                # long: others may use the machine
LENGTH_SIZE = 4


class Closed(AssertionError):
    """The server ended the connection."""


class Peer:
    """
    One connection to a broker or name server at `address` (host:port), from `source` (an address of
    this machine, empty: any), by TLS with a context.

    Raises OSError, ssl.SSLError when it cannot be made.
    """

    def __init__(self, address: str, *, receive_buffer_bytes: int = 0, source: str = "",
                 tls: ssl.SSLContext | None = None) -> None:
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        self.socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        if receive_buffer_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        if source:
            self.socket.bind((source, 0))
        self.socket.settimeout(DEADLINE_S)
        self.socket.connect((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=host)
        self._input = bytearray()
        self._overtook: dict[int, Command] = {}        # responses that came before one waited for

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send raw bytes."""
        self.socket.settimeout(DEADLINE_S)
        self.socket.sendall(data)

    def receive_frame(self, timeout_s: float = DEADLINE_S) -> bytes:
        """The next frame with its length word; Closed, or TimeoutError after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while True:
            if len(self._input) >= LENGTH_SIZE:
                end = LENGTH_SIZE + int.from_bytes(self._input[:LENGTH_SIZE], "big")
                if len(self._input) >= end:
                    frame = bytes(self._input[:end])
                    del self._input[:end]
                    return frame
            self._read_more(deadline)

    def _read_more(self, deadline: float) -> None:
        self.socket.settimeout(max(deadline - time.monotonic(), 1e-6))
        try:
            data = self.socket.recv(1 << 18)
        except BlockingIOError:
            raise TimeoutError from None
        except (ConnectionError, ssl.SSLEOFError) as error:
            raise Closed(str(error)) from error
        if not data:
            raise Closed("end of stream")
        self._input += data

    def receive(self, timeout_s: float = DEADLINE_S) -> Command:
        return decode(self.receive_frame(timeout_s)[LENGTH_SIZE:])

    def answer_to(self, opaque: int, timeout_s: float = DEADLINE_S) -> Command:
        """
        The response to a request, past what the server asks or tells by itself. Responses to other
        requests may overtake it; each is kept for the call that asks for it.
        """
        deadline = time.monotonic() + timeout_s
        while opaque not in self._overtook:
            command = self.receive(max(deadline - time.monotonic(), 1e-6))
            if command.is_response:
                self._overtook[command.opaque] = command
        return self._overtook.pop(opaque)

    def ask(
        self, code: int, ext: Mapping[str, str | None] | None = None, body: bytes = b"", *,
        codec: Codec = Codec.JSON,
    ) -> Command:
        """Send a request and wait for its response."""
        command = request(code, None if ext is None else dict(ext), body, codec=codec)
        self.send(encode(command))
        return self.answer_to(command.opaque)

    def silent_for(self, timeout_s: float) -> bool:
        """Whether nothing comes within `timeout_s`."""
        with contextlib.suppress(TimeoutError):
            self.receive_frame(timeout_s)
            return False
        return True

    def is_closed(self, timeout_s: float = DEADLINE_S) -> bool:
        """Whether the server ends this connection within `timeout_s`; answers before it go."""
        try:
            while True:
                self.receive_frame(timeout_s)
        except Closed:
            return True
        except TimeoutError:
            return False


def send_fields(
    topic: str, *, queue_id: int = 0, properties: str = "", flag: int = 0, sys_flag: int = 0,
    born_ms: int = 1_700_000_000_000, batch: bool = False, reconsume_times: int = 0,
) -> dict[str, str | None]:
    """The header fields of SEND_MESSAGE_V2 (remoting.md 4.1.2)."""
    return {
        "a": "PG", "b": topic, "c": "TBW102", "d": "4", "e": str(queue_id), "f": str(sys_flag),
        "g": str(born_ms), "h": str(flag), "i": properties, "j": str(reconsume_times),
        "k": "false", "m": str(batch).lower(),
    }


def pull_fields(
    topic: str, *, group: str = "G", queue_id: int = 0, offset: int = 0, count: int = 32,
    sys_flag: int = 4, suspend_ms: int = 0, subscription: str = "*", commit_offset: int = 0,
) -> dict[str, str | None]:
    """The header fields of PULL_MESSAGE (remoting.md 4.2.1); sys_flag 4: with the subscription."""
    return {
        "consumerGroup": group, "topic": topic, "queueId": str(queue_id),
        "queueOffset": str(offset), "maxMsgNums": str(count), "sysFlag": str(sys_flag),
        "commitOffset": str(commit_offset), "suspendTimeoutMillis": str(suspend_ms),
        "subscription": subscription, "subVersion": "0", "expressionType": "TAG",
    }


def topic_fields(topic: str, queues: int, *, perm: int = 6) -> dict[str, str | None]:
    """The header fields of UPDATE_AND_CREATE_TOPIC."""
    return {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues),
        "writeQueueNums": str(queues), "perm": str(perm), "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0", "order": "false",
    }
