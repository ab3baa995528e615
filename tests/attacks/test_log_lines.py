"""What peers call themselves is repeated in log lines: never as a line of its own."""
from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.wire.codes import RequestCode as Code
from tests.attacks import names
from tests.attacks.honest import Honest
from tests.attacks.medians import hardly_slower
from tests.hostile.watch import Watch
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.wire_live.peer import Peer, pull_fields, send_fields, topic_fields

FORGED = ("x\n2026-01-01 00:00:00,000 ERROR   mqcore.writer: the disk is gone"
          "\x1b[2J\x9b2J\u202e\u2028")
LINE = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ +[\w.-]+: |mqcore ready|    |$|mqcore: ")


@pytest.fixture(scope="module", params=["text", "json"])
def target(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest,
           ) -> Iterator[MqcoreProcess]:
    with mqcore_up(tmp_path_factory.mktemp("attacked"), {
            "log.level": "debug", "log.format": request.param}) as running:
        yield running


def test_no_name_begins_a_log_line_or_moves_the_cursor(
    target: MqcoreProcess, honest: Honest, watch: Watch
) -> None:
    with hardly_slower(honest):
        names.walk(target.broker_addr, FORGED)
        names.walk(target.namesrv_addr, FORGED)
    with Peer(target.broker_addr) as peer:
        assert peer.ask(Code.UPDATE_AND_CREATE_TOPIC, topic_fields("logged", 1)).code == 0
        assert peer.ask(Code.SEND_MESSAGE_V2, send_fields("logged"), b"x").code == 0
        peer.ask(Code.PULL_MESSAGE, pull_fields("logged", group=FORGED, offset=10**9))
    text = target.output.read_bytes().decode()
    lines = text.split("\n")
    assert all(line.isprintable() for line in lines), [
        line for line in lines if not line.isprintable()]
    if lines[1].startswith("{") or lines[0].startswith("{"):
        assert all(isinstance(json.loads(line), dict) for line in lines if line.startswith("{"))
        assert all(line == "" or line[0] == "{" or LINE.match(line) for line in lines)
    else:
        assert [line for line in lines if not LINE.match(line)] == []
    assert not any(line.startswith("2026-01-01 00:00:00,000") for line in lines)


@pytest.mark.parametrize("field", ["brokerName", "clusterName", "brokerAddr", "haServerAddr"])
@pytest.mark.parametrize("value", [FORGED, 'a"b', "a'b", "a\\b", "a/b", "x" * 256, "a\0b"])
def test_a_broker_with_such_a_name_is_not_registered(
    target: MqcoreProcess, watch: Watch, field: str, value: str
) -> None:
    honest = {"brokerName": "other", "clusterName": "c", "brokerAddr": "127.0.0.1:1",
              "brokerId": "0", "haServerAddr": "127.0.0.1:2"}
    body = names.bodies("lawful")[Code.REGISTER_BROKER]
    with Peer(target.namesrv_addr) as peer:
        answer = peer.ask(Code.REGISTER_BROKER, {**honest, field: value}, body)
        assert answer.code == 1
        assert f"header field {field}" in (answer.remark or "")
        clusters = peer.ask(Code.GET_BROKER_CLUSTER_INFO)
        assert b"other" not in clusters.body


@pytest.mark.parametrize(("key", "value"), [
    ("broker.region_id", 'R"},"x":{"'), ("broker.region_id", "a\nb"),
    ("broker.region_id", "é" * 129),
    ("broker.cluster", "a/b"), ("broker.cluster", "x" * 116), ("broker.cluster", ".."),
    ("broker.name", "a'b"), ("broker.name", "a\\b"), ("broker.name", "line\nline"),
])
def test_such_a_name_of_our_own_is_refused_at_the_start(
    tmp_path: Path, key: str, value: str
) -> None:
    from mqcore.broker.settings.load import load
    from mqcore.broker.settings.model import SettingsError
    with pytest.raises(SettingsError, match=re.escape(key)):
        load(None, {}, [f"{key}={value}"])
