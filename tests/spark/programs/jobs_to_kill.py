"""
A driver: archives and other jobs that stand still, for a kill of all of them.

Where they stand still is in their names: `before` or `after` what says that a part of them is done
(a step's file, a table's commit, a table of offsets); `middle`: nowhere, they send slowly. Each
begins when the one before stands still.

Its argument is JSON: namesrv, target (the other cluster's), archived (a topic), archives (folders
of tables, whose names begin with formats), table, replays (name: topic), tables, migrations (name:
[state, topic]).
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

from mqcore.spark.jobs import replay as replays
from mqcore.spark.jobs.archive import archive
from mqcore.spark.jobs.lake_maintain import lake_maintain
from mqcore.spark.jobs.migrate import Migration
from mqcore.spark.jobs.migrate.table import MigrationTable
from mqcore.spark.jobs.replay import PLAN, Choice, replay
from tests.spark.programs.session import local_session
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


def jobs(spark: Any, said: dict[str, Any]) -> list[tuple[Callable[[], object], Path]]:
    """Each, and the sign that it stands still; those that never do are the last."""
    source, target = {"nameServer": said["namesrv"]}, {"nameServer": said["target"]}
    found: list[tuple[Callable[[], object], Path]] = []
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
                rate=20 if name == "middle" else None),
            Path(said["table"], replays.FOLDER, name, "held")))
    for name, (state, topic) in said["migrations"].items():
        slow = {"rowsPerSecond": "10", "sendBatchRows": "2"} if name == "middle" else {}
        moving = Migration(source, target, Path(state), topics=topic, sink=slow)
        found.append((lambda moving=moving: moving.copy(spark), Path(state).with_suffix(".held")))
    return sorted(found, key=lambda one: "middle" in str(one[1]))


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
    for job, sign in jobs(local_session("jobs", 6), json.loads(sys.argv[1])):
        threading.Thread(target=run, args=(job,)).start()
        if "middle" not in str(sign):
            wait_until(sign.exists, f"{sign} is there", 240)


if __name__ == "__main__":
    main()
