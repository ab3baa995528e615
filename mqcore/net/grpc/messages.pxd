# A stored record as a Message of the service (grpc.md 2.5).
#
#   GM1  What applications never see (the broker's own properties) is left out; the topic is the one that the
#        message was sent to, also when it comes from a retry topic.
#   GM2  The id is UNIQ_KEY, else the one that the broker gives it.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.net.grpc.protobuf cimport PbWriter
from mqcore.store.record cimport RecordView

cdef enum:
    ENCODING_IDENTITY = 1
    ENCODING_GZIP = 2
    TYPE_NORMAL = 1
    TYPE_FIFO = 2
    TYPE_DELAY = 3
    TYPE_TRANSACTION = 4

cdef struct Delivery:                  # what is said beside the record
    const uint8_t* handle              # NULL: none
    int32_t handle_length
    int32_t attempt                    # 0: not said

# As a field `number` of what is being written. record: as the log has it, of that view.
cdef void put_message(PbWriter* w, int32_t number, const uint8_t* record, const RecordView* view,
                      const Delivery* delivery) noexcept nogil
# Whether a property of that name is the broker's own.
cdef bint is_reserved(const uint8_t* key, int32_t length) noexcept nogil
