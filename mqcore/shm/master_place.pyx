"""
Where a slave finds its master: the address for the log that the coordinator has learnt.

One writer, the coordinator; who follows the log reads it between its turns.
"""
from libc.stdint cimport int32_t

from mqcore.atomics cimport load_i32_acquire
from mqcore.layout cimport SLOT_HA_SLAVE, MasterPlace
from mqcore.shm.segment cimport Segment, doorbell_ring
from mqcore.shm.text_board cimport board_read, board_write


cdef class MasterSign:
    """The address in shared memory. `write` is the coordinator's alone."""
    cdef Segment segment
    cdef MasterPlace* place

    def __init__(self, Segment segment not None):
        self.segment = segment
        self.place = segment.shm.master_place

    @property
    def version(self) -> int:
        """Another one after each change; 0: nothing was ever written."""
        return load_i32_acquire(&self.place.sequence)

    def write(self, str address) -> None:
        """
        Say it, and wake who follows: host:port; empty: it is not known. ValueError when it is longer
        than there is room.
        """
        text = address.encode()
        cdef int32_t length = <int32_t>len(text)
        if length > <int32_t>sizeof(self.place.address):
            raise ValueError(f"{length} bytes of address: expected at most "
                             f"{sizeof(self.place.address)}")
        board_write(&self.place.sequence, &self.place.length, self.place.address, text, length)
        doorbell_ring(&self.segment.shm.slots[SLOT_HA_SLAVE])

    def read(self) -> tuple[int, str] | None:
        """The version and the address; None while it is being written: ask again later."""
        found = board_read(&self.place.sequence, &self.place.length, self.place.address,
                           <int32_t>sizeof(self.place.address))
        return None if found is None else (found[0], found[1].decode())
