/*
 * A disk that fails when told: preloaded into a process (LD_PRELOAD), it counts every call on files
 * below one folder and lets one of them, or all from one on, go wrong. The plan lies in a file that
 * FAILING_DISK names and that all processes share, so that children count on.
 *
 *   failing_disk.py knows the layout of struct plan and explains the kinds.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CALLS_MAX = 16384, PATH_BYTES = 120, ROOT_BYTES = 256 };
enum { ONCE, SHORT, TORN, STICKY, WRITES, SYNCS, SLOW, SITE };
enum { OPEN, READ, WRITE, TRUNCATE, ALLOCATE, SYNC, RENAME, UNLINK, MKDIR, RMDIR };

struct call {
    int32_t kind;
    int32_t size;
    char path[PATH_BYTES];
};

struct plan {
    int64_t count;              /* calls so far, since armed */
    int64_t at;                 /* number of the call that goes wrong, from 0; -1: none */
    int64_t fired;              /* how many went wrong */
    int32_t armed;
    int32_t error;
    int32_t kind;
    int32_t root_length;
    char root[ROOT_BYTES];      /* with / at its end */
    int32_t site_kind;          /* of a site: the kind of call, the path with N for numbers */
    char site[PATH_BYTES];
    struct call calls[CALLS_MAX];
};

static struct plan *plan;

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("FAILING_DISK");
    REAL(int, "open64", const char *, int, ...);
    int fd = name ? real(name, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *memory = mmap(NULL, sizeof(struct plan), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory != MAP_FAILED) plan = memory;
}

static int changes(int kind, int flags) {
    return kind == OPEN ? (flags & O_CREAT) != 0 : kind != READ && kind != UNLINK && kind != RMDIR;
}

static int at_site(int kind, const char *path) {
    const char *site = plan->site;
    if (kind != plan->site_kind) return 0;
    while (*path && *site) {
        int digits = strspn(path, "0123456789");
        if (*site++ != (digits ? 'N' : *path)) return 0;
        path += digits ? digits : 1;
    }
    return !*path && !*site;
}

/* Whether this call, on a file below the root, is to go wrong. flags: of an open */
static int wrong(int kind, const char *path, int64_t size, int flags) {
    if (!plan || !__atomic_load_n(&plan->armed, __ATOMIC_ACQUIRE)) return 0;
    if (strncmp(path, plan->root, plan->root_length) != 0) return 0;
    int64_t number = __atomic_fetch_add(&plan->count, 1, __ATOMIC_ACQ_REL);
    if (number < CALLS_MAX) {
        struct call *call = &plan->calls[number];
        call->kind = kind;
        call->size = (int32_t)size;
        snprintf(call->path, PATH_BYTES, "%s", path + plan->root_length);
    }
    int64_t at = plan->at;
    if (plan->kind == SITE)
        return at_site(kind, path + plan->root_length)
            && __atomic_fetch_add(&plan->fired, 1, __ATOMIC_ACQ_REL) == 0;
    if (plan->kind == SLOW) {
        if (kind != WRITE || at < 0 || number < at) return 0;
        __atomic_fetch_add(&plan->fired, 1, __ATOMIC_ACQ_REL);
        for (int left = plan->error; left > 0 && plan->kind == SLOW; left -= 10) usleep(10000);
        return 0;
    }
    int hit = plan->kind == WRITES || plan->kind == SYNCS
        ? kind == (plan->kind == WRITES ? WRITE : SYNC) && at >= 0 && number >= at : at >= 0 && (plan->kind == STICKY ? number >= at && changes(kind, flags)
                                               : number == at);
    if ((plan->kind == SHORT || plan->kind == TORN) && (kind != WRITE || size < 2)) hit = 0;
    if (hit) __atomic_fetch_add(&plan->fired, 1, __ATOMIC_ACQ_REL);
    return hit;
}

