"""What transaction-check says in the log."""
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mqcore.broker.settings import load as broker_settings
from mqcore.workers.scheduling.transaction_check import TransactionChecker


def test_what_peers_cause_is_said_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    segment: Any = None
    checker = TransactionChecker(broker_settings.load(None, {}, []), segment)
    for strange in range(1, 100):
        checker._check = SimpleNamespace(refused=True, strange=strange)
        checker._report()
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "the store takes no writes", "1 records of transactions are passed over"]
