"""delayOffset.json: stock's format, what a running broker adds, and when it is written."""
from __future__ import annotations

from pathlib import Path

import pytest

from mqcore.broker.settings.load import load
from mqcore.broker.tables.config_file import ConfigFileError
from mqcore.participants import SCHEDULER
from mqcore.store.schedule.loop import Snapshot
from mqcore.workers.scheduling.scheduler import DelayOffsets, Scheduler
from tests.schedule.desk import Desk, now_ms
from tests.store.golden import unpack
from tests.support.mqcore_process import MqcoreError, mqcore_up
from tests.support.waiting import wait_until


def test_a_stock_brokers_file_is_written_again_byte_for_byte(tmp_path: Path) -> None:
    path = unpack("delay_retry_dlq", tmp_path) / "config" / "delayOffset.json"
    text = path.read_bytes()
    offsets, _, _ = DelayOffsets(path).load()
    assert offsets
    DelayOffsets(path).save(Snapshot(offsets, 7, [], 7), exact=True)
    assert path.read_bytes() == text
    assert path.with_name("delayOffset.json.bak").read_bytes() == text


def test_what_a_running_broker_adds_is_read_again(tmp_path: Path) -> None:
    file = DelayOffsets(tmp_path / "delayOffset.json")
    assert file.load() == ({}, -1, [])
    file.save(Snapshot({1: 5, 18: 7}, 4096, [(18, 9), (1, 6), (18, 8)], 5000), exact=False)
    offsets, position, ahead = file.load()
    assert (offsets, position, sorted(ahead)) == ({1: 5, 18: 7}, 4096, [(1, 6), (18, 8), (18, 9)])


def test_a_damaged_file_gives_way_to_its_backup(tmp_path: Path) -> None:
    path = tmp_path / "delayOffset.json"
    path.write_text('{"offsetTable":{1:')
    path.with_name("delayOffset.json.bak").write_text('{"offsetTable":{2:3}}')
    assert DelayOffsets(path).load() == ({2: 3}, -1, [])


@pytest.mark.parametrize("text", [
    '{"offsetTable":{1:', '{"offsetTable":{0:1}}', '{"offsetTable":{65:1}}',
    '{"offsetTable":{"one":1}}', '{"offsetTable":{1:-1}}', '{"offsetTable":{1:"2"}}',
    '{"offsetTable":{},"delivered":{"1":3}}', '{"offsetTable":{},"delivered":{"1":[-3]}}',
])
def test_an_unusable_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "delayOffset.json"
    path.write_text(text)
    with pytest.raises(ConfigFileError, match=r"delayOffset\.json"):
        DelayOffsets(path).load()


def test_a_broker_does_not_start_over_an_unusable_file(tmp_path: Path) -> None:
    (tmp_path / "store" / "config").mkdir(parents=True)
    (tmp_path / "store" / "config" / "delayOffset.json").write_text('{"offsetTable":{0:1}}')
    refusal = r"mqcore: .*delayOffset\.json: entry '0': expected a level"
    with pytest.raises(MqcoreError, match=refusal), mqcore_up(tmp_path):
        pytest.fail("it did")


# -- when it is written ----------------------------------------------------------------------------


def worker_at(desk: Desk) -> Scheduler:
    """The scheduler's worker over a desk's store; its turns end when nothing is to be done."""
    settings = load(None, {}, [f"store.path={desk.root}",
                               "broker.delay_offsets_persist_interval_ms=1",
                               "broker.message_delay_levels=1s 5s 60s"])
    desk.run.segment.begin_incarnation(SCHEDULER.slot)
    desk.run.segment.request_stop(SCHEDULER.slot)
    return Scheduler(settings, desk.run.segment)


def test_the_file_says_what_is_on_disk_and_no_more(tmp_path: Path) -> None:
    desk = Desk(tmp_path, load=False)
    desk.settle(now_ms())
    path = tmp_path / "config" / "delayOffset.json"
    file = DelayOffsets(path)
    worker = worker_at(desk)
    worker.start()
    assert file.load() == ({}, 0, [])            # before the first delivery
    text = path.read_bytes()
    desk.delay(1, b"one")
    for _ in range(5):
        worker.work(10)                          # nobody flushes the log
    assert path.read_bytes() == text
    desk.writer.publish_start(desk.run.segment.log_state()["published"])      # it is flushed

    def saved() -> bool:
        worker.work(10)
        return file.load()[1] > 0

    wait_until(saved, "the position moves")


def test_an_orderly_end_writes_the_offsets_alone(tmp_path: Path) -> None:
    desk = Desk(tmp_path, load=False)
    worker = worker_at(desk)
    worker.start()
    for _ in range(3):
        worker.work(10)
    worker.stop()
    assert (tmp_path / "config" / "delayOffset.json").read_text() == '{\n\t"offsetTable":{}\n}'
