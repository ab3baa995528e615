"""
Texts in shared memory: one process writes each, others read it whole.

A reader compares the version with the one it knows, and reads the text when it is another one.
"""
from libc.stdint cimport int32_t, uint8_t

from mqcore.atomics cimport load_i32_acquire
from mqcore.layout cimport SLOT_HA_SLAVE, LiveSettings
from mqcore.shm.segment cimport Segment, doorbell_ring


cdef class TextBoard:
    """One of the texts. `write` is for one process."""
    cdef Segment segment
    cdef int32_t* sequence
    cdef int32_t* length
    cdef uint8_t* board
    cdef readonly int32_t room         # how many bytes the text may have

    @property
    def version(self) -> int:
        """Another one after each change; 0: nothing was ever written."""
        return load_i32_acquire(self.sequence)

    def write(self, bytes text) -> None:
        """Replace the text; ValueError when it is longer than there is room."""
        if len(text) > self.room:
            raise ValueError(f"{len(text)} bytes of text: expected at most {self.room}")
        board_write(self.sequence, self.length, self.board, text, <int32_t>len(text))

    def read(self) -> tuple[int, bytes] | None:
        """The version and its text; None while it is being written: ask again later."""
        return board_read(self.sequence, self.length, self.board, self.room)


cdef class SettingsBoard(TextBoard):
    """
    Settings that changed while the broker runs: those that hold now, which the coordinator writes,
    or with `said` those of the settings file, which the supervisor writes for the coordinator.
    mqcore/broker/settings/live.py knows the lines.
    """

    def __init__(self, Segment segment not None, *, bint said=False):
        cdef LiveSettings* settings
        settings = segment.shm.said_settings if said else segment.shm.live_settings
        self.segment = segment
        self.sequence = &settings.sequence
        self.length = &settings.length
        self.board = settings.text
        self.room = sizeof(settings.text)


cdef class MasterSign(TextBoard):
    """Where a slave finds its master: host:port for the log; empty: it is not known."""

    def __init__(self, Segment segment not None):
        self.segment = segment
        self.sequence = &segment.shm.master_place.sequence
        self.length = &segment.shm.master_place.length
        self.board = segment.shm.master_place.address
        self.room = sizeof(segment.shm.master_place.address)

    def show(self, str address) -> None:
        """Replace the address, and wake who follows; ValueError when there is no room for it."""
        self.write(address.encode())
        doorbell_ring(&self.segment.shm.slots[SLOT_HA_SLAVE])

    def address(self) -> tuple[int, str] | None:
        """The version and the address; None while it is being written: ask again later."""
        found = self.read()
        return None if found is None else (found[0], found[1].decode())
