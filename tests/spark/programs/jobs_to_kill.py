"""
A driver: archives and other jobs that stand still, for a kill of all of them.

Where they stand still is in their names: `before` or `after` what says that a part of them is done
(a step's file, a table's commit, a table of offsets); `middle`: nowhere, they send slowly. Each
begins when the one before stands still; that of dead letters, which is a command, is slower than
all others, and goes before those that are slow.

Its argument is JSON: namesrv, target (the other cluster's), archived (a topic), archives (folders
of tables, whose names begin with formats), table, replays (name: topic), tables, migrations (name:
[state, topic]), letters ([group, topic, ledger]).
"""
from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mqcore.client.admin import Admin
from mqcore.spark.jobs import replay as replays
from mqcore.spark.jobs.archive import archive
from mqcore.spark.jobs.dlq import command as dlq
from mqcore.spark.jobs.frame import session
from mqcore.spark.jobs.lake_maintain import lake_maintain
from mqcore.spark.jobs.migrate import Migration
from mqcore.spark.jobs.migrate.table import MigrationTable
from mqcore.spark.jobs.replay import PLAN, Choice, replay
from tests.spark.jvm import jvm_options
from tests.spark.programs.session import FEW_ROWS
from tests.support.waiting import wait_until

_put_once, _save = replays.put_once, MigrationTable.save


def stand_still(sign: Path) -> None:
    sign.touch()
    threading.Event().wait()


def put_once(path: Path, content: bytes) -> bool:
    """Of a replay's folder, which has its name."""
    ends, name = path.name != PLAN, path.parent.name
    if ends and name == "before":
        stand_still(path.parent / "held")
    put = _put_once(path, content)
    if ends and name == "after":
        stand_still(path.parent / "held")
    return put


def save(self: MigrationTable, folder: Path) -> None:
    """Of a migration's state."""
    if folder.name == "before":
        stand_still(folder.with_suffix(".held"))
    _save(self, folder)


Job = Callable[[], object]
Sign = Callable[[], bool]


def jobs(spark: Any, said: dict[str, Any]) -> list[tuple[Job, Sign | None]]:
    """Each, and the sign that it stands still; those that are slow have none, and are the last."""
    source, target = {"nameServer": said["namesrv"]}, {"nameServer": said["target"]}
    found: list[tuple[Job, Path]] = []
    for path in map(Path, said["archives"]):
        found.append((lambda path=path: archive(
            spark, path, {**source, "subscribe": said["archived"]},
            sink={"tableFormat": path.name.partition("-")[0]}), path / "held"))
    for path in map(Path, said["tables"]):
        found.append((lambda path=path: lake_maintain(spark, path), path / "held"))
    for name, topic in said["replays"].items():
        found.append((
            lambda name=name, topic=topic: replay(
                spark, said["table"], topic, source, Choice(), name=name, step_rows=150,
                rate=5 if name == "middle" else None),
            Path(said["table"], replays.FOLDER, name, "held")))
    for name, (state, topic) in said["migrations"].items():
        slow = {"rowsPerSecond": "2", "sendBatchRows": "2"} if name == "middle" else {}
        moving = Migration(source, target, Path(state), topics=topic, sink=slow)
        found.append((lambda moving=moving: moving.copy(spark), Path(state).with_suffix(".held")))
    held = [(job, sign.exists) for job, sign in found if "middle" not in str(sign)]
    return [*held, letters(said), *((job, None) for job, sign in found if "middle" in str(sign))]


def letters(said: dict[str, Any]) -> tuple[Job, Sign]:
    """Dead letters that a command sends again: the first at once, the next after half a minute."""
    group, topic, ledger = said["letters"]
    admin = Admin(namesrv=said["namesrv"])
    admin.start()
    before = admin.topic_stats(topic).message_count
    return (lambda: dlq.main([group, "-n", said["namesrv"], "--redrive", "--ledger", ledger,
                              "--rate", "1", "--list", "0", "--master", "local[1]"]),
            lambda: admin.topic_stats(topic).message_count > before)


def run(job: Callable[[], object]) -> None:
    """A job that ends, and was not to, ends the driver."""
    try:
        job()
    finally:
        traceback.print_exc()
        os._exit(1)


def main() -> None:
    replays.put_once = put_once
    MigrationTable.save = save                                           # type: ignore[method-assign]
    spark = session("jobs", "local[7]", {           # a command's
        **FEW_ROWS, "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": jvm_options(),
        "spark.default.parallelism": "2"})  # room for those that stand still; no more tasks for it
    for number, (job, begun) in enumerate(jobs(spark, json.loads(sys.argv[1]))):
        threading.Thread(target=run, args=(job,)).start()
        if begun is not None:
            wait_until(begun, f"job {number} stands still", 240)


if __name__ == "__main__":
    main()
