"""Ends of transactions by a serving process's own lines, and a writer that refuses messages."""
from __future__ import annotations

from pathlib import Path

import pytest

from mqcore.participants import COORDINATOR
from mqcore.store.probes.append_probe import AppendProbe
from mqcore.wire.codes import HALF_TOPIC, OP_TOPIC
from mqcore.wire.command import encode, request
from tests.net.serving import Serving

END_TRANSACTION, COMMIT = 37, 8
TURN_MS = 20_000
REFUSED = 1


@pytest.mark.parametrize(("others", "answer", "settled"), [
    (64, REFUSED, []),                  # no place is left for the queue of the message
    (1, 0, [("Orders", b"an order"), (OP_TOPIC, b"0")]),
])
def test_a_half_message_is_settled_only_if_its_final_message_is_stored(
    tmp_path: Path, others: int, answer: int, settled: list[tuple[str, bytes]],
) -> None:
    serving = Serving(tmp_path)
    store = serving.store
    writer, dispatcher = store.writer("async", 0), store.dispatcher()
    probe = AppendProbe(store.segment, producer=COORDINATOR.producer)
    probe.send(OP_TOPIC, 0, [b"99"], opaque=1)
    probe.send(HALF_TOPIC, 0, [b"an order"], opaque=2, properties=(
        b"PGROUP\x01PG\x02REAL_TOPIC\x01Orders\x02REAL_QID\x010\x02TRAN_MSG\x01true"))
    for number in range(others):
        probe.send("Others", number, [b""], opaque=3)
    writer.run(TURN_MS)
    dispatcher.run(TURN_MS)
    before = store.segment.log_state()["published"]
    (half,) = (one for one in store.records(before) if one["topic"] == HALF_TOPIC)

    with serving.connect() as peer:
        serving.send(peer, encode(request(END_TRANSACTION, {
            "producerGroup": "PG", "tranStateTableOffset": "0", "msgId": "m",
            "commitLogOffset": str(half["physicalOffset"]), "commitOrRollback": str(COMMIT)})))
        serving.turn()
        writer.run(TURN_MS)
        serving.turn()
        assert peer.receive().code == answer

    end = store.segment.log_state()["published"]
    stored = [one for one in store.records(end) if one["physicalOffset"] >= before]
    assert [(one["topic"], one["body"]) for one in stored] == settled
