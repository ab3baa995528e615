"""
A driver: archives a topic to several tables, each as soon as the commit of the one before is held
(programs/held): of queries that begin at one moment, Spark may fail one while it packs tasks.

Its arguments: name server, topic, folder of the tables, and their names, which begin with formats.
"""
from __future__ import annotations

import sys
import threading
from pathlib import Path

from mqcore.spark.jobs.archive import archive
from tests.spark.programs.session import local_session
from tests.support.waiting import wait_until


def main() -> None:
    namesrv, topic, folder, *names = sys.argv[1:]
    spark = local_session("archive", 2)
    threads = [threading.Thread(target=archive, args=(
        spark, Path(folder, name), {"nameServer": namesrv, "subscribe": topic}),
        kwargs={"sink": {"tableFormat": name.partition("-")[0]}}) for name in names]
    for name, thread in zip(names, threads, strict=True):
        thread.start()
        wait_until(lambda sign=Path(folder, name, "held"), thread=thread:
                   sign.exists() or not thread.is_alive(), "its commit is held", 240)
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
