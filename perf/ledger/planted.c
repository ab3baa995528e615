/*
 * Planted costs at each write of the log, which the ledger has to find. Preloaded before
 * counting.c, whose calls these are then. MQCORE_PLANTED: clock, copy, page, wake or work.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum { WORK = 500, COPY_BYTES = 64, POOL_BYTES = 1 << 26, PAGE = 4096 };

static char from[COPY_BYTES], to[COPY_BYTES];
static char *pool;
static size_t touched;

static void plant(const char *what) {
  struct timespec now = {0, 1};
  if (strcmp(what, "clock") == 0) clock_gettime(CLOCK_MONOTONIC, &now);
  if (strcmp(what, "copy") == 0) memcpy(to, from, COPY_BYTES);
  if (strcmp(what, "wake") == 0) nanosleep(&now, NULL);
  for (volatile int i = 0; strcmp(what, "work") == 0 && i < WORK;) i++;
  if (strcmp(what, "page") == 0) {
    if (pool == NULL)
      pool = mmap(NULL, POOL_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pool != MAP_FAILED && touched < POOL_BYTES) pool[touched] = 1;
    touched += PAGE;
  }
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t at) {
  static ssize_t (*real)(int, const void *, size_t, off64_t);
  const char *what = getenv("MQCORE_PLANTED");
  if (real == NULL) real = dlsym(RTLD_NEXT, "pwrite64");
  if (what != NULL) plant(what);
  return real(fd, bytes, size, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at) { return pwrite64(fd, bytes, size, at); }
