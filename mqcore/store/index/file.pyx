"""Writes the key index."""
from libc.errno cimport EEXIST, EINTR, errno
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.stdio cimport snprintf
from libc.string cimport strncpy
from posix.mman cimport MAP_SHARED, PROT_READ, PROT_WRITE

from mqcore.atomics cimport release_fence
from mqcore.endian cimport load_i32, load_i64, store_i32, store_i64
from mqcore.layout cimport (
    INDEX_BEGIN_POSITION,
    INDEX_BEGIN_TIME,
    INDEX_END_POSITION,
    INDEX_END_TIME,
    INDEX_ENTRY_SIZE,
    INDEX_NEXT_ENTRY,
    INDEX_SLOTS_USED,
)
from mqcore.store.index.layout cimport (
    IndexEntry,
    index_entry_decode,
    index_entry_encode,
    index_entry_start,
    index_file_size,
    index_slot_start,
)
from mqcore.store.io cimport store_io
from mqcore.store.log.view cimport LOG_PATH_MAX
from mqcore.store.record cimport java_hash
from mqcore.text cimport literal_length

cdef extern from "<sys/mman.h>" nogil:
    void* mmap(void* address, size_t length, int protection, int flags, int fd, long offset)
    int munmap(void* address, size_t length)

cdef extern from "<fcntl.h>" nogil:
    int O_RDWR
    int O_CREAT
    int O_EXCL
    int O_CLOEXEC
    int fallocate(int fd, int mode, long offset, long length)

cdef extern from "<unistd.h>" nogil:
    int unlink(const char* path)

cdef extern from "<errno.h>" nogil:
    int EOPNOTSUPP

cdef extern from *:
    """
    #include <stdio.h>
    #include <time.h>
    #define mq_bring_for_writing(address) __builtin_prefetch(address, 1)
    /* yyyyMMddHHmmssSSS in local time: an index file's name */
    static void mq_index_name(char *name, size_t size, int64_t now_ms) {
      time_t seconds = (time_t)(now_ms / 1000);
      struct tm local;
      localtime_r(&seconds, &local);
      snprintf(name, size, "%04d%02d%02d%02d%02d%02d%03d", local.tm_year + 1900, local.tm_mon + 1,
               local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec, (int)(now_ms % 1000));
    }
    """
    void bring_for_writing "mq_bring_for_writing"(const uint8_t* address) noexcept nogil
    void mq_index_name(char* name, size_t size, int64_t now_ms) noexcept nogil

cdef enum:
    ALLOCATE_BYTES = 1 << 20
    NAME_ROOM = 64                    # of a path: a file's name
    CHAIN_LOOK_MAX = 64                # how far I2 looks for a key that may be there


cdef inline int64_t file_size(KeyIndex* index) noexcept nogil:
    return index_file_size(index.slots, index.entries)


cdef inline uint8_t* entry_at(KeyIndex* index, int32_t number) noexcept nogil:
    return index.bytes + index_entry_start(index.slots, number)


cdef inline uint8_t* slot_of(KeyIndex* index, int32_t hash) noexcept nogil:
    return index.bytes + index_slot_start(hash % index.slots)


cdef int index_open(KeyIndex* index, const char* folder, int32_t slots,
                    int32_t entries) noexcept nogil:
    index.slots = slots
    index.entries = entries
    index.bytes = NULL
    index.fd = -1
    index.allocated = 0
    index.keys_count = 0
    index.failure = 0
    index.noted = index.added = 0
    strncpy(index.folder, folder, LOG_PATH_MAX - NAME_ROOM)
    index.folder[LOG_PATH_MAX - NAME_ROOM] = 0
    return 0


cdef void index_close(KeyIndex* index) noexcept nogil:
    if index.bytes != NULL:
        munmap(index.bytes, file_size(index))
        index.bytes = NULL
    if index.fd >= 0:
        store_io().close_file(index.fd)
        index.fd = -1


