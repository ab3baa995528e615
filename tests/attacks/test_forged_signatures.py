"""Who signs is served as before while others flood the broker with what is signed wrongly."""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.command import Codec, Command
from mqcore.wire.records import decode_records
from tests.acl.test_broker import Signer
from tests.attacks.forged_signatures import ACCOUNT, BODY, FLOOD, MUTATED, TOPIC
from tests.attacks.honest import Honest
from tests.attacks.medians import assert_hardly_slower
from tests.attacks.run import Attackers
from tests.hostile.watch import Watch
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.wire_live.peer import pull_fields, topic_fields

HONEST = ("the-honest", "honest-secret")
CLOSED = "closed"
RULES = f"""accounts:
- {{accessKey: {HONEST[0]}, secretKey: {HONEST[1]}, admin: true}}
- accessKey: {ACCOUNT[0]}
  secretKey: {ACCOUNT[1]}
  topicPerms: [{TOPIC}=PUB|SUB]
  groupPerms: [{TOPIC}=SUB]
"""
SECONDS = 2.0
SENDS_MIN = 2 * (1 + MUTATED)          # a flood is sent at once: two rounds of both


class Signing(Signer):
    """A peer that signs whatever it asks."""

    def __init__(self, address: str) -> None:
        super().__init__(address, HONEST)

    def ask(
        self, code: int, ext: Mapping[str, str | None] | None = None, body: bytes = b"", *,
        codec: Codec = Codec.JSON,
    ) -> Command:
        return self.does(code, dict(ext or {}), body, codec)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[MqcoreProcess]:
    (tmp_path / "plain_acl.yml").write_text(RULES)
    with mqcore_up(tmp_path, {"acl.enable": True}) as running:
        with Signing(running.broker_addr) as peer:
            for topic in (TOPIC, CLOSED):
                assert peer.ask(Code.UPDATE_AND_CREATE_TOPIC, topic_fields(topic, 1)).code == 0
        yield running


def stored(broker: MqcoreProcess, topic: str) -> set[bytes]:
    """The bodies of a topic's messages."""
    found: set[bytes] = set()
    offset = 0
    with Signing(broker.broker_addr) as peer:
        while True:
            answer = peer.ask(Code.PULL_MESSAGE, pull_fields(topic, offset=offset))
            if answer.code != 0:
                assert answer.code == 19, answer
                return found
            found |= {record.body for record in decode_records(answer.body)}
            offset = int((answer.ext or {})["nextBeginOffset"] or 0)


def test_wrong_signatures_and_changed_requests_delay_nobody_and_store_nothing(
    broker: MqcoreProcess,
) -> None:
    with Attackers() as attackers, Honest(broker.broker_addr, connect=Signing) as honest:
        watch = Watch(broker)
        calm = honest.measure()
        with honest.span() as attacked:
            sends = sent_bytes = 0
            while sends < SENDS_MIN:              # on a slow machine it takes longer
                effort = attackers.attack("forged_signatures", broker.broker_addr,
                                          broker.namesrv_addr, SECONDS, seed=14)
                sends, sent_bytes = sends + effort.sends, sent_bytes + effort.sent_bytes
            honest.until(lambda: len(attacked.sends_ms) >= 100, "100 sends")
        watch.assert_unharmed()
        assert sent_bytes >= 100 * FLOOD
        assert_hardly_slower(attacked, calm)
        honest.caught_up()
    honest.check()
    assert stored(broker, TOPIC) == {BODY}         # repeated as it was, and nothing else
    assert stored(broker, CLOSED) == set()
