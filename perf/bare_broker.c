/*
 * The yardstick of perf.compare: the least that a broker of this protocol does for a message. It takes SEND_MESSAGE_V2
 * with a JSON header, appends a record of the commit log's shape to one mapped file that begins again when it is full,
 * and answers. It has no topics, queues or limits, and looks at no more than what it needs for its own life; answers
 * for a connection that has ended may reach the next one of its number.
 *
 *     bare_broker PORT FILE one|two
 *
 * two: a process that serves and one that writes, with a ring of records and a ring of results between them in shared
 * memory, woken by an eventfd when they sleep, as in the broker; one: the process that serves writes, too.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
  SEGMENT_BYTES = 1 << 30,
  RING_BYTES = 4 << 20,
  CACHE_LINE = 64,
  CONNECTIONS_MAX = 4096,
  QUEUES = 64,
  EVENTS_MAX = 128,
  READ_BYTES = 256 << 10,
  ANSWER_BYTES_MAX = 512,
  BACKLOG = 128,
  FULL_PAUSE_US = 10,
  FRAME_BYTES_MAX = 2 << 20,           /* half of a ring */
  HEADER_LENGTH_MASK = 0xFFFFFF,
  /* where the fields of a record stand */
  RECORD_MAGIC = 0xDAA320A7 - (1ll << 32),
  RECORD_QUEUE_OFFSET = 20,
  RECORD_LOG_POSITION = 28,
  RECORD_STORE_TIME = 56,
  RECORD_BODY = 88,
  RECORD_FIXED_BYTES = 91,
  RECORD_TEXTS_MAX = 127 + 32767,
  SEGMENT_END_BYTES = 8,
};

/* one writes at `tail`, the other reads at `head`; both count bytes */
struct ring {
  _Alignas(CACHE_LINE) _Atomic uint64_t head;
  _Alignas(CACHE_LINE) _Atomic uint64_t tail;
  _Alignas(CACHE_LINE) _Atomic int asleep;
  int bell;
  _Alignas(CACHE_LINE) char data[RING_BYTES];
};

/* what lies in a ring: in `records` a record follows; size 0: the next one lies at the ring's start */
struct slot {
  uint32_t size;
  uint32_t connection, opaque, queue;
  uint64_t queue_offset, log_position;
};

struct connection {
  int fd;
  char *in, *out;
  size_t in_length, in_size;
  size_t out_sent, out_length, out_size;
  bool has_answers;
};

static char *segment;
static uint64_t log_end, queue_offsets[QUEUES];
static struct ring *records, *results;           /* NULL: one process does all */
static bool has_new_records;
static struct connection *connections[CONNECTIONS_MAX];

/* -- numbers ------------------------------------------------------------------------------------------------------ */

/* of libz.so.1, which every Python has; its header may not be there */
extern unsigned long crc32(unsigned long crc, const unsigned char *bytes, unsigned length);

static void store_i32(char *at, uint32_t value) { value = htobe32(value); memcpy(at, &value, 4); }
static void store_i64(char *at, uint64_t value) { value = htobe64(value); memcpy(at, &value, 8); }

static uint32_t load_i32(const char *at) {
  uint32_t value;
  memcpy(&value, at, 4);
  return be32toh(value);
}

static uint64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME_COARSE, &now);
  return now.tv_sec * 1000ull + now.tv_nsec / 1000000;
}

static void *memory(void *before, size_t size) {
  void *made = realloc(before, size);
  if (made == NULL) abort();
  return made;
}

/* -- records ------------------------------------------------------------------------------------------------------ */

struct text { const char *start; size_t length; };

/* The text of a field, `"name":"`; false: there is none. */
static bool field(const char *header, size_t length, const char *name, struct text *found) {
  size_t name_length = strlen(name);
  const char *end, *at = memmem(header, length, name, name_length);
  if (at == NULL) return false;
  at += name_length;
  end = memchr(at, '"', header + length - at);
  if (end == NULL) return false;
  *found = (struct text){at, end - at};
  return true;
}

