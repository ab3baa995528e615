"""What a broker can be in its set."""
from __future__ import annotations

from enum import StrEnum

OWN_OFFSETS_FILE = "ownOffsets.json"     # in config/: what consumers committed to a slave


class Role(StrEnum):
    """What a broker is in its set of brokers of one name (stock's brokerRole, ha.md 1)."""

    ASYNC_MASTER = "async-master"
    SYNC_MASTER = "sync-master"
    SLAVE = "slave"
