"""
The fast header reader never sees something else than the general one.

A header that it cannot judge goes to the general reader, so it may refuse anything; what it does
read has to be the same, or a request would depend on the way that it takes through the broker.
"""
from __future__ import annotations

import pytest

from mqcore.wire import header
from mqcore.wire.command import Codec, Command, FrameError, decode
from tests.hostile.mutate import HEAD, Mutator
from tests.support.dice import seed_of_run

READ, PIECES = 0, 30_000
LONG_NAMES = ("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId",
              "sysFlag", "bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode",
              "maxReconsumeTimes", "batch", "bname")


def send_fields_of(command: Command) -> dict[int, str]:
    """The general reader's fields of a send under the fast reader's numbers."""
    names = LONG_NAMES if command.code == 10 else tuple("abcdefghijklmn")
    ext = command.ext or {}
    return {number: ext[name] or "" for number, name in enumerate(names)
            if ext.get(name) is not None}


@pytest.mark.slow
def test_both_readers_agree_on_mutated_headers() -> None:
    seed = seed_of_run()
    print(f"MQCORE_TEST_SEED={seed}")
    mutator, agreed = Mutator(seed, "broker"), 0
    for _ in range(PIECES):
        piece = mutator.bytes()
        end = HEAD + int.from_bytes(piece[5:HEAD], "big")
        if len(piece) < max(end, HEAD + 1) or piece[4] not in list(Codec) or end == HEAD:
            continue
        outcome, fast = header.read(piece[HEAD:end], piece[4] == Codec.ROCKETMQ)
        if outcome != READ:
            continue
        try:
            general = decode(piece[4:end])
        except FrameError as error:
            raise AssertionError(f"only the fast reader took {piece[HEAD:end]!r}") from error
        assert (fast["code"], fast["opaque"], fast["flag"], fast["version"]) == (
            general.code, general.opaque, general.flag, general.version), piece
        if general.code in (10, 310, 320) and None not in fast["fields"].values():
            found = {number: raw.decode(errors="replace")
                     for number, raw in fast["fields"].items()}
            assert found == send_fields_of(general), piece
        agreed += 1

    assert agreed > PIECES / 4
