"""Names become folders of the store: none leads out of it, and nothing foreign in it is deleted."""
from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.store.paths import folder_name_trouble
from mqcore.wire.codes import RequestCode as Code
from tests.attacks import forged_half, names
from tests.attacks.honest import Honest
from tests.hostile.watch import Watch
from tests.support.command import mqcore
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer, pull_fields, send_fields, topic_fields

REST = 3.0                      # of the honest client: it is there, that is all
LIGHT = {"store.multi_dispatch_enable": True, "store.light_queues_enable": True,
         "store.light_queue_count_max": 200}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    """With light queues: names come in by properties too."""
    folder = tmp_path_factory.mktemp("attacked")
    (folder / "foreign" / "0").mkdir(parents=True)
    (folder / "foreign" / "0" / f"{0:020d}").write_bytes(b"somebody's")
    with mqcore_up(folder / "run" / "here", LIGHT) as running:
        with Peer(running.broker_addr) as peer:
            assert peer.ask(Code.UPDATE_AND_CREATE_TOPIC, topic_fields("lawful", 1)).code == 0
        yield running


def assert_contained(target: MqcoreProcess) -> None:
    """Nothing new around the broker's folder, and only lawful folders in the store."""
    around = target.folder.parent.parent
    assert sorted(path.name for path in around.iterdir()) == ["foreign", "run"]
    assert sorted(path.name for path in target.folder.parent.iterdir()) == ["here"]
    assert (around / "foreign" / "0" / f"{0:020d}").read_bytes() == b"somebody's"
    assert not Path("/tmp/outside").exists()
    assert list(around.rglob("*outside")) == []
    for topic in (target.store / "consumequeue").iterdir():
        assert folder_name_trouble(topic.name) is None
        for queue in topic.iterdir():
            assert 0 <= int(queue.name) < 1024, queue


@pytest.mark.parametrize("number", range(len(names.HOSTILE)), ids=lambda n: f"name {n}")
def test_no_request_makes_a_path_of_a_name(
    target: MqcoreProcess, honest: Honest, watch: Watch, number: int
) -> None:
    answers = names.walk(target.broker_addr, names.HOSTILE[number])
    assert len(answers) > 50
    names.walk(target.namesrv_addr, names.HOSTILE[number])
    honest.caught_up()
    assert_contained(target)
    with Peer(target.broker_addr) as peer:
        assert peer.ask(Code.SEND_MESSAGE_V2, send_fields("lawful"), b"still").code == 0


def test_groups_that_can_be_no_folder_are_refused_at_the_first_request(
    target: MqcoreProcess, watch: Watch
) -> None:
    with Peer(target.broker_addr) as peer:
        sent = peer.ask(Code.SEND_MESSAGE_V2, send_fields("lawful"), b"x")
        position = forged_half.position_of(sent)
        for name in ("a/b", "..", ".", "x\0y", "x" * 121, "é" * 61):
            first = {
                Code.HEART_BEAT: ({}, names.bodies(name)[Code.HEART_BEAT]),
                Code.LOCK_BATCH_MQ: ({}, names.bodies(name)[Code.LOCK_BATCH_MQ]),
                Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: (
                    {}, names.bodies(name)[Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP]),
                Code.PULL_MESSAGE: (pull_fields("lawful", group=name), b""),
                Code.UPDATE_CONSUMER_OFFSET: ({
                    "consumerGroup": name, "topic": "lawful", "queueId": "0", "commitOffset": "1"
                }, b""),
                Code.CONSUMER_SEND_MSG_BACK: ({
                    "offset": str(position), "group": name, "delayLevel": "0",
                    "unitMode": "false"}, b""),
            }
            for code, (fields, body) in first.items():
                answer = peer.ask(code, fields, body)
                assert answer.code == 1, (code, name, answer)
                assert "no consumer group may be called" in (answer.remark or ""), (code, answer)


@pytest.mark.parametrize("name", [
    "g.with.dots", "g:with:colons", "g with blanks", "g@h", "группа", "g#1", "x" * 120, "a..b",
    "tab\tand\nline",
])
def test_groups_of_free_names_have_retries_and_dead_letters(
    target: MqcoreProcess, watch: Watch, name: str
) -> None:
    with Peer(target.broker_addr) as peer:
        position = forged_half.position_of(
            peer.ask(Code.SEND_MESSAGE_V2, send_fields("lawful"), name.encode()))
        back = {"offset": str(position), "group": name, "originMsgId": "M",
                "originTopic": "lawful", "unitMode": "false"}
        for level, topic in (("1", f"%RETRY%{name}"), ("-1", f"%DLQ%{name}")):
            answer = peer.ask(Code.CONSUMER_SEND_MSG_BACK, {**back, "delayLevel": level})
            assert answer.code == 0, answer
            wait_until(lambda topic=topic: peer.ask(Code.PULL_MESSAGE, pull_fields(
                topic, group=name)).body.find(name.encode()) >= 0, f"a message in {topic}")
            assert (target.store / "consumequeue" / topic / "0").is_dir()


