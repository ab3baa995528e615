"""Queue entries of SCHEDULE_TOPIC_XXXX hold the delivery time (store.md 3.2)."""
import pytest

from mqcore.store.record import tags_code
from tests.store.harness import Run

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
LEVELS_MS = (1_000, 5_000, 90_000)


def entry_after_storing(tmp_path, topic, properties):
    """(the entry's third field, the record's store time) of one message."""
    run = Run(tmp_path / "store")
    run.recover(clean=True)
    loop = run.writer("async", 0)
    probe = run.probe()
    assert probe.send(topic, 1, [b"body"], opaque=1, properties=properties)
    loop.run(1000)
    end = run.segment.log_state()["published"]
    run.dispatch_all(end, delay_levels_ms=LEVELS_MS)
    [record] = run.records(end)
    [entry] = run.entries(topic, 1, 0, 1)
    return entry[2], record["storeTimestamp"]


@pytest.mark.parametrize(("level", "delay_ms"), [
    (b"1", 1_000), (b"3", 90_000), (b"4", 90_000), (b"999999999999999999999", 90_000),
    (b"0", 1_000), (b"x", 1_000), (b"-1", 1_000), (b"1x", 1_000),
])
def test_the_entry_holds_the_store_time_and_the_delay_of_the_level(level, delay_ms, tmp_path):
    third, stored_ms = entry_after_storing(tmp_path, SCHEDULE_TOPIC,
                                           b"TAGS\x01a\x02DELAY\x01" + level)
    assert third == stored_ms + delay_ms


def test_without_a_level_the_entry_holds_the_tag_code(tmp_path):
    third, _ = entry_after_storing(tmp_path, SCHEDULE_TOPIC, b"TAGS\x01abc")
    assert third == tags_code(b"abc")


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXY", "other"])
def test_in_any_other_topic_a_level_changes_nothing(topic, tmp_path):
    third, _ = entry_after_storing(tmp_path, topic, b"DELAY\x013\x02TAGS\x01abc")
    assert third == tags_code(b"abc")
