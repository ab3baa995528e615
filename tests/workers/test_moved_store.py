"""
A store that is moved away from under its broker: the broker takes no more messages, and leaves
the other store at that path untouched.
"""
from __future__ import annotations

import hashlib
import shutil
from functools import partial
from pathlib import Path

from mqcore.wire.codes import RequestCode
from tests.support.mqcore_process import STOP_TIMEOUT_S, MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer, send_fields, topic_fields
from tests.workers.processes import kill
from tests.workers.test_end import own_settings, refused, set_all

LEADS_ELSEWHERE = "the path of the store does not lead to the folder"


def content(store: Path) -> dict[str, str]:
    """Names and hashes of the files below a folder."""
    return {str(path.relative_to(store)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in store.rglob("*") if path.is_file()}


def answer_of(broker: MqcoreProcess) -> tuple[int, str]:
    """Code and remark of the answer to a send."""
    with Peer(broker.broker_addr) as peer:
        answer = peer.ask(RequestCode.SEND_MESSAGE_V2, send_fields("orders"), b"body")
    return answer.code, answer.remark or ""


def is_taken(broker: MqcoreProcess) -> bool:
    return answer_of(broker)[0] == 0


def is_refused(broker: MqcoreProcess) -> bool:
    """Also by a process that has found the path changed before the supervisor says so."""
    code, remark = answer_of(broker)
    return code == 14 and LEADS_ELSEWHERE in remark


def with_topic(broker: MqcoreProcess, topic: str = "orders") -> MqcoreProcess:
    with Peer(broker.broker_addr) as peer:
        assert peer.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(topic, 1)).code == 0
    return broker


def test_a_broker_whose_store_is_moved_refuses_sends_until_it_is_back(tmp_path: Path) -> None:
    with mqcore_up(tmp_path / "broker") as started:
        broker = with_topic(started)
        away = broker.store.with_name("away")
        assert is_taken(broker)
        broker.store.rename(away)
        wait_until(partial(is_refused, broker), "a refusal")
        assert broker.tail().count("no messages are taken") == 1

        code, said = refused(tmp_path / "second", ["up", *set_all({
            **own_settings(tmp_path), "store.path": broker.store})])
        assert (code, "which leads to another folder now: stop it first" in said) == (1, True), said
        assert not broker.store.exists()

        kill(broker, "coordinator")
        away.rename(broker.store)
        wait_until(partial(is_taken, broker), "a send that is taken again")
        wait_until(lambda: with_topic(broker, "later"), "the coordinator")
    assert not (broker.store / "abort").exists()


def test_a_store_in_the_place_of_another_is_left_as_it_was(tmp_path: Path) -> None:
    with mqcore_up(tmp_path / "broker") as started:
        broker = with_topic(started)
        assert is_taken(broker)
        theirs = Path(shutil.copytree(broker.store, broker.store.with_name("theirs")))
        (theirs / "abort").unlink()
        before = content(theirs)
        away = broker.store.with_name("away")
        broker.store.rename(away)
        theirs.rename(broker.store)
        with Peer(broker.broker_addr) as peer:        # before the broker has noticed, or after
            peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields("unseen", 1))
            peer.ask(RequestCode.SEND_MESSAGE_V2, send_fields("unseen"), b"body")
        wait_until(partial(is_refused, broker), "a refusal")
        broker.process.terminate()
        assert broker.process.wait(STOP_TIMEOUT_S) == 5       # a table is in no file
    assert content(broker.store) == before
    assert (away / "abort").exists()                  # the next start on it looks at everything


def test_a_removed_lock_keeps_a_second_broker_away(tmp_path: Path) -> None:
    with mqcore_up(tmp_path / "broker") as started:
        broker = with_topic(started)
        (broker.store / "lock").unlink()
        code, said = refused(tmp_path / "second", ["up", *set_all({
            **own_settings(tmp_path), "store.path": broker.store})])
        assert (code, "is in use by another broker" in said) == (1, True), said
        wait_until((broker.store / "lock").exists, "the file")
        assert is_taken(broker)
        assert broker.tail().count("was removed, and is made again") == 1
