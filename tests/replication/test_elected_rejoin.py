"""
A log that was overtaken is cut by the broker itself: whatever dies on the way, whoever answers.

One pair of brokers for all: the first had messages that nobody else has, and was killed; the second
leads in epoch 2.
"""
from __future__ import annotations

import itertools
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mqcore.admin.store import records
from mqcore.backup.tables import settle_again
from mqcore.replication import side_files
from mqcore.replication.rejoin import Overtaken, RejoinError, rejoin_at
from mqcore.store import checkpoint, files
from mqcore.store.checkpoint import Checkpoint
from mqcore.store.log.folders import LOG, LogFolders
from mqcore.store.verify.report import DAMAGE
from mqcore.store.verify.store import verify
from mqcore.wire.properties import encode_properties
from tests.replication.elected import TOPIC, Member, member_up, send, settings_of, two
from tests.support.mqcore_process import mqcore_up
from tests.support.waiting import wait_until
from tests.workers.processes import pid_of

SIZE = 40_000                    # of a body: three segments in all
ALONE = [b"alone %02d " % number + bytes(SIZE) for number in range(40)]
TOOK = ("write_at", "wipe", "truncate", "unlink", "rename", "sync", "make_folder")


class Killed(BaseException):
    """In place of a signal: nothing of the process goes on."""


@dataclass
class Parted:
    """store: at rest, with ALONE at its end, which who leads has not."""

    store: Path
    leader: Member
    address: tuple[str, int]

    def copy(self, folder: Path) -> Path:
        return Path(shutil.copytree(self.store, folder / "store"))


@pytest.fixture(scope="module")
def parted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parted]:
    with two(tmp_path_factory.mktemp("parted")) as (_, one, other):
        assert send(one.address, *(b"both %d" % number for number in range(9))) == [0] * 9
        os.kill(pid_of(other.broker, "ha-slave"), signal.SIGSTOP)
        for_nobody = encode_properties({"WAIT": "false"})
        assert send(one.address, *ALONE, properties=for_nobody) == [0] * len(ALONE)
        one.broker.kill()
        other.lead(2)
        host, _, port = other.ha.rpartition(":")
        yield Parted(one.broker.store, other, (host, int(port)))


def at(store: Path) -> LogFolders:
    return LogFolders((store / LOG,), store=store)


def log_end(store: Path) -> int:
    return verify(store, index=False).figures["end"]


def log_of(store: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((store / LOG).iterdir())).rstrip(b"\0")


def cut(parted: Parted, store: Path, epoch: int = 2) -> Overtaken:
    return rejoin_at(store, at(store), parted.address, log_end(store), epoch,
                     partial(settle_again, store))


