"""Of every count the most may be set: a broker with the most of each starts and serves."""
from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from mqcore.broker.settings.load import load
from mqcore.broker.settings.model import SECTIONS, SettingsError
from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.records import decode_records
from tests.support.mqcore_process import mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer, pull_fields, send_fields, topic_fields

TOPIC = "most"


def largest() -> dict[str, object]:
    """The most of each count, by `section.key`."""
    return {
        f"{section}.{field.name}": field.type.le
        for section, kind in SECTIONS.items() for field in msgspec.inspect.type_info(kind).fields
        if isinstance(field.type, msgspec.inspect.IntType) and "_count" in field.name}


@pytest.mark.slow
def test_a_broker_with_the_most_of_everything_starts_and_serves(tmp_path: Path) -> None:
    settings = largest()
    assert None not in settings.values()
    assert {"processes.held_pull_count_max", "limits.address_in_flight_count"} <= settings.keys()
    with mqcore_up(tmp_path, settings) as broker, Peer(broker.broker_addr) as peer:
        assert "Traceback" not in broker.tail()
        assert peer.ask(Code.UPDATE_AND_CREATE_TOPIC, topic_fields(TOPIC, 1)).code == 0
        assert peer.ask(Code.SEND_MESSAGE_V2, send_fields(TOPIC), b"body").code == 0
        bodies: list[bytes] = []

        def has_come() -> bool:
            answer = peer.ask(Code.PULL_MESSAGE, pull_fields(TOPIC, suspend_ms=1000, sys_flag=6))
            bodies.extend(record.body for record in decode_records(answer.body))
            return answer.code == 0

        wait_until(has_come, "the message")
        assert bodies == [b"body"]


def test_more_held_pulls_than_there_may_be_are_refused_in_one_line() -> None:
    with pytest.raises(SettingsError, match="held_pull_count_max") as refused:
        load(None, {}, ["processes.held_pull_count_max=2147483647"])
    assert str(refused.value).isprintable()
