"""Dispatch sets the bits of every registered SQL filter that a record passes, as stock does."""
import os
import shutil
import struct

import pytest

from mqcore.filter.bloom import BloomFilter
from mqcore.filter.filter_bits import FilterBits
from mqcore.filter.sql92_filter import Filter
from mqcore.shm.filters import FilterWriter
from mqcore.store.queue.extension_files import read_unit
from tests.store import golden
from tests.store.harness import ENTRY, Run

FILE_BYTES = 2048
BLOOM = BloomFilter.for_rate()
TOPIC = "t"


def register(writer, expression, *, group="g", topic=TOPIC, dead_ms=0, bit_count=BLOOM.bit_count,
             positions=None):
    writer.publish_program(
        group, topic, program=Filter.compile(expression).program, expression=expression,
        client_version=1, born_ms=1, dead_ms=dead_ms, now_ms=1, bit_count=bit_count,
        positions=BLOOM.subscription_positions(group, topic) if positions is None else positions)


class Broker:
    """One run whose dispatcher lives as long as the test: filters come and go meanwhile."""

    def __init__(self, root):
        self.run = Run(root)
        self.run.recover(clean=True)
        self.filters = FilterWriter(self.run.segment)
        self.log = self.run.writer("async", 0)
        self.probe = self.run.probe()
        self.dispatcher = self.run.dispatcher(
            extension_folder=os.fsencode(self.run.extension_folder),
            extension_file_bytes=FILE_BYTES, bits=FilterBits(self.run.segment, BLOOM.map_size))
        self.count = {}

    def store(self, properties, topic=TOPIC):
        """The bit map of a message."""
        assert self.probe.send(topic, 0, [b"body"], opaque=1, properties=properties)
        self.log.run(1000)
        assert self.dispatcher.run(1000) == 0
        number = self.count[topic] = self.count.get(topic, 0) + 1
        [entry] = self.run.entries(topic, 0, number - 1, number)
        unit = read_unit(self.run.extension_folder, FILE_BYTES, topic, 0, entry[2])
        return unit.bits


@pytest.fixture
def broker(tmp_path):
    broker = Broker(tmp_path / "store")
    yield broker
    broker.dispatcher.close()


def bits_of(*groups, topic=TOPIC):
    bits = bytearray(BLOOM.map_size)
    for group in groups:
        for position in BLOOM.subscription_positions(group, topic):
            bits[position // 8] |= 1 << position % 8
    return bytes(bits)


def test_a_passing_record_has_the_bits_of_every_group_that_it_passes(broker):
    register(broker.filters, "a > 5", group="large")
    register(broker.filters, "a < 8", group="small")
    register(broker.filters, "b IS NOT NULL", group="other")

    assert broker.store(b"a\x016") == bits_of("large", "small")
    assert broker.store(b"a\x019") == bits_of("large")
    assert broker.store(b"a\x011\x02b\x01x") == bits_of("small", "other")


def test_a_record_that_passes_none_has_a_map_of_zeros(broker):
    register(broker.filters, "a > 5")
    assert broker.store(b"a\x011") == bytes(BLOOM.map_size)
    assert broker.store(b"a\x01no number") == bytes(BLOOM.map_size)
    assert broker.store(b"") == bytes(BLOOM.map_size)


def test_a_topic_without_filters_has_no_maps(broker):
    register(broker.filters, "a > 5", topic="another")
    assert broker.store(b"a\x016") == b""
    assert broker.store(b"a\x016", topic="another") == bits_of("g", topic="another")


def test_filters_of_groups_that_are_away_count_too(broker):
    register(broker.filters, "a > 5", dead_ms=2)
    assert broker.store(b"a\x016") == bits_of("g")


def test_a_filter_that_comes_changes_and_goes_counts_from_the_next_record_on(broker):
    assert broker.store(b"a\x016") == b""
    register(broker.filters, "a > 5")
    assert broker.store(b"a\x016") == bits_of("g")
    register(broker.filters, "a > 7")
    assert broker.store(b"a\x016") == bytes(BLOOM.map_size)
    register(broker.filters, "a > 6", group="second")
    assert broker.store(b"a\x018") == bits_of("g", "second")
    broker.filters.remove_program("g", TOPIC)
    assert broker.store(b"a\x018") == bits_of("second")
    broker.filters.remove_program("second", TOPIC)
    assert broker.store(b"a\x018") == b""


def test_a_filter_with_maps_of_another_size_leaves_its_topic_without_maps(broker):
    register(broker.filters, "a > 5")
    register(broker.filters, "a > 5", group="other", bit_count=64, positions=(1, 2, 3))
    assert broker.store(b"a\x016") == b""


def test_many_filters_of_many_topics_are_told_apart(broker):
    for number in range(60):
        register(broker.filters, f"a = {number}", group=f"g{number}", topic=f"t{number % 6}")
    assert broker.store(b"a\x017", topic="t1") == bits_of("g7", topic="t1")
    assert broker.store(b"a\x017", topic="t2") == bytes(BLOOM.map_size)


@pytest.mark.parametrize("size", [0, -1, 4097])
def test_a_map_size_that_cannot_be_is_refused(size, broker):
    with pytest.raises(ValueError, match="map_size"):
        FilterBits(broker.run.segment, size)


def test_queues_and_extension_built_from_a_stock_stores_log_equal_the_stock_brokers(tmp_path):
    manifest = golden.manifest("filter_ext")
    settings = manifest["settings"]
    root = golden.unpack("filter_ext", tmp_path)
    run = Run(root, settings["mappedFileSizeCommitLog"],
              settings["mappedFileSizeConsumeQueue"] // ENTRY.size,
              settings["maxHashSlotNum"], settings["maxIndexNum"])
    folders = (run.queue_folder, run.extension_folder)
    stock = {path: path.read_bytes() for folder in folders for path in folder.glob("*/*/*")}
    for folder in folders:
        shutil.rmtree(folder)
    run.queue_folder.mkdir()
    writer = FilterWriter(run.segment)
    table = manifest["config"]["consumerFilter"]["filterDataByTopic"]["golden_sql"]
    for group, data in table["groupFilterData"].items():
        register(writer, data["expression"], group=group, topic="golden_sql",
                 positions=data["bloomFilterData"]["bitPos"])

    found = run.recover(clean=True)
    run.writer("async", found.end)
    run.dispatch_all(found.end, extension_folder=os.fsencode(run.extension_folder),
                     extension_file_bytes=settings["mappedFileSizeConsumeQueueExt"],
                     bits=FilterBits(run.segment, BLOOM.map_size))

    assert len(stock) == 6
    assert {path: path.read_bytes() for folder in folders
            for path in folder.glob("*/*/*")} == stock
    maps = {unit["filterBitMapHex"] for queue in manifest["consumeQueues"]
            for unit in queue["ext"]}
    assert len(maps) > 3                        # the store has seen filters pass and fail
    assert struct.unpack_from(">h", next(iter(stock.values())))[0] >= 0