/* A number that digits end somewhere before the header does. */
static bool number(const char *header, size_t length, const char *name, int64_t *value) {
  size_t name_length = strlen(name);
  const char *at = memmem(header, length, name, name_length), *end = header + length;
  if (at == NULL) return false;
  *value = 0;
  for (at += name_length; at < end && *at >= '0' && *at <= '9'; at++) *value = *value * 10 + (*at - '0');
  return at < end;
}

/*
 * A record at `to`, but for what the writer knows alone; its bytes, 0: that is no such request. `to` has room for the
 * frame and RECORD_FIXED_BYTES.
 */
static uint32_t encode_record(char *to, const char *header, size_t header_length, const char *body,
                              uint32_t body_length, struct slot *request) {
  struct text topic, properties;
  int64_t opaque, queue, born_ms;
  char *at = to;
  if (!field(header, header_length, "\"b\":\"", &topic) || !field(header, header_length, "\"i\":\"", &properties)
      || !number(header, header_length, "\"e\":\"", &queue) || !number(header, header_length, "\"g\":\"", &born_ms)
      || !number(header, header_length, "\"opaque\":", &opaque) || topic.length + properties.length > RECORD_TEXTS_MAX)
    return 0;
  request->opaque = opaque;
  request->queue = queue % QUEUES;
  request->size = RECORD_FIXED_BYTES + body_length + topic.length + properties.length;
  memset(to, 0, RECORD_BODY);
  store_i32(to, request->size);
  store_i32(to + 4, RECORD_MAGIC);
  store_i32(to + 8, crc32(0, (const unsigned char *)body, body_length) & 0x7FFFFFFF);
  store_i32(to + 12, request->queue);
  store_i64(to + 40, born_ms);
  store_i32(to + RECORD_BODY - 4, body_length);
  at = mempcpy(to + RECORD_BODY, body, body_length);
  *at++ = topic.length;
  at = mempcpy(at, topic.start, topic.length);
  *at++ = properties.length >> 8;
  *at++ = properties.length;
  memcpy(at, properties.start, properties.length);
  return request->size;
}

/* Where a record of so many bytes goes. */
static char *place(uint32_t size) {
  uint64_t at = log_end % SEGMENT_BYTES;
  if (at + size + SEGMENT_END_BYTES > SEGMENT_BYTES) {
    log_end += SEGMENT_BYTES - at;
    at = 0;
  }
  return segment + at;
}

/* The writer's part of a record, which may lie where it goes. */
static void append(const char *record, struct slot *done) {
  char *to = place(done->size);
  if (record != to) memcpy(to, record, done->size);
  done->queue_offset = queue_offsets[done->queue]++;
  done->log_position = log_end;
  store_i64(to + RECORD_QUEUE_OFFSET, done->queue_offset);
  store_i64(to + RECORD_LOG_POSITION, log_end);
  store_i64(to + RECORD_STORE_TIME, now_ms());
  log_end += done->size;
}

/* -- rings -------------------------------------------------------------------------------------------------------- */

static uint32_t aligned(uint32_t size) { return (size + 7) & ~7u; }

/* Room for so many bytes in one piece; waits for it. */
static char *reserve(struct ring *ring, uint32_t size) {
  size = aligned(size);
  for (;;) {
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
    uint32_t at = tail % RING_BYTES, left = RING_BYTES - at;
    if (tail + size + (size > left ? left : 0) - head <= RING_BYTES) {
      if (size <= left) return ring->data + at;
      ((struct slot *)(ring->data + at))->size = 0;
      atomic_store_explicit(&ring->tail, tail + left, memory_order_release);
      return ring->data;
    }
    usleep(FULL_PAUSE_US);
  }
}

static void commit(struct ring *ring, uint32_t size) {
  atomic_fetch_add_explicit(&ring->tail, aligned(size), memory_order_seq_cst);
}

static void wake(struct ring *ring) {
  if (atomic_load_explicit(&ring->asleep, memory_order_seq_cst)) eventfd_write(ring->bell, 1);
}

