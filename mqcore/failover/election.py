"""
The election of who leads, without clock, network or disk: it is told what is known here and what
etcd has answered, and says what to ask next and what this broker is to be (leadership FO1 to FO13:
shm/leadership.pxd).

Each turn: `next` says what to ask; then one of `granted`, `seen`, `transacted`, or `lost`, says
what came of it; `words` says what follows from all that.
"""
from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from mqcore.failover.etcd import Put
from mqcore.failover.here import Here, Me, Report, Rules
from mqcore.failover.keys import (
    OTHERS_MAX,
    Master,
    Member,
    Names,
    State,
    View,
    encode_kept,
    encode_master,
    encode_member,
    encode_state,
)
from mqcore.failover.storing import Moving
from mqcore.shm.members import member_number

MS = 1_000_000
DRIFT_PERCENT = 10                # of a lease: by so much clocks of two hosts may differ in it
RENEWALS = 3                      # in the time of a lease
LOOK_FOLLOWS_MS = 150
LOOK_ALONE_MS = 30                # while nobody leads
LOOK_LEADS_MS = 200
OTHERS_WAIT_MS = 200              # those that do not have most of the log
LEAD_WAIT_LEASES = 10             # for the supervisor, then another one may try ...
RESIGNED_LEASES = 5               # ... for so long alone
UNABLE_WAIT_LEASES = 2            # for who can store, before one that cannot leads
UNREAD = -1                       # a revision of `state` that is still to be read


@dataclass(frozen=True)
class Grant:
    """Ask for a new lease."""


@dataclass(frozen=True)
class Look:
    """Ask for all keys of the set."""


@dataclass(frozen=True)
class Transact:
    """Ask for these changes, if these keys have these revisions."""

    what: str
    compared: tuple[tuple[str, int], ...]
    changes: tuple[Put, ...]
    lease: int = 0                # the keys are to have it
    adds: frozenset[int] = frozenset()          # numbers of members that the set may have then
    why: str = ""                 # the operator reads it when the transaction is done


Ask = Grant | Look | Transact


@dataclass(frozen=True)
class Words:
    """
    What this broker is to be, and what is to be said to its processes.

    leads        the epoch that it is to lead in; 0: it follows, in `epoch`
    deadline_ns  CLOCK_BOOTTIME: until then it may acknowledge; 0: it may not
    waited_for   numbers of others that have to have what is acknowledged
    former       number of the one whose log this broker had when it was elected; 0: of none
    shown        who reads may see the log below this position: whoever is elected next has it
    leader       who leads, as far as is known
    """

    leads: int = 0
    epoch: int = 0
    deadline_ns: int = 0
    waited_for: tuple[int, ...] = ()
    former: int = 0
    shown: int = 0
    leader: Master | None = None
    in_sync: tuple[int, ...] = ()


