"""
For power-cut tests: a disk that remembers every new file, write, truncate and sync of the store in
order, so that a test can build what a machine that lost its power would find.
"""
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from mqcore.store.io cimport StoreIo, io_replace, store_io
from mqcore.store.probes.fd_path cimport fd_path

cdef extern from "<fcntl.h>" nogil:
    int O_CREAT

cdef extern from "<unistd.h>" nogil:
    int access(const char* path, int mode)
    int F_OK

cdef enum:
    RECORDED_MAX = 1 << 16
    PATH_MAX = 512
    KIND_WRITE = 1
    KIND_SYNC = 2
    KIND_TRUNCATE = 3
    KIND_PUSH = 4
    KIND_CREATE = 5

cdef struct RecordedEvent:
    int kind
    int64_t offset
    int64_t size
    uint8_t* data
    char path[PATH_MAX]

cdef StoreIo recording
cdef StoreIo* recorded_io = NULL
cdef RecordedEvent* taken = NULL
cdef int64_t taken_count = 0


cdef RecordedEvent* note(int kind, int fd) noexcept nogil:
    global taken_count
    cdef RecordedEvent* event
    if taken_count == RECORDED_MAX:
        return NULL
    event = &taken[taken_count]
    taken_count += 1
    fd_path(fd, event.path, PATH_MAX)
    event.kind = kind
    event.offset = 0
    event.size = 0
    event.data = NULL
    return event


cdef int record_open(const char* path, int flags, int mode) noexcept nogil:
    cdef bint is_new = flags & O_CREAT and access(path, F_OK) != 0
    cdef int fd = recorded_io.open_file(path, flags, mode)
    if fd >= 0 and is_new:
        note(KIND_CREATE, fd)
    return fd


cdef ssize_t record_write(int fd, const void* data, size_t size, int64_t offset) noexcept nogil:
    cdef ssize_t written = recorded_io.write_at(fd, data, size, offset)
    cdef RecordedEvent* event
    if written > 0:
        event = note(KIND_WRITE, fd)
        if event != NULL:
            event.data = <uint8_t*>malloc(written)
            event.offset = offset
            event.size = written
            if event.data != NULL:
                memcpy(event.data, data, written)
    return written


cdef int record_sync(int fd) noexcept nogil:
    cdef int result = recorded_io.sync_data(fd)
    if result == 0:
        note(KIND_SYNC, fd)
    return result


cdef int record_push(int fd, int64_t offset, int64_t size) noexcept nogil:
    cdef int result = recorded_io.push_data(fd, offset, size)
    cdef RecordedEvent* event
    if result == 0:
        event = note(KIND_PUSH, fd)
        if event != NULL:
            event.offset = offset
            event.size = size
    return result


cdef int record_truncate(int fd, int64_t size) noexcept nogil:
    cdef int result = recorded_io.truncate(fd, size)
    cdef RecordedEvent* event
    if result == 0:
        event = note(KIND_TRUNCATE, fd)
        if event != NULL:
            event.size = size
    return result


def start() -> None:
    """Record from now on. One recording at a time, for tests in one thread."""
    global recorded_io, taken, taken_count, recording
    if recorded_io != NULL:
        raise RuntimeError("a recording runs already")
    taken = <RecordedEvent*>malloc(RECORDED_MAX * sizeof(RecordedEvent))
    if taken == NULL:
        raise MemoryError
    taken_count = 0
    recorded_io = store_io()
    recording = recorded_io[0]
    recording.open_file = record_open
    recording.write_at = record_write
    recording.sync_data = record_sync
    recording.push_data = record_push
    recording.truncate = record_truncate
    io_replace(&recording)


def count() -> int:
    """How many events there are; raises OverflowError when they did not all fit."""
    if taken_count == RECORDED_MAX:
        raise OverflowError(f"more than {RECORDED_MAX} events")
    return taken_count


def stop() -> list[tuple[str, str, int, bytes | int]]:
    """
    The recording: ("create", path, 0, 0), ("write", path, offset, bytes), ("truncate", path, size, 0),
    ("sync", path, 0, 0), ("push", path, offset, size).
    The real disk is back.
    """
    global recorded_io, taken
    cdef RecordedEvent* event
    cdef int64_t i
    names = {KIND_PUSH: "push", KIND_WRITE: "write", KIND_SYNC: "sync", KIND_TRUNCATE: "truncate",
             KIND_CREATE: "create"}
    events = []
    for i in range(count()):
        event = &taken[i]
        path = (<bytes>event.path).decode()
        if event.kind == KIND_WRITE:
            events.append(("write", path, event.offset, (<const char*>event.data)[:event.size]))
        elif event.kind == KIND_PUSH:
            events.append(("push", path, event.offset, event.size))
        else:
            events.append((names[event.kind], path, event.size, 0))
        free(event.data)
    io_replace(NULL)
    free(taken)
    recorded_io = NULL
    taken = NULL
    return events
