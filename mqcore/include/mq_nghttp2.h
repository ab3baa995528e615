/* The functions of nghttp2 (1.40 and later) that are used: a table, filled at run time. Its headers
   are not needed. The declarations restate its documented binary interface. */
#ifndef MQ_NGHTTP2_H
#define MQ_NGHTTP2_H
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct {
  size_t length;
  int32_t stream_id;
  uint8_t type;
  uint8_t flags;
  uint8_t reserved;
} mq_http2_head_t;

typedef struct {
  uint8_t *name;
  uint8_t *value;
  size_t name_length;
  size_t value_length;
  uint8_t flags;
} mq_http2_field_t;

typedef struct {
  int32_t id;
  uint32_t value;
} mq_http2_setting_t;

typedef union {
  int fd;
  void *pointer;
} mq_http2_source_t;

typedef ssize_t (*mq_http2_read_t)(void *session, int32_t stream_id, uint8_t *into, size_t room,
                                   uint32_t *flags, mq_http2_source_t *source, void *user);

typedef struct {
  mq_http2_source_t source;
  mq_http2_read_t read;
} mq_http2_provider_t;

typedef struct {
  void *user;
  void *(*malloc)(size_t size, void *user);
  void (*free)(void *pointer, void *user);
  void *(*calloc)(size_t count, size_t size, void *user);
  void *(*realloc)(void *pointer, size_t size, void *user);
} mq_http2_memory_t;

typedef int (*mq_http2_begin_frame_t)(void *, const mq_http2_head_t *, void *);
typedef int (*mq_http2_frame_t)(void *, const mq_http2_head_t *, void *);
typedef int (*mq_http2_header_t)(void *, const mq_http2_head_t *, const uint8_t *, size_t,
                                 const uint8_t *, size_t, uint8_t, void *);
typedef int (*mq_http2_chunk_t)(void *, uint8_t, int32_t, const uint8_t *, size_t, void *);
typedef int (*mq_http2_close_t)(void *, int32_t, uint32_t, void *);

/* result, name (without nghttp2_), parameters */
#define MQ_NGHTTP2_FUNCTIONS(X) \
  X(int, session_callbacks_new, (void **callbacks)) \
  X(void, session_callbacks_set_on_begin_frame_callback, (void *, mq_http2_begin_frame_t)) \
  X(void, session_callbacks_set_on_begin_headers_callback, (void *, mq_http2_frame_t)) \
  X(void, session_callbacks_set_on_header_callback, (void *, mq_http2_header_t)) \
  X(void, session_callbacks_set_on_frame_recv_callback, (void *, mq_http2_frame_t)) \
  X(void, session_callbacks_set_on_data_chunk_recv_callback, (void *, mq_http2_chunk_t)) \
  X(void, session_callbacks_set_on_stream_close_callback, (void *, mq_http2_close_t)) \
  X(int, option_new, (void **option)) \
  X(void, option_set_no_closed_streams, (void *option, int yes)) \
  X(int, session_server_new3, (void **session, void *callbacks, void *user, void *option, \
                               mq_http2_memory_t *memory)) \
  X(void, session_del, (void *session)) \
  X(ssize_t, session_mem_recv, (void *session, const uint8_t *data, size_t length)) \
  X(ssize_t, session_mem_send, (void *session, const uint8_t **data)) \
  X(int, session_want_read, (void *session)) \
  X(int, session_want_write, (void *session)) \
  X(void *, session_get_stream_user_data, (void *session, int32_t stream_id)) \
  X(int, session_set_stream_user_data, (void *session, int32_t stream_id, void *data)) \
  X(int, session_set_local_window_size, (void *session, uint8_t flags, int32_t stream_id, \
                                         int32_t size)) \
  X(int, session_terminate_session, (void *session, uint32_t code)) \
  X(int, session_resume_data, (void *session, int32_t stream_id)) \
  X(int, submit_settings, (void *session, uint8_t flags, const mq_http2_setting_t *, size_t)) \
  X(int, submit_response, (void *session, int32_t stream_id, const mq_http2_field_t *, size_t, \
                           const mq_http2_provider_t *)) \
  X(int, submit_trailer, (void *session, int32_t stream_id, const mq_http2_field_t *, size_t))

typedef struct {
#define MQ_NGHTTP2_POINTER(result, name, parameters) result (*name) parameters;
  MQ_NGHTTP2_FUNCTIONS(MQ_NGHTTP2_POINTER)
#undef MQ_NGHTTP2_POINTER
} mq_nghttp2_t;

/* Fills the table from an opened library; the name of the first function that is missing, or NULL. */
static inline const char *mq_nghttp2_find(void *handle, mq_nghttp2_t *library) {
#define MQ_NGHTTP2_FIND(result, name, parameters) \
  *(void **)&library->name = dlsym(handle, "nghttp2_" #name); \
  if (!library->name) return "nghttp2_" #name;
  MQ_NGHTTP2_FUNCTIONS(MQ_NGHTTP2_FIND)
#undef MQ_NGHTTP2_FIND
  return NULL;
}

/* The version that the library says it has, as 0x012800 for 1.40.0; 0: it says nothing. */
static inline int mq_nghttp2_version(void *handle) {
  struct info { int age; int number; const char *text; const char *protocol; };
  struct info *(*version)(int) = (struct info *(*)(int))dlsym(handle, "nghttp2_version");
  struct info *said = version ? version(0) : NULL;
  return said ? said->number : 0;
}
#endif