def test_a_light_topic_is_a_lawful_name_too(
    target: MqcoreProcess, honest: Honest, watch: Watch
) -> None:
    calm = honest.measure()
    with honest.span() as attacked, Peer(target.broker_addr) as peer:
        for name in ("%LMQ%/../../x", "%LMQ%../../../x", "%LMQ%a/b", "%LMQ%x\0y", "%LMQ%a b"):
            answer = peer.ask(Code.SEND_MESSAGE_V2, send_fields(name), b"x")
            assert answer.code != 0, name
        for listed in ("%LMQ%/../../x", "../../x", "%LMQ%fine,../x", ".", "%LMQ%x\0y",
                       "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "%RETRY%lawful",
                       "%LMQ%fine,RMQ_SYS_TRANS_OP_HALF_TOPIC", "%DLQ%lawful"):
            answer = peer.ask(Code.SEND_MESSAGE_V2, send_fields(
                "lawful", properties=f"INNER_MULTI_DISPATCH\x01{listed}"), b"x")
            assert answer.code == 13, (listed, answer)
        assert peer.ask(Code.SEND_MESSAGE_V2, send_fields("%LMQ%fine"), b"x").code == 0
        honest.until(lambda: len(attacked.sends_ms) > 20, "sends after the attack")
    honest.caught_up()
    assert_contained(target)
    honest.assert_served(attacked, calm)


def test_a_queue_that_its_topic_does_not_have_is_not_made(
    target: MqcoreProcess, watch: Watch
) -> None:
    with Peer(target.broker_addr) as peer:
        for queue_id in (1, 65_535, 2**31 - 1):
            for properties in ("", "DELAY\x011\x02", "TRAN_MSG\x01true\x02"):
                answer = peer.ask(Code.SEND_MESSAGE_V2, send_fields(
                    "lawful", queue_id=queue_id, properties=properties), b"x")
                assert answer.code == 1, answer
        # -- what is dispatched behind them is there: so would they be
        assert peer.ask(Code.SEND_MESSAGE_V2, send_fields("lawful"), b"x").code == 0
    folder = target.store / "consumequeue" / "lawful"
    wait_until(lambda: (folder / "0").is_dir(), "the folder of the queue that it has")
    assert sorted(os.listdir(folder)) == ["0"]


def test_what_is_foreign_in_a_queues_folder_outlives_the_queue(
    target: MqcoreProcess, watch: Watch
) -> None:
    with Peer(target.broker_addr) as peer:
        assert peer.ask(Code.UPDATE_AND_CREATE_TOPIC, topic_fields("goes", 1)).code == 0
        assert peer.ask(Code.SEND_MESSAGE_V2, send_fields("goes"), b"x").code == 0
        folder = target.store / "consumequeue" / "goes" / "0"
        wait_until(lambda: (folder / f"{0:020d}").exists(), "the queue's file")
        (folder / "notes.txt").write_text("mine")
        (folder / "sub").mkdir()
        (folder / f"{7:020d}").write_bytes(b"begins at no file's place")
        assert peer.ask(Code.DELETE_TOPIC_IN_BROKER, {"topic": "goes"}).code == 0
        assert sorted(os.listdir(folder)) == [f"{7:020d}", "notes.txt", "sub"]
        assert any("are not the queue's and stay" in line for line in watch.new_lines())
        (folder / f"{7:020d}").unlink()
        assert peer.ask(Code.UPDATE_AND_CREATE_TOPIC, topic_fields("goes", 1)).code == 0
        assert peer.ask(Code.SEND_MESSAGE_V2, send_fields("goes"), b"again").code == 0


def test_a_log_with_records_of_impossible_names_is_served_and_kept(tmp_path: Path) -> None:
    """As a broker of an earlier version may have left it, or anybody else."""
    folder = tmp_path / "run"
    with mqcore_up(folder) as broker, Honest(broker.broker_addr) as honest:
        honest.measure(20)
        honest.caught_up()
    before = dict(honest.acknowledged)
    end = log_end(broker.store)
    odd = b""
    for topic, queue in (("../../outside", 0), ("a/b", 0), ("..", 3), ("fine", 2**31 - 1),
                         ("fine", 1)):
        odd += forged_half.record(topic, end + len(odd), b"odd", {"KEYS": "k"}, queue_id=queue)
    with (broker.store / "commitlog" / f"{0:020d}").open("r+b") as log:
        log.seek(end)
        log.write(odd)
    (broker.store / "lock").write_bytes(b"lock")         # the last one was none of ours
    for life, kills in enumerate((False, True, False)):
        with mqcore_up(folder) as broker:
            with Honest(broker.broker_addr, topic=f"again-{life}") as again:
                again.measure(20)
                again.caught_up()
                again.check()
            honest.check(broker.broker_addr)
            with Peer(broker.broker_addr) as peer:
                assert peer.ask(Code.GET_MAX_OFFSET, {"topic": "fine", "queueId": "1"}).ext == {
                    "offset": "1"}
            if kills:
                broker.kill()
        if life == 0:
            assert "names a topic or a queue that cannot be" in broker.tail()
    assert dict(honest.acknowledged) == before
    assert not (tmp_path / "outside").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]
    with (broker.store / "commitlog" / f"{0:020d}").open("rb") as log:
        log.seek(end)
        assert log.read(len(odd)) == odd


def test_after_all_of_it_a_killed_broker_starts_and_its_store_is_sound(tmp_path: Path) -> None:
    with mqcore_up(tmp_path, LIGHT) as broker:
        with Honest(broker.broker_addr) as honest:
            for name in names.HOSTILE[::3]:
                names.walk(broker.broker_addr, name)
            honest.caught_up()
        broker.kill()
    with mqcore_up(tmp_path, LIGHT) as broker:
        honest.check(broker.broker_addr)
    done = mqcore("store", "verify", broker.store)
    assert done.returncode == 0, done.stdout + done.stderr


def log_end(store: Path) -> int:
    """Where the last record of the first segment ends."""
    raw, at = (store / "commitlog" / f"{0:020d}").read_bytes(), 0
    while raw[at + 4:at + 8] == b"\xda\xa3\x20\xa7":
        at += int.from_bytes(raw[at:at + 4], "big")
    return at
