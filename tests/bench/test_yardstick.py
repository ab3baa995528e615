"""The yardstick of perf.compare takes what a broker takes, and writes a commit log's records."""
from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mqcore.wire.records import decode_records
from perf.contenders import bare_program, bare_runner
from tests.wire_live.peer import Peer, send_fields

SEND_V2 = 310
BEGINNING = 1 << 20               # of its log, bytes


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("mode", ["one", "two"])
def test_the_yardstick_writes_records_and_answers(tmp_path: Path, mode: str) -> None:
    program = bare_program(tmp_path)
    assert program is not None
    with bare_runner(program, mode)(tmp_path / "store", "async") as running:
        with Peer(running.addr) as one, Peer(running.addr) as other:
            answers = [peer.ask(SEND_V2, send_fields("TopicTest", queue_id=queue), body)
                       for peer, queue, body in (
                           (one, 1, b"first"), (other, 1, b"second"), (one, 2, b"x" * 100_000))]
        for odd in (b"\0\0\0\x04\0\0\xff\0", b"\0\0\0\x10\0\0\0\x0c" + b"{" * 12,
                    b"\x7f\xff\xff\xff"):
            with Peer(running.addr) as peer:
                peer.send(odd)
                assert peer.is_closed()
    assert [(answer.code, (answer.ext or {})["queueOffset"]) for answer in answers] == [
        (0, "0"), (0, "1"), (0, "0")]
    with (tmp_path / "store/log").open("rb") as file:
        log = file.read(BEGINNING)
    end = 0
    while size := int.from_bytes(log[end:end + 4], "big"):
        end += size
    records = decode_records(log[:end])
    assert [(one.topic, one.queue_id, one.queue_offset, one.body) for one in records] == [
        ("TopicTest", 1, 0, b"first"), ("TopicTest", 1, 1, b"second"),
        ("TopicTest", 2, 0, b"x" * 100_000)]
    assert [f"{one.physical_offset:016X}" for one in records] == [
        (answer.ext or {})["msgId"][-16:] for answer in answers]
