"""The processes of a running broker, by their titles."""
from __future__ import annotations

import os
import signal
from pathlib import Path

from mqcore.participants import SLOT_COUNT
from mqcore.shm.segment import Segment
from tests.support.mqcore_process import MqcoreProcess
from tests.support.waiting import wait_until

ROLES = ("writer", "dispatcher", "scheduler", "transaction-check", "coordinator", "namesrv",
         "pull-serving-0")


def title(pid: int) -> str:
    """The title of a process, "" when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0 ").decode(errors="replace")
    except OSError:
        return ""


def by_role(broker: MqcoreProcess) -> dict[str, int]:
    """Process id by role, the supervisor among them."""
    found = {title(pid).removeprefix("mqcore: "): pid for pid in broker.family()[1:]}
    return {**found, title(broker.pid).removeprefix("mqcore: "): broker.pid}


def pid_of(broker: MqcoreProcess, role: str) -> int:
    """The process id of a role that is to run; one that was just started has no title at first."""
    found: dict[str, int] = {}

    def has_title() -> bool:
        found.update(by_role(broker))
        return role in found

    wait_until(has_title, f"a process with the title {role}")
    return found[role]


def kill(broker: MqcoreProcess, role: str) -> int:
    """Kill a process of the broker with -9, and wait until its parent has heard; its process id."""
    pid = pid_of(broker, role)
    os.kill(pid, signal.SIGKILL)
    if pid != broker.pid:
        wait_until(lambda: parent_of(pid) != broker.pid, f"the end of the {role}")
    return pid


def parent_of(pid: int) -> int:
    """Of a process, one that nobody has waited for too; 0: it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def slot_of(segment: Segment, pid: int) -> int:
    """
    The number of the worker slot of a running process (mqcore/participants.py). LookupError: it has
    gone.
    """
    for number in range(SLOT_COUNT):
        if segment.slot(number)["pid"] == pid:
            return number
    raise LookupError(f"no worker slot has the pid {pid}")
