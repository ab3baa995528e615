"""The book of deliveries (book.pxd has its rules)."""
from libc.stdint cimport int32_t, int64_t

from mqcore.atomics cimport release_fence, store_i32_release, store_i64_release
from mqcore.layout cimport DELAY_LEVEL_MAX, SCHEDULE_AHEAD_MAX, ScheduleState


cdef inline int64_t name_of(int32_t level, int64_t offset) noexcept nogil:
    return (<int64_t>(level + 1) << BOOK_OFFSET_BITS) | offset


cdef void book_attach(Book* book, ScheduleState* state) noexcept nogil:
    cdef int32_t i
    book.state = state
    book.ahead_count = 0
    for i in range(SCHEDULE_AHEAD_MAX):
        if state.ahead[i]:
            book.ahead_count += 1
    for i in range(DELAY_LEVEL_MAX):
        drop_passed(book, i)


cdef int32_t place_of(const Book* book, int64_t name) noexcept nogil:
    """Where in `ahead` the name stands, or -1."""
    cdef int32_t i, left = book.ahead_count
    for i in range(SCHEDULE_AHEAD_MAX):
        if left == 0:
            break
        if book.state.ahead[i] == name:
            return i
        left -= book.state.ahead[i] != 0
    return -1


cdef bint book_has(const Book* book, int32_t level, int64_t offset) noexcept nogil:
    if offset < book.state.offsets[level]:
        return True
    return book.ahead_count > 0 and place_of(book, name_of(level, offset)) >= 0


cdef void add_ahead(Book* book, int64_t name) noexcept nogil:
    cdef int32_t i
    if place_of(book, name) >= 0:
        return
    for i in range(SCHEDULE_AHEAD_MAX):
        if book.state.ahead[i] == 0:
            store_i64_release(&book.state.ahead[i], name)
            book.ahead_count += 1
            return


cdef void drop_passed(Book* book, int32_t level) noexcept nogil:
    """Free the places of a level's entries that its offset has passed."""
    cdef int32_t i, left = book.ahead_count
    cdef int64_t name
    for i in range(SCHEDULE_AHEAD_MAX):
        if left == 0:
            break
        name = book.state.ahead[i]
        if name == 0:
            continue
        left -= 1
        if (name >> BOOK_OFFSET_BITS == level + 1
                and name < name_of(level, book.state.offsets[level])):
            store_i64_release(&book.state.ahead[i], 0)
            book.ahead_count -= 1


cdef void store_offset(Book* book, int32_t level, int64_t offset) noexcept nogil:
    cdef ScheduleState* state = book.state
    store_i32_release(&state.sequence, state.sequence | 1)     # odd already: its writer died there
    release_fence()
    store_i64_release(&state.offsets[level], offset)
    store_i32_release(&state.sequence, (state.sequence | 1) + 1)


cdef void book_settle(Book* book, int32_t level, int64_t offset) noexcept nogil:
    cdef int64_t next_offset
    if offset < book.state.offsets[level]:
        return
    if offset > book.state.offsets[level]:
        add_ahead(book, name_of(level, offset))
        return
    next_offset = offset + 1
    if book.ahead_count == 0:
        store_offset(book, level, next_offset)
        return
    while place_of(book, name_of(level, next_offset)) >= 0:
        next_offset += 1
    store_offset(book, level, next_offset)                 # then the places: S1 holds throughout
    drop_passed(book, level)


cdef void book_move(Book* book, int32_t level, int64_t offset) noexcept nogil:
    cdef int32_t i
    for i in range(SCHEDULE_AHEAD_MAX):
        if book.state.ahead[i] >> BOOK_OFFSET_BITS == level + 1:
            store_i64_release(&book.state.ahead[i], 0)
            book.ahead_count -= 1
    store_offset(book, level, offset)


cdef void book_move_position(Book* book, int64_t position) noexcept nogil:
    if position > book.state.settled_position:                                      # S2
        store_i64_release(&book.state.settled_position, position)
