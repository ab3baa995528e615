"""Buffers of connections that end, and what a turn gives back of them; for tests."""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from mqcore.net.transport.memory cimport (
    memory_end_turn,
    memory_open,
    memory_return,
    memory_take,
)
from mqcore.net.transport.slots cimport slots_open
from mqcore.net.transport.transport cimport Connection, Transport


cdef class Returning:
    """
    The memory of a process without sockets: buffers are taken, and their connections end.

    bytes_max: of all connections. Raises MemoryError.
    """
    cdef Transport t
    cdef Connection c

    def __cinit__(self, int64_t bytes_max):
        self.t.connection_max = 1
        self.t.connections = <Connection**>calloc(1, sizeof(void*))
        if self.t.connections == NULL or not slots_open(&self.t.doomed, 1):
            raise MemoryError
        memory_open(&self.t, bytes_max)

    def end(self, int32_t count, int64_t size) -> None:
        """As many connections end, each with a buffer of `size` bytes that was written to."""
        cdef void* buffer
        for _ in range(count):
            buffer = malloc(size)
            if buffer == NULL:
                raise MemoryError
            memset(buffer, 1, size)
            memory_return(&self.t, buffer, size)

    def turn(self) -> int:
        """The end of a turn; bytes that it gave back."""
        cdef int64_t before = self.t.memory_used
        memory_end_turn(&self.t)
        return before - self.t.memory_used

    def take(self, int64_t size) -> bool:
        """Whether somebody gets room for `size` bytes now. They stay taken."""
        return memory_take(&self.t, &self.c, size)

    @property
    def used(self) -> int:
        """Bytes that count."""
        return self.t.memory_used

    @property
    def wakeful(self) -> bool:
        """Whether the next turn comes at once. Reading it forgets it, as a turn does."""
        wakeful = self.t.wakeful
        self.t.wakeful = False
        return wakeful

    def __dealloc__(self):
        while self.t.returned.bytes:
            memory_end_turn(&self.t)
        free(self.t.doomed.next)
        free(self.t.doomed.before)
        free(self.t.connections)
