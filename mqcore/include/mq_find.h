/* memmem for short texts: glibc's prepares a table for each call, which costs more than to look. */
#ifndef MQ_FIND_H
#define MQ_FIND_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>

/* Sixteen starts at a time: those with the part's first byte and, where it would end, its last. */
static inline const uint8_t *mq_find_at(const uint8_t *text, const char *part, size_t last) {
  const __m128i first = _mm_set1_epi8(part[0]), end = _mm_set1_epi8(part[last]);
  int hits = _mm_movemask_epi8(
      _mm_and_si128(_mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)text), first),
                    _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(text + last)), end)));
  for (; hits; hits &= hits - 1) {
    const uint8_t *start = text + __builtin_ctz((unsigned)hits);
    if (memcmp(start, part, last) == 0) return start;
  }
  return NULL;
}
#endif

/* Where `part`, of at least one byte, begins in `text`; NULL: nowhere. */
static inline const uint8_t *mq_find(const uint8_t *text, size_t length, const char *part,
                                     size_t part_length) {
#if defined(__SSE2__)
  size_t last = part_length - 1, starts;
  const uint8_t *found;
  if (part_length > length) return NULL;
  starts = length - last;
  if (starts >= 16) {
    for (size_t at = 0; at + 16 < starts; at += 16)
      if ((found = mq_find_at(text + at, part, last)) != NULL) return found;
    return mq_find_at(text + starts - 16, part, last);
  }
  for (size_t at = 0; at < starts; at++)
    if (text[at] == (uint8_t)part[0] && memcmp(text + at, part, part_length) == 0) return text + at;
  return NULL;
#else
  return memmem(text, length, part, part_length);
#endif
}
#endif
