"""Consume queue and extension files of any bytes, as a dispatcher and a reader open them."""
import os
import tempfile
from pathlib import Path

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc
from libc.string cimport memcpy, memset

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

from tests.fuzz.targets.input cimport Input, hold, input_of, take_byte, take_part

cdef extern from "<fcntl.h>" nogil:
    int open_file "open"(const char* path, int flags, ...)
    int O_RDWR

cdef extern from "<unistd.h>" nogil:
    ssize_t pwrite(int fd, const void* data, size_t size, long place)
    int ftruncate(int fd, long size)

cdef enum:
    FILE_ENTRIES = 16
    FILE_SIZE = 1024

cdef QueueEntry* queue = <QueueEntry*>calloc(1, sizeof(QueueEntry))
cdef QueueFiles* queues = <QueueFiles*>calloc(1, sizeof(QueueFiles))
cdef QueueExtension* units = <QueueExtension*>calloc(1, sizeof(QueueExtension))
cdef int queue_fd, unit_fd
folder = tempfile.TemporaryDirectory(prefix="mqcore-fuzz-")


cdef void put(int fd, const uint8_t* data, int64_t size, int64_t whole) noexcept nogil:
    ftruncate(fd, 0)
    pwrite(fd, data, size, 0)
    ftruncate(fd, whole)


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
    put(queue_fd, data + left.left - length, length, FILE_ENTRIES * CQ_ENTRY_SIZE)
    put(unit_fd, data, min(left.left - length, <int64_t>FILE_SIZE), FILE_SIZE)
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
    global queue_fd, unit_fd
    root = Path(folder.name)
    for name in ("queues", "units"):
        (root / name / "T" / "0").mkdir(parents=True)
        (root / name / "T" / "0" / f"{0:020d}").touch()
    queue.topic_length = 1
    memcpy(queue.topic, b"T", 1)
    queue_folder, unit_folder = os.fsencode(root / "queues"), os.fsencode(root / "units")
    assert queue_files_open(queues, queue, 1, queue_folder, FILE_ENTRIES, 4, False) == 0
    assert extension_open(units, queue, 1, unit_folder, queue_folder, FILE_ENTRIES, FILE_SIZE, 4,
                          True) == 0
    queue_path, unit_path = (os.fsencode(root / name / "T" / "0" / f"{0:020d}")
                             for name in ("queues", "units"))
    queue_fd, unit_fd = open_file(queue_path, O_RDWR), open_file(unit_path, O_RDWR)
    assert queue_fd >= 0 and unit_fd >= 0


TARGETS = {"extension": <size_t>&extension}
