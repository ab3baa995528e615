"""Consume queue and extension files of any bytes, as a dispatcher and a reader open them."""
import os
import tempfile
from pathlib import Path

from libc.errno cimport EINVAL, ENOENT, ENOSPC
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc
from libc.string cimport memcpy, memset, strcmp, strcpy, strlen

from mqcore.layout cimport CQ_ENTRY_SIZE, QueueEntry
from mqcore.store.queue.consume_queue cimport (
    QueueFiles,
    QueueItem,
    entry_decode,
    queue_files_open,
    queue_read,
)
from mqcore.store.queue.extension cimport (
    EXTENSION_ADDRESS_BASE,
    ExtensionUnit,
    QueueExtension,
    extension_append,
    extension_begin,
    extension_flush,
    extension_forget,
    extension_fresh,
    extension_keep,
    extension_open,
    extension_read,
    is_extension_address,
)

from mqcore.store.io cimport StoreIo, io_replace

from tests.fuzz.targets.input cimport Input, hold, input_of, take_byte, take_part

cdef extern from *:
    """
    #include <errno.h>
    #include <fcntl.h>
    #define mq_set_errno(value) (errno = (value))
    """
    void set_errno "mq_set_errno"(int value) noexcept nogil
    int O_CREAT

cdef enum:
    FILE_ENTRIES = 16
    FILE_SIZE = 1024
    FILES_MAX = 8
    FILE_ROOM = 4096
    NAME_ROOM = 128
    FD_BASE = 1 << 20                 # above all descriptors of the process

cdef struct MemoryFile:               # a file of this run: the disk costs fifty times as much as its readers
    char name[NAME_ROOM]
    bint is_there                     # else it is only open still
    uint8_t bytes[FILE_ROOM]
    int64_t size

cdef QueueEntry* queue = <QueueEntry*>calloc(1, sizeof(QueueEntry))
cdef QueueFiles* queues = <QueueFiles*>calloc(1, sizeof(QueueFiles))
cdef QueueExtension* units = <QueueExtension*>calloc(1, sizeof(QueueExtension))
cdef MemoryFile* files = <MemoryFile*>calloc(FILES_MAX, sizeof(MemoryFile))
cdef int file_count = 0
cdef StoreIo memory
folder = tempfile.TemporaryDirectory(prefix="mqcore-fuzz-")


# -- a disk of a few files -------------------------------------------------------------------------

cdef int failed(int error) noexcept nogil:
    set_errno(error)
    return -1


cdef int open_file(const char* path, int flags, int mode) noexcept nogil:
    global file_count
    cdef int i
    for i in range(file_count):
        if strcmp(files[i].name, path) == 0:
            break
    else:
        i = file_count
    if i < file_count and files[i].is_there:
        return FD_BASE + i
    if not flags & O_CREAT:
        return failed(ENOENT)
    if i == FILES_MAX or strlen(path) >= NAME_ROOM:
        return failed(ENOSPC)
    file_count = max(file_count, i + 1)
    strcpy(files[i].name, path)
    put(&files[i], NULL, 0, 0)
    return FD_BASE + i


cdef ssize_t write_at(int fd, const void* data, size_t size, int64_t offset) noexcept nogil:
    cdef MemoryFile* file = &files[fd - FD_BASE]
    hold(FD_BASE <= fd < FD_BASE + file_count, "what is written is open")
    if offset + <int64_t>size > FILE_ROOM:
        return failed(ENOSPC)
    memcpy(file.bytes + offset, data, size)
    file.size = max(file.size, offset + <int64_t>size)
    return size


cdef ssize_t read_at(int fd, void* data, size_t size, int64_t offset) noexcept nogil:
    cdef MemoryFile* file = &files[fd - FD_BASE]
    cdef int64_t count
    hold(FD_BASE <= fd < FD_BASE + file_count, "what is read is open")
    if offset < 0:
        return failed(EINVAL)
    count = max(min(<int64_t>size, file.size - offset), <int64_t>0)
    memcpy(data, file.bytes + offset, count)
    return count


