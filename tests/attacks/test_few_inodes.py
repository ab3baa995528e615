"""A file system without a free inode: a full disk, said as what it is, until one is free."""
from __future__ import annotations

from pathlib import Path

from mqcore.wire.codes import RequestCode, ResponseCode
from tests.attacks.honest import Honest
from tests.support.mqcore_process import mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer, send_fields, topic_fields
from tests.workers.test_full_disk import mounted


def take_all_inodes(folder: Path) -> list[Path]:
    taken: list[Path] = []
    folder.mkdir()
    try:
        while True:
            taken.append(folder / str(len(taken)))
            taken[-1].touch()
    except OSError:
        return taken[:-1]


def test_without_a_free_inode_sends_are_refused_and_the_log_says_so(tmp_path: Path) -> None:
    with (mounted(tmp_path / "store", "size=200m,nr_inodes=300") as disk,
          mqcore_up(tmp_path) as broker):
        with Honest(broker.broker_addr) as honest, Peer(broker.broker_addr) as peer:
            honest.measure(10)
            assert peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields("new", 4)).code == 0
            taken = take_all_inodes(disk / "filler")
            with honest.span() as full:
                peer.ask(RequestCode.SEND_MESSAGE_V2, send_fields("new"), b"x")
                wait_until(lambda: full.refusals, "a refusal", 30)
                code, remark = full.refusals[0]
                assert code == ResponseCode.SERVICE_NOT_AVAILABLE
                assert "the disk of the store is full" in remark
                for one in taken:
                    one.unlink()
                honest.measure(10)
            honest.caught_up()
        honest.check()
        assert "no inode is free" in broker.tail()
        assert "No such file" not in broker.tail()