class Election:
    """
    One broker's part in it.

    leads, deadline_ns, waited_for, former: as in the last `words` of the process before this one,
    of the same run; leads: 0: there was none. claimed: the epoch that those were to lead in, if
    they did not do so yet.
    """

    def __init__(self, names: Names, me: Me, rules: Rules, *, leads: int = 0, claimed: int = 0,
                 deadline_ns: int = 0, waited_for: Collection[int] = (), former: int = 0) -> None:
        self._names = names
        self._me = me
        self._number = member_number(me.member, me.store)
        self._rules = rules
        self._lease_ns = rules.lease_ms * MS
        self._leads = leads
        self._deadline_ns = deadline_ns
        self._leads_since_ns = 0
        self._view: View | None = None
        self._looked_ns = 0
        self._fresh = False              # nothing was changed or lost since the last look
        self._granted: dict[int, int] = {}           # lease: when it was asked for
        self._lease = 0                  # of our keys ...
        self._lease_ns_at = 0            # ... and when it was asked for
        self._next_lease = 0             # granted, and not yet with a key
        self._alone_since_ns = -1        # since when nobody leads
        self._first_look_ns = -1
        self._resigned_until_ns = 0
        self._entering: set[int] = set()             # their numbers
        self._moving = Moving()
        # leadership FO4: number, and the state's revision then. What was asked before this process
        # is lost.
        self._maybe = dict.fromkeys(waited_for if leads else (), UNREAD)
        self._led_ms = 0                 # when this broker led first, or this process ...
        self._led_end = 0                # ... and where its log ended then
        self._former = former if leads else 0        # leadership FO10 ...
        self._claims = {claimed: former}             # ... of each epoch that was claimed
        self._shown = 0
        self.trouble = ""                # why this broker takes no part; "": it does
        self.set_back_from = 0           # leadership FO13: so long its log was; 0: it is as long

    # -- what follows ------------------------------------------------------------------------------

    @property
    def leads(self) -> int:
        return self._leads

    def configure(self, rules: Rules) -> None:
        """From now on; the lease stays as it is."""
        self._rules = rules

    def words(self) -> Words | None:
        """None: nothing follows, since etcd has said nothing yet."""
        view = self._view
        if view is None:
            return None
        in_sync = view.state.in_sync if view.state is not None else frozenset()
        waited = (_numbers(view.state) | self._entering | set(self._maybe)) - {self._number}
        leader = view.master
        if self.trouble or (leader is not None and leader.member == self._me.member
                            and not self._leads):
            leader = None                # of this broker's last run
        return Words(
            self._leads, view.state.epoch if view.state is not None else 0,
            self._deadline_ns if self._leads else 0,
            tuple(sorted(waited)) if self._leads else (),
            self._former if self._leads else 0, self._shown if self._leads else 0,
            leader, tuple(sorted(in_sync)))

    # -- what to ask -------------------------------------------------------------------------------

    def next(self, here: Here) -> Ask | None:
        """The next question; None: nothing is due now."""
        if self._leads and here.leads and here.leads != self._leads:
            self._lose()                 # the supervisor knows of another one
        if not self._fresh:
            return Look()
        view = self._view
        assert view is not None
        if self._is_set_back(view, here):
            return None                  # it begins anew, as another member
        if self._next_lease and here.now_ns - self._granted[self._next_lease] > self._lease_ns // 2:
            self._next_lease = 0         # too old to begin anything with it
        wish = self._wish(view, here)
        if wish is not None:
            return wish if self._next_lease or not wish.lease else Grant()
        if not self.trouble and (
                not self._lease or here.now_ns - self._lease_ns_at > self._lease_ns // RENEWALS):
            return self._renew(view, here) if self._next_lease else Grant()
        if here.now_ns - self._looked_ns > self._look_ms(view) * MS:
            return Look()
        return None

    def _is_set_back(self, view: View, here: Here) -> bool:
        """leadership FO13."""
        kept = view.kept.get(self._me.member)
        if kept is None or kept.store != self._me.store or not here.lacks(kept):
            return False
        self.set_back_from = kept.position
        self._lose()
        return True

    def _keep(self, view: View, here: Here) -> tuple[Put, ...]:
        """leadership FO13: what grows only, while it is of this store."""
        me = self._me
        before = view.kept.get(me.member)
        if before is not None and before.store == me.store and before.position >= here.kept:
            return ()
        return (Put(self._names.kept(me.member), encode_kept(here.kept_by(me.store))),)

    def _look_ms(self, view: View) -> int:
        if self._leads:
            return LOOK_LEADS_MS
        return LOOK_ALONE_MS if view.master is None else LOOK_FOLLOWS_MS

    def _wish(self, view: View, here: Here) -> Transact | None:
        """What this broker wants of etcd beside keeping its lease."""
        if self.trouble:
            return None
        if not self._leads:
            return self._claim(view, here)
        if view.master is None:
            return self._resume(view, here)
        if here.leads == self._leads:
            return self._give_up(view, here) or self._set(view, here)
        if here.now_ns - self._leads_since_ns > LEAD_WAIT_LEASES * self._lease_ns:
            return self._resign(view, here, "it was elected, and could not begin to lead")
        return None

    def _own(self, here: Here, lease: int) -> Put:
        me = self._me
        return Put(self._names.member(me.member), encode_member(
            Member(me.address, me.ha, here.epoch, here.end, me.store, here.first)), lease)

    def _master(self, epoch: int, lease: int) -> Put:
        me = self._me
        return Put(self._names.master, encode_master(
            Master(me.member, me.address, me.ha, epoch)), lease)

    def _renew(self, view: View, here: Here) -> Transact:
        """leadership FO6: a new lease for our keys, by a transaction."""
        lease = self._next_lease
        changes = [self._own(here, lease), *self._keep(view, here)]
        compared: list[tuple[str, int]] = []
        if self._leads and view.master is not None:
            compared.append((self._names.master, view.master_at.revision))
            changes.append(self._master(self._leads, lease))
        return Transact("renew", tuple(compared), tuple(changes), lease)

    # -- who leads ---------------------------------------------------------------------------------

    def _claim(self, view: View, here: Here) -> Transact | None:
        """leadership FO7, FO8."""
        me = self._me
        stale = view.master is not None and (
            (view.master.member, view.master.address) == (me.member, me.address))
        if (view.master is not None and not stale) or here.now_ns < self._resigned_until_ns or (
                here.leads):
            return None
        if view.state is None:
            return self._found(view, here)
        if view.state.stores.get(self._me.member) != self._me.store:
            return None
        if stale and self._lacks(view, here):        # its host lost power, and others did not
            return None
        alone_ns = here.now_ns - self._alone_since_ns
        wait_ns = 0 if self._is_best(view, here) else OTHERS_WAIT_MS * MS
        is_last = bool(here.unable) or view.state.gap(here.first) > 0        # leadership FO11, FO12
        if is_last:
            wait_ns += UNABLE_WAIT_LEASES * self._lease_ns
        if is_last if stale else alone_ns < wait_ns:
            return None
        self._former = self._whose_log(view.state, here)
        epoch = max(view.state.epoch, here.epoch) + 1
        self._claims[epoch] = self._former
        return self._take(view, here, replace(view.state, epoch=epoch, master=self._me.member))

    def _whose_log(self, state: State, here: Here) -> int:
        """
        leadership FO10: the number of who led in the last epoch of the log here; 0: that is this
        broker, or none of the set. An epoch that was claimed here and not begun has changed no log.
        """
        if state.master == self._me.member and here.epoch < state.epoch:
            claimed_from = self._claims.get(state.epoch, 0)
            return claimed_from if claimed_from in _numbers(state) else 0
        if state.epoch != here.epoch or state.master not in state.stores:
            return 0
        number = member_number(state.master, state.stores[state.master])
        return 0 if number == self._number else number

    def _found(self, view: View, here: Here) -> Transact | None:
        """leadership FO7: the very first one, when all have shown themselves for a lease."""
        if here.now_ns - self._first_look_ns <= self._lease_ns or not self._is_best(view, here):
            return None
        epoch = max([here.epoch, *(one.epoch for one in view.members.values())]) + 1
        return self._take(view, here, State(epoch, self._me.member,
                                            {self._me.member: self._me.store}))

    def _is_best(self, view: View, here: Here) -> bool:
        """Whether no other candidate has more of the log, or as much and a smaller id."""
        mine = (*_rank(view, here), -self._me.member)
        return all(mine > (*_rank(view, one), -member)
                   for member, one in self._candidates(view).items())

    def _lacks(self, view: View, here: Here) -> bool:
        """Whether another candidate has more of the log."""
        return any(_rank(view, one) > _rank(view, here) for one in self._candidates(view).values())

    def _candidates(self, view: View) -> dict[int, Member]:
        """The others."""
        return {member: one for member, one in view.members.items()
                if member != self._me.member and (
                    view.state is None or view.state.stores.get(member) == one.store)}

    def _take(self, view: View, here: Here, state: State) -> Transact:
        lease = self._next_lease or -1
        return Transact(
            "claim", ((self._names.master, view.master_at.revision),
                      (self._names.state, view.state_at.revision)),
            (self._master(state.epoch, lease), Put(self._names.state, encode_state(state)),
             self._own(here, lease), *self._keep(view, here)), lease)

    def _resume(self, view: View, here: Here) -> Transact | None:
        """leadership FO9: the lease ran out, and nobody else has led since."""
        assert view.state is not None
        if here.now_ns < self._resigned_until_ns:    # the answer to that is lost
            return None
        lease = self._next_lease or -1
        return Transact(
            "resume", ((self._names.master, 0), (self._names.state, view.state_at.revision)),
            (self._master(self._leads, lease), self._own(here, lease), *self._keep(view, here)),
            lease)

    def _give_up(self, view: View, here: Here) -> Transact | None:
        """
        leadership FO11: where another one of the set is there that can do what this one cannot.
        """
        state = view.state
        assert state is not None
        others = len(self._candidates(view))
        if here.unable and any(not state.gap(one.first) for one in self._candidates(view).values()):
            return self._resign(view, here, here.unable)
        still_ms = self._moving.still_ms(
            _numbers(state) - {self._number}, here.reports, here.end, here.now_ms,
            self._rules.min_in_sync)
        patience_ms = (self._rules.in_sync_timeout_ms if self._moving.moved
                       else LEAD_WAIT_LEASES * self._rules.lease_ms)
        if still_ms > patience_ms and others > self._rules.min_in_sync:
            return self._resign(view, here, f"for {still_ms / 1000:.1f} s fewer than "
                                f"{self._rules.min_in_sync} of the others have taken its log")
        return None

    def _resign(self, view: View, here: Here, why: str) -> Transact:
        self._resigned_until_ns = here.now_ns + RESIGNED_LEASES * self._lease_ns
        compared, changes = self._without_me(view, damaged=here.damaged)
        return Transact("resign", compared, changes, why=why)

    def leave(self) -> Ask | None:
        """What an orderly end asks for, after the last acknowledgement; None: nothing more."""
        view = self._view
        if not self._leads:
            return None
        if not self._fresh or view is None:
            return Look()
        if view.master is None:
            return None
        compared, changes = self._without_me(view, damaged=False)
        return Transact("leave", compared,
                        (*changes, Put(self._names.member(self._me.member), None)))

    def _without_me(self, view: View, *, damaged: bool,
                    ) -> tuple[tuple[tuple[str, int], ...], tuple[Put, ...]]:
        """
        leadership FO11: what is compared, and changed, so that another one leads, and waits for
        others.
        """
        compared = (self._names.master, view.master_at.revision)
        changes = (Put(self._names.master, None),)
        state = view.state
        if state is None or not (
                damaged or len(self._candidates(view)) > self._rules.min_in_sync):
            return (compared,), changes
        stores = {one: store for one, store in state.stores.items() if one != self._me.member}
        return ((compared, (self._names.state, view.state_at.revision)),
                (*changes, Put(self._names.state, encode_state(replace(state, stores=stores)))))

    # -- the set -----------------------------------------------------------------------------------

    def _set(self, view: View, here: Here) -> Transact | None:
        """leadership FO2, FO3, FO12: who leaves the set, or else who comes in."""
        before = view.state
        assert before is not None
        state = replace(before, whole_from=max(
            before.whole_from or 0, here.first, here.missed_from))
        if not self._led_ms:
            self._led_ms, self._led_end = here.now_ms, here.end
        self._show(state, here)
        stores = self._without_late(view, state, here)
        if stores != state.stores:
            return self._write(view, state, stores)
        came = self._ready(view, state, here)
        if came:
            return self._write(view, state, {**state.stores, **came})
        if self._maybe or state != before:                               # leadership FO4
            return self._write(view, state, dict(state.stores))
        return None

    def _show(self, state: State, here: Here) -> None:
        """leadership FO10: all that its log had when it began, if the next one shows it, too."""
        members = _numbers(state) | self._entering | set(self._maybe)
        reports = [here.reports.get(number) for number in members - {self._number, self._former}]
        if all(one is not None and one.acked >= here.begun for one in reports):
            self._shown = here.begun

    def _write(self, view: View, state: State, stores: dict[int, str]) -> Transact:
        return Transact(
            "set", ((self._names.master, view.master_at.revision),
                    (self._names.state, view.state_at.revision)),
            (Put(self._names.state, encode_state(replace(state, stores=stores))),),
            adds=frozenset(member_number(*one) for one in stores.items()) - _numbers(state))

    def _without_late(self, view: View, state: State, here: Here) -> dict[int, str]:
        """
        leadership FO2: those who have not what was there for too long leave, the latest first.
        """
        others = [one for one in state.in_sync if one != self._me.member]
        number_of = {one: member_number(one, state.stores[one]) for one in others}
        there = self._candidates(view)
        linked = {number for number, report in here.reports.items() if report.connected}
        gone = {one for one in others if one not in there and number_of[one] not in linked}
        if len(others) - len(gone) < self._rules.min_in_sync:
            gone = set()                 # without them as little is acknowledged
        waited_ms = {one: here.now_ms - self._even_ms(number, here)
                     for one, number in number_of.items() if one not in gone}
        patience_ms = self._rules.in_sync_timeout_ms
        if all(ms > patience_ms // 4 for ms in waited_ms.values()):
            patience_ms += self._rules.lease_ms     # it may be this one's network (leadership FO11)
        # of several that were never there the former leader goes last: it has all of the log
        # (leadership FO10)
        late = sorted((-ms, number_of[one] == self._former, one)
                      for one, ms in waited_ms.items() if ms > patience_ms)
        spare = max(0, len(others) - len(gone) - self._rules.min_in_sync)
        gone |= {one for *_, one in late[:spare]}
        if self._has_enough(view, state, here, gone):                    # leadership FO12
            gone |= {one for one in others if one in there and state.gap(there[one].first)}
        return {one: store for one, store in state.stores.items() if one not in gone}

    def _has_enough(self, view: View, state: State, here: Here, gone: Collection[int] = ()) -> bool:
        """
        leadership FO12: whether as many others of the set as have to be are near, and have all it
        keeps.
        """
        found = 0
        for member, one in self._candidates(view).items():
            report = here.reports.get(member_number(member, one.store))
            if member not in gone and report is not None and self._is_near(report, here):
                found += not state.gap(one.first)
        return found >= self._rules.min_in_sync

    def _even_ms(self, number: int, here: Here) -> int:
        report = here.reports.get(number)
        if report is None:
            return self._led_ms
        if report.connected and report.acked >= here.end:
            return here.now_ms
        return max(report.even_ms, self._led_ms)

    def _ready(self, view: View, state: State, here: Here) -> dict[int, str]:
        """
        leadership FO3: who may come in now, with its store; on the way, who is waited for from now
        on.
        """
        ready: dict[int, str] = {}
        near = {}
        has_enough = self._has_enough(view, state, here)
        for member, one in view.members.items():
            report = here.reports.get(member_number(member, one.store))
            if (member != self._me.member and state.stores.get(member) != one.store
                    and report is not None and self._is_near(report, here)
                    and not (has_enough and state.gap(one.first))):
                near[member_number(member, one.store)] = member
        self._entering &= set(near)
        waited = (_numbers(state) | set(self._maybe)) - {self._number}
        for number, member in near.items():
            if number not in self._entering:
                if len(waited | self._entering | {number}) <= OTHERS_MAX:
                    self._entering.add(number)
            elif here.applied and here.reports[number].acked >= max(here.replicated, self._led_end):
                ready[member] = view.members[member].store
        return ready

    def _is_near(self, report: Report, here: Here) -> bool:
        return report.connected and (
            report.acked >= here.end
            or here.now_ms - report.even_ms <= self._rules.in_sync_timeout_ms // 2)

    # -- what came of it ---------------------------------------------------------------------------

    def granted(self, lease: int, asked_ns: int) -> None:
        """There is a lease; asked_ns: CLOCK_BOOTTIME before it was asked for."""
        self._granted[lease] = asked_ns
        self._next_lease = lease
        for one in [one for one, at in self._granted.items()
                    if asked_ns - at > LEAD_WAIT_LEASES * self._lease_ns]:
            del self._granted[one]

    def seen(self, view: View, now_ns: int) -> None:
        """All keys, as they are after now_ns, which was before they were asked for."""
        self._fresh = True
        self._view = view
        self._looked_ns = now_ns
        if self._first_look_ns < 0:
            self._first_look_ns = now_ns
        if view.master is not None:
            self._alone_since_ns = -1
        elif self._alone_since_ns < 0:
            self._alone_since_ns = now_ns
        self._know_myself(view)
        self._know_master(view, now_ns)
        if view.state is not None:
            inside, now = _numbers(view.state), view.state_at.revision
            self._maybe = {number: now for number, revision in self._maybe.items()
                           if revision == now or (revision == UNREAD and number not in inside)}
            self._entering -= inside
        if not self._leads:
            self._maybe.clear()
            self._entering.clear()

    def _know_myself(self, view: View) -> None:
        me = self._me
        mine = view.members.get(me.member)
        self.trouble = ""
        if mine is not None and (mine.store, mine.address) != (me.store, me.address) and (
                view.leases.get(me.member) not in self._granted):
            self.trouble = (f"another broker at {mine.address} takes part as member "
                            f"{self._me.member}: expected broker.id to be another one in each, "
                            "and no store to be a copy of another one's")

    def _know_master(self, view: View, now_ns: int) -> None:
        master, state = view.master, view.state
        if master is not None and master.member == self._me.member and (
                view.master_at.lease in self._granted):
            if not self._leads:
                self._begin(master.epoch, now_ns)
            if master.epoch == self._leads:                              # leadership FO6
                self._hold(view.master_at.lease)
                return
        if not self._leads:
            return
        mine = self._me.member, self._leads
        if master is not None and (master.member, master.epoch) != mine:
            self._lose()
        if state is None or (state.master, state.epoch) != mine or (
                state.stores.get(self._me.member) != self._me.store):
            self._lose()

    def transacted(self, asked: Transact, done: bool) -> None:
        """It was done, or it was not since a key was changed before."""
        self._fresh = False
        if asked.lease == self._next_lease:
            self._next_lease = 0
        if not done:
            return
        if asked.lease > 0 and asked.what in ("renew", "claim", "resume"):
            self._lease, self._lease_ns_at = asked.lease, self._granted[asked.lease]
        if asked.what in ("resign", "leave"):
            self._lose()
        elif asked.what in ("claim", "resume") or (
                asked.what == "renew" and asked.compared):
            self._hold(asked.lease)
        self._entering |= asked.adds

    def lost(self, asked: Ask) -> None:
        """leadership FO4: the answer did not come. What was asked for may be done, now or later."""
        self._fresh = False
        if isinstance(asked, Transact):
            if asked.lease == self._next_lease:
                self._next_lease = 0
            revision = dict(asked.compared).get(self._names.state, 0)
            self._maybe.update(dict.fromkeys(asked.adds, revision))

    def _begin(self, epoch: int, now_ns: int) -> None:
        self._leads, self._leads_since_ns, self._led_ms = epoch, now_ns, 0
        self._deadline_ns = self._shown = 0
        self._moving = Moving()

    def _hold(self, lease: int) -> None:
        """leadership FO6: our key has this lease."""
        if lease != self._lease:
            self._lease, self._lease_ns_at = lease, self._granted[lease]
        until = self._granted[lease] + self._lease_ns * (100 - DRIFT_PERCENT) // 100
        self._deadline_ns = max(self._deadline_ns, until)

    def _lose(self) -> None:
        self._leads = self._deadline_ns = self._led_ms = self._former = self._shown = 0
        self._entering.clear()
        self._maybe.clear()


def _rank(view: View, one: Here | Member) -> tuple[int, int, int]:
    """Of two candidates the greater leads: what the set keeps comes before the end of the log."""
    return (0 if view.state is None else -view.state.gap(one.first)), one.epoch, one.end


def _numbers(state: State | None) -> set[int]:
    """Of the set, with the stores that it has."""
    return set() if state is None else {member_number(*one) for one in state.stores.items()}
