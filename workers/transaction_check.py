"""
The transaction-check process: asks producers about transactions that they have left undecided.

Reads     half and op queue and their records; consumerOffset.json, for where it left off
Owns      how far both queues are settled (shared memory); their offsets in consumerOffset.json are
          the coordinator's copy
Wakes     writer (copies on `appends`), coordinator (checks to be sent, on `checks`)
Restarts  from shared memory, a new run from the committed offsets: what is settled and not yet told
          is found again in the op queue, what was put back meanwhile may be asked about twice
"""
from __future__ import annotations

from mqcore.workers.process import loop
from mqcore.workers.process.inherited import Inherited
from mqcore.workers.scheduling.transaction_check import TransactionChecker


def wanted(inherited: Inherited) -> bool:
    """A slave's master asks."""
    return not inherited.settings.is_slave


def live(inherited: Inherited, _index: int) -> None:
    """The process, from fork to end."""
    segment = inherited.segment
    loop.run(lambda settings: TransactionChecker(settings, segment), inherited.settings, segment)
