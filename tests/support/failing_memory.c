/*
 * Memory that is refused when told: preloaded into a process (LD_PRELOAD), it counts what native code
 * of mqcore and OpenSSL ask for and refuses one request, or all from one on. The plan lies in a file
 * that FAILING_MEMORY names and that all processes share; one of them is meant.
 *
 *   failing_memory.py knows the layout of struct plan.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct plan {
    int64_t count;              /* requests so far, since armed */
    int64_t at;                 /* number of the one that is refused, from 0; -1: none */
    int64_t fired;              /* how many were refused */
    int32_t pid;                /* whose requests count; 0: nobody's */
    int32_t sticky;             /* all from `at` on are refused */
};

static struct plan *plan;
static pid_t self;

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);

static void forked(void) {
    self = getpid();
}

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("FAILING_MEMORY");
    int fd = name ? open(name, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *memory = mmap(NULL, sizeof(struct plan), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    forked();
    pthread_atfork(NULL, NULL, forked);
    if (memory != MAP_FAILED) plan = memory;
}

struct asker {
    uintptr_t address;
    int is_concerned;
};

/* dladdr would look for a function's name as well, among the thousands of a library. */
static int look(struct dl_phdr_info *loaded, size_t size, void *of) {
    struct asker *asker = of;
    (void)size;
    for (int i = 0; i < loaded->dlpi_phnum; i++) {
        uintptr_t begin = loaded->dlpi_addr + loaded->dlpi_phdr[i].p_vaddr;
        if (loaded->dlpi_phdr[i].p_type != PT_LOAD || asker->address < begin
                || asker->address - begin >= loaded->dlpi_phdr[i].p_memsz) continue;
        asker->is_concerned = strstr(loaded->dlpi_name, "/libcrypto.so")
            || strstr(loaded->dlpi_name, "/libssl.so") || strstr(loaded->dlpi_name, "/mqcore/");
        return 1;
    }
    return 0;
}

/* The interpreter's requests are its own. */
static int is_concerned(const void *caller) {
    struct asker asker = {(uintptr_t)caller, 0};
    dl_iterate_phdr(look, &asker);
    return asker.is_concerned;
}

static int is_refused(const void *caller) {
    if (!plan || __atomic_load_n(&plan->pid, __ATOMIC_ACQUIRE) != self) return 0;
    if (!is_concerned(caller)) return 0;
    int64_t number = __atomic_fetch_add(&plan->count, 1, __ATOMIC_ACQ_REL);
    if (plan->at < 0 || (plan->sticky ? number < plan->at : number != plan->at)) return 0;
    __atomic_fetch_add(&plan->fired, 1, __ATOMIC_ACQ_REL);
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size) {
    return is_refused(__builtin_return_address(0)) ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    return is_refused(__builtin_return_address(0)) ? NULL : __libc_calloc(count, size);
}

void *realloc(void *before, size_t size) {
    return is_refused(__builtin_return_address(0)) ? NULL : __libc_realloc(before, size);
}
