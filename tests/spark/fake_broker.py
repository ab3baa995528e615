"""A broker of one queue that answers pulls as a test wants: few at a time, with holes, or not."""
from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import threading
import time
from collections.abc import Iterator

from mqcore.wire.codes import RequestCode, ResponseCode
from mqcore.wire.command import Command, decode, encode, response
from mqcore.wire.records import Record, encode_record


def record(offset: int, **changes: object) -> bytes:
    said = {"body": b"%d" % offset, "properties": {"TAGS": f"t{offset % 3}"}, **changes}
    return encode_record(Record(
        topic="t", queue_id=0, queue_offset=offset, physical_offset=100 * offset, flag=0,
        sys_flag=0, body_crc=0, born_timestamp_ms=1, born_host=("127.0.0.1", 1),
        store_timestamp_ms=2, store_host=("127.0.0.1", 2), reconsume_times=0,
        prepared_transaction_offset=0, size=0, **said))


class FakeBroker:
    """
    offsets       what the queue has, from `first` on, below `end`
    count_max     messages of one answer
    breaks_after  answers of a connection, after which it is closed; 0: never
    busy          answers that only say so, first of all
    tag           what filtered pulls get; a scan ends after 20 entries
    """

    def __init__(self, offsets: range | list[int], *, count_max: int = 8, first: int | None = None,
                 end: int | None = None, breaks_after: int = 0, busy: int = 0,
                 tag: str = "") -> None:
        self.offsets = list(offsets)
        self.count_max = count_max
        self.first = self.offsets[0] if first is None else first
        self.end = self.offsets[-1] + 1 if end is None else end
        self.breaks_after = breaks_after
        self.busy = busy
        self.tag = tag
        self.connections = 0
        self.answers = 0
        self.waiting_most = 0
        self.address = ""

    def answer(self, request: Command) -> Command:
        ext = request.ext or {}
        if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return self._route(request)
        if request.code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET):
            known = self.first if request.code == RequestCode.GET_MIN_OFFSET else self.end
            return self._said(request, ResponseCode.SUCCESS, {"offset": str(known)})
        asked, count = int(ext["queueOffset"] or 0), int(ext["maxMsgNums"] or 0)
        if self.busy:
            self.busy -= 1
            return response(request, ResponseCode.SYSTEM_BUSY, "busy")
        said = {"minOffset": str(self.first), "maxOffset": str(self.end),
                "suggestWhichBrokerId": "0"}
        if asked < self.first or asked > self.end:
            moved = self.first if asked < self.first else self.end
            return self._said(request, ResponseCode.PULL_OFFSET_MOVED,
                              said | {"nextBeginOffset": str(moved)})
        stop = asked + 20 if self.tag else self.end
        there = [offset for offset in self.offsets if asked <= offset < stop]
        wanted = [offset for offset in there if f"t{offset % 3}" == (self.tag or f"t{offset % 3}")]
        found = wanted[:min(count, self.count_max)]
        if not found:
            following = min(stop, self.end) if self.tag else min(
                [offset for offset in self.offsets if offset >= asked], default=self.end)
            return self._said(request, ResponseCode.PULL_RETRY_IMMEDIATELY,
                              said | {"nextBeginOffset": str(following)})
        following = found[-1] + 1 if len(found) == self.count_max else min(stop, self.end)
        if not self.tag:
            following = found[-1] + 1
        answer = self._said(request, ResponseCode.SUCCESS,
                            said | {"nextBeginOffset": str(following)})
        answer.body = b"".join(map(record, found))
        return answer

    def _route(self, request: Command) -> Command:
        """As a name server whose only broker is this one."""
        answer = self._said(request, ResponseCode.SUCCESS, {})
        answer.body = json.dumps({
            "brokerDatas": [{"brokerAddrs": {"0": self.address}, "brokerName": "b",
                             "cluster": "c"}],
            "filterServerTable": {},
            "queueDatas": [{"brokerName": "b", "perm": 6, "readQueueNums": 1, "topicSysFlag": 0,
                            "topicSynFlag": 0, "writeQueueNums": 1}]}).encode()
        return answer

    def _said(self, request: Command, code: ResponseCode, ext: dict[str, str]) -> Command:
        answer = response(request, code, "")
        answer.ext = dict(ext)
        return answer

    def serve(self, peer: socket.socket) -> None:
        """Answer what one connection asks; slowly enough that requests pile up."""
        self.connections += 1
        pending, answered = bytearray(), 0
        while True:
            piece = peer.recv(1 << 16)
            if not piece:
                return
            pending += piece
            requests = []
            while len(pending) >= 4 and len(pending) >= 4 + int.from_bytes(pending[:4], "big"):
                size = 4 + int.from_bytes(pending[:4], "big")
                requests.append(decode(bytes(pending[4:size])))
                del pending[:size]
            self.waiting_most = max(self.waiting_most, len(requests))
            for request in requests:
                if self.breaks_after and answered == self.breaks_after:
                    return
                peer.sendall(encode(self.answer(request)))
                answered += 1
                self.answers += 1


@contextlib.contextmanager
def serving(broker: FakeBroker) -> Iterator[FakeBroker]:
    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(ConnectionError):
                broker.serve(self.request)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

    with Server(("127.0.0.1", 0), Handler) as server:
        broker.address = f"127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield broker
        finally:
            server.shutdown()
            thread.join(time.monotonic() + 5)
