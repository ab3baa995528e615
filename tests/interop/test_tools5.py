"""mqadmin 5.5.0, its monitoring and the lite pull consumer of 5.x work with a broker of ours."""
from __future__ import annotations

import json
import re
import select
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.wire.codes import RequestCode as Code
from tests.interop.toolchain import JVM_OPTIONS, SOURCES
from tests.support.ci import unavailable
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.stock import StockError, die_with_parent, require_stock, stock_classpath
from tests.support.waiting import wait_until
from tests.wire_live.peer import pull_fields
from tests.wire_live.state import State

ARTIFACTS = ("org.apache.rocketmq:rocketmq-tools:5.5.0",)
ANSWER_TIMEOUT_S = 90
TOPIC, GROUP = "Tools", "ToolsGroup"


class Tools5:
    """The JVM of clients/java5/Tools5.java; one line to it, and the text that it answers with."""

    def __init__(self, folder: Path, live: MqcoreProcess) -> None:
        self.live = live
        require_stock()
        try:
            classpath = stock_classpath(ARTIFACTS)
        except StockError as error:
            unavailable(str(error))
        self._errors = (folder / "tools5.txt").open("wb")
        self._process = subprocess.Popen(
            ["java", *JVM_OPTIONS, f"-Duser.home={folder}", f"-Drocketmq.home.dir={folder}",
             "-cp", classpath, str(SOURCES / "java5" / "Tools5.java"), live.namesrv_addr],
            cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            preexec_fn=die_with_parent)

    def ask(self, *words: object) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(word) for word in words]).encode() + b"\n")
        self._process.stdin.flush()
        while True:
            ready, _, _ = select.select([self._process.stdout], [], [], ANSWER_TIMEOUT_S)
            assert ready, f"no answer to {words}"
            line = self._process.stdout.readline()
            assert line, f"the JVM has ended at {words}"
            if line.startswith(b'{"text"'):
                return str(json.loads(line)["text"])

    def admin(self, command: str, *options: object) -> str:
        """What a command of mqadmin prints; it has not failed."""
        text = self.ask("admin", command, "-n", self.live.namesrv_addr, *options)
        assert "Exception" not in text, text[:3000]
        return text

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._errors.close()


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    """A broker with three messages, and a group that has read one of them."""
    with mqcore_up(tmp_path_factory.mktemp("tools5"), {"broker.name": "broker-a"}) as broker, \
            State(broker.broker_addr) as state:
        state.topic(TOPIC, 1)
        for _ in range(3):
            state.message(TOPIC)
        wait_until(lambda: state.queue_end(TOPIC, 0) == 3, "the messages in their queue")
        state.ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None,
                  json.dumps({"groupName": GROUP}).encode())
        state.consumer(GROUP, TOPIC)                 # makes its retry topic
        state.ask(Code.UPDATE_CONSUMER_OFFSET, {
            "consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "commitOffset": "1"})
        state.ask(Code.PULL_MESSAGE, pull_fields(TOPIC, group=GROUP, offset=1))
        yield broker


@pytest.fixture(scope="module")
def tools(live: MqcoreProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools5]:
    started = Tools5(tmp_path_factory.mktemp("jvm"), live)
    yield started
    started.stop()


@pytest.mark.slow
def test_topic_status_shows_the_queues(tools: Tools5) -> None:
    text = tools.admin("topicStatus", "-t", TOPIC)

    assert re.search(r"^broker-a\s+0\s+0\s+3\s", text, re.MULTILINE), text


def test_the_cluster_list_shows_an_active_broker(tools: Tools5) -> None:
    text = tools.admin("clusterList")

    (row,) = [line for line in text.splitlines() if " broker-a " in line]
    assert tools.live.broker_addr in row
    assert "V4_9_8" in row
    assert row.split()[-1] == "true", row


def test_metrics_are_exported(tools: Tools5, tmp_path: Path) -> None:
    tools.admin("exportMetrics", "-c", "DefaultCluster", "-f", tmp_path)

    (file,) = tmp_path.glob("*.json")
    report = json.loads(file.read_text())
    assert set(report["evaluateReport"]) == {"broker-a"}


@pytest.mark.parametrize(("command", "options", "shown"), [
    ("brokerStatus", ["-c", "DefaultCluster"], "getTransferredTps"),
    ("topicList", [], TOPIC),
    ("topicRoute", ["-t", TOPIC], '"brokerName":"broker-a"'),
    ("topicClusterList", ["-t", TOPIC], "DefaultCluster"),
    ("consumerProgress", ["-g", GROUP], TOPIC),
    ("getConsumerConfig", ["-g", GROUP], GROUP),
    ("getBrokerConfig", ["-c", "DefaultCluster"], "messageDelayLevel"),
    ("brokerConsumeStats", ["-b", "ADDRESS"], GROUP),
    ("statsAll", [], TOPIC),
    ("queryMsgByOffset", ["-t", TOPIC, "-b", "broker-a", "-i", 0, "-o", 0], "OffsetID"),
    ("queryCq", ["-t", TOPIC, "-q", 0, "-i", 0, "-c", 3], "physicOffset"),
    ("exportMetadata", ["-c", "DefaultCluster", "-t", "-f", "FOLDER"], "export"),
    ("exportConfigs", ["-c", "DefaultCluster", "-f", "FOLDER"], "export"),
])
def test_a_command_that_reads_prints_what_it_should(
    tools: Tools5, tmp_path: Path, command: str, options: list[object], shown: str
) -> None:
    given = {"ADDRESS": tools.live.broker_addr, "FOLDER": tmp_path}

    assert shown in tools.admin(command, *(given.get(str(one), one) for one in options))


@pytest.mark.parametrize(("key", "value"), [
    ("deleteWhen", "05"), ("fileReservedTime", "48"), ("flushIntervalCommitLog", "400"),
])
def test_a_setting_is_changed(tools: Tools5, key: str, value: str) -> None:
    address = tools.live.broker_addr
    assert "update broker config success" in tools.admin(
        "updateBrokerConfig", "-b", address, "-k", key, "-v", value)

    assert re.search(rf"^{key}\s+=\s+{value}\s*$", tools.admin("getBrokerConfig", "-b", address),
                     re.MULTILINE)


def test_a_round_of_monitoring_reports_what_a_group_has_not_done(tools: Tools5) -> None:
    reports = json.loads(tools.ask("monitor"))

    assert (reports[0], reports[-1]) == ("begin", "end")
    assert f"undone {GROUP} {TOPIC} 2 2" in reports


def test_a_lite_pull_consumer_gets_the_messages(tools: Tools5) -> None:
    text = tools.ask("litepull", "LiteGroup", TOPIC, 3)

    assert text.startswith("["), text
    assert len(json.loads(text)) == 3, text


def test_topics_and_groups_take_what_only_5x_knows(tools: Tools5) -> None:
    address = tools.live.broker_addr
    tools.admin("updateTopic", "-b", address, "-t", "Fifo", "-a", "+message.type=FIFO")
    tools.admin("updateSubGroup", "-b", address, "-g", "FifoGroup", "-o", "true")
    with State(address) as state:
        topic = json.loads(state.ask(Code.GET_TOPIC_CONFIG, {"topic": "Fifo"}).body)
        groups = json.loads(state.ask(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body)
    assert topic["attributes"] == {"message.type": "FIFO"}
    assert groups["subscriptionGroupTable"]["FifoGroup"]["consumeMessageOrderly"] is True
