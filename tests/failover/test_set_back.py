"""A member whose disk was set back to a snapshot (FO13)."""
from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mqcore.failover.etcd import Key
from mqcore.failover.keys import Kept, Names, encode_kept, view_of
from mqcore.replication.identity import identity
from tests.failover.test_election import LEASE, Set, led
from tests.failover.test_failover import Members, bodies, members_by
from tests.failover.world import NAMES, Broker, Entry, FakeEtcd
from tests.replication.elected import send
from tests.support.etcd import etcd_server
from tests.support.waiting import wait_until

ENTRIES = [Entry(1, number) for number in range(10)]


def kept(etcd: FakeEtcd, member: int) -> int:
    found = etcd.view().kept.get(member)
    return 0 if found is None else found.position


def with_log(count: int, epoch: int = 1) -> tuple[Set, Broker]:
    """A set that has told etcd of ten messages of an epoch, and its last member."""
    made = led(count)
    for broker in made.brokers:
        broker.log, broker.told = [one._replace(epoch=epoch) for one in ENTRIES], len(ENTRIES)
    made.run(LEASE)
    assert [kept(made.etcd, one.member) for one in made.brokers] == [10] * count
    return made, made.brokers[-1]


def again(broker: Broker, entries: int, store: str = "") -> Broker:
    """Its next run, on a log of so many."""
    found = Broker(broker.member, store or broker.store)
    found.log = list(ENTRIES[:entries])
    return found


@pytest.mark.parametrize(("entries", "store", "is_set_back"), [
    (10, "", False), (9, "", True), (0, "", True), (0, "another", False)])
def test_a_log_that_ends_before_what_its_store_had_takes_no_part(
        entries: int, store: str, is_set_back: bool) -> None:
    made, last = with_log(2)
    back = again(last, entries, store)
    made.brokers[1:] = []
    asked = made.run(3 * LEASE, back)
    assert (back.election.set_back_from, asked == []) == (10 * is_set_back, is_set_back)
    assert (back.leads > 0) == (not is_set_back and not store)


@pytest.mark.parametrize(("epochs", "is_set_back"), [
    ([2] * 10, False), ([2] * 8, True), ([1] * 3 + [2] * 9, False), ([1] * 12, True)])
def test_a_snapshot_from_before_a_cut_may_have_a_longer_log(
        epochs: list[int], is_set_back: bool) -> None:
    """The member told of ten messages, of epoch 2; its disk may have another epoch there."""
    made, last = with_log(2, epoch=2)
    back = again(last, 0)
    back.log = [Entry(epoch, number) for number, epoch in enumerate(epochs)]
    made.brokers[1:] = []
    made.run(3 * LEASE, back)
    assert back.election.set_back_from == 10 * is_set_back


def test_who_leads_by_its_memory_and_was_set_back_leads_no_more() -> None:
    """A virtual machine that continues from a snapshot of its memory, too."""
    made, _ = with_log(2)
    first = made.brokers[0]
    assert first.leads
    first.log = first.log[:5]
    made.run(LEASE)
    assert (first.words.leads, first.words.deadline_ns, first.election.set_back_from) == (0, 0, 10)


def test_a_log_that_is_cut_keeps_what_all_have() -> None:
    """The part that no other member had is not written, however much was synced."""
    made, last = with_log(2)
    last.log = [*last.log, Entry(1, 99), Entry(1, 98)]
    made.run(LEASE)
    assert kept(made.etcd, last.member) == 10
    made.run(2 * LEASE, back := again(last, 10))
    assert back.election.set_back_from == 0


def test_a_key_that_cannot_be_read_is_passed_over_and_named() -> None:
    names = Names.of("c", "b")
    for value in (b"", b"[]", b"{}", b'{"store": "s", "position": -1}', b'{"position": 1}',
                  b'{"store": "s", "position": true}', b'{"store": "s", "position": 1e3}'):
        view = view_of(names, [Key(names.kept(1), value, 1, 0),
                               Key(names.kept(2), encode_kept(Kept("s", 7)), 1, 0)])
        assert view.kept == {2: Kept("s", 7)}
        assert names.kept(1) in view.strange
    assert names == NAMES


def settled(members: Members, number: int) -> Path:
    """Stopped in order, its store beside; how a hypervisor takes a snapshot."""
    members.running[number].stop()
    store = members.folder / str(number) / "store"
    taken = members.folder / "snapshot"
    shutil.copytree(store, taken, symlinks=True)
    return taken


@pytest.mark.slow
def test_a_member_on_a_snapshot_leads_only_when_it_has_all_again(tmp_path: Path) -> None:
    with etcd_server(tmp_path) as etcd, members_by(
            tmp_path, etcd, {"replication.read_replicated_only": "auto"}) as members:
        leader = members.leader()
        other = 3 - leader
        taken = settled(members, other)
        members.start(other)
        wait_until(members.are_in_sync, "both are in the set")
        sent = [b"acknowledged %d" % number for number in range(30)]
        wait_until(lambda: send(members.running[leader].broker_addr, b"before") == [0], "an answer")
        assert send(members.running[leader].broker_addr, *sent) == [0] * len(sent)
        store = tmp_path / str(other) / "store"
        end = members.view().members[leader].end

        def has_told() -> bool:
            view = members.view()
            return end <= view.members[leader].end <= min(
                view.kept[one].position for one in (1, 2))

        wait_until(has_told, "etcd has heard of all messages")
        before = identity(store)
        members.running[other].kill()
        members.running[leader].kill()
        wait_until(lambda: members.leader() == 0, "the lease has run out")

        shutil.rmtree(store)
        shutil.copytree(taken, store, symlinks=True)
        members.start(other)
        wait_until(lambda: identity(store) != before, "another store")
        assert "its disk was set back" in members.running[other].tail()
        wait_until(lambda: (said := members.view().members.get(other)) is not None
                   and said.store == identity(store), "it takes part")
        assert members.leader() == 0
        members.start(leader)
        wait_until(lambda: (state := members.view().state) is not None
                   and state.stores[other] == identity(store), "it is in the set again")
        assert members.leader() == leader

        members.running[leader].kill()               # now it may
        wait_until(lambda: members.leader() == other, "it leads")
        assert set(sent) <= bodies(members.running[other].broker_addr)
