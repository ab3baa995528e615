"""
The settings that requests have changed, as every process of a run hears of them.

One writer, the coordinator; a reader that finds another version than it knows reads the whole text.
What the lines mean is said in mqcore/broker/settings/live.py.
"""
from libc.stdint cimport int32_t

from mqcore.atomics cimport load_i32_acquire
from mqcore.layout cimport LiveSettings
from mqcore.shm.segment cimport Segment
from mqcore.shm.text_board cimport board_read, board_write


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
        if length > <int32_t>sizeof(self.board.text):
            raise ValueError(f"{length} bytes of settings: expected at most {self.room}")
        board_write(&self.board.sequence, &self.board.length, self.board.text, text, length)

    def read(self) -> tuple[int, bytes] | None:
        """The version and its text; None while it is being written: ask again later."""
        return board_read(&self.board.sequence, &self.board.length, self.board.text,
                          <int32_t>sizeof(self.board.text))
