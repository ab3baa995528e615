"""RocketMQ 5.3.3 itself: name server, broker and proxy in one process (MQCORE_TEST_STOCK)."""
from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.interop.toolchain import SOURCES
from tests.support.ci import unavailable
from tests.support.stock import (
    StockError,
    die_with_parent,
    free_broker_port,
    free_port,
    java_classes,
    registered_brokers,
    stock_classpath,
)
from tests.support.waiting import wait_until

ARTIFACTS = tuple(f"org.apache.rocketmq:rocketmq-{name}:5.3.3" for name in ("proxy", "namesrv"))
START_TIMEOUT_S = 180
STOP_TIMEOUT_S = 60
OPENS = ("java.base/java.nio", "java.base/sun.nio.ch", "java.base/java.lang")


@dataclass
class StockProxy:
    address: str
    namesrv_addr: str


@contextlib.contextmanager
def stock_proxy(folder: Path) -> Iterator[StockProxy]:
    """Topics are known to its proxy up to 20 s after they were made. Ends a test without jars."""
    if os.environ.get("MQCORE_TEST_STOCK") not in ("1", "only"):
        pytest.skip("MQCORE_TEST_STOCK is not set")
    try:
        classpath = stock_classpath(ARTIFACTS)
    except StockError as error:
        unavailable(str(error))
    classes = java_classes(SOURCES / "java_stock5" / "Local.java", classpath)
    folder.mkdir(parents=True, exist_ok=True)
    namesrv, broker, grpc, remoting = free_port(), free_broker_port(), free_port(), free_port()
    store = folder / "store"
    _properties(folder / "namesrv.conf", {
        "listenPort": namesrv, "bindAddress": "127.0.0.1", "rocketmqHome": folder})
    _properties(folder / "broker.conf", {
        "brokerClusterName": "DefaultCluster", "brokerName": "mqcore-a", "brokerId": 0,
        "listenPort": broker, "brokerIP1": "127.0.0.1", "bindAddress": "127.0.0.1",
        "storePathRootDir": store, "storePathCommitLog": store / "commitlog",
        "mappedFileSizeCommitLog": 64 << 20, "enablePropertyFilter": "true",
        "recallMessageEnable": "true", "transactionCheckInterval": 1000,
        "transactionTimeOut": 500})
    (folder / "rmq-proxy.json").write_text(json.dumps({
        "rocketMQClusterName": "DefaultCluster", "grpcServerPort": grpc,
        "remotingListenPort": remoting, "proxyMode": "local", "localServeAddr": "127.0.0.1"}))
    with (folder / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            ["java", "-Xmx1g", "-XX:+UseSerialGC", f"-Duser.home={folder}",
             "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
             "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
             *(f"--add-opens={one}=ALL-UNNAMED" for one in OPENS),
             "-cp", os.pathsep.join((str(classes), classpath)), "Local",
             str(folder / "namesrv.conf"), f"127.0.0.1:{namesrv}",
             str(folder / "rmq-proxy.json"), str(folder / "broker.conf")],
            stdout=output, stderr=subprocess.STDOUT, preexec_fn=die_with_parent, cwd=folder,
            env={**os.environ, "ROCKETMQ_HOME": str(folder)})
    try:
        wait_until(lambda: _is_ready(process, folder, f"127.0.0.1:{namesrv}"), "stock's proxy",
                   START_TIMEOUT_S)
        yield StockProxy(f"127.0.0.1:{grpc}", f"127.0.0.1:{namesrv}")
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _is_ready(process: subprocess.Popen[bytes], folder: Path, namesrv: str) -> bool:
    said = (folder / "output.txt").read_text(errors="replace")
    assert process.poll() is None, said[-3000:]
    return "rocketmq-proxy startup successfully" in said and bool(registered_brokers(namesrv))


def _properties(file: Path, values: dict[str, object]) -> None:
    file.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
