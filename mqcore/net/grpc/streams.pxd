# Calls, which are streams of HTTP/2, and the connections that they come by (session.pxd has the rules).
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.net.nghttp2 cimport Nghttp2
from mqcore.net.remoting.frames cimport AccessShare
from mqcore.net.transport.slots cimport SlotList
from mqcore.net.transport.transport cimport Connection, Transport

cdef enum:
    NOTES_MAX = 4
    CALLS_MAX = 256                    # of a connection at once
    CLIENT_ID_MAX = 255
    PREFIX = 5                         # before each message: is it compressed, its length
    NAME_MAX = 64                      # of a method, and of a language
    CREDENTIALS_MAX = 1024             # of the field `authorization`
    DATE_MAX = 64                      # of the field `x-mq-date-time`

cdef enum GrpcStatus:                  # of the protocol's end; what an application hears is a Status
    GRPC_OK = 0
    GRPC_INVALID_ARGUMENT = 3
    GRPC_PERMISSION_DENIED = 7
    GRPC_RESOURCE_EXHAUSTED = 8
    GRPC_UNIMPLEMENTED = 12
    GRPC_INTERNAL = 13
    GRPC_UNAVAILABLE = 14
    GRPC_UNAUTHENTICATED = 16

cdef struct Credentials:               # what a call came with (authorization GA1)
    uint8_t[CREDENTIALS_MAX] authorization
    int32_t length                     # CREDENTIALS_MAX + 1: it is longer
    uint8_t[DATE_MAX] date
    int32_t date_length                # likewise

cdef struct Call:                      # one stream
    int32_t id
    Session* session
    Call* before                       # of the session's calls
    Call* after
    Call* later                        # the next whole call that waits to be served (session HT2)
    bint listed                        # it waits so
    int32_t method                     # of the front: which one
    bint refused                       # its further bytes are passed over
    bint ended                         # its peer says nothing further
    int32_t unanswered                 # messages of one that streams: its end waits for the answers
    int64_t since_us                   # steady: when its fields came
    int64_t timeout_ms                 # -1: as long as it takes
    uint8_t* input                     # from the first prefix on
    int64_t input_length
    int64_t input_capacity
    uint8_t* output                    # prefixed messages, [output_start, output_end) are to be sent
    int64_t output_start
    int64_t output_end
    int64_t output_capacity
    bint answers                       # its fields were said
    bint rests                         # nghttp2 waits for more of its output
    bint done                          # nothing is said behind its output but its end ...
    int status                         # ... with this GrpcStatus
    const char* text                   # NULL: none
    int32_t fields_bytes
    uint8_t[CLIENT_ID_MAX + 1] client_id
    int32_t client_id_length
    uint8_t[NAME_MAX] language
    int32_t language_length
    Credentials* credentials           # NULL: none, or no one looks at them
    void* served                       # the front's; the front lets it go (Door.gone)
    int64_t[NOTES_MAX] notes                   # likewise, without anything to let go

cdef struct Session:
    Connection* connection
    Door* door
    void* http2                        # nghttp2_session
    Call* calls
    int32_t call_count
    Call* whole_first                  # session HT2
    Call* whole_last
    int64_t idle_frames                # session HT5
    int64_t unknown_bytes              # fed, less those of known frames; negative: some are to come
    int32_t pop_client                 # its number in the state of POP; -1: none yet
    AccessShare access

# The room above. All members are set before the first connection.
cdef struct Door:
    Transport* transport
    const Nghttp2* library
    void* callbacks
    void* option
    int64_t message_max                # session HT6: bytes of a request
    bint keeps_credentials             # of calls
    SlotList pending                   # connections with frames to be handed to the transport
    void* top
    # The method of a path; 0: there is none.
    int32_t (*method_of)(const uint8_t* path, size_t length) noexcept nogil
    bint (*streams)(int32_t method) noexcept nogil       # its requests are served as they come
    # A request is whole, or of one that streams a message is: Handled (net/requests.pxd). message: of
    # the call's input.
    int (*serve)(void* top, Connection* c, Call* call, const uint8_t* message,
                 int64_t length) noexcept nogil
    void (*gone)(void* top, Call* call) noexcept nogil   # its stream has ended, or its connection
