"""Extension files, and light queues, follow the beginning of a running broker's log."""
from pathlib import Path

from mqcore.store.queue.extension_files import read_unit
from mqcore.wire.codes import RequestCode
from tests.queues.test_light_live import bodies, pull
from tests.queues.test_light_live import send as send_listed
from tests.retention.client import Client
from tests.retention.test_live import NEVER, SMALL, first_segment, numbered
from tests.store.harness import read_entries
from tests.support.mqcore_process import mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer, topic_fields

FILE_BYTES = 1024
UNITS_A_FILE = (FILE_BYTES - 4) // 20
COUNT = 1000
LIGHT = "%LMQ%l"


def extension_starts(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.iterdir())


def test_files_of_units_whose_entries_are_gone_are_deleted(tmp_path: Path) -> None:
    with mqcore_up(tmp_path, {
        **SMALL, **NEVER, "store.reserved_hours": 0, "store.queue_extension_enable": True,
        "store.queue_extension_file_bytes": FILE_BYTES,
    }) as broker:
        client = Client(broker.broker_addr)
        client.send_many("T", numbered(0, COUNT))
        wait_until(lambda: client.offset(RequestCode.GET_MAX_OFFSET, "T") == COUNT, "dispatched")
        folder = broker.store / "consumequeue_ext" / "T" / "0"
        assert len(extension_starts(folder)) == -(-COUNT // UNITS_A_FILE)
        assert client.ask(RequestCode.DELETE_EXPIRED_COMMITLOG).code == 0
        wait_until(lambda: first_segment(broker) > 2 * 2**20, "expired segments are deleted")

        def are_gone() -> bool:
            first = client.offset(RequestCode.GET_MIN_OFFSET, "T")
            kept = first // UNITS_A_FILE * FILE_BYTES
            return first > UNITS_A_FILE and extension_starts(folder)[0] == kept

        wait_until(are_gone, "units before the queue's first entry are gone with their files")
        first = client.offset(RequestCode.GET_MIN_OFFSET, "T")
        for entry in read_entries(broker.store / "consumequeue" / "T" / "0", first, COUNT, 300):
            assert read_unit(folder.parents[1], FILE_BYTES, "T", 0, entry[2]) is not None
        client.close()


def test_light_queues_begin_where_the_log_does(tmp_path: Path) -> None:
    with mqcore_up(tmp_path, {
        **SMALL, **NEVER, "store.reserved_hours": 0, "store.multi_dispatch_enable": True,
        "store.light_queues_enable": True,
    }) as broker, Peer(broker.broker_addr) as peer:
        assert peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields("parent", 4)).code == 0
        for body in numbered(0, COUNT):
            assert send_listed(peer, LIGHT, body).code == 0
        client = Client(broker.broker_addr)
        wait_until(lambda: client.offset(RequestCode.GET_MAX_OFFSET, LIGHT) == COUNT, "dispatched")
        assert client.ask(RequestCode.DELETE_EXPIRED_COMMITLOG).code == 0

        def begins() -> list[int]:
            return [client.offset(RequestCode.GET_MIN_OFFSET, name) for name in (LIGHT, "parent")]

        wait_until(lambda: min(begins()) > COUNT // 2 and len(set(begins())) == 1,
                   "both queues begin at the same message")
        first = begins()[0]
        found = bodies(pull(peer, LIGHT, first))
        assert found[0].split()[0] == b"%d" % first
        assert len(list((broker.store / "consumequeue" / LIGHT / "0").iterdir())) < 4
        client.close()
