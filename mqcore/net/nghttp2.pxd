# nghttp2, found at run time (mqcore/include/mq_nghttp2.h): the C library of HTTP/2 that comes with
# curl and git. The version of the machine is used, so that its updates reach every program.
from libc.stdint cimport int32_t, uint8_t, uint32_t

cdef extern from "mq_nghttp2.h" nogil:
    ctypedef struct Http2Head "mq_http2_head_t":
        size_t length
        int32_t stream_id
        uint8_t type
        uint8_t flags

    ctypedef struct Http2Field "mq_http2_field_t":
        uint8_t* name
        uint8_t* value
        size_t name_length
        size_t value_length
        uint8_t flags

    ctypedef struct Http2Setting "mq_http2_setting_t":
        int32_t id
        uint32_t value

    ctypedef union Http2Source "mq_http2_source_t":
        void* pointer

    ctypedef struct Http2Provider "mq_http2_provider_t":
        Http2Source source
        void* read                     # mq_http2_read_t

    ctypedef struct Http2Memory "mq_http2_memory_t":
        void* user
        void* (*malloc)(size_t, void*) noexcept nogil
        void (*free)(void*, void*) noexcept nogil
        void* (*calloc)(size_t, size_t, void*) noexcept nogil
        void* (*realloc)(void*, size_t, void*) noexcept nogil

    ctypedef struct Nghttp2 "mq_nghttp2_t":
        int (*session_callbacks_new)(void**) noexcept nogil
        void (*session_callbacks_set_on_begin_frame_callback)(void*, void*) noexcept nogil
        void (*session_callbacks_set_on_begin_headers_callback)(void*, void*) noexcept nogil
        void (*session_callbacks_set_on_header_callback)(void*, void*) noexcept nogil
        void (*session_callbacks_set_on_frame_recv_callback)(void*, void*) noexcept nogil
        void (*session_callbacks_set_on_data_chunk_recv_callback)(void*, void*) noexcept nogil
        void (*session_callbacks_set_on_stream_close_callback)(void*, void*) noexcept nogil
        int (*option_new)(void**) noexcept nogil
        void (*option_set_no_closed_streams)(void*, int) noexcept nogil
        int (*session_server_new3)(void**, void*, void*, void*, Http2Memory*) noexcept nogil
        void (*session_del)(void*) noexcept nogil
        ssize_t (*session_mem_recv)(void*, const uint8_t*, size_t) noexcept nogil
        ssize_t (*session_mem_send)(void*, const uint8_t**) noexcept nogil
        int (*session_want_read)(void*) noexcept nogil
        int (*session_want_write)(void*) noexcept nogil
        void* (*session_get_stream_user_data)(void*, int32_t) noexcept nogil
        int (*session_set_stream_user_data)(void* session, int32_t id, void* data) noexcept nogil
        int (*session_set_local_window_size)(void* session, uint8_t flags, int32_t id, int32_t size) noexcept nogil
        int (*session_terminate_session)(void*, uint32_t) noexcept nogil
        int (*session_resume_data)(void*, int32_t) noexcept nogil
        int (*submit_settings)(void* session, uint8_t flags, const Http2Setting* settings, size_t count) noexcept nogil
        int (*submit_response)(void* session, int32_t id, const Http2Field* fields, size_t count,
                               const Http2Provider* provider) noexcept nogil
        int (*submit_trailer)(void* session, int32_t id, const Http2Field* fields, size_t count) noexcept nogil

# Raises Nghttp2Error.
cdef const Nghttp2* nghttp2() except NULL
