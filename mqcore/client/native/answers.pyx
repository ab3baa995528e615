# cython: freethreading_compatible=True
"""The input of a connection: frames are cut, answers find their waiters, sends' answers are read.

The answer of a send is read here when its header is plain JSON, as all brokers write it. Any other
frame is decoded by `mqcore.wire.command` (remoting.md 1, 4.1.1).
"""
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memmove

from mqcore.endian cimport load_i32, load_u32
from mqcore.layout cimport FRAME_HEADER_WORD, FRAME_LENGTH_SIZE
from mqcore.text cimport is_literal

from mqcore.wire.codes import FLAG_RESPONSE, FRAME_LENGTH_MAX
from mqcore.wire.command import FrameError, decode

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
    enum:
        POLLIN
    int poll(pollfd* watched, unsigned long count, int timeout_ms)

cdef extern from "<sys/socket.h>" nogil:
    enum:
        MSG_DONTWAIT
        SHUT_RDWR
        MSG_NOSIGNAL
    ssize_t send(int descriptor, const void* source, size_t size, int flags)
    ssize_t recv(int descriptor, void* target, size_t size, int flags)
    int shutdown(int descriptor, int how)

cdef enum:
    ROOM_MIN = 64 * 1024               # bytes that the peer may always send at once
    NUMBER_DIGITS_MAX = 18
    STORED_CODE_MAX = 12               # 0, 10, 11, 12: the master has the message

cdef int64_t _FLAG_RESPONSE = FLAG_RESPONSE

cdef struct Piece:
    const uint8_t* start
    Py_ssize_t size

cdef struct Answer:                    # what a plain JSON header says
    int64_t code, opaque, flag, queue_id, queue_offset
    bint has_code, has_opaque, has_place
    Piece message_id, region, transaction_id
    bint is_traced


# -- reading a header -----------------------------------------------------------------------------


cdef inline const uint8_t* _blank(const uint8_t* at, const uint8_t* end) noexcept nogil:
    while at < end and (at[0] == c' ' or at[0] == c'\n' or at[0] == c'\r' or at[0] == c'\t'):
        at += 1
    return at


cdef const uint8_t* _text(const uint8_t* at, const uint8_t* end, Piece* piece) noexcept nogil:
    """Behind the string at `at`; NULL: none, or one with escapes."""
    if at >= end or at[0] != c'"':
        return NULL
    piece.start = at + 1
    at += 1
    while at < end and at[0] != c'"':
        if at[0] == c'\\':
            return NULL
        at += 1
    if at >= end:
        return NULL
    piece.size = at - piece.start
    return at + 1


cdef bint _number(Piece piece, int64_t* value) noexcept nogil:
    cdef Py_ssize_t each = 0
    cdef bint negative = piece.size > 0 and piece.start[0] == c'-'
    if piece.size <= negative or piece.size > NUMBER_DIGITS_MAX:
        return False
    value[0] = 0
    for each in range(negative, piece.size):
        if not c'0' <= piece.start[each] <= c'9':
            return False
        value[0] = 10 * value[0] + (piece.start[each] - c'0')
    if negative:
        value[0] = -value[0]
    return True


cdef const uint8_t* _value(const uint8_t* at, const uint8_t* end, Piece* piece) noexcept nogil:
    """Behind a string, number or word, whose text is `piece`; NULL: anything else."""
    if at < end and at[0] == c'"':
        return _text(at, end, piece)
    piece.start = at
    while at < end and (c'0' <= at[0] <= c'9' or c'a' <= at[0] <= c'z' or at[0] == c'-'):
        at += 1
    piece.size = at - piece.start
    return at if piece.size else NULL


