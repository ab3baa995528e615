"""The thread that reads ahead (serving/cold.pxd), asked by hand."""
from libc.stdint cimport int64_t

from mqcore.net.serving.cold cimport (
    ColdReader,
    cold_ask,
    cold_close,
    cold_finished,
    cold_open,
)


cdef class ColdProbe:
    """bell: a descriptor of an eventfd. A named pipe stops the thread until it is opened for writing."""
    cdef ColdReader* reader

    def __cinit__(self, int bell):
        self.reader = cold_open(bell)
        if self.reader == NULL:
            raise MemoryError

    def __dealloc__(self):
        with nogil:
            cold_close(self.reader)

    def ask(self, bytes path, int64_t length) -> int:
        """The first bytes of a file; the job's number, or 0."""
        return cold_ask(self.reader, path, -1, 0, length)

    @property
    def finished(self) -> int:
        """Number of the last job that is done."""
        return cold_finished(self.reader)
