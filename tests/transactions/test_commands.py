"""`mqcore transaction ls|show|check|rollback` on a live broker."""
from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mqcore.admin.cli import main
from mqcore.admin.status import PREFIX, describe
from mqcore.shm.segment import stale_segments
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.transactions.producer import COMMIT, HALF_TOPIC, Producer, unique


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    """A broker that asks nobody by itself for as long as a test takes."""
    with mqcore_up(tmp_path_factory.mktemp("commands"), {
        "broker.transaction_timeout_ms": 0, "broker.transaction_check_interval_ms": 3_600_000,
    }) as running:
        yield running


@pytest.fixture
def producer(patient: MqcoreProcess) -> Iterator[Producer]:
    with Producer(patient.broker_addr, unique("PG")) as made:
        yield made


def command(broker: MqcoreProcess, *words: str) -> Result:
    return CliRunner().invoke(main, ["transaction", words[0], "-b", broker.broker_addr, *words[1:]])


def listed(broker: MqcoreProcess, group: str) -> list[dict[str, object]]:
    result = command(broker, "ls", "--json")
    assert result.exit_code == 0, result.output
    return [row for row in json.loads(result.output)["transactions"]
            if row["producerGroup"] == group]


def seen(producer: Producer, offset: int) -> None:
    producer.until(lambda: producer.end_of(HALF_TOPIC) > offset, "the half message in its queue")


def test_list_shows_what_nobody_has_ended(patient: MqcoreProcess, producer: Producer) -> None:
    topic = producer.topic()
    ended = producer.prepare(topic, b"ended")
    pending = producer.prepare(topic, b"pending", 1, KEYS="k1 k2", UNIQ_KEY="U")
    producer.end(ended, COMMIT)
    producer.until(lambda: len(listed(patient, producer.group)) == 1, "one pending message")

    (row,) = listed(patient, producer.group)
    assert 0 <= float(str(row.pop("ageSeconds"))) < 60
    assert row == {
        "id": pending.offset_message_id, "producerGroup": producer.group, "checks": 0,
        "topic": topic, "queueId": "1", "uniqueKey": "U", "keys": "k1 k2",
        "halfOffset": pending.queue_offset, "bytes": 7, "broker": patient.broker_addr}
    text = command(patient, "ls").output
    assert pending.offset_message_id in text
    assert ended.offset_message_id not in text


def test_list_shows_at_most_as_many_as_asked_for(
    patient: MqcoreProcess, producer: Producer
) -> None:
    topic = producer.topic()
    halves = [producer.prepare(topic, b"m") for _ in range(5)]
    seen(producer, halves[-1].queue_offset)
    result = command(patient, "ls", "--limit", "2", "--json")

    assert len(json.loads(result.output)["transactions"]) == 2
    assert json.loads(result.output)["more"] is True
    assert "there are more" in command(patient, "ls", "--limit", "2").output


def test_show_tells_all_of_one_message(patient: MqcoreProcess, producer: Producer) -> None:
    half = producer.prepare(producer.topic(), b"shown \xff", extra="x")
    seen(producer, half.queue_offset)
    shown = json.loads(command(patient, "show", half.offset_message_id, "--json").output)

    assert shown["state"] == "pending"
    assert shown["properties"] == half.properties
    assert shown["body"] == "shown \\xff"
    assert "pending" in command(patient, "show", half.offset_message_id).output


def test_rollback_ends_a_message_for_good(patient: MqcoreProcess, producer: Producer) -> None:
    half = producer.prepare(producer.topic(), b"unwanted")
    seen(producer, half.queue_offset)
    refused = CliRunner().invoke(main, [
        "transaction", "rollback", "-b", patient.broker_addr, half.offset_message_id])
    assert refused.exit_code == 2
    assert len(listed(patient, producer.group)) == 1

    assert command(patient, "rollback", "--yes", half.offset_message_id).exit_code == 0
    producer.until(lambda: listed(patient, producer.group) == [], "nothing pending")
    again = command(patient, "rollback", "--yes", half.offset_message_id)
    assert again.exit_code == 1
    assert "is not pending" in again.output
    shown = json.loads(command(patient, "show", half.offset_message_id, "--json").output)
    assert shown["state"] == "settled"


def test_check_puts_a_fresh_message_in_its_place(
    patient: MqcoreProcess, producer: Producer
) -> None:
    half = producer.prepare(producer.topic(), b"again")
    seen(producer, half.queue_offset)
    assert command(patient, "check", half.offset_message_id).exit_code == 0

    def fresh() -> list[dict[str, object]]:
        rows = listed(patient, producer.group)       # for a moment both, or none
        return rows if len(rows) == 1 and rows[0]["id"] != half.offset_message_id else []

    producer.until(lambda: bool(fresh()), "the fresh message only")

    (row,) = fresh()
    assert (row["checks"], row["bytes"]) == (0, 5)


@pytest.mark.parametrize("words", [
    ("show", "xyz"), ("show", "7F00000100002A9F00000000FFFFFFFF"), ("rollback", "--yes", "xyz"),
])
def test_a_wrong_id_is_told(patient: MqcoreProcess, words: tuple[str, ...]) -> None:
    result = command(patient, *words)

    assert result.exit_code != 0
    assert "message id" in result.output or "has no message" in result.output


def test_a_broker_that_is_not_there_is_told_in_one_line() -> None:
    result = CliRunner().invoke(main, ["transaction", "ls", "-b", "127.0.0.1:1"])

    assert result.exit_code == 4
    assert result.output.startswith("Error: ")
    assert len(result.output.splitlines()) == 1


def test_status_counts_what_is_open_and_tells_the_age_of_the_oldest(tmp_path: Path) -> None:
    with (mqcore_up(tmp_path, {"broker.transaction_check_interval_ms": 3_600_000}) as broker,
          Producer(broker.broker_addr, "PG") as producer):
        topic = producer.topic()
        ended = producer.prepare(topic, b"ended")
        producer.prepare(topic, b"open", born_ms=ended.born_timestamp_ms - 5_000)
        producer.prepare(topic, b"open too")
        producer.end(ended, COMMIT)

        producer.until(lambda: figures(broker)["pending"] == 2, "two pending ones")
        found = figures(broker)

        table = json.loads(producer.ask(28).body)["table"]
        told = json.loads(command(broker, "ls", "--json").output)["figures"][0]
        text = command(broker, "ls").output

    assert 5 <= found["oldest_s"] <= 65
    assert (found["checks"], found["given_up"], found["rounds"]) == (0, 0, 0)
    assert 5 <= int(table.pop("transactionOldestSeconds")) <= 65
    assert {key: value for key, value in table.items() if key.startswith("transaction")} == {
        "transactionPending": "2", "transactionChecks": "0", "transactionGivenUp": "0",
        "transactionRounds": "0"}
    assert told | {"oldest_s": 0} == {
        "broker": broker.broker_addr, "pending": 2, "oldest_s": 0, "checks": 0, "given_up": 0,
        "rounds": 0}
    assert "since the start of each broker" in text


def figures(broker: MqcoreProcess) -> dict[str, int]:
    """What `mqcore status` says of this broker's transactions; others may run beside it."""
    (name,) = [name for name in stale_segments(PREFIX) if name.endswith(f"-{broker.pid}")]
    found = json.loads(json.dumps(describe(name)))
    figures: dict[str, int] = found["transactions"]
    return figures
