# The header of CHECK_TRANSACTION_STATE (39; remoting.md 4.8), in JSON.
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef enum:
    CHECK_HEADER_ROOM = 512            # and twelve bytes for each of the unique key

cdef struct CheckedMessage:            # the stored copy that is asked about
    int64_t log_position
    int64_t queue_offset
    const uint8_t* store_host
    int32_t store_host_size
    const uint8_t* unique_key
    int32_t unique_key_length

# Returns its end.
cdef uint8_t* put_check_header(uint8_t* at, const CheckedMessage* m, int32_t opaque) noexcept nogil