cdef int truncate(int fd, int64_t size) noexcept nogil:
    cdef MemoryFile* file = &files[fd - FD_BASE]
    if size > FILE_ROOM:
        return failed(ENOSPC)
    if size < file.size:
        memset(file.bytes + size, 0, file.size - size)
    file.size = size
    return 0


cdef int done(int fd) noexcept nogil:
    return 0


cdef int pushed(int fd, int64_t offset, int64_t size) noexcept nogil:
    return 0


cdef void put(MemoryFile* file, const uint8_t* data, int64_t size, int64_t whole) noexcept nogil:
    memset(file.bytes, 0, FILE_ROOM)
    if size:
        memcpy(file.bytes, data, size)
    file.size = whole
    file.is_there = True


# -- what is read and written ----------------------------------------------------------------------

cdef void read_all(int32_t count) noexcept nogil:
    """Each entry, and the unit behind it."""
    cdef uint8_t entries[FILE_ENTRIES * CQ_ENTRY_SIZE]
    cdef ExtensionUnit unit
    cdef QueueItem item
    cdef int32_t i, got = queue_read(queues, 0, 0, count, entries)
    hold(0 <= got <= count, "no more is read than was asked for")
    extension_fresh(units)
    for i in range(got):
        item = entry_decode(entries + i * CQ_ENTRY_SIZE)
        if not is_extension_address(item.tag_code):
            continue
        if extension_read(units, 0, item.tag_code, &unit):
            hold(units.bytes <= unit.bits
                 and unit.bits + unit.bits_length <= units.bytes + units.length,
                 "a unit lies in what was read")


cdef int extension(const uint8_t* data, size_t size) noexcept nogil:
    """| extension file | queue file | length of the queue file, a byte | entries, a byte |"""
    cdef Input left = input_of(data, size)
    cdef int32_t count = take_byte(&left) % (FILE_ENTRIES + 1)
    cdef int64_t length = min(take_part(&left), <int64_t>(FILE_ENTRIES * CQ_ENTRY_SIZE)), address = 0
    cdef ExtensionUnit unit, again
    cdef uint8_t bits[4]
    cdef int i
    for i in range(2, file_count):     # those that an earlier input made
        files[i].is_there = False
    put(&files[0], data + left.left - length, length, FILE_ENTRIES * CQ_ENTRY_SIZE)
    put(&files[1], data, min(left.left - length, <int64_t>FILE_SIZE), FILE_SIZE)
    queue.max_offset = count
    read_all(count)
    extension_forget(units, 0)
    if extension_begin(units, 0) != 0:
        return 0
    memset(bits, 7, 4)
    unit = ExtensionUnit(tag_code=1, store_time_ms=2, bits=&bits[0], bits_length=4)
    if extension_append(units, &unit, &address) == 0 and extension_flush(units) == 0 and address:
        extension_keep(units)
        extension_fresh(units)
        hold(extension_read(units, 0, address, &again) and again.tag_code == 1
             and again.bits_length == 4, "a unit that was written is read")
    return 0


def begin() -> None:
    root = Path(folder.name)
    for number, name in enumerate(("queues", "units")):
        (root / name / "T" / "0").mkdir(parents=True)
        path = root / name / "T" / "0" / f"{0:020d}"
        path.touch()                   # a folder is looked through where it lies
        assert open_file(os.fsencode(path), O_CREAT, 0) == FD_BASE + number
    memory.open_file, memory.write_at, memory.read_at = open_file, write_at, read_at
    memory.sync_data, memory.sync_all, memory.push_data = done, done, pushed
    memory.truncate, memory.close_file = truncate, done
    io_replace(&memory)
    queue.topic_length = 1
    memcpy(queue.topic, b"T", 1)
    queue_folder, unit_folder = os.fsencode(root / "queues"), os.fsencode(root / "units")
    assert queue_files_open(queues, queue, 1, queue_folder, FILE_ENTRIES, 4, False) == 0
    assert extension_open(units, queue, 1, unit_folder, queue_folder, FILE_ENTRIES, FILE_SIZE, 4,
                          True) == 0


TARGETS = {"extension": <size_t>&extension}
