"""Light topics, groups and their offsets need no configuration, and have a file of their own."""
import json
import re

import pytest

from mqcore.broker.tables.light_queues import (
    LightGroupTable,
    LightOffsetTable,
    LightTopicTable,
    offset_table,
)
from mqcore.broker.tables.offsets import OffsetTable, is_light
from tests.broker.fakes import make_bench, settings_in

LIGHT_KEY = '"%LMQ%x@%LMQ%g":12'


@pytest.fixture
def settings(tmp_path):
    return settings_in(tmp_path, "store.light_queues_enable=true")


@pytest.fixture
def offsets(settings):
    table = offset_table(settings)
    table.load()
    return table


def test_only_a_name_behind_the_prefix_is_light():
    assert is_light("%LMQ%x")
    assert not any(is_light(name) for name in ("%LMQ%", "LMQ", "x%LMQ%x", "%lmq%x", ""))


def test_light_groups_have_one_offset_a_topic_whatever_the_queue_id(offsets):
    offsets.commit("%LMQ%g", "%LMQ%x", 0, 5)
    offsets.commit("%LMQ%g", "%LMQ%x", 7, 12)
    assert offsets.committed("%LMQ%g", "%LMQ%x", 0) == 12
    assert offsets.committed("%LMQ%g", "%LMQ%x", 3) == 12


def test_the_file_keeps_light_groups_apart(settings, offsets):
    offsets.commit("%LMQ%g", "%LMQ%x", 0, 12)
    offsets.commit("plain", "%LMQ%x", 0, 3)
    offsets.commit("plain", "topic", 2, 4)
    offsets.persist()

    path = settings.config_dir / "lmqConsumerOffset.json"
    text = path.read_text()
    assert LIGHT_KEY in text
    assert '"topic@plain":{2:4\n' in text
    assert json.loads(re.sub(r"([{,])(\d+):", r'\1"\2":', text)) == {
        "lmqOffsetTable": {"%LMQ%x@%LMQ%g": 12},
        "offsetTable": {"%LMQ%x@plain": {"0": 3}, "topic@plain": {"2": 4}}}
    again = offset_table(settings)
    again.load()
    assert again.committed("%LMQ%g", "%LMQ%x", 0) == 12
    assert again.committed("plain", "%LMQ%x", 0) == 3
    assert again.committed("plain", "topic", 2) == 4


def test_a_stock_brokers_file_is_read(settings):
    settings.config_dir.mkdir(parents=True)
    (settings.config_dir / "lmqConsumerOffset.json").write_text(
        '{\n\t"lmqOffsetTable":{"%LMQ%x@%LMQ%g":12\n\t},\n'
        '\t"offsetTable":{\n\t\t"t@g":{0:120,1:118\n\t\t}\n\t}\n}')
    table = offset_table(settings)
    table.load()
    assert table.committed("%LMQ%g", "%LMQ%x", 0) == 12
    assert table.committed("g", "t", 1) == 118


def test_a_broker_that_begins_with_light_queues_keeps_its_offsets(settings):
    plain = OffsetTable(settings.config_dir / "consumerOffset.json")
    settings.config_dir.mkdir(parents=True)
    plain.commit("g", "t", 1, 9)
    plain.persist()
    table = offset_table(settings)
    table.load()
    assert isinstance(table, LightOffsetTable)
    assert table.committed("g", "t", 1) == 9


def lives(tmp_path, *commits):
    """What the lives of a broker find for group g, each with the setting on or off."""
    found = []
    for light, offset, light_offset in commits:
        settings = settings_in(tmp_path, f"store.light_queues_enable={str(light).lower()}")
        settings.config_dir.mkdir(parents=True, exist_ok=True)
        table = offset_table(settings)
        table.load()
        only = offset_table(settings)
        only.load_only([("t", "g")])
        assert only.committed("g", "t", 0) == table.committed("g", "t", 0)
        found.append((table.committed("g", "t", 0), table.committed("%LMQ%g", "%LMQ%x", 0)))
        if offset is not None:
            table.commit("g", "t", 0, offset)
        if light_offset is not None:
            table.commit("%LMQ%g", "%LMQ%x", 0, light_offset)
        if table.dirty:
            table.persist()
    return found


def test_offsets_of_plain_groups_follow_the_setting_on_and_off(tmp_path):
    assert lives(tmp_path, (True, 10, 3), (False, 50, None), (True, 90, None), (False, None, None),
                 (True, None, None)) == [
        (None, None), (10, None), (50, 3), (90, None), (90, 3)]


def test_an_offset_that_was_set_back_stays_so_and_a_group_that_was_removed_stays_away(tmp_path):
    assert lives(tmp_path, (True, 90, None), (False, 5, None), (True, None, None)) == [
        (None, None), (90, None), (5, None)]
    settings = settings_in(tmp_path, "store.light_queues_enable=false")
    table = offset_table(settings)
    table.load()
    table.remove_group("g")
    table.persist()
    assert lives(tmp_path, (True, None, None)) == [(None, None)]


def test_without_the_setting_nothing_is_light(tmp_path):
    settings = settings_in(tmp_path)
    assert type(offset_table(settings)) is OffsetTable
    core = make_bench(settings).broker.core
    assert core.topics.get("%LMQ%x") is None
    assert core.groups.get("%LMQ%g") is None


def test_light_topics_and_groups_are_there_and_never_stored(settings):
    core = make_bench(settings).broker.core
    before = core.topics.as_json(), core.groups.as_json()

    assert isinstance(core.topics, LightTopicTable)
    assert isinstance(core.groups, LightGroupTable)
    topic = core.topics.get("%LMQ%x")
    assert topic is not None
    assert (topic.read_queue_count, topic.write_queue_count, topic.perm) == (1, 1, 6)
    group = core.groups.find_or_create("%LMQ%g", 1)
    assert group is not None
    assert group.consume_enable
    assert core.groups.get("%LMQ%h") is not None
    assert (core.topics.as_json(), core.groups.as_json()) == before
