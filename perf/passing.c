/*
 * The least that a message costs from end to end on this machine, for the tails of perf.passing: one process takes it
 * from a connection and wakes another, which hands it to a second connection. They look at no byte.
 *
 *     passing RATE SECONDS BYTES
 *
 * The load is here, too: it sends RATE messages a second of BYTES each, with the time in them, and prints in us, as
 * JSON, how long they took: p50, p99, p99.9 and the longest, and how many came.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { RING_BYTES = 1 << 22, READ_BYTES = 1 << 16, BYTES_MAX = 1 << 16 };

struct ring {
  _Alignas(128) atomic_long tail;
  _Alignas(128) atomic_long head;
  _Alignas(128) atomic_int asleep;
  _Alignas(128) char bytes[RING_BYTES];
};

static void must(int well, const char *what) {
  if (well) return;
  fprintf(stderr, "passing: %s: %s\n", what, strerror(errno));
  exit(1);
}

static int64_t now_ns(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return at.tv_sec * 1000000000LL + at.tv_nsec;
}

/* Both ends of a TCP connection over loopback. */
static void connection(int ends[2]) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof address;
  int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
  must(listener >= 0 && bind(listener, (void *)&address, size) == 0 && listen(listener, 1) == 0 &&
           getsockname(listener, (void *)&address, &size) == 0, "a listener");
  ends[0] = socket(AF_INET, SOCK_STREAM, 0);
  must(ends[0] >= 0 && connect(ends[0], (void *)&address, size) == 0, "a connection");
  ends[1] = accept(listener, NULL, NULL);
  must(ends[1] >= 0, "a connection's other end");
  for (int i = 0; i < 2; i++) setsockopt(ends[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  close(listener);
}

static void send_all(int fd, const char *bytes, size_t size) {
  while (size > 0) {
    ssize_t put = send(fd, bytes, size, MSG_NOSIGNAL);
    if (put <= 0) exit(0);
    bytes += put, size -= (size_t)put;
  }
}

static void take(int from, struct ring *ring, int bell) {
  static char bytes[READ_BYTES];
  uint64_t one = 1;
  ssize_t got;
  while ((got = recv(from, bytes, sizeof bytes, 0)) > 0) {
    long tail = atomic_load(&ring->tail);
    while (tail + got - atomic_load(&ring->head) > RING_BYTES) usleep(100);
    for (ssize_t i = 0; i < got; i++) ring->bytes[(tail + i) % RING_BYTES] = bytes[i];
    atomic_store(&ring->tail, tail + got);
    if (atomic_exchange(&ring->asleep, 0)) must(write(bell, &one, sizeof one) == sizeof one, "a bell");
  }
}

static void hand_on(struct ring *ring, int bell, int to) {
  static char bytes[RING_BYTES];
  uint64_t rung;
  for (;;) {
    long head = atomic_load(&ring->head), tail = atomic_load(&ring->tail), size = tail - head;
    if (size == 0) {
      atomic_store(&ring->asleep, 1);
      if (atomic_load(&ring->tail) == head) must(read(bell, &rung, sizeof rung) == sizeof rung, "a bell");
      atomic_store(&ring->asleep, 0);
      continue;
    }
    for (long i = 0; i < size; i++) bytes[i] = ring->bytes[(head + i) % RING_BYTES];
    atomic_store(&ring->head, tail);
    send_all(to, bytes, (size_t)size);
  }
}

static int by_size(const void *one, const void *other) {
  int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
  return (a > b) - (a < b);
}

static void load(int to, int from, long rate, long count, size_t size) {
  static char sent[BYTES_MAX], got[BYTES_MAX];
  int64_t *took = calloc((size_t)count, sizeof *took), begin = now_ns();
  long sends = 0, came = 0;
  size_t have = 0;
  struct epoll_event event = {.events = EPOLLIN};
  int looks = epoll_create1(0);
  must(took != NULL && looks >= 0 && epoll_ctl(looks, EPOLL_CTL_ADD, from, &event) == 0, "a load");
  while (came < count) {
    int64_t due = begin + sends * 1000000000LL / rate, wait = due - now_ns();
    if (sends < count && wait <= 0) {
      memcpy(sent, &due, sizeof due);
      send_all(to, sent, size);
      sends++;
      continue;
    }
    struct timespec pause = {wait / 1000000000, wait % 1000000000};
    int some = epoll_pwait2(looks, &event, 1, sends < count ? &pause : NULL, NULL);
    if (some <= 0) continue;
    ssize_t more = recv(from, got + have, sizeof got - have, 0);
    must(more > 0, "the other end");
    int64_t at = now_ns();
    have += (size_t)more;
    size_t used = 0;
    for (; have - used >= size && came < count; used += size) {
      int64_t began;
      memcpy(&began, got + used, sizeof began);
      took[came++] = at - began;
    }
    memmove(got, got + used, have - used);
    have -= used;
  }
  qsort(took, (size_t)count, sizeof *took, by_size);
  printf("{\"p50_us\": %.1f, \"p99_us\": %.1f, \"p99.9_us\": %.1f, \"max_us\": %.1f, \"count\": %ld}\n",
         took[count / 2] / 1e3, took[count * 99 / 100] / 1e3, took[count * 999 / 1000] / 1e3,
         took[count - 1] / 1e3, came);
}

int main(int argc, char **argv) {
  int in[2], out[2], bell;
  long rate = argc == 4 ? atol(argv[1]) : 0, count = argc == 4 ? rate * atol(argv[2]) : 0;
  long size = argc == 4 ? atol(argv[3]) : 0;
  if (rate < 1 || count < 1 || size < 8 || size > BYTES_MAX) {
    fprintf(stderr, "passing RATE SECONDS BYTES: expected at least 1, 1, and 8 to %d\n", BYTES_MAX);
    return 2;
  }
  struct ring *ring = mmap(NULL, sizeof *ring, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  must(ring != MAP_FAILED && (bell = eventfd(0, 0)) >= 0, "shared memory");
  connection(in);
  connection(out);
  pid_t passers[2];
  for (int i = 0; i < 2; i++) {
    passers[i] = fork();
    must(passers[i] >= 0, "fork");
    if (passers[i] > 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (i == 0) take(in[1], ring, bell);
    if (i == 1) hand_on(ring, bell, out[0]);
    _exit(0);
  }
  load(in[0], out[1], rate, count, (size_t)size);
  for (int i = 0; i < 2; i++) kill(passers[i], SIGKILL);
  return 0;
}
