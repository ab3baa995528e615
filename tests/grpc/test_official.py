"""RocketMQ's own clients of the 5.x protocol, unmodified, with a broker of ours."""
from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.grpc.world import GrpcBroker, grpc_broker
from tests.interop.toolchain import JVM_OPTIONS, SOURCES, require_client
from tests.support.ci import unavailable
from tests.support.stock import StockError, require_stock, stock_classpath

JAVA_CLIENT = ("org.apache.rocketmq:rocketmq-client-java:5.2.0",)
TIMEOUT_S = 300


def run_java(
    folder: Path, broker: GrpcBroker, transport: str, *keys: str,
) -> dict[str, object]:
    """keys: an access key and its secret key, or nothing."""
    require_stock()
    try:
        classpath = stock_classpath(JAVA_CLIENT)
    except StockError as error:
        unavailable(str(error))
    run = subprocess.run(
        ["java", *JVM_OPTIONS, f"-Duser.home={folder}", "-cp", classpath,
         str(SOURCES / "java_grpc" / "Official.java"), broker.address, transport, *keys],
        cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    lines = [line for line in run.stdout.splitlines() if line.startswith("{")]
    assert lines, (run.stdout + run.stderr)[-3000:]
    said: dict[str, object] = json.loads(lines[-1])
    return said


def check_java(said: dict[str, object]) -> None:
    late_ms = said.pop("late_ms")
    assert isinstance(late_ms, int)
    assert late_ms >= 0
    assert said == {
        "push": {"normal": 1, "again": 2, "in order": 1, "later": 1, "committed": 1,
                 "asked, committed": 1},
        "simple": [1, "normal", "tag", "key", "value"],
    }


def test_the_java_client(live: GrpcBroker, tmp_path: Path) -> None:
    check_java(run_java(tmp_path, live, "plain"))


def test_the_java_client_by_tls(tmp_path: Path) -> None:
    """The client's default; it takes any certificate."""
    with grpc_broker(tmp_path, {"tls.mode": "permissive", "tls.test_mode": True}) as broker:
        check_java(run_java(tmp_path, broker, "tls"))


def run_python(folder: Path, broker: GrpcBroker, *keys: str) -> dict[str, Any]:
    (python,) = require_client("grpc")
    run = subprocess.run(
        [python, str(SOURCES / "python_grpc" / "official.py"), broker.address, *keys], cwd=folder,
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env={"HOME": str(folder)})
    lines = [line for line in run.stdout.splitlines() if line.startswith("{")]
    assert lines, (run.stdout + run.stderr)[-3000:]
    said: dict[str, Any] = json.loads(lines[-1])
    return said


def check_python(said: dict[str, Any]) -> None:
    assert said["push"] == [["again", 1], ["again", 2], ["first", 1], ["second", 1]]
    assert [said["simple"][one] for one in said["ids"]] == [
        [body, tag, ["key"], {"name": "value"}]
        for body, tag in (("first", "a"), ("other tag", "b"), ("second", "a"), ("again", "a"))]


def test_the_python_client(live: GrpcBroker, tmp_path: Path) -> None:
    check_python(run_python(tmp_path, live))
