/* Texts that stand in the code, with the lengths that the compiler knows. */
#ifndef MQ_TEXT_H
#define MQ_TEXT_H
#include <stdint.h>
#include <string.h>

/* Only of an array, without its NUL: the size of a pointer says nothing, and does not compile. */
#define MQ_IS_POINTER(text) __builtin_types_compatible_p(__typeof__(text), __typeof__(&(text)[0]))
#define mq_literal_length(text) \
  ((int32_t)(sizeof(text) - 1 + 0 * sizeof(char[1 - 2 * MQ_IS_POINTER(text)])))

typedef struct {
  const char *text;
  int32_t length;
} mq_literal_t;

#define mq_literal(text) ((mq_literal_t){(text), mq_literal_length(text)})
#define mq_is_literal(at, length, text) \
  ((length) == mq_literal_length(text) && memcmp((at), (text), sizeof(text) - 1) == 0)
#define mq_starts_with(at, length, text) \
  ((length) >= mq_literal_length(text) && memcmp((at), (text), sizeof(text) - 1) == 0)
#define mq_put_literal(at, text) \
  ((uint8_t *)memcpy((at), (text), sizeof(text) - 1) + mq_literal_length(text))
#define mq_item_is(item, text) mq_is_literal((item)->key, (item)->key_length, text)

/* Copies what is mostly short: the ends of what is copied overlap, and nothing is called. Returns the
   place behind it. */
static inline uint8_t *mq_put_short(uint8_t *into, const uint8_t *data, size_t length) {
  if (length > 32) {
    memcpy(into, data, length);
  } else if (length > 16) {
    uint8_t first[16], last[16];
    memcpy(first, data, 16);
    memcpy(last, data + length - 16, 16);
    memcpy(into, first, 16);
    memcpy(into + length - 16, last, 16);
  } else if (length >= 8) {
    uint64_t first, last;
    memcpy(&first, data, 8);
    memcpy(&last, data + length - 8, 8);
    memcpy(into, &first, 8);
    memcpy(into + length - 8, &last, 8);
  } else if (length >= 4) {
    uint32_t first, last;
    memcpy(&first, data, 4);
    memcpy(&last, data + length - 4, 4);
    memcpy(into, &first, 4);
    memcpy(into + length - 4, &last, 4);
  } else if (length) {
    into[0] = data[0];
    into[length / 2] = data[length / 2];
    into[length - 1] = data[length - 1];
  }
  return into + length;
}
#endif
