"""
Tests that seldom find anything for what they cost. CI runs them, `make test` does not.

A file or folder below `tests`, and the seconds of a processor that its tests take together (without
those that are marked slow). Their subjects have quicker tests: those of interop in wire_live and in
client and command, those of the others beside them.
"""
from __future__ import annotations

from pathlib import PurePath
from typing import Final

RARE: Final = {
    "interop": 34.0,
    "acl/test_beside_stock.py": 2.9,
    "attacks/test_crowds.py": 2.5,
    "attacks/test_clock_and_age.py": 17.0,
    "attacks/test_clock_steps.py": 2.4,
    "attacks/test_failed_write.py": 3.3,
    "attacks/test_names_as_paths.py": 5.7,
    "admin/test_demo.py": 4.7,
    "client/test_guide.py": 9.6,
    "client/test_with_stock.py": 1.4,
    "command/test_accounts.py": 4.8,
    "failover/test_worlds.py": 4.7,
    "namesrv/test_turns.py": 4.7,
    "recovery/test_verify_agrees.py": 3.8,
    "replication/test_elected.py": 3.1,
    "replication/test_elected_rejoin.py": 3.4,
    "replication/test_stopped_start.py": 9.5,
    "retention/test_live.py": 3.1,
    "testing/test_broker.py": 6.7,
    "tls/test_shake_thread.py": 3.3,
    "verify/test_own_stores.py": 6.0,
    "workers/test_activation.py": 4.6,
    "workers/test_service_manager.py": 4.0,
}
# -- ... but for the files that a change of the project breaks first
KEPT: Final = frozenset({"interop/test_send_and_consume.py"})
# -- a word of a test's parameters, below a folder: the same tests run on SQLite, and on mqcore
RARE_CASES: Final = {("patterns", "postgresql"): 15.6, ("client", "stock"): 12.3}


def is_rare(path: PurePath, case: str = "") -> bool:
    """
    Whether a test is left to CI and `make test ALL=1`.

    :param path: its file, below `tests`
    :param case: the id of its parameters, as `mqcore-java`
    """
    name, words = path.as_posix(), case.split("-")
    return name not in KEPT and (
        any(name == one or name.startswith(f"{one}/") for one in RARE)
        or any(path.parts[0] == folder and word in words for folder, word in RARE_CASES))
