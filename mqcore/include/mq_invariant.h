/* Invariants that are looked at in the debug build (`make debug`), and cost nothing in any other. */
#ifndef MQ_INVARIANT_H
#define MQ_INVARIANT_H

#ifdef MQ_DEBUG
#include <stdio.h>
#include <stdlib.h>

static inline void mq_broken(const char *rule, const char *condition, const char *file, int line) {
  fprintf(stderr, "invariant %s is broken at %s:%d: %s\n", rule, file, line, condition);
  abort();
}

#define mq_invariant(rule, condition) \
  do { if (!(condition)) mq_broken(rule, #condition, __FILE__, __LINE__); } while (0)
#else
#define mq_invariant(rule, condition) do { (void)(rule); (void)sizeof(condition); } while (0)
#endif
#endif
