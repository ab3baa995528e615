/* CRC-32C (Castagnoli, reflected polynomial 0x82F63B78), as iSCSI and ext4 have it.
 *
 * With the instructions of SSE4.2 or ARMv8, elsewhere with tables, eight bytes a step in both cases.
 * An instruction waits three cycles for the one before it, and one can begin in each: with PCLMULQDQ
 * too, three parts of a block are summed side by side. The sums of the first two have still to travel
 * over what lies behind them: a sum times x^(d - 33) mod P, given to the instruction with the last
 * word of the block, is that sum behind d bits more (1 of the 33 is that a product of two reflected
 * words lies one bit off, 32 are what the instruction multiplies by). All ways are held against each
 * other in tests/store/test_crc32.py.
 */
#ifndef MQ_CRC32C_H
#define MQ_CRC32C_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <nmmintrin.h>
#include <wmmintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

static uint32_t mq_crc32c_table[8][256];
/* 0: tables, 1: the processor has an instruction for eight bytes, 2: and PCLMULQDQ */
static int mq_crc32c_way;
#define MQ_CRC32C_PART_WORDS 16                 /* of each of the three parts of a block, at most: longer
                                                   ones are no faster, and slower where the bytes come
                                                   from memory; ... */
#define MQ_CRC32C_PART_WORDS_MIN 4              /* ... and at least: else they cost more than they save */
static uint32_t mq_crc32c_behind[2 * MQ_CRC32C_PART_WORDS + 1];     /* x^(64 n - 33) mod P, from 1 on */
static uint32_t mq_crc32c_tables(uint32_t crc, const uint8_t *data, size_t length);

static void mq_crc32c_init(void) {
  for (uint32_t byte = 0; byte < 256; byte++) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0x82F63B78u & (0u - (crc & 1u)));
    mq_crc32c_table[0][byte] = crc;
  }
  for (uint32_t byte = 0; byte < 256; byte++)
    for (int step = 1; step < 8; step++)
      mq_crc32c_table[step][byte] = (mq_crc32c_table[step - 1][byte] >> 8) ^
                                    mq_crc32c_table[0][mq_crc32c_table[step - 1][byte] & 255];
  const uint8_t zeros[8] = {0};
  mq_crc32c_behind[1] = 1;                      /* x^31, reflected */
  for (int words = 2; words <= 2 * MQ_CRC32C_PART_WORDS; words++)
    mq_crc32c_behind[words] = mq_crc32c_tables(mq_crc32c_behind[words - 1], zeros, sizeof zeros);
#if defined(__x86_64__)
  __builtin_cpu_init();
  mq_crc32c_way = !__builtin_cpu_supports("sse4.2") ? 0 : 1 + !!__builtin_cpu_supports("pclmul");
#elif defined(__aarch64__) && defined(__linux__)
  mq_crc32c_way = (getauxval(AT_HWCAP) & (1 << 7)) != 0;      /* HWCAP_CRC32 */
#endif
}

static uint32_t mq_crc32c_tables(uint32_t crc, const uint8_t *data, size_t length) {
  while (length >= 8) {
    uint64_t word;
    memcpy(&word, data, 8);
    word ^= crc;
    crc = mq_crc32c_table[7][word & 255] ^ mq_crc32c_table[6][(word >> 8) & 255] ^
          mq_crc32c_table[5][(word >> 16) & 255] ^ mq_crc32c_table[4][(word >> 24) & 255] ^
          mq_crc32c_table[3][(word >> 32) & 255] ^ mq_crc32c_table[2][(word >> 40) & 255] ^
          mq_crc32c_table[1][(word >> 48) & 255] ^ mq_crc32c_table[0][word >> 56];
    data += 8;
    length -= 8;
  }
  while (length--) crc = (crc >> 8) ^ mq_crc32c_table[0][(crc ^ *data++) & 255];
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2")))
static uint32_t mq_crc32c_stepped(uint32_t crc, const uint8_t *data, size_t length) {
  uint64_t wide = crc;
  for (; length >= 8; data += 8, length -= 8) {
    uint64_t word;
    memcpy(&word, data, 8);
    wide = _mm_crc32_u64(wide, word);
  }
  crc = (uint32_t)wide;
  while (length--) crc = _mm_crc32_u8(crc, *data++);
  return crc;
}

static inline uint64_t mq_crc32c_word(const uint8_t *data, size_t number) {
  uint64_t word;
  memcpy(&word, data + 8 * number, 8);
  return word;
}

__attribute__((target("sse4.2,pclmul")))
static inline uint64_t mq_crc32c_moved(uint64_t crc, size_t words) {
  return (uint64_t)_mm_cvtsi128_si64(_mm_clmulepi64_si128(
      _mm_cvtsi64_si128((int64_t)crc), _mm_cvtsi32_si128((int)mq_crc32c_behind[words]), 0x00));
}

__attribute__((target("sse4.2,pclmul")))
static uint32_t mq_crc32c_wide(uint32_t crc, const uint8_t *data, size_t length) {
  while (length >= 24 * MQ_CRC32C_PART_WORDS_MIN) {
    size_t words = length / 24 < MQ_CRC32C_PART_WORDS ? length / 24 : MQ_CRC32C_PART_WORDS;
    uint64_t a = crc, b = 0, c = 0;
    const uint8_t *behind_a = data + 8 * words, *behind_b = data + 16 * words;
    for (size_t number = 0; number < words - 1; number++) {
      a = _mm_crc32_u64(a, mq_crc32c_word(data, number));
      b = _mm_crc32_u64(b, mq_crc32c_word(behind_a, number));
      c = _mm_crc32_u64(c, mq_crc32c_word(behind_b, number));
    }
    a = _mm_crc32_u64(a, mq_crc32c_word(data, words - 1));
    b = _mm_crc32_u64(b, mq_crc32c_word(behind_a, words - 1));
    c = _mm_crc32_u64(c, mq_crc32c_word(behind_b, words - 1) ^ mq_crc32c_moved(a, 2 * words) ^
                             mq_crc32c_moved(b, words));
    crc = (uint32_t)c;
    data += 24 * words;
    length -= 24 * words;
  }
  return mq_crc32c_stepped(crc, data, length);
}
#elif defined(__aarch64__) && defined(__linux__)
__attribute__((target("+crc")))
static uint32_t mq_crc32c_stepped(uint32_t crc, const uint8_t *data, size_t length) {
  for (; length >= 8; data += 8, length -= 8) {
    uint64_t word;
    memcpy(&word, data, 8);
    crc = __crc32cd(crc, word);
  }
  while (length--) crc = __crc32cb(crc, *data++);
  return crc;
}
#endif

/* way: at most what this processor has */
static uint32_t mq_crc32c_by(int way, const uint8_t *data, size_t length) {
  uint32_t crc = 0xFFFFFFFFu;
#if defined(__x86_64__)
  if (way == 2) return ~mq_crc32c_wide(crc, data, length);
#endif
#if defined(__x86_64__) || (defined(__aarch64__) && defined(__linux__))
  if (way) return ~mq_crc32c_stepped(crc, data, length);
#endif
  return ~mq_crc32c_tables(crc, data, length);
}

static uint32_t mq_crc32c(const uint8_t *data, size_t length) {
  return mq_crc32c_by(mq_crc32c_way, data, length);
}
#endif
