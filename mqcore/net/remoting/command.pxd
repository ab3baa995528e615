# RocketMQ's commands for other fronts: in their binary form (remoting.md 1.3) the coordinator is asked,
# and what it says is read.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.net.remoting.frames cimport Request
from mqcore.net.requests cimport PullRequest, SendRequest
from mqcore.wire.header cimport Header, SignedFields, Text

cdef struct Command:                   # that is written; from its beginning on it is to be closed
    uint8_t* frame                     # without its length word
    int32_t length
    int32_t capacity
    bint lacks_memory
    bint has_no_code                   # none that a frame can say: nobody is asked

cdef struct Said:
    Header header
    SignedFields fields                # all that it has; `more`: there are others
    Text remark                        # absent, or empty: none
    const uint8_t* body
    int64_t body_length

# Begin, fields, end; or begin as a send or pull, then end.
cdef void command_begin(Command* m, int32_t code, int32_t opaque, int32_t flag) noexcept nogil
cdef void command_field(Command* m, const uint8_t* name, int32_t name_length, const uint8_t* value,
                        int32_t length) noexcept nogil
cdef void command_of_send(Command* m, const SendRequest* send) noexcept nogil
cdef void command_of_pull(Command* m, const PullRequest* pull) noexcept nogil
# Fills the request, which points into the command until that is closed. False: no memory.
cdef bint command_end(Command* m, const uint8_t* body, int32_t length, Request* request) noexcept nogil
cdef void command_close(Command* m) noexcept nogil
# Of Front.say_frame; points into the frame. False: it is no command that can be read.
cdef bint said_read(const uint8_t* frame, int64_t length, Said* said) noexcept nogil
