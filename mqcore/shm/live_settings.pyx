"""
The settings that requests have changed, as every process of a run hears of them.

One writer, the coordinator; a reader that finds another version than it knows reads the whole text.
What the lines mean is said in mqcore/broker/settings/live.py.
"""
from libc.stdint cimport int32_t
from libc.string cimport memcpy

from mqcore.atomics cimport (
    acquire_fence,
    cpu_pause,
    load_i32_acquire,
    release_fence,
    store_i32_release,
)
from mqcore.layout cimport LiveSettings
from mqcore.shm.segment cimport Segment

cdef enum:
    READ_TRIES = 1000


cdef class SettingsBoard:
    """The text in shared memory. `write` is the coordinator's alone."""
    cdef Segment segment
    cdef LiveSettings* board

    def __init__(self, Segment segment not None):
        self.segment = segment
        self.board = segment.shm.live_settings

    @property
    def room(self) -> int:
        """How many bytes the text may have."""
        return sizeof(self.board.text)

    @property
    def version(self) -> int:
        """Another one after each change; 0: nothing was ever written."""
        return load_i32_acquire(&self.board.sequence)

    def write(self, bytes text) -> None:
        """Replace the text; ValueError when it is longer than there is room."""
        cdef int32_t length = <int32_t>len(text)
        cdef int32_t sequence = self.board.sequence | 1      # odd: a predecessor died while it wrote
        if length > <int32_t>sizeof(self.board.text):
            raise ValueError(f"{length} bytes of settings: expected at most {self.room}")
        store_i32_release(&self.board.sequence, sequence)
        release_fence()
        memcpy(self.board.text, <const char*>text, length)
        self.board.length = length
        store_i32_release(&self.board.sequence, sequence + 1)

    def read(self) -> tuple[int, bytes] | None:
        """The version and its text; None while it is being written: ask again later."""
        cdef int32_t sequence, length
        cdef int tries
        for tries in range(READ_TRIES):
            sequence = load_i32_acquire(&self.board.sequence)
            length = self.board.length
            if sequence & 1 or not 0 <= length <= <int32_t>sizeof(self.board.text):
                cpu_pause()
                continue
            text = (<const char*>self.board.text)[:length]
            acquire_fence()
            if load_i32_acquire(&self.board.sequence) == sequence:
                return sequence, text
        return None
