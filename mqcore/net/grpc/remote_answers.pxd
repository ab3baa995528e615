# Fields and answers of POP over remoting (remote.pxd has the rules).
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from mqcore.net.grpc.calls cimport Asked, Grpc
from mqcore.net.grpc.pairs cimport Pair
from mqcore.net.grpc.remote cimport RemoteAsker
from mqcore.net.grpc.streams cimport Call
from mqcore.net.remoting.reply cimport Reply
from mqcore.net.transport.transport cimport Connection
from mqcore.store.pop.pop cimport PopClaim
from mqcore.store.record cimport RecordHead, RecordView
from mqcore.text cimport Literal
from mqcore.wire.header cimport Header

cdef enum:
    REMOTE_FIELDS_ROOM = 512           # of an answer, beside its offsets

# -- links (remote RM1)
# Of a serving process; NULL: no connection can be made now.
cdef Connection* link_of(Grpc* g, int32_t link) noexcept nogil
# Its number; -1: the connection is none.
cdef int32_t link_number(const Grpc* g, const Connection* c) noexcept nogil
cdef void link_gone(Grpc* g, const Connection* c) noexcept nogil

# -- requests
# A frame without its length word; False: its header is not of the usual form.
cdef bint read_frame(Grpc* g, const uint8_t* frame, int32_t length, Header* header) noexcept nogil
# Of PopMessageRequestHeader; what is wrong, NULL: nothing.
cdef const char* read_pop(Grpc* g, Asked* a) noexcept nogil
cdef RemoteAsker asker_of(const Call* call) noexcept nogil

# -- answers
# False: no answer is wanted, or there is no memory.
cdef bint reply_open(Grpc* g, const RemoteAsker* asker, Reply* r, int32_t code, const char* remark,
                     int64_t room) noexcept nogil
cdef void reply_close(Grpc* g, Reply* r, int32_t body_length) noexcept nogil
cdef void say_remote(Grpc* g, const RemoteAsker* asker, int32_t code, const char* remark) noexcept nogil
# The messages of look_ahead (receives.pxd).
cdef void say_peeked(Grpc* g, const RemoteAsker* asker) noexcept nogil
cdef void say_notified(Grpc* g, const RemoteAsker* asker, bint has, bint full) noexcept nogil

# -- of a receive (receives.pxd)
cdef void remote_begin(Grpc* g, Pair* pair, const Asked* a) noexcept nogil
cdef bint remote_message(Grpc* g, const uint8_t* record, const RecordView* view,
                         const RecordHead* head, const PopClaim* claim) noexcept nogil
cdef void remote_found(Grpc* g, const Call* call) noexcept nogil
cdef void remote_refuse(Grpc* g, const Call* call, int32_t status, const char* text) noexcept nogil

# -- requests that wait (remote RM3)
# A copy with its frame; NULL: too many, or no memory.
cdef Call* keep_call(Grpc* g, const Call* call) noexcept nogil
# It was answered, or is given up.
cdef void remote_free(Grpc* g, Call* call) noexcept nogil
# The connection has ended.
cdef void remote_closed(Grpc* g, uint64_t connection) noexcept nogil
