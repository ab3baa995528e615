"""`mqcore store verify` and `mqcore store stat|dump` as people call them."""
from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mqcore.admin.cli import main
from tests.store.golden import manifest, unpack
from tests.support.mqcore_process import mqcore_up
from tests.verify.stores import OWN_SETTINGS, flip


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def dumped(*arguments: object) -> list[dict[str, Any]]:
    result = run("store", "dump", *arguments)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def positions(lines: list[dict[str, Any]]) -> list[int]:
    return [line["position"] for line in lines]


def test_a_sound_store_exits_with_0_and_says_so(basic: Path) -> None:
    result = run("store", "verify", basic)

    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "verdict: sound"
    assert "667 records" in result.stdout


def test_a_store_to_be_mended_exits_with_3(tmp_path: Path) -> None:
    result = run("store", "verify", unpack("crashed_torn", tmp_path))

    assert result.exit_code == 3
    assert "mend: commitlog/00000000000000262144 at 20668: " in result.stdout


def test_a_damaged_store_exits_with_1_and_the_worst_comes_first(basic: Path) -> None:
    with flip(basic / "commitlog/00000000000000000000", 100):
        result = run("store", "verify", basic)

    assert result.exit_code == 1
    assert result.stdout.startswith("damage: commitlog/00000000000000000000 at 0: a body with")


def test_json_carries_verdict_findings_figures_and_queues(basic: Path) -> None:
    with flip(basic / "commitlog/00000000000000000000", 100):
        report = json.loads(run("store", "verify", "--json", basic).stdout)

    assert report["status"] == 1
    assert report["verdict"] == "damaged"
    assert report["findings"][0]["severity"] == "damage"
    assert report["findings"][0]["file"] == "commitlog/00000000000000000000"
    assert report["findings"][0]["position"] == 0
    assert report["figures"]["records"] == 666
    assert len(report["queues"]) == 17


@pytest.mark.parametrize("arguments", [("store", "verify"), ("store", "stat"), ("store", "dump")])
def test_a_running_broker_is_said_and_exits_with_2(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    with mqcore_up(tmp_path, OWN_SETTINGS) as broker:
        result = run(*arguments, broker.store)

    assert result.exit_code == 2
    assert "a broker runs on this store; stop it, or give --force" in result.output


def test_a_folder_without_a_store_exits_with_2(tmp_path: Path) -> None:
    result = run("store", "verify", tmp_path)

    assert result.exit_code == 2
    assert "neither commitlog nor consumequeue" in result.output


def test_delay_levels_are_taken_in_stocks_form(stock: dict[str, Path]) -> None:
    assert run("store", "verify", stock["delay_retry_dlq"], "--delay-levels",
               "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h").exit_code == 0
    assert run("store", "verify", stock["delay_retry_dlq"], "--delay-levels", "2s").exit_code == 1
    refused = run("store", "verify", stock["delay_retry_dlq"], "--delay-levels", "soon")
    assert refused.exit_code == 2
    assert "'soon': expected 1 to 63 durations such as 10s 5m 2h" in refused.output


def test_stat_counts_each_queue(basic: Path) -> None:
    result = json.loads(run("store", "stat", "--json", "-t", "golden_text", basic).stdout)

    messages = [m for m in manifest("basic")["messages"] if m["topic"] == "golden_text"]
    assert result["queues"] == [{
        "topic": "golden_text", "queueId": 0, "minOffset": 0, "maxOffset": 24, "messages": 24,
        "bytes": sum(m["size"] for m in messages),
        "bodyBytes": sum(m["bodyLength"] for m in messages),
        "firstStoreTime": messages[0]["storeTimestamp"],
        "lastStoreTime": messages[-1]["storeTimestamp"]}]
    table = run("store", "stat", basic).stdout.splitlines()
    assert table[0].split()[:4] == ["topic", "queue", "min", "max"]
    assert len(table) == 1 + 17 + 1


@pytest.mark.parametrize("name", ["basic", "ipv6", "transactions"])
def test_dump_shows_every_record_as_stock_read_it(name: str, stock: dict[str, Path]) -> None:
    lines = dumped(stock[name])

    messages = manifest(name)["messages"]
    assert positions(lines) == [m["physicalOffset"] for m in messages]
    for line, message in zip(lines, messages, strict=True):
        body = (line["body"].encode() if "body" in line
                else base64.b64decode(line["bodyBase64"]))
        assert hashlib.sha256(body).hexdigest() == message["bodySha256"]
        for field in ("topic", "queueId", "queueOffset", "size", "flag", "sysFlag",
                      "bornTimestamp", "storeTimestamp", "reconsumeTimes",
                      "preparedTransactionOffset", "properties", "bodyLength"):
            assert line[field] == message[field], field


def test_dump_picks_by_topic_queue_key_time_and_position(basic: Path) -> None:
    messages = manifest("basic")["messages"]
    one = messages[400]

    def those(wanted: Any) -> list[int]:
        return [m["physicalOffset"] for m in messages if wanted(m)]

    assert positions(dumped(basic, "-t", "golden_orders", "-q", 2)) == those(
        lambda m: (m["topic"], m["queueId"]) == ("golden_orders", 2))
    assert positions(dumped(basic, "-k", one["properties"]["UNIQ_KEY"])) == [one["physicalOffset"]]
    assert positions(dumped(basic, "-k", "grp0")) == those(
        lambda m: "grp0" in m["properties"].get("KEYS", "").split(" "))
    assert positions(dumped(basic, "--from", one["storeTimestamp"],
                            "--to", one["storeTimestamp"] + 50)) == those(
        lambda m: 0 <= m["storeTimestamp"] - one["storeTimestamp"] <= 50)
    assert positions(dumped(basic, "--start", one["physicalOffset"] - 1,
                            "--stop", messages[410]["physicalOffset"])) == [
        m["physicalOffset"] for m in messages[400:410]]
    assert positions(dumped(basic, "-n", 3)) == [m["physicalOffset"] for m in messages[:3]]


def test_dump_ends_with_1_where_the_log_is_not_readable(basic: Path) -> None:
    with flip(basic / "commitlog/00000000000000000000", 239 + 4):
        result = run("store", "dump", "--no-body", basic)

    assert result.exit_code == 1
    assert "no record at log position 239" in result.stderr
    assert positions([json.loads(line) for line in result.stdout.splitlines()]) == [0]


def test_the_overview_names_both_commands() -> None:
    lines = run("--help").stdout

    assert "verify" in lines
    assert "store" in lines
