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
#endif