cdef bint _take(Piece name, Piece value, Answer* answer, bint inside) noexcept nogil:
    """Note a member; False: a number that is none."""
    if not inside:
        if is_literal(name.start, name.size, "code"):
            answer.has_code = _number(value, &answer.code)
            return answer.has_code
        if is_literal(name.start, name.size, "opaque"):
            answer.has_opaque = _number(value, &answer.opaque)
            return answer.has_opaque
        if is_literal(name.start, name.size, "flag"):
            return _number(value, &answer.flag)
        return True
    if is_literal(name.start, name.size, "queueId"):
        return _number(value, &answer.queue_id)
    if is_literal(name.start, name.size, "queueOffset"):
        answer.has_place = _number(value, &answer.queue_offset)
        return answer.has_place
    if is_literal(name.start, name.size, "msgId"):
        answer.message_id = value
    elif is_literal(name.start, name.size, "MSG_REGION"):
        answer.region = value
    elif is_literal(name.start, name.size, "transactionId"):
        answer.transaction_id = value
    elif is_literal(name.start, name.size, "TRACE_ON"):
        answer.is_traced = not is_literal(value.start, value.size, "false")
    elif is_literal(name.start, name.size, "recallHandle"):
        return False                   # a message with a time of delivery: `answered` reads it
    return True


cdef const uint8_t* _members(
        const uint8_t* at, const uint8_t* end, Answer* answer, bint inside) noexcept nogil:
    """Behind the object at `at`; NULL: it is not plain."""
    cdef Piece name, value
    if at >= end or at[0] != c'{':
        return NULL
    at = _blank(at + 1, end)
    if at < end and at[0] == c'}':
        return at + 1
    while True:
        at = _text(at, end, &name)
        if at == NULL:
            return NULL
        at = _blank(at, end)
        if at >= end or at[0] != c':':
            return NULL
        at = _blank(at + 1, end)
        if (not inside and is_literal(name.start, name.size, "extFields") and at < end
                and at[0] == c'{'):
            at = _members(at, end, answer, True)
        else:
            at = _value(at, end, &value)
            if at != NULL and not _take(name, value, answer, inside):
                return NULL
        if at == NULL:
            return NULL
        at = _blank(at, end)
        if at >= end:
            return NULL
        if at[0] == c'}':
            return at + 1
        if at[0] != c',':
            return NULL
        at = _blank(at + 1, end)


cdef bint _read(const uint8_t* header, Py_ssize_t size, Answer* answer) noexcept nogil:
    """Whether the header is plain, and says which answer it is."""
    answer.has_code = answer.has_opaque = answer.has_place = False
    answer.code = answer.opaque = answer.flag = answer.queue_id = answer.queue_offset = 0
    answer.message_id.size = answer.region.size = answer.transaction_id.size = 0
    answer.is_traced = True
    return (_members(header, header + size, answer, False) == header + size
            and answer.has_code and answer.has_opaque)


cdef str _string(Piece piece):
    return PyUnicode_DecodeUTF8(<const char*>piece.start, piece.size, "replace")


# -- waiters --------------------------------------------------------------------------------------


cdef class Waiter:
    """A wait for the answer to one request, until `deadline`.

    deadline     seconds of the event loop's clock
    wants_place  `stored` is called for an answer that the message is stored, else `answered`
    """

    cdef public double deadline
    cdef public bint wants_place

    def stored(self, code: int, queue_id: int, queue_offset: int, offset_message_id: str,
               region_id: str, transaction_id: str, is_traced: bool) -> None:
        """A send's answer with code 0, 10, 11 or 12."""
        raise NotImplementedError

    def answered(self, command) -> None:
        """Any other answer."""
        raise NotImplementedError

    def failed(self, error) -> None:
        """There is none, and will be none."""
        raise NotImplementedError


cdef bint _says_stored(object found, const Answer* answer) except *:
    """Whether the answer tells `found`, a Waiter or None, the place of its message."""
    return (found is not None and (<Waiter?>found).wants_place and answer.has_place
            and answer.queue_offset >= 0 and 0 <= answer.queue_id <= INT32_MAX
            and (answer.code == 0 or 10 <= answer.code <= STORED_CODE_MAX))


def take_expired(dict waiting, double now) -> tuple:
    """Take those whose deadline is over out of opaque -> waiter.

    Returns them, and the earliest deadline of the others (0.0: no wait is left).
    """
    cdef list late = []
    cdef double earliest = 0.0
    cdef Waiter waiter
    for opaque, found in waiting.items():
        waiter = <Waiter?>found
        if waiter.deadline <= now:
            late.append(opaque)
        elif earliest == 0.0 or waiter.deadline < earliest:
            earliest = waiter.deadline
    return [waiting.pop(opaque) for opaque in late], earliest


