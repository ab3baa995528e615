"""Administration as a type checker shows it to a user: both faces, parameters and results."""
from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mqcore
from tests.client.test_types import CACHE

ROOT = Path(mqcore.__file__).parent.parent
PROGRAM = """
from datetime import datetime, timezone

from mqcore.client import Admin, AsyncAdmin, MessageQueue
from mqcore.client.admin import DeadLetter, Found, GroupLag


def blocking() -> int:
    with Admin("h:9876", timeout=3.0, credentials=("key", "secret")) as admin:
        made: tuple[str, ...] = admin.create_topic("orders", queues=8, broker="b")
        lag: GroupLag = admin.lag("billing")
        admin.reset_offsets("billing", "orders", to="1h ago", dry_run=True)
        admin.reset_offsets("billing", "orders", to=datetime.now(timezone.utc))
        letters: Found[DeadLetter] = admin.dead_letters("billing", count=3)
        bodies: list[bytes] = [letter.message.body for letter in letters]
        admin.lag(5)  # wrong
        admin.create_topic("orders", queue=3)  # wrong
        admin.missing()  # wrong
        text: str = admin.max_offset(MessageQueue("t", "b", 0))  # wrong
        return lag.total + len(made) + len(bodies)


async def asynchronous() -> None:
    async with AsyncAdmin(namesrv="h:9876") as admin:
        offset: int = await admin.max_offset(MessageQueue("t", "b", 0))
        await admin.lag(5)  # wrong
    AsyncAdmin(namesrf="h")  # wrong
"""


@pytest.mark.slow
def test_a_type_checker_sees_both_faces(tmp_path):
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = True\n")
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--cache-dir",
         CACHE / "administration", program.name], cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT)}, capture_output=True, text=True, timeout=110,
        check=False)

    found = {int(line) for line in re.findall(r"^program\.py:(\d+): error", run.stdout, re.M)}
    wrong = {number for number, line in enumerate(PROGRAM.splitlines(), 1)
             if line.endswith("# wrong")}
    assert found == wrong, run.stdout + run.stderr
    assert "mqcore/client/admin/" not in run.stdout, run.stdout