/* The next slot; NULL: there is none before `tail`. */
static struct slot *next(struct ring *ring, uint64_t *head, uint64_t tail) {
  while (*head < tail) {
    struct slot *slot = (struct slot *)(ring->data + *head % RING_BYTES);
    if (slot->size) return slot;
    *head += RING_BYTES - *head % RING_BYTES;
  }
  return NULL;
}

static struct ring *make_ring(int flags) {
  struct ring *ring = mmap(NULL, sizeof(struct ring), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (ring == MAP_FAILED || (ring->bell = eventfd(0, flags)) < 0) abort();
  return ring;
}

static void write_records(void) {
  for (;;) {
    uint64_t head = atomic_load_explicit(&records->head, memory_order_relaxed);
    uint64_t tail = atomic_load_explicit(&records->tail, memory_order_acquire);
    struct slot *request;
    if (head == tail) {
      eventfd_t rung;
      atomic_store(&records->asleep, 1);
      if (head == atomic_load(&records->tail)) eventfd_read(records->bell, &rung);
      atomic_store_explicit(&records->asleep, 0, memory_order_relaxed);
      continue;
    }
    while ((request = next(records, &head, tail)) != NULL) {
      struct slot *result = (struct slot *)reserve(results, sizeof(struct slot));
      *result = *request;
      append((const char *)(request + 1), result);
      commit(results, sizeof(struct slot));
      head += aligned(sizeof(struct slot) + request->size);
    }
    atomic_store_explicit(&records->head, head, memory_order_release);
    wake(results);
  }
}

/* -- connections -------------------------------------------------------------------------------------------------- */

static void answer(struct connection *c, const struct slot *done) {
  char *at;
  int length;
  if (c->out_size - c->out_length < ANSWER_BYTES_MAX) c->out = memory(c->out, c->out_size = 2 * c->out_size + 65536);
  at = c->out + c->out_length;
  length = sprintf(
      at + 8,
      "{\"code\":0,\"extFields\":{\"msgId\":\"7F00000100002A9F%016llX\",\"queueId\":\"%u\",\"queueOffset\":\"%llu\"},"
      "\"flag\":1,\"language\":\"CPP\",\"opaque\":%u,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":409}",
      (unsigned long long)done->log_position, done->queue, (unsigned long long)done->queue_offset, done->opaque);
  store_i32(at, length + 4);
  store_i32(at + 4, length);
  c->out_length += 8 + length;
  c->has_answers = true;
}

/* What the socket does not take waits for the next answer. */
static void send_answers(struct connection *c) {
  while (c->out_sent < c->out_length) {
    ssize_t sent = write(c->fd, c->out + c->out_sent, c->out_length - c->out_sent);
    if (sent < 0) return;
    c->out_sent += sent;
  }
  c->out_sent = c->out_length = 0;
  c->has_answers = false;
}

static void end(struct connection *c) {
  connections[c->fd] = NULL;
  close(c->fd);
  free(c->in);
  free(c->out);
  free(c);
}

/* One frame without its length; false: it is no send. */
static bool take(struct connection *c, const char *frame, uint32_t length) {
  uint32_t header_length = load_i32(frame) & HEADER_LENGTH_MASK, body_length = length - 4 - header_length;
  const char *header = frame + 4, *body = header + header_length;
  struct slot request = {.connection = c->fd};
  char *room;
  if (header_length > length - 4) return false;
  if (records == NULL) {
    room = place(length + RECORD_FIXED_BYTES);
    if (!encode_record(room, header, header_length, body, body_length, &request)) return false;
    append(room, &request);
    answer(c, &request);
    return true;
  }
  room = reserve(records, sizeof(struct slot) + length + RECORD_FIXED_BYTES);
  if (!encode_record(room + sizeof(struct slot), header, header_length, body, body_length, &request)) return false;
  *(struct slot *)room = request;
  commit(records, sizeof(struct slot) + request.size);
  has_new_records = true;
  return true;
}

