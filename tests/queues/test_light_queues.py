"""One record in many queues: offsets, entries, limits, and a stock store that is continued."""
import errno
import time

import pytest

from mqcore.layout import (
    PUT_LIGHT_QUEUES_FULL,
    PUT_MESSAGE_ILLEGAL,
    PUT_OK,
    PUT_SERVICE_NOT_AVAILABLE,
    PUT_UNKNOWN_ERROR,
)
from mqcore.store.probes import append_probe
from mqcore.store.record import tags_code
from mqcore.store.verify.store import verify
from mqcore.wire.properties import decode_properties
from tests.store import golden
from tests.store.harness import ENTRY, Run
from tests.support.waiting import wait_until

RECOUNTED_S = 1.1
TOPIC = "parent"
LISTED = b"INNER_MULTI_DISPATCH\x01"
OFFSETS = b"INNER_MULTI_QUEUE_OFFSET\x01"


class Store:
    """A writer and dispatchers with multi-dispatch on."""

    def __init__(self, root, *, light=True, count_max=20_000, mode="async", clean=True,
                 multi_dispatch=True, **sizes):
        self.run = Run(root, multi_dispatch=multi_dispatch, light_queues=light, **sizes)
        self.light = light
        self.forged = (0, 0)
        found = self.run.recover(clean=clean)
        self.loop = self.run.writer(mode, found.end)
        if multi_dispatch:
            self.loop.name_queues(light, count_max)
        self.probe = self.run.probe()

    def put(self, names=None, *, topic=TOPIC, queue=0, properties=b"TAGS\x01a", bodies=(b"body",),
            **changes):
        """The (status, queue offset) of one request."""
        if names is not None:
            properties += b"\x02" * bool(properties) + LISTED + names
        assert self.probe.send(topic, queue, list(bodies), opaque=1, properties=properties,
                               **changes)
        self.loop.run(1000)
        [(_, status, offset, _, _)] = self.probe.take()
        return status, offset

    @property
    def end(self):
        return self.run.segment.log_state()["published"]

    def dispatch(self, **changes):
        self.forged = self.run.dispatch_all(
            self.end, **{"multi_dispatch": self.run.multi_dispatch, "light_queues": self.light}
            | changes)

    def properties(self):
        """Those of the last record, as bytes."""
        return list(self.run.records(self.end))[-1]["properties"]

    def queue(self, topic, queue_id=0):
        """Log positions in a queue, in order."""
        least, most = self.run.queue_ranges().get((topic, queue_id), (0, 0))
        return [entry[0] for entry in self.run.entries(topic, queue_id, least, most)]


def queue_findings(store):
    """What a verification says of the queues; the probe's records have odd hosts."""
    return [finding for finding in verify(store.run.root).findings
            if finding.file.startswith("consumequeue")]


def started_with(store, **settings):
    """The store after a kill and a start with other settings, dispatched again."""
    again = Store(store.run.root, clean=False, **settings)
    again.dispatch()
    return again


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


# -- offsets ---------------------------------------------------------------------------------------


def test_each_named_queue_has_numbers_of_its_own(store):
    for names, offsets in ((b"%LMQ%a", b"0"), (b"%LMQ%a,%LMQ%b", b"1,0"),
                           (b"%LMQ%b,side,%LMQ%a", b"1,0,2")):
        assert store.put(names)[0] == PUT_OK
        assert store.properties() == (
            b"TAGS\x01a\x02" + LISTED + names + b"\x02" + OFFSETS + offsets)


def test_a_light_queue_is_queue_0_and_another_is_the_one_sent_to(store):
    store.put(b"%LMQ%a,side", queue=3)
    store.put(b"%LMQ%a,side", queue=4)
    store.dispatch()
    assert store.run.queue_ranges() == {
        (TOPIC, 3): (0, 1), (TOPIC, 4): (0, 1), ("%LMQ%a", 0): (0, 2), ("side", 3): (0, 1),
        ("side", 4): (0, 1)}


