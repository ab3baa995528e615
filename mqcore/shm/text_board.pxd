# A text that one process writes and others read whole, under a sequence (odd while it is written).
from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memcpy

from mqcore.atomics cimport release_fence, store_i32_release
from mqcore.shm.tables cimport Look, look_begin, look_holds

# The only writer's; odd may have been left by a predecessor that died while it wrote.
cdef inline void board_write(int32_t* sequence, int32_t* length, uint8_t* board, const char* text,
                             int32_t size) noexcept nogil:
    cdef int32_t writing = sequence[0] | 1
    store_i32_release(sequence, writing)
    release_fence()
    memcpy(board, text, size)
    length[0] = size
    store_i32_release(sequence, writing + 1)

# (sequence, text); None: it is being written, ask again later.
cdef inline object board_read(const int32_t* sequence, const int32_t* length, const uint8_t* board,
                              int32_t room):
    cdef Look look
    cdef int32_t size
    look.count = 0
    while look_begin(&look, sequence):
        size = length[0]
        if not 0 <= size <= room:
            continue
        text = (<const char*>board)[:size]
        if look_holds(&look, sequence):
            return look.sequence, text
    return None