# -- a socket in the waiter's own thread ------------------------------------------------------------


def readable(int descriptor, double timeout) -> bool:
    """Whether bytes, or the end, can be read within `timeout` seconds, or a signal came before.

    Raises what a signal's handler does.
    """
    cdef pollfd watched
    cdef int found, timeout_ms = <int>(1000 * timeout) + 1
    watched.fd = descriptor
    watched.events = POLLIN
    with nogil:
        found = poll(&watched, 1, timeout_ms)
    if found < 0 and errno == EINTR:
        PyErr_CheckSignals()
        return False
    return found != 0                   # an error is met by the read


def write_now(int descriptor, bytearray frame, bytearray rest) -> bool:
    """Write a frame; what the socket does not take now goes to the front of `rest`.

    Whether all bytes were taken. An error is met by the next write, too. No exception of a signal
    comes between the write and what it leaves.
    """
    cdef const char* start = PyByteArray_AS_STRING(frame)
    cdef ssize_t size = PyByteArray_GET_SIZE(frame), count
    with nogil:
        count = send(descriptor, start, size, MSG_DONTWAIT | MSG_NOSIGNAL)
    if count == size:
        return True
    rest[:0] = frame[max(count, 0):]
    return False


def end_of_socket(int descriptor) -> None:
    """Nothing more is read or written; a thread in `readable` wakes up. A peer that ended it
    before has woken it as well."""
    shutdown(descriptor, SHUT_RDWR)


# -- frames ---------------------------------------------------------------------------------------


