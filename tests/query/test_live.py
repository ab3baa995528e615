"""Queries over real files: of a store that a stock broker wrote, and of a running broker."""
from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

from mqcore.store.index.query import IndexReader, KeyMatches
from mqcore.store.reader import StoreReader
from mqcore.wire.codes import RequestCode
from mqcore.wire.records import decode_records
from tests.broker.fakes import make_bench, settings_in
from tests.retention.client import Client
from tests.store.golden import manifest, unpack
from tests.store.harness import Run
from tests.support.mqcore_process import mqcore_up
from tests.support.waiting import wait_until

EVER = str((1 << 63) - 1)


class StockStore:
    """The rules' store over the files of a golden store, as the coordinator puts it together."""

    def __init__(self, name: str, folder: Path) -> None:
        self.manifest = manifest(name)
        sizes = self.manifest["settings"]
        self.run = Run(unpack(name, folder), segment_size=int(sizes["mappedFileSizeCommitLog"]),
                       file_entries=int(sizes["mappedFileSizeConsumeQueue"]) // 20)
        loop = self.run.writer("async", self.run.recover(clean=True).end)
        loop.run(1000)
        self.keys = IndexReader(str(self.run.index_folder), int(sizes["maxHashSlotNum"]),
                                int(sizes["maxIndexNum"]))
        self.reader = StoreReader(
            self.run.segment, os.fsencode(self.run.log_folder), os.fsencode(self.run.queue_folder),
            file_entries=self.run.file_entries, memory_bytes=1 << 30)

    def find_key(self, *query: Any) -> Generator[None, None, KeyMatches]:
        yield
        return self.keys.find(*query)

    def record(self, position: int) -> bytes | None:
        found: bytes | None = self.reader.record(position)
        return found


def test_every_look_up_in_a_stock_store_finds_the_messages_that_it_found_there(
    tmp_path: Path,
) -> None:
    store = StockStore("basic", tmp_path)
    bench = make_bench(settings_in(tmp_path / "rules", "store.query_count_max=1024"))
    bench.broker.core.ports.store = store          # type: ignore[assignment]

    for query in store.manifest["indexQueries"]:
        answer = bench.ask(12, {"topic": query["topic"], "key": query["key"], "maxNum": 1024,
                                "beginTimestamp": 0, "endTimestamp": EVER})
        found = [record.physical_offset for record in decode_records(answer.body)]
        assert found == query["offsets"], query
        assert answer.code == (0 if found else 22)


def test_the_runtime_figures_say_where_the_log_begins_and_how_full_its_disk_is(
    tmp_path: Path,
) -> None:
    with mqcore_up(tmp_path) as broker:
        client = Client(broker.broker_addr)
        client.send("T", b"x" * 100)

        def table() -> dict[str, str]:
            found: dict[str, str] = json.loads(
                client.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
            return found

        wait_until(lambda: int(table()["commitLogMaxOffset"]) > 100, "the message is published")
        found = table()
        assert found["commitLogMinOffset"] == "0"
        assert 0 < float(found["commitLogDiskRatio"]) <= 1
        assert found["consumeQueueDiskRatio"] == found["commitLogDiskRatio"]
        assert found[f"commitLogDiskRatio_{broker.store}/commitlog"] == found["commitLogDiskRatio"]
        assert 0 < int(found["earliestMessageTimeStamp"]) < 1 << 42
        client.close()
