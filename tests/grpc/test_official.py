"""RocketMQ's own clients of the 5.x protocol, unmodified, with a broker of ours."""
from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from mqcore.client import Admin
from tests.grpc.world import GrpcBroker, grpc_broker
from tests.interop.toolchain import JVM_OPTIONS, SOURCES, require_client
from tests.support.ci import unavailable
from tests.support.stock import StockError, die_with_parent, require_stock, stock_classpath

JAVA_CLIENT = ("org.apache.rocketmq:rocketmq-client-java:5.2.0",)
TIMEOUT_S = 300


def java_command(folder: Path, broker: GrpcBroker, transport: str, *keys: str) -> list[str]:
    require_stock()
    try:
        classpath = stock_classpath(JAVA_CLIENT)
    except StockError as error:
        unavailable(str(error))
    return ["java", *JVM_OPTIONS, f"-Duser.home={folder}", "-cp", classpath,
            str(SOURCES / "java_grpc" / "Official.java"), broker.address, transport, *keys]


def run_java(
    folder: Path, broker: GrpcBroker, transport: str, *keys: str,
) -> dict[str, object]:
    """keys: an access key and its secret key, or nothing."""
    run = subprocess.run(
        java_command(folder, broker, transport, *keys), cwd=folder, capture_output=True, text=True,
        timeout=TIMEOUT_S, check=False, stdin=subprocess.DEVNULL)
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
    """It ends with its input; before that, tools ask its push consumer."""
    with (subprocess.Popen(java_command(tmp_path, live, "plain"), cwd=tmp_path, text=True,
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                           preexec_fn=die_with_parent) as client,
          Admin(live.process.namesrv_addr) as admin):
        assert client.stdout is not None
        try:
            check_java(json.loads(next(line for line in client.stdout if line.startswith("{"))))
            check_questions(admin)
        finally:
            client.kill()


def check_questions(admin: Admin) -> None:
    """Stacks (307) and a message that is consumed outside its queue (309)."""
    (member,) = admin.members("JavaPush").members
    assert "RocketmqMessageConsumption" in (admin.running_info(
        "JavaPush", member.client_id, stack=True).stack or "")
    info = admin.running_info("JavaPush", member.client_id)
    assert (info.stack, [one.topic for one in info.subscriptions]) == (None, ["JavaTopic"])
    found = admin.query("JavaTopic", "key")[0]
    result = admin.consume_directly("JavaPush", member.client_id, found.offset_message_id)
    assert result.result == "CR_SUCCESS"


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
