"""
Who leads, while that is elected: the words between failover, supervisor, ha-master and those who
answer clients (Leadership in layout.pxd).
"""
from libc.stdint cimport int32_t, int64_t

from mqcore.atomics cimport (
    load_i32_acquire,
    load_i64_acquire,
    release_fence,
    store_i32_release,
    store_i64_release,
)
from mqcore.layout cimport (
    LEADERSHIP_BITS,
    LEADERSHIP_LEADS,
    LEADERSHIP_NONE,
    LEADERSHIP_MEMBERS_MAX,
    SLOT_HA_MASTER,
    SLOT_HA_SLAVE,
    SLOT_SUPERVISOR,
    Leadership,
)
from mqcore.shm.leadership cimport leadership_holds, leadership_leads
from mqcore.shm.segment cimport Segment, doorbell_ring
from mqcore.shm.text_board cimport board_read, board_write


cdef class LeadershipPen:
    """
    The words in shared memory, read by anybody. Of those who write, failover has `want`, `hold_until`,
    `wait_for`, `follow_up` and `say_leader`, the supervisor `begin` and `become`, ha-master its reports natively.
    """
    cdef Segment segment
    cdef Leadership* words

    def __init__(self, Segment segment not None):
        self.segment = segment
        self.words = segment.shm.leadership

    @property
    def requested(self) -> tuple[int, int]:
        """(LEADERSHIP_, epoch) that this broker is to be, as was elected."""
        return parts(&self.words.requested)

    def request(self, int state, int64_t epoch) -> None:
        """Wakes the supervisor. ValueError when there is no such state or epoch."""
        store_i64_release(&self.words.requested, together(state, epoch))
        doorbell_ring(&self.segment.shm.slots[SLOT_SUPERVISOR])

    @property
    def role(self) -> tuple[int, int]:
        """(LEADERSHIP_, epoch) that it is: LEADERSHIP_NONE before the supervisor has said so."""
        return parts(&self.words.role)

    def become(self, int state, int64_t epoch) -> None:
        """It is so. ValueError when there is no such state or epoch."""
        store_i64_release(&self.words.role, together(state, epoch))

    @property
    def begun(self) -> int:
        """Where the log ended when this broker began to lead; 0: it follows, or shows all that it has."""
        return load_i64_acquire(&self.words.begun)

    def begin(self, int64_t position) -> None:
        """Before `become`: its log ends there, and what nobody else has is not shown (FO10)."""
        store_i64_release(&self.words.begun, position)

    @property
    def former(self) -> int:
        """The number of the one whose log this broker had when it was elected; 0: of none (FO10)."""
        return load_i64_acquire(&self.words.former)

    def follow_up(self, int64_t number) -> None:
        """It leads after the member of this number, or with a log of its own: 0."""
        store_i64_release(&self.words.former, number)

    @property
    def leads(self) -> bool:
        """Whether this broker takes messages of clients."""
        return leadership_leads(&self.segment.shm)

    @property
    def holds(self) -> bool:
        """Whether the lease is known to hold now: only then a message is said to be safe."""
        return leadership_holds(&self.segment.shm)

    @property
    def deadline_ns(self) -> int:
        """CLOCK_BOOTTIME: until then; 0: never yet."""
        return load_i64_acquire(&self.words.deadline_ns)

    def hold_until(self, int64_t deadline_ns) -> None:
        """CLOCK_BOOTTIME, in ns; 0: no longer."""
        store_i64_release(&self.words.deadline_ns, deadline_ns)

    def wait_for(self, members, named=()) -> None:
        """
        The numbers (members.py) of the others that have to have what an acknowledgement waits for; wakes ha-master,
        which says in `members_applied` when it goes by them. named: others that etcd names, as many as have
        room behind those. ValueError when there are too many.
        """
        cdef int32_t writing = self.words.members_sequence | 1
        cdef int i
        if len(members) > LEADERSHIP_MEMBERS_MAX:
            raise ValueError(f"{len(members)} members, at most {LEADERSHIP_MEMBERS_MAX}")
        store_i32_release(&self.words.members_sequence, writing)
        release_fence()
        rest = [member for member in named if member not in members]
        for i, member in enumerate([*members, *rest, *[0] * LEADERSHIP_MEMBERS_MAX]
                                   [:LEADERSHIP_MEMBERS_MAX]):
            self.words.members[i] = member
        self.words.members_count = <int32_t>len(members)
        store_i32_release(&self.words.members_sequence, writing + 1)
        doorbell_ring(&self.segment.shm.slots[SLOT_HA_MASTER])

    @property
    def members(self) -> list[int]:
        """The numbers of the others that are waited for, as failover said last."""
        return [self.words.members[i]
                for i in range(min(max(self.words.members_count, 0), LEADERSHIP_MEMBERS_MAX))]

    @property
    def named(self) -> list[int]:
        """The others that etcd names beside those."""
        return [self.words.members[i]
                for i in range(max(self.words.members_count, 0), LEADERSHIP_MEMBERS_MAX)
                if self.words.members[i]]

    @property
    def applied(self) -> bool:
        """Whether ha-master goes by what `wait_for` said last."""
        return (load_i64_acquire(&self.words.members_applied)
                == load_i32_acquire(&self.words.members_sequence))

    @property
    def reports(self) -> dict[int, tuple[int, int, int]]:
        """
        By number (members.py), of those that ha-master has heard of: (log position below which it has every
        byte, when it last had all there was, when it was last heard; steady clock in ms, 0: it is
        not connected).
        """
        cdef dict found = {}
        cdef int64_t member
        cdef int i
        for i in range(LEADERSHIP_MEMBERS_MAX):
            member = load_i64_acquire(&self.words.reports[i].member)
            report = (load_i64_acquire(&self.words.reports[i].acked),
                      load_i64_acquire(&self.words.reports[i].even_ms),
                      load_i64_acquire(&self.words.reports[i].heard_ms))
            if member and load_i64_acquire(&self.words.reports[i].member) == member:
                found[member] = report   # else its place has become another one's meanwhile
        return found

    @property
    def heard_ns(self) -> int:
        """CLOCK_BOOTTIME: when etcd answered last; 0: never."""
        return load_i64_acquire(&self.words.heard_ns)

    def heard(self, int64_t now_ns) -> None:
        """etcd has answered."""
        store_i64_release(&self.words.heard_ns, now_ns)

    def say_leader(self, int64_t member, str address, str ha, int64_t epoch, in_sync) -> None:
        """
        Who leads, and where, for clients and for the log; 0 and nothing: nobody is known to. epoch,
        in_sync: the last one, and the ids of the set, of which there are as many as have room. Wakes
        ha-slave. ValueError when the rest is longer than that.
        """
        text = f"{member}\n{address}\n{ha}\n{epoch}\n".encode()
        ids = b""
        for one in in_sync:
            if len(text) + len(ids) + len(b",%d" % one) > <int>sizeof(self.words.leader):
                break
            ids += b",%d" % one
        text += ids[1:]
        cdef int32_t length = <int32_t>len(text)
        if length > <int32_t>sizeof(self.words.leader):
            raise ValueError(f"{length} bytes of who leads: expected at most "
                             f"{sizeof(self.words.leader)}")
        board_write(&self.words.leader_sequence, &self.words.leader_length, self.words.leader, text,
                    length)
        doorbell_ring(&self.segment.shm.slots[SLOT_HA_SLAVE])

    @property
    def leader_version(self) -> int:
        """Another one after each `say_leader`; 0: nothing was ever said."""
        return load_i32_acquire(&self.words.leader_sequence)

    def leader(self) -> tuple[int, int, str, str, int, list[int]] | None:
        """
        (version, member's id, address, address for the log, epoch, ids of the set); 0 and nothing:
        nobody is known to lead. None while it is being written: ask again later.
        """
        found = board_read(&self.words.leader_sequence, &self.words.leader_length,
                           self.words.leader, <int32_t>sizeof(self.words.leader))
        if found is None:
            return None
        member, address, ha, epoch, ids = (found[1] or b"0\n\n\n0\n").decode().split("\n")
        in_sync = [int(one) for one in ids.split(",") if one]
        return found[0], int(member), address, ha, int(epoch), in_sync


cdef int64_t together(int state, int64_t epoch) except -1:
    if not LEADERSHIP_NONE <= state <= LEADERSHIP_LEADS or epoch < 0:
        raise ValueError(f"state {state} of epoch {epoch}")
    return epoch << LEADERSHIP_BITS | state


cdef tuple parts(const int64_t* word):
    cdef int64_t value = load_i64_acquire(word)
    return value & ((1 << LEADERSHIP_BITS) - 1), value >> LEADERSHIP_BITS