def test_without_light_queues_their_names_are_like_others(tmp_path):
    store = Store(tmp_path / "store", light=False)
    store.put(b"%LMQ%a", queue=3)
    store.dispatch()
    assert set(store.run.queue_ranges()) == {(TOPIC, 3), ("%LMQ%a", 3)}


def test_a_name_that_is_there_twice_counts_once(store):
    store.put(b"%LMQ%a,%LMQ%a")
    assert store.properties().endswith(OFFSETS + b"0,0")
    store.put(b"%LMQ%a")
    assert store.properties().endswith(OFFSETS + b"1")
    store.dispatch()
    assert len(store.queue("%LMQ%a")) == 2


def test_a_record_that_names_its_own_queue_is_there_once(store):
    store.put()
    store.put(TOPIC.encode())
    assert store.properties().endswith(OFFSETS + b"1")
    store.put()
    store.dispatch()
    assert store.run.queue_ranges() == {(TOPIC, 0): (0, 3)}
    assert len(set(store.queue(TOPIC))) == 3


def test_wait_is_dropped_and_everything_else_stays_as_it_was_sent(store):
    store.put(b"%LMQ%a", properties=b"z\x01\xc3\xa4\x02WAIT\x01true\x02KEYS\x01k 2")
    assert store.properties() == (
        b"z\x01\xc3\xa4\x02KEYS\x01k 2\x02" + LISTED + b"%LMQ%a\x02" + OFFSETS + b"0")


def test_messages_without_names_are_stored_as_they_are(store):
    for properties in (b"", b"TAGS\x01a\x02WAIT\x01false", b"\x02\x02a\x01b\x02",
                       b"a\x01INNER_MULTI_DISPATCH\x02WAIT\x01x"):
        store.put(properties=properties)
        assert store.properties() == properties


@pytest.mark.parametrize("names", [b" ", b"  \t"])
def test_a_blank_list_names_nothing(names, store):
    store.put(names)
    store.dispatch()
    assert OFFSETS not in store.properties()
    assert set(store.run.queue_ranges()) == {(TOPIC, 0)}


@pytest.mark.parametrize(("names", "status"), [
    (b"%LMQ%a/b", PUT_MESSAGE_ILLEGAL), (b"..", PUT_MESSAGE_ILLEGAL), (b".", PUT_MESSAGE_ILLEGAL),
    (b"a,,b", PUT_MESSAGE_ILLEGAL), (b",a", PUT_MESSAGE_ILLEGAL), (b"%LMQ%\0", PUT_MESSAGE_ILLEGAL),
    (b"x" * 128, PUT_MESSAGE_ILLEGAL), (b",,", PUT_UNKNOWN_ERROR),
])
def test_a_name_that_can_be_no_folder_is_refused_and_nothing_is_stored(names, status, store):
    assert store.put(names)[0] == status
    assert store.end == 0
    assert store.put(b"%LMQ%a") == (PUT_OK, 0)
    assert store.properties().endswith(OFFSETS + b"0")


def test_commas_at_the_end_name_nothing(store):
    assert store.put(b"%LMQ%a,,")[0] == PUT_OK
    store.dispatch()
    assert set(store.run.queue_ranges()) == {(TOPIC, 0), ("%LMQ%a", 0)}


def test_offsets_that_make_the_properties_too_long_are_refused(store):
    filler = b"f\x01" + b"x" * 32_720
    assert store.put(b"%LMQ%a", properties=filler[:32_740 - len(LISTED)])[0] == PUT_MESSAGE_ILLEGAL
    assert store.put(b"%LMQ%a", properties=filler[:32_000])[0] == PUT_OK