static int wrong_fd(int kind, int fd, int64_t size) {
    if (!plan || !__atomic_load_n(&plan->armed, __ATOMIC_ACQUIRE)) return 0;
    char link[40], path[512];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int before = errno;
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = before;
    if (length <= 0) return 0;
    path[length] = 0;
    return wrong(kind, path, size, 0);
}

static int fails(void) {
    errno = plan->error;
    return -1;
}

#define OPENS(name, symbol) \
    int name(const char *path, int flags, ...) { \
        REAL(int, symbol, const char *, int, ...); \
        va_list more; \
        va_start(more, flags); \
        int mode = va_arg(more, int); \
        va_end(more); \
        if (wrong(OPEN, path, 0, flags)) return fails(); \
        return real(path, flags, mode); \
    }
OPENS(open, "open")
OPENS(open64, "open64")

#define READS_AT(name, symbol) \
    ssize_t name(int fd, void *data, size_t size, off64_t offset) { \
        REAL(ssize_t, symbol, int, void *, size_t, off64_t); \
        if (wrong_fd(READ, fd, size)) return fails(); \
        return real(fd, data, size, offset); \
    }
READS_AT(pread, "pread")
READS_AT(pread64, "pread64")

ssize_t read(int fd, void *data, size_t size) {
    REAL(ssize_t, "read", int, void *, size_t);
    if (wrong_fd(READ, fd, size)) return fails();
    return real(fd, data, size);
}

#define WRITES_AT(name, symbol) \
    ssize_t name(int fd, const void *data, size_t size, off64_t offset) { \
        REAL(ssize_t, symbol, int, const void *, size_t, off64_t); \
        if (wrong_fd(WRITE, fd, size)) { \
            if (plan->kind != SHORT && plan->kind != TORN) return fails(); \
            ssize_t half = real(fd, data, size / 2, offset); \
            return plan->kind == SHORT ? half : fails(); \
        } \
        return real(fd, data, size, offset); \
    }
WRITES_AT(pwrite, "pwrite")
WRITES_AT(pwrite64, "pwrite64")

ssize_t write(int fd, const void *data, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t);
    if (wrong_fd(WRITE, fd, size)) {
        if (plan->kind != SHORT && plan->kind != TORN) return fails();
        ssize_t half = real(fd, data, size / 2);
        return plan->kind == SHORT ? half : fails();
    }
    return real(fd, data, size);
}

#define TRUNCATES(name, symbol) \
    int name(int fd, off64_t size) { \
        REAL(int, symbol, int, off64_t); \
        return wrong_fd(TRUNCATE, fd, size) ? fails() : real(fd, size); \
    }
TRUNCATES(ftruncate, "ftruncate")
TRUNCATES(ftruncate64, "ftruncate64")

#define ALLOCATES(name, symbol) \
    int name(int fd, int mode, off64_t offset, off64_t size) { \
        REAL(int, symbol, int, int, off64_t, off64_t); \
        return wrong_fd(ALLOCATE, fd, size) ? fails() : real(fd, mode, offset, size); \
    }
ALLOCATES(fallocate, "fallocate")
ALLOCATES(fallocate64, "fallocate64")

int fdatasync(int fd) {
    REAL(int, "fdatasync", int);
    return wrong_fd(SYNC, fd, 0) ? fails() : real(fd);
}

int fsync(int fd) {
    REAL(int, "fsync", int);
    return wrong_fd(SYNC, fd, 0) ? fails() : real(fd);
}

int rename(const char *from, const char *to) {
    REAL(int, "rename", const char *, const char *);
    return wrong(RENAME, from, 0, 0) ? fails() : real(from, to);
}

int unlink(const char *path) {
    REAL(int, "unlink", const char *);
    return wrong(UNLINK, path, 0, 0) ? fails() : real(path);
}

int mkdir(const char *path, mode_t mode) {
    REAL(int, "mkdir", const char *, mode_t);
    return wrong(MKDIR, path, 0, 0) ? fails() : real(path, mode);
}

int rmdir(const char *path) {
    REAL(int, "rmdir", const char *);
    return wrong(RMDIR, path, 0, 0) ? fails() : real(path);
}
