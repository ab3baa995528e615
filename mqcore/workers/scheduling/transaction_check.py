"""Work of transaction-check: native rounds over half and op queue."""
from __future__ import annotations

import logging
import os
import time

from mqcore.broker.requests.check_sender import GROUP
from mqcore.broker.settings.model import Settings
from mqcore.broker.tables.config_file import ConfigFileError
from mqcore.broker.tables.light_queues import offset_table
from mqcore.participants import TRANSACTION_CHECK
from mqcore.shm.replica_gate import ReplicaPen
from mqcore.shm.segment import Segment
from mqcore.store.transactions.loop import TransactionCheckLoop
from mqcore.wire.codes import HALF_TOPIC, OP_TOPIC
from mqcore.workers.process.layout import StoreFiles
from mqcore.workers.process.output import complain

HOUR_MS = 3_600_000
END_MS = 2_000                   # for copies that are on their way
TAKING_OVER_LOOK_MS = 20              # whether who was elected shows all that it began with
WORD_INTERVAL_S = 60.0           # between two lines that say the same: peers cause them

log = logging.getLogger("mqcore.transaction-check")


def times(settings: Settings) -> dict[str, int]:
    """When a producer is asked, and when no longer."""
    return {
        "timeout_ms": settings.broker.transaction_timeout_ms,
        "check_max": settings.broker.transaction_check_max,
        "reserved_ms": settings.store.reserved_hours * HOUR_MS,
    }


class TransactionChecker:
    name = "transaction-check"
    slot = TRANSACTION_CHECK.slot

    def __init__(self, settings: Settings, segment: Segment) -> None:
        self._settings = settings
        self._segment = segment
        self._begun = False
        self._in_round = False
        self._strange = 0
        self._strange_next_s = self._refused_next_s = 0.0

    def start(self) -> None:
        store = self._settings.store
        files = StoreFiles(self._settings.store_root)
        self._check = TransactionCheckLoop(
            self._segment, self._settings.log_folders.text(), os.fsencode(files.queues),
            file_entries=store.queue_file_entry_count, **times(self._settings))
        self._gate = ReplicaPen(self._segment)
        if not self._gate.taking_over:
            self._begin()

    def _begin(self) -> None:
        """Where each half message that is decided can be told by the op queue (leadership FO10)."""
        self._check.seek(*(self._check.known() or self._committed()))
        self._next_round = time.monotonic() + self._interval_s
        self._begun = True

    @property
    def _interval_s(self) -> float:
        return self._settings.broker.transaction_check_interval_ms / 1000

    def reconfigure(self, settings: Settings) -> None:
        self._settings = settings
        self._check.configure(**times(settings))
        if self._begun:
            self._next_round = min(self._next_round, time.monotonic() + self._interval_s)

    def work(self, turn_ms: int) -> None:
        if not self._begun:
            if self._gate.taking_over:
                self._check.wait(min(turn_ms, TAKING_OVER_LOOK_MS))
                return
            self._begin()
        if not self._in_round:
            left_ms = int(1000 * (self._next_round - time.monotonic())) + 1
            if left_ms > 1:
                self._check.wait(min(turn_ms, left_ms))
                return
            self._check.round_begin()
            self._in_round = True
        if self._check.run(turn_ms):
            self._in_round = False
            self._next_round = time.monotonic() + self._interval_s
            self._report()

    def stop(self) -> None:
        """The writer is still there: what is on its way is waited for."""
        if self._begun:
            self._check.round_end(END_MS)

    def _report(self) -> None:
        if self._check.refused and time.monotonic() >= self._refused_next_s:
            self._refused_next_s = time.monotonic() + WORD_INTERVAL_S
            log.warning("the store takes no writes: undecided transactions are checked later")
        if self._check.strange > self._strange and time.monotonic() >= self._strange_next_s:
            self._strange_next_s = time.monotonic() + WORD_INTERVAL_S
            log.warning("%d records of transactions are passed over: op records that name no half "
                        "message, or half messages longer than store.message_size_max_bytes",
                        self._check.strange - self._strange)
            self._strange = self._check.strange

    def _committed(self) -> tuple[int, int]:
        """Where an earlier run left off; 0: at the beginning of what there is."""
        table = offset_table(self._settings)
        try:
            table.load_only([(HALF_TOPIC, GROUP), (OP_TOPIC, GROUP)])
        except ConfigFileError as error:
            complain(str(error))
            raise SystemExit(1) from error
        return (table.committed(GROUP, HALF_TOPIC, 0) or 0,
                table.committed(GROUP, OP_TOPIC, 0) or 0)