cdef class FrameReader:
    """The bytes of a connection that are not yet a frame, and the way of whole frames."""

    cdef bytearray _buffer
    cdef Py_ssize_t _start, _end
    cdef int64_t _frame_length_max
    cdef dict _waiting
    cdef object _on_request, _on_stray

    def __init__(self, dict waiting, on_request, on_stray, int64_t frame_length_max=FRAME_LENGTH_MAX):
        """
        waiting     opaque -> Waiter; an answered one is taken out
        on_request  called with each request of the peer
        on_stray    called with each answer without a waiter
        """
        self._buffer = bytearray(ROOM_MIN)
        self._frame_length_max = frame_length_max
        self._waiting = waiting
        self._on_request = on_request
        self._on_stray = on_stray

    def room(self) -> memoryview:
        """Where the next bytes go; at least 64 KiB, and the rest of the frame that has begun."""
        self._make_room()
        return memoryview(self._buffer)[self._end:]

    def receive(self, int descriptor) -> bool:
        """Add what a socket has now; False: its end, or an error, which the next read tells too."""
        cdef ssize_t count
        self._make_room()
        count = recv(descriptor, PyByteArray_AS_STRING(self._buffer) + self._end,
                     PyByteArray_GET_SIZE(self._buffer) - self._end, MSG_DONTWAIT)
        if count > 0:
            self._end += count
        return count > 0 or (count < 0 and errno in (EAGAIN, EINTR))

    @property
    def has_bytes(self) -> bool:
        return self._start != self._end

    @property
    def is_whole(self) -> bool:
        """Whether there is something to look at: a frame, or what is none."""
        cdef int64_t length
        if self._end - self._start < FRAME_LENGTH_SIZE:
            return False
        length = load_i32(PyByteArray_AS_STRING(self._buffer) + self._start)
        return (self._end - self._start - FRAME_LENGTH_SIZE >= length
                or not 0 <= length <= self._frame_length_max)

    def take(self, int32_t opaque) -> tuple | None:
        """Take the first frame out, if it says that the message sent with `opaque` is stored.

        Returns what `Waiter.stored` is told; the waiter is taken out, and not told. None: it is
        another frame, or its waiter is gone.
        """
        cdef Answer answer
        cdef int64_t length = load_i32(PyByteArray_AS_STRING(self._buffer) + self._start)
        cdef Py_ssize_t begin = self._start + FRAME_LENGTH_SIZE
        if not self.is_whole or length < 0 or length > self._frame_length_max:
            return None
        if (not self._is_plain_answer(begin, length, &answer) or answer.opaque != opaque
                or not _says_stored(self._waiting.get(answer.opaque), &answer)):
            return None
        del self._waiting[answer.opaque]
        self._start = begin + length
        if self._start == self._end:
            self._start = self._end = 0
        return (answer.code, answer.queue_id, answer.queue_offset, _string(answer.message_id),
                _string(answer.region), _string(answer.transaction_id), answer.is_traced)

    cdef int _make_room(self) except -1:
        cdef Py_ssize_t size = self._end - self._start, wanted = ROOM_MIN
        cdef bytearray larger
        cdef int64_t length
        if size >= FRAME_LENGTH_SIZE:
            length = load_i32(PyByteArray_AS_STRING(self._buffer) + self._start)
            if 0 <= length <= self._frame_length_max:
                wanted = max(wanted, FRAME_LENGTH_SIZE + length - size)
        if PyByteArray_GET_SIZE(self._buffer) - self._end < wanted:
            if PyByteArray_GET_SIZE(self._buffer) < size + wanted:
                larger = bytearray(size + wanted)       # views of the old one may live on
                memcpy(PyByteArray_AS_STRING(larger),
                       PyByteArray_AS_STRING(self._buffer) + self._start, size)
                self._buffer = larger
            else:
                memmove(PyByteArray_AS_STRING(self._buffer),
                        PyByteArray_AS_STRING(self._buffer) + self._start, size)
            self._start, self._end = 0, size
        return 0

    def received(self, Py_ssize_t count) -> None:
        """Take `count` bytes that were written to `room`; answers go to their waiters.

        Raises FrameError for what is no frame: the connection is of no more use.
        """
        cdef int64_t length
        cdef Py_ssize_t begin
        self._end += count
        while self._end - self._start >= FRAME_LENGTH_SIZE:
            length = load_i32(PyByteArray_AS_STRING(self._buffer) + self._start)
            if not 0 <= length <= self._frame_length_max:
                raise FrameError(
                    f"frame length {length}: expected at most {self._frame_length_max}")
            if self._end - self._start - FRAME_LENGTH_SIZE < length:
                return
            begin = self._start + FRAME_LENGTH_SIZE
            self._start = begin + length
            self._frame(begin, length)
        if self._start == self._end:
            self._start = self._end = 0
            if PyByteArray_GET_SIZE(self._buffer) > 16 * ROOM_MIN:
                self._buffer = bytearray(ROOM_MIN)      # one long frame does not cost for ever

    cdef bint _is_plain_answer(self, Py_ssize_t begin, Py_ssize_t length, Answer* answer) noexcept:
        """Whether the frame is an answer whose header could be read."""
        cdef const uint8_t* frame = <const uint8_t*>PyByteArray_AS_STRING(self._buffer) + begin
        cdef Py_ssize_t header_size
        if length < FRAME_HEADER_WORD:
            return False
        header_size = load_u32(frame)                   # a plain one: its kind, the top byte, is 0
        # With the lock: to give it away for less than a microsecond costs more.
        return (header_size <= length - FRAME_HEADER_WORD
                and _read(frame + FRAME_HEADER_WORD, header_size, answer)
                and answer.flag & _FLAG_RESPONSE != 0)

    cdef int _frame(self, Py_ssize_t begin, Py_ssize_t length) except -1:
        cdef Answer answer
        cdef Waiter waiter
        if self._is_plain_answer(begin, length, &answer):
            found = self._waiting.get(answer.opaque)
            if _says_stored(found, &answer):
                waiter = <Waiter>found
                del self._waiting[answer.opaque]
                try:
                    waiter.stored(
                        answer.code, answer.queue_id, answer.queue_offset,
                        _string(answer.message_id), _string(answer.region),
                        _string(answer.transaction_id), answer.is_traced)
                except BaseException:
                    self._waiting.setdefault(answer.opaque, waiter)     # it is told by the close
                    raise
                return 0
        command = decode(memoryview(self._buffer)[begin:begin + length])
        if not command.is_response:
            self._on_request(command)
            return 0
        found = self._waiting.pop(command.opaque, None)
        if found is None:
            self._on_stray(command)
        else:
            try:
                found.answered(command)
            except BaseException:
                self._waiting.setdefault(command.opaque, found)
                raise
        return 0
