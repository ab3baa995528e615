"""Executors on a cluster, that get mqcore as an archive, and are killed."""
from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

import pyarrow.parquet as pq

from mqcore.client import Reader
from tests.spark.jvm import jvm_options
from tests.spark.standalone import standalone
from tests.spark.world import World
from tests.support.ci import unavailable
from tests.support.mqcore_process import MqcoreProcess
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests/spark/programs"
FORKING = f"{PROGRAMS}:{PROGRAMS / 'alone'}"        # the driver, and what forks Python's parents
COUNT = 12_000
EACH = 6_000                          # of a micro-batch
LIMIT_S = 280


def archive(folder: Path) -> Path:
    """What `pip install --no-deps --target` makes of mqcore, as an archive; `lib` stays."""
    lib, made = folder / "lib", folder / "mqcore.tar.gz"
    shutil.copytree(ROOT / "mqcore", lib / "mqcore", ignore=shutil.ignore_patterns(
        "*.pyx", "*.pxd", "*.c", "*.h"))
    shutil.copytree(ROOT / "config", lib / "mqcore/config")
    shutil.copytree(ROOT / "workers", lib / "mqcore/processes")
    shutil.copytree(lib / "mqcore/spark/discovered", lib, dirs_exist_ok=True)
    with tarfile.open(made, "w:gz", compresslevel=1) as file:
        for one in lib.iterdir():
            file.add(one, one.name)
    return made


def bare_python(folder: Path) -> Path:
    """An interpreter that knows nothing of the project: others' packages are on its path only."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder / "bin/python"


@pytest.fixture
def world(broker: MqcoreProcess) -> Iterator[World]:
    """The broker without this process's session: the driver is another one."""
    if importlib.util.find_spec("pyspark") is None or shutil.which("java") is None:
        unavailable("needs pyspark (pip install 'mqcore[spark]') and Java 17")
    with World(None, broker.namesrv_addr) as made:
        yield made


@pytest.mark.drivers
def test_an_executor_that_is_killed_in_batches_costs_nothing(world: World, tmp_path: Path) -> None:
    source, target = world.topic(4), world.topic(4)
    world.send(source, COUNT)
    python, others = bare_python(tmp_path / "bare"), sysconfig.get_path("purelib")
    packed = archive(tmp_path)
    table, begun, dead = tmp_path / "table", tmp_path / "begun", tmp_path / "killed"
    asked = {"master": "", "jvm": jvm_options(), "namesrv": world.namesrv, "source": source,
             "target": target, "checkpoints": str(tmp_path / "checkpoints"),
             "archive": str(packed), "path": f"{others}:{FORKING}", "each": EACH,
             "table": str(table), "begun": str(begun), "killed": str(dead)}
    with standalone(tmp_path / "cluster") as cluster, (tmp_path / "driver.log").open("wb") as log:
        asked["master"] = cluster.master
        driver = subprocess.Popen(
            [python, "-P", "-m", "cluster_driver", json.dumps(asked)], cwd=tmp_path, stderr=log,
            stdout=subprocess.PIPE, env={
                **os.environ, "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1",
                "PYTHONPATH": f"{tmp_path / 'lib'}:{others}:{FORKING}"})
        try:
            wait_until(lambda: begun.exists() and stored(world, target) > EACH // 8,
                       "both first batches have begun", LIMIT_S)
            at = stored(world, target)
            os.kill(cluster.executors()[0], signal.SIGKILL)
            committed = in_table(table)
            dead.touch()
            said, _ = driver.communicate(timeout=LIMIT_S)
        finally:
            driver.kill()
            driver.wait()
    assert driver.returncode == 0, (tmp_path / "driver.log").read_text()
    assert at < COUNT
    assert committed == []
    rows = json.loads(said)
    assert sum(rows["topic"]) == sum(rows["table"]) == COUNT
    assert numbers(world, target) == list(range(COUNT))
    assert in_table(table) == list(range(COUNT))


def stored(world: World, topic: str) -> int:
    """Messages of a topic."""
    return world.admin.topic_stats(topic).message_count


def numbers(world: World, topic: str) -> list[int]:
    with Reader(topic, namesrv=world.namesrv, start="earliest", stop="latest") as reader:
        return sorted(int(message.body.split(b":")[0]) for message in reader)


def in_table(folder: Path) -> list[int]:
    """The numbers of what is committed."""
    from mqcore.spark.lake.opening import open_table

    table = open_table(folder)
    if not table.exists():
        return []
    return sorted(int(body.split(b":")[0]) for file in table.state().files
                  for body in pq.read_table(folder / file.path, columns=["body"], partitioning=None)
                  .column("body").to_pylist())