def dies_at(number: int) -> dict[str, Callable[..., Any]]:
    """The disk's calls, with a death at the one of this number."""
    counter = itertools.count()

    def one(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            if next(counter) == number:
                raise Killed
            return call(*arguments, **named)
        return called

    return {name: one(getattr(files.calls, name)) for name in TOOK}


def check(parted: Parted, store: Path) -> None:
    """Its log is the beginning of the leader's, and what it had more is in a side file."""
    mine = log_of(store)
    assert mine == log_of(parted.leader.broker.store)[:len(mine)]
    assert b"both 8" in mine
    assert b"alone" not in mine
    kept = b"".join(path.read_bytes() for path in (store / "overtaken").glob("*.log"))
    assert all(body in kept for body in ALONE)
    assert not [one for one in verify(store).findings if one.severity == DAMAGE]


@pytest.mark.slow
@pytest.mark.parametrize("in_order", [False, True])
def test_it_may_die_at_every_call_to_the_disk(
    parted: Parted, tmp_path: Path, in_order: bool,
) -> None:
    """A store that was closed in order is so afterwards, if nothing died."""
    for number in itertools.count():
        store = parted.copy(tmp_path / str(number))
        if in_order:
            (store / "abort").unlink()
        try:
            with files.replaced(**dies_at(number)):
                cut(parted, store)
        except Killed:
            cut(parted, store)
            check(parted, store)
            shutil.rmtree(store.parent)
            continue
        check(parted, store)
        break
    assert number > 10
    assert (store / "abort").exists() is not in_order
    times = checkpoint.read(store / "checkpoint")
    assert times == Checkpoint(log_time_ms=list(records(store))[-1].store_timestamp_ms
                               if in_order else 0)


@pytest.mark.parametrize("call", ["unlink", "write_at", "wipe"])
def test_a_start_takes_what_a_death_has_left(parted: Parted, tmp_path: Path, call: str) -> None:
    """Behind the last call of a kind: of files that go, of zeros in those that stay."""
    counts = itertools.count()
    taken = getattr(files.calls, call)

    def counted(*arguments: Any, **named: Any) -> Any:
        next(counts)
        return taken(*arguments, **named)

    with files.replaced(**{call: counted}):
        cut(parted, parted.copy(tmp_path / "whole"))
    last = next(counts) - 1
    store = parted.copy(tmp_path / "one")
    seen = itertools.count()

    def dying(*arguments: Any, **named: Any) -> Any:
        if next(seen) == last:
            raise Killed
        return taken(*arguments, **named)

    with files.replaced(**{call: dying}), pytest.raises(Killed):
        cut(parted, store)
    with member_up(store.parent, 1, parted.leader.broker.namesrv_addr) as again:
        before = again.segment().run_id
        again.hear_of(parted.leader, 2)
        again.wake_election()
        wait_until(lambda: send(parted.leader.address, b"again") == [0]
                   or again.is_new_run(before), "it follows")
        again.sleep_election()
        again.hear_of(parted.leader, 2)
        wait_until(lambda: send(parted.leader.address, b"again") == [0], "it follows")
        wait_until(lambda: log_of(store) == log_of(parted.leader.broker.store), "the same log")
        again.wake_election()
    check(parted, store)


def test_a_broker_says_that_it_does_not_follow_one_who_was_not_elected(
        parted: Parted, tmp_path: Path) -> None:
    store = parted.copy(tmp_path)
    before = log_of(store)
    with member_up(tmp_path, 1, parted.leader.broker.namesrv_addr) as again:
        again.hear_of(parted.leader, 3)
        said = "it leads in epoch 2, and epoch 3 is the one that was elected: nothing is cut"
        wait_until(lambda: said in again.broker.tail(), "its reason")
        assert pid_of(again.broker, "ha-slave")
    assert log_of(store) == before


def test_nothing_is_cut_for_one_who_was_not_elected(parted: Parted, tmp_path: Path) -> None:
    store = parted.copy(tmp_path)
    before = log_of(store)
    with pytest.raises(RejoinError, match="leads in epoch 2, and epoch 3 is the one that was"):
        cut(parted, store, epoch=3)
    assert log_of(store) == before
    assert not (store / "overtaken").exists()


def test_nothing_is_cut_where_the_side_file_finds_no_room(
        parted: Parted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = parted.copy(tmp_path)
    before = log_of(store)
    with monkeypatch.context() as patched:
        patched.setattr(side_files, "ROOM_LEFT_BYTES", 1 << 62)
        with pytest.raises(RejoinError, match=r"no room for a side file .* bytes in .*overtaken"):
            cut(parted, store)

    def full(fd: int, content: memoryview, offset: int) -> int:
        raise OSError(28, os.strerror(28))

    with files.replaced(write_at=full), pytest.raises(OSError, match="No space left"):
        cut(parted, store)
    assert log_of(store) == before
    assert list((store / "overtaken").iterdir()) == []


def test_a_log_that_lies_elsewhere_is_cut_too(parted: Parted, tmp_path: Path) -> None:
    store = parted.copy(tmp_path)
    folders = [tmp_path / "a", tmp_path / "b"]
    for number, path in enumerate(sorted((store / LOG).iterdir())):
        folders[number % 2].mkdir(exist_ok=True)
        path.rename(folders[number % 2] / path.name)
    (store / LOG).rmdir()
    log = LogFolders(tuple(folders), store=store)
    end = verify(store, index=False, log_folders=log).figures["end"]
    found = rejoin_at(store, log, parted.address, end, 2)
    assert found.messages == len(ALONE)
    assert found.topics == {TOPIC: len(ALONE)}
    assert verify(store, log_folders=log).figures["end"] == found.position
    with mqcore_up(store.parent, {
            **settings_of(1), "store.path": store, "store.commit_log_paths": folders},
            namesrv_addr=parted.leader.broker.namesrv_addr) as broker:
        one = Member(broker, 1)
        one.sleep_election()
        one.hear_of(parted.leader, 2)
        wait_until(lambda: send(parted.leader.address, b"elsewhere") == [0], "it follows")
        one.wake_election()
