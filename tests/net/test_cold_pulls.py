"""Pulls that wait for the disk, with the reading thread stopped (H8 of serving/held.pxd)."""
from __future__ import annotations

import os
from pathlib import Path

from mqcore.wire.codes import RequestCode
from mqcore.wire.command import Command, decode, encode, request
from mqcore.wire.records import decode_records
from tests.net.serving import Serving, filled
from tests.support.cold_files import make_cold
from tests.wire_live.peer import Peer, pull_fields

MESSAGES = 100                      # in more than two segments
PULLS = 300
TURNS_MAX = 2_000


def ask(serving: Serving, peer: Peer, offset: int) -> Command:
    pull = request(RequestCode.PULL_MESSAGE, pull_fields("T", offset=offset, count=1))
    serving.send(peer, encode(pull))
    return pull


def answer(serving: Serving, peer: Peer) -> Command:
    for _ in range(TURNS_MAX):
        serving.turn()
        try:
            return decode(peer.receive_frame(0.01)[4:])
        except TimeoutError:
            continue
    raise AssertionError("no answer came")


def test_a_connection_has_a_quarter_of_the_reads_that_are_free(tmp_path: Path) -> None:     # H8
    """Of 256: 51 for the first one, then 41 of 205. A further pull waits until one is done."""
    end = filled(tmp_path, [b"%d " % number * 600 for number in range(MESSAGES)])
    serving = Serving(tmp_path, held_max=512)
    serving.open_topic(end)
    serving.store.segment.set_begun(end)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    serving.read_ahead(pipe)
    make_cold(tmp_path)
    with serving.connect() as first, serving.connect() as second:
        asked = [ask(serving, first, number % 10) for number in range(PULLS)]
        assert serving.figure("held_pulls") == 51
        for number in range(PULLS):
            ask(serving, second, number % 10)
        assert serving.figure("held_pulls") == 51 + 41
        os.close(os.open(pipe, os.O_WRONLY))
        wanted = {pull.opaque: number % 10 for number, pull in enumerate(asked)}
        while wanted:
            found = answer(serving, first)
            assert found.code == 0
            (record,) = decode_records(found.body)
            assert record.queue_offset == wanted.pop(found.opaque)