cdef int allocate(KeyIndex* index, int64_t end) noexcept nogil:
    """Disk space for the file's bytes below end (I1); 0 or errno."""
    end = min((end + ALLOCATE_BYTES - 1) // ALLOCATE_BYTES * ALLOCATE_BYTES, file_size(index))
    if end <= index.allocated:
        return 0
    while fallocate(index.fd, 0, index.allocated, end - index.allocated) != 0:
        if errno == EINTR:
            continue
        if errno == EOPNOTSUPP:        # a file system without it: its own promise has to do
            break
        index.failure = errno
        return errno
    index.allocated = end
    return 0


cdef int map_file(KeyIndex* index, int fd) noexcept nogil:
    cdef void* bytes
    cdef int error
    index.fd = fd
    index.allocated = 0
    if store_io().truncate(fd, file_size(index)) != 0:
        return errno
    error = allocate(index, index_entry_start(index.slots, 0))
    if error:
        return error
    bytes = mmap(NULL, file_size(index), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
    if <long>bytes == -1:
        return errno
    index.bytes = <uint8_t*>bytes
    if load_i32(index.bytes + INDEX_NEXT_ENTRY) <= 0:
        store_i32(index.bytes + INDEX_NEXT_ENTRY, 1)
    return allocate(index, (entry_at(index, load_i32(index.bytes + INDEX_NEXT_ENTRY)) - index.bytes)
                    + INDEX_ENTRY_SIZE)


cdef int index_use(KeyIndex* index, const char* path) noexcept nogil:
    cdef int fd = store_io().open_file(path, O_RDWR | O_CLOEXEC, 0)
    cdef int error
    if fd < 0:
        return errno
    strncpy(index.path, path, LOG_PATH_MAX - 1)
    error = map_file(index, fd)
    if error:
        index_close(index)
    return error


cdef int begin_file(KeyIndex* index, int64_t now_ms) noexcept nogil:
    """
    A new file, its header preset from the full one's end (store.md 4.2). Without one the full file
    stays in use: its end says what is indexed already when this is tried again.
    """
    cdef char name[NAME_ROOM]
    cdef KeyIndex full = index[0]
    cdef int64_t end_time = 0, end_position = 0
    cdef int fd = -1, error
    if full.bytes != NULL:
        end_time = load_i64(full.bytes + INDEX_END_TIME)
        end_position = load_i64(full.bytes + INDEX_END_POSITION)
    while fd < 0:
        mq_index_name(name, sizeof(name), now_ms)
        snprintf(index.path, LOG_PATH_MAX, "%s/%s", index.folder, name)
        fd = store_io().open_file(index.path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0o644)
        if fd < 0 and errno != EEXIST:
            index.failure = errno
            return errno
        now_ms += 1
    index.bytes = NULL
    error = map_file(index, fd)
    if error:
        index_close(index)
        unlink(index.path)             # nobody knows it yet; the next try makes one of its own
        index[0] = full
        index.failure = error
        return error
    if end_time > 0:
        store_i64(index.bytes + INDEX_BEGIN_TIME, end_time)
        store_i64(index.bytes + INDEX_END_TIME, end_time)
    if end_position > 0:
        store_i64(index.bytes + INDEX_BEGIN_POSITION, end_position)
        store_i64(index.bytes + INDEX_END_POSITION, end_position)
    error = index_sync(&full)
    index_close(&full)
    return error


cdef int64_t index_end(KeyIndex* index) noexcept nogil:
    if index.bytes == NULL:
        return -1
    return load_i64(index.bytes + INDEX_END_POSITION)


cdef int32_t index_hash(const uint8_t* topic, int32_t topic_length, const uint8_t* key,
                        int32_t key_length) noexcept nogil:
    cdef int32_t hash = java_hash(<const uint8_t*>"#", literal_length("#"),
                                  java_hash(topic, topic_length, 0))
    hash = java_hash(key, key_length, hash)
    if hash >= 0:
        return hash
    return -hash if -hash > 0 else 0


cdef bint chain_has(KeyIndex* index, int32_t number, int32_t next_entry, int32_t hash,
                    int64_t position) noexcept nogil:
    cdef int32_t looks = 0
    cdef IndexEntry entry
    while 0 < number < next_entry and looks < CHAIN_LOOK_MAX:
        entry = index_entry_decode(entry_at(index, number))
        if entry.key_hash == hash and entry.log_position == position:
            return True
        number = entry.previous
        looks += 1
    return False


cdef bint has_key(KeyIndex* index, int32_t hash, int64_t position) noexcept nogil:
    return chain_has(index, load_i32(slot_of(index, hash)),
                     load_i32(index.bytes + INDEX_NEXT_ENTRY), hash, position)


cdef int add(KeyIndex* index, int32_t hash, int64_t position, int64_t store_time_ms,
             bint maybe_there) noexcept nogil:
    cdef uint8_t* slot
    cdef uint8_t* at
    cdef IndexEntry entry
    cdef int32_t next_entry, newest
    cdef int64_t seconds = 0, begin_time
    cdef int error
    if maybe_there and index.bytes != NULL and has_key(index, hash, position):
        return 0
    if index.bytes == NULL or load_i32(index.bytes + INDEX_NEXT_ENTRY) >= index.entries:
        error = begin_file(index, store_time_ms)
        if error:
            return error
    next_entry = load_i32(index.bytes + INDEX_NEXT_ENTRY)
    slot = slot_of(index, hash)
    newest = load_i32(slot)
    if newest <= 0 or newest > next_entry:
        newest = 0
    at = entry_at(index, next_entry)
    error = allocate(index, at - index.bytes + INDEX_ENTRY_SIZE)
    if error:
        return error
    begin_time = load_i64(index.bytes + INDEX_BEGIN_TIME)
    if begin_time > 0:
        seconds = min(max((store_time_ms - begin_time) // 1000, 0), <int64_t>INT32_MAX)
    entry = IndexEntry(key_hash=hash, log_position=position, seconds=<int32_t>seconds,
                       previous=newest)
    index_entry_encode(at, &entry)
    release_fence()                    # who reads the slot reads a whole entry (query.pyx)
    store_i32(slot, next_entry)
    release_fence()
    if next_entry <= 1:
        store_i64(index.bytes + INDEX_BEGIN_POSITION, position)
        store_i64(index.bytes + INDEX_BEGIN_TIME, store_time_ms)
    if newest == 0:
        store_i32(index.bytes + INDEX_SLOTS_USED, load_i32(index.bytes + INDEX_SLOTS_USED) + 1)
    store_i32(index.bytes + INDEX_NEXT_ENTRY, next_entry + 1)
    store_i64(index.bytes + INDEX_END_POSITION, position)
    store_i64(index.bytes + INDEX_END_TIME, store_time_ms)
    index.keys_count += 1
    return 0


cdef int add_oldest(KeyIndex* index) noexcept nogil:
    """0: it does not wait any more, or errno."""
    cdef WaitingKey* key = &index.waiting[index.added & (KEYS_WAITING - 1)]
    cdef int error = add(index, key.hash, key.position, key.store_time_ms, key.maybe_there)
    index.added += error == 0
    return error


cdef int index_note(KeyIndex* index, int32_t hash, int64_t position, int64_t store_time_ms,
                    bint maybe_there) noexcept nogil:
    cdef int error = add_oldest(index) if index.noted - index.added == KEYS_WAITING else 0
    if error:
        return error
    index.waiting[index.noted & (KEYS_WAITING - 1)] = WaitingKey(
        hash=hash, position=position, store_time_ms=store_time_ms, maybe_there=maybe_there)
    index.noted += 1
    if index.bytes != NULL:
        bring_for_writing(slot_of(index, hash))
    return 0


cdef int index_add_noted(KeyIndex* index) noexcept nogil:
    cdef int error = 0
    while error == 0 and index.added < index.noted:
        error = add_oldest(index)
    index.added = index.noted
    return error


cdef int index_sync(KeyIndex* index) noexcept nogil:
    if index.fd >= 0 and store_io().sync_data(index.fd) != 0:
        return errno
    return 0