/* What came; false: the connection is at its end. */
static bool take_all(struct connection *c) {
  size_t at = 0;
  ssize_t got;
  if (c->in_size - c->in_length < READ_BYTES) c->in = memory(c->in, c->in_size = 2 * c->in_size + 2 * READ_BYTES);
  got = read(c->fd, c->in + c->in_length, c->in_size - c->in_length);
  if (got <= 0) return got < 0 && errno == EAGAIN;
  c->in_length += got;
  while (c->in_length - at >= 4) {
    uint32_t length = load_i32(c->in + at);
    if (length < 4 || length > FRAME_BYTES_MAX) return false;
    if (c->in_length - at < 4 + (size_t)length) break;
    if (!take(c, c->in + at + 4, length)) return false;
    at += 4 + length;
  }
  memmove(c->in, c->in + at, c->in_length - at);
  c->in_length -= at;
  if (c->has_answers) send_answers(c);
  return true;
}

static void take_results(void) {
  uint64_t head = atomic_load_explicit(&results->head, memory_order_relaxed);
  uint64_t tail = atomic_load_explicit(&results->tail, memory_order_acquire);
  int touched[EVENTS_MAX], count = 0;
  struct slot *done;
  for (; (done = next(results, &head, tail)) != NULL; head += sizeof(struct slot)) {
    struct connection *c = connections[done->connection];
    if (c == NULL) continue;
    if (!c->has_answers && count < EVENTS_MAX) touched[count++] = c->fd;
    answer(c, done);
  }
  atomic_store_explicit(&results->head, head, memory_order_release);
  while (count > 0) send_answers(connections[touched[--count]]);
}

static void listen_to(int poll, int fd) {
  struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
  if (epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event)) abort();
}

static void let_in(int poll, int listener) {
  int on = 1, fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) return;
  if (fd >= CONNECTIONS_MAX) {
    close(fd);
    return;
  }
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  connections[fd] = memset(memory(NULL, sizeof(struct connection)), 0, sizeof(struct connection));
  connections[fd]->fd = fd;
  listen_to(poll, fd);
}

static void serve(int listener) {
  int poll = epoll_create1(EPOLL_CLOEXEC);
  listen_to(poll, listener);
  if (results != NULL) listen_to(poll, results->bell);
  for (;;) {
    struct epoll_event events[EVENTS_MAX];
    int count, timeout = -1;
    if (results != NULL) {
      atomic_store(&results->asleep, 1);
      if (atomic_load(&results->head) != atomic_load(&results->tail)) timeout = 0;
    }
    count = epoll_wait(poll, events, EVENTS_MAX, timeout);
    if (results != NULL) atomic_store_explicit(&results->asleep, 0, memory_order_relaxed);
    for (int i = 0; i < count; i++) {
      int fd = events[i].data.fd;
      eventfd_t rung;
      if (fd == listener)
        let_in(poll, listener);
      else if (results != NULL && fd == results->bell)
        eventfd_read(fd, &rung);
      else if (!take_all(connections[fd]))
        end(connections[fd]);
    }
    if (results != NULL) {
      if (has_new_records) wake(records);
      has_new_records = false;
      take_results();
    }
  }
}

/* -- the program -------------------------------------------------------------------------------------------------- */

static int fail(const char *what) {
  perror(what);
  return 1;
}

int main(int argc, char **argv) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int on = 1, file, error, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (argc != 4 || (strcmp(argv[3], "one") != 0 && strcmp(argv[3], "two") != 0)) {
    fprintf(stderr, "expected: %s PORT FILE one|two\n", argv[0]);
    return 2;
  }
  address.sin_port = htons(atoi(argv[1]));
  file = open(argv[2], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return fail(argv[2]);
  error = posix_fallocate(file, 0, SEGMENT_BYTES);
  if (error) {
    errno = error;
    return fail(argv[2]);
  }
  segment = mmap(NULL, SEGMENT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (segment == MAP_FAILED) return fail(argv[2]);
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, BACKLOG)) return fail(argv[1]);
  if (strcmp(argv[3], "two") == 0) {
    records = make_ring(0);
    results = make_ring(EFD_NONBLOCK);
    if (fork() == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      write_records();
    }
  }
  serve(listener);
}
