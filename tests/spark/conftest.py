"""One Spark session and one broker for all tests of the run."""
from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator

import pytest

from mqcore.client.admin import Admin
from mqcore.spark.jvm import JAR
from tests.spark.jvm import LAUNCHER, PRELOADED, jvm_options
from tests.spark.world import PYTHON, World, python_source
from tests.support.ci import unavailable
from tests.support.mqcore_process import MqcoreProcess, mqcore_up


def pytest_itemcollected(item: pytest.Item) -> None:
    """Whatever in this folder needs the session is of the marker `spark`."""
    if {"spark", "world"} & set(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.spark)
        item.add_marker(pytest.mark.timeout(600))       # two at a time, on a slow machine


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """
    `local[2,3]`: two tasks at a time, three tries of each.

    Its settings are for few rows. The driver and the executors of test_cluster.py have what users
    have.
    """
    if importlib.util.find_spec("pyspark") is None:
        unavailable("needs pyspark: pip install 'mqcore[spark]'")
    if shutil.which("java") is None or not JAR.exists():
        unavailable("needs Java 17, and the jar: python -m mqcore.spark.jvm")
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LAUNCHER_OPTS"] = LAUNCHER
    from mqcore.spark import builder
    from tests.spark.programs.session import FEW_ROWS

    folder = tmp_path_factory.mktemp("spark")
    made = (
        builder("tests").master("local[2,3]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "640m")
        .config("spark.driver.extraJavaOptions", jvm_options())
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.log.level", "OFF"))
    for name, value in FEW_ROWS.items():
        made = made.config(name, value)
    with pytest.MonkeyPatch.context() as patch:         # the JVM's, and of what it starts
        patch.setenv("PYTHONPATH", str(PRELOADED), prepend=os.pathsep)
        session = made.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    session.dataSource.register(python_source())
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    with mqcore_up(tmp_path_factory.mktemp("broker")) as started:
        yield started


@pytest.fixture(scope="session")
def world(spark: object, broker: MqcoreProcess) -> Iterator[World]:
    """The session and the broker, and what tests do with both."""
    with World(spark, broker.namesrv_addr) as made:
        yield made


@pytest.fixture(params=["rocketmq", PYTHON])
def source(request: pytest.FixtureRequest, world: World, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a source: the frames of `world` are read by it."""
    monkeypatch.setattr(world, "source", request.param)
    return str(request.param)


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    """An empty cluster, and who administers it."""
    with (mqcore_up(tmp_path_factory.mktemp("target"), {"broker.name": "new-a"}) as started,
          Admin(namesrv=started.namesrv_addr) as admin):
        admin.namesrv = started.namesrv_addr            # type: ignore[attr-defined]
        yield admin