@pytest.mark.parametrize("topic", [
    "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "%RETRY%group", "%DLQ%group"])
def test_what_waits_elsewhere_first_is_in_its_own_queue_only(topic, store):
    store.put(b"%LMQ%a\x02" + OFFSETS + b"7", topic=topic)
    assert OFFSETS not in store.properties()
    store.dispatch()
    assert set(store.run.queue_ranges()) == {(topic, 0)}


def test_offsets_are_found_wherever_they_begin_and_whatever_looks_like_them(store):
    for before in range(40):
        kept = b"F\x01" + (b"INNER_MULTI_QUEUE_" * 3)[:before] + b"x"
        store.put(properties=kept + b"\x02" + OFFSETS + b"9")
        assert store.properties() == kept


def test_offsets_that_a_client_made_up_are_replaced_or_dropped(store):
    store.put(properties=OFFSETS + b"99\x02" + LISTED + b"%LMQ%a")
    assert store.properties() == LISTED + b"%LMQ%a\x02" + OFFSETS + b"0"
    store.put(properties=OFFSETS + b"99\x02TAGS\x01a")
    assert store.properties() == b"TAGS\x01a"
    store.put(properties=LISTED + b"%LMQ%a\x02" + OFFSETS + b"99", bodies=[b"1", b"2"])
    assert store.properties() == LISTED + b"%LMQ%a"
    store.dispatch()
    assert store.run.queue_ranges() == {(TOPIC, 0): (0, 4), ("%LMQ%a", 0): (0, 1)}


def test_prepared_records_get_no_place_in_the_named_queues(store):
    store.put(b"%LMQ%a", sys_flag=4)
    store.put(b"%LMQ%a")
    assert store.properties().endswith(OFFSETS + b"0")
    store.dispatch()
    assert len(store.queue("%LMQ%a")) == 1


def test_numbers_are_given_back_when_the_write_fails(store):
    store.put(b"%LMQ%a,%LMQ%b")
    append_probe.watch(store.run.segment)
    try:
        append_probe.fail("write", errno.EIO, times=1000)       # however often it is tried again
        assert store.put(b"%LMQ%a,%LMQ%a,%LMQ%c")[0] == PUT_SERVICE_NOT_AVAILABLE
    finally:
        append_probe.unwatch()
    wait_until(lambda: store.put(b"%LMQ%a,%LMQ%b,%LMQ%c")[0] == PUT_OK, "a disk that takes it")
    assert store.properties().endswith(OFFSETS + b"1,1,0")


# -- the limit -------------------------------------------------------------------------------------


def test_more_light_queues_than_allowed_are_refused_and_known_ones_taken(tmp_path):
    store = Store(tmp_path / "store", count_max=2)
    assert store.put(b"%LMQ%a,%LMQ%b")[0] == PUT_OK
    assert store.put(b"%LMQ%c") == (PUT_LIGHT_QUEUES_FULL, 0)
    assert store.put(b"%LMQ%b,side")[0] == PUT_OK
    store.dispatch()
    assert set(store.run.queue_ranges()) == {
        (TOPIC, 0), ("%LMQ%a", 0), ("%LMQ%b", 0), ("side", 0)}


def test_one_message_cannot_pass_the_limit_by_itself_however_late_it_comes(tmp_path):
    store = Store(tmp_path / "store", count_max=2)
    deadline = time.monotonic() + RECOUNTED_S
    while time.monotonic() < deadline:          # from now on the light queues are counted again
        store.loop.run(10)
    assert store.put(b"%LMQ%a,%LMQ%b,%LMQ%c")[0] == PUT_LIGHT_QUEUES_FULL
    assert store.put(b"%LMQ%a,%LMQ%b")[0] == PUT_OK
    assert store.put(b"%LMQ%c")[0] == PUT_LIGHT_QUEUES_FULL


def test_the_limit_counts_what_an_earlier_run_made(tmp_path):
    store = Store(tmp_path / "store")
    store.put(b"%LMQ%a,%LMQ%b")
    store.dispatch()
    again = Store(tmp_path / "store", count_max=2)
    assert again.put(b"%LMQ%c")[0] == PUT_LIGHT_QUEUES_FULL
    assert again.put(b"%LMQ%a")[0] == PUT_OK


# -- dispatch --------------------------------------------------------------------------------------


def test_every_named_queue_holds_the_record_with_its_tag_code(store):
    store.put(b"%LMQ%a,side", properties=b"TAGS\x01blue")
    store.dispatch()
    [own] = store.run.entries(TOPIC, 0, 0, 1)
    assert own[2] == tags_code(b"blue")
    assert store.run.entries("%LMQ%a", 0, 0, 1) == store.run.entries("side", 0, 0, 1) == [own]


def test_more_names_than_a_batch_has_records_are_all_served(tmp_path):
    names = [b"n%d" % number for number in range(3000)]
    store = Store(tmp_path / "store", queues=4096, segment_size=1 << 20)
    for _ in range(2):
        assert store.put(b",".join(names))[0] == PUT_OK
    store.dispatch(open_files_max=64)
    assert len(store.run.queue_ranges()) == 3001
    assert all(queue == (0, 2) for queue in store.run.queue_ranges().values())


def test_with_the_setting_off_nothing_is_added(store):
    store.put(b"%LMQ%a,side")
    off = started_with(store, multi_dispatch=False)
    assert set(off.run.queue_ranges()) == {(TOPIC, 0)}


@pytest.mark.parametrize("between", [{"multi_dispatch": False}, {"light": False}])
def test_light_queues_survive_a_kill_and_a_start_with_the_setting_off(store, between):     # M6
    for _ in range(5):
        store.put(b"%LMQ%a", queue=3)
    store.dispatch()
    for _ in range(2):
        store.put(b"%LMQ%a", queue=3)                  # stored, not dispatched when it is killed
    before = [record["physicalOffset"] for record in store.run.records(store.end)]

    off = started_with(store, **between)
    assert off.queue("%LMQ%a") == off.queue(TOPIC, 3) == before
    assert off.put(queue=3, properties=b"") == (PUT_OK, 7)
    on = started_with(off)
    assert on.queue("%LMQ%a") == before
    assert on.put(b"%LMQ%a") == (PUT_OK, 0)
    on.dispatch()
    assert len(on.queue("%LMQ%a")) == 8


# -- forged offsets --------------------------------------------------------------------------------


@pytest.mark.parametrize("bodies", [(b"one",), (b"one", b"two")])
def test_a_peers_offsets_are_dropped_while_the_setting_is_off(tmp_path, bodies):           # M1
    store = Store(tmp_path / "store", multi_dispatch=False)
    kept = b"TAGS\x01a\x02" + LISTED + b"victim"
    for forged in (OFFSETS + b"20\x02" + kept, kept + b"\x02" + OFFSETS + b"0\x02"):
        assert store.put(properties=forged, bodies=bodies)[0] == PUT_OK
    assert {record["properties"] for record in store.run.records(store.end)} == {kept}


def forge(store):
    """As an earlier version stored what a client sent while multi-dispatch was off."""
    for path in store.run.log_folder.iterdir():
        raw = path.read_bytes()
        assert b"\x02OUTER_MULTI_" in raw
        path.write_bytes(raw.replace(b"\x02OUTER_MULTI_", b"\x02INNER_MULTI_"))
    for path in (store.run.root / "checksums").iterdir():
        path.unlink()


@pytest.mark.parametrize(("name", "offset"), [
    (b"victim", b"21"), (b"victim", b"4000000"), (b"%LMQ%victim", b"1"), (b"victim", b"9" * 30),
    (b"SCHEDULE_TOPIC_XXXX", b"0"), (b"%RETRY%group", b"0"), (b"..", b"0")])
def test_offsets_that_no_writer_gave_are_passed_over(tmp_path, name, offset):              # M5
    store = Store(tmp_path / "store", multi_dispatch=False)
    for _ in range(20):
        store.put(topic="victim")
    store.put(properties=b"A\x01b\x02" + LISTED + name
              + b"\x02OUTER_MULTI_QUEUE_OFFSET\x01" + offset)
    for _ in range(20):
        store.put(topic="victim")
    store.dispatch()
    forge(store)

    on = started_with(store)
    assert on.forged[0] == 1
    assert on.run.queue_ranges() == {("victim", 0): (0, 40), (TOPIC, 0): (0, 1)}
    assert len(set(on.queue("victim"))) == 40
    assert on.put(topic="victim") == (PUT_OK, 40)


def test_with_an_extension_the_named_queues_keep_the_tag_code(store):
    store.put(b"%LMQ%a", properties=b"TAGS\x01blue")
    store.dispatch(extension_folder=bytes(store.run.extension_folder), extension_file_bytes=2048)
    assert store.run.entries(TOPIC, 0, 0, 1)[0][2] == -(1 << 63)
    assert store.run.entries("%LMQ%a", 0, 0, 1)[0][2] == tags_code(b"blue")
    assert queue_findings(store) == []


def test_named_queues_that_are_gone_are_built_again_with_their_numbers(store):
    for _ in range(5):
        store.put(b"%LMQ%a,side")
    store.dispatch()
    before = store.run.queue_ranges()
    for path in sorted(store.run.queue_folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    again = Store(store.run.root)
    again.put(b"%LMQ%a,side")
    assert again.properties().endswith(OFFSETS + b"5,5")
    again.dispatch()
    assert again.run.queue_ranges() == {queue: (0, most + 1) for queue, (_, most) in before.items()}


def test_dispatching_again_changes_nothing(store):
    for _ in range(5):
        store.put(b"%LMQ%a,%LMQ%b")
    store.dispatch()
    before = {path: path.read_bytes() for path in store.run.queue_folder.glob("*/*/*")}
    store.run.segment.set_dispatched(0, 0)
    store.dispatch()
    assert {path: path.read_bytes() for path in store.run.queue_folder.glob("*/*/*")} == before


# -- a stock store ---------------------------------------------------------------------------------


def golden_store(tmp_path):
    manifest = golden.manifest("lmq")
    settings = manifest["settings"]
    return manifest, Store(
        golden.unpack("lmq", tmp_path), segment_size=settings["mappedFileSizeCommitLog"],
        file_entries=settings["mappedFileSizeConsumeQueue"] // ENTRY.size,
        index_slots=settings["maxHashSlotNum"], index_entries=settings["maxIndexNum"])


def without_offsets(properties):
    return b"\x02".join(item for item in properties.split(b"\x02") if not item.startswith(OFFSETS))


def test_the_same_messages_give_the_same_records_and_queues_as_in_a_stock_store(tmp_path):
    manifest, stock = golden_store(tmp_path / "stock")
    settings = manifest["settings"]
    records = list(stock.run.records(stock.end))
    ours = Store(tmp_path / "ours", segment_size=settings["mappedFileSizeCommitLog"],
                 file_entries=settings["mappedFileSizeConsumeQueue"] // ENTRY.size)
    for record in records:
        waits = b"\x02WAIT\x01true" if LISTED in record["properties"] else b""
        assert ours.put(topic=record["topic"], queue=record["queueId"], bodies=[record["body"]],
                        properties=without_offsets(record["properties"]) + waits)[0] == PUT_OK
    ours.dispatch()

    kept = ("size", "queueId", "queueOffset", "physicalOffset", "body", "topic", "properties")
    assert [[record[key] for key in kept] for record in ours.run.records(ours.end)] == [
        [record[key] for key in kept] for record in records]
    for path in sorted(stock.run.queue_folder.glob("*/*/*")):
        mine = ours.run.queue_folder / path.relative_to(stock.run.queue_folder)
        assert mine.read_bytes() == path.read_bytes(), path


def test_a_stock_store_is_continued(tmp_path):
    manifest, store = golden_store(tmp_path)
    before = {(queue["topic"], queue["queueId"]): queue["max"]
              for queue in manifest["consumeQueues"]}
    store.put(b"%LMQ%alice,plain_side,%LMQ%new", queue=1)
    assert store.properties().endswith(
        OFFSETS + b"%d,%d,0" % (before["%LMQ%alice", 0], before["plain_side", 1]))
    store.dispatch()

    assert store.queue("%LMQ%alice")[-1] == store.queue("%LMQ%new")[-1]
    assert queue_findings(store) == []


def test_properties_of_a_stock_store_are_what_its_manifest_says(tmp_path):
    manifest, store = golden_store(tmp_path)
    for record, message in zip(store.run.records(store.end), manifest["messages"], strict=True):
        assert decode_properties(record["properties"]) == message["properties"]
