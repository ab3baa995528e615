/* CRC-32 (IEEE 802.3, reflected polynomial 0xEDB88320), as zlib's: RocketMQ keeps its lower 31 bits.
 *
 * With PCLMULQDQ 64 bytes are folded at a time: multiplying a 128-bit remainder by x^n mod P for the
 * distance n that it has to travel keeps it congruent. The constants are x^n mod P in reflected form
 * for n = 512+64, 512 (four lanes), 128+64, 128 (one lane), 96, 64, and Barrett's quotient and P.
 * Elsewhere: tables, eight bytes a step. Both are held against zlib in tests/store/test_crc32.py.
 */
#ifndef MQ_CRC32_H
#define MQ_CRC32_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <smmintrin.h>
#include <wmmintrin.h>
#endif

static uint32_t mq_crc_table[8][256];
static int mq_crc_folds;                        /* the processor has PCLMULQDQ and SSE4.1 */

static void mq_crc32_init(void) {
  for (uint32_t byte = 0; byte < 256; byte++) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0xEDB88320u & (0u - (crc & 1u)));
    mq_crc_table[0][byte] = crc;
  }
  for (uint32_t byte = 0; byte < 256; byte++)
    for (int step = 1; step < 8; step++)
      mq_crc_table[step][byte] =
          (mq_crc_table[step - 1][byte] >> 8) ^ mq_crc_table[0][mq_crc_table[step - 1][byte] & 255];
#if defined(__x86_64__)
  __builtin_cpu_init();
  mq_crc_folds = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif
}

static uint32_t mq_crc32_tables(uint32_t crc, const uint8_t *data, size_t length) {
  while (length >= 8) {
    uint64_t word;
    memcpy(&word, data, 8);
    word ^= crc;
    crc = mq_crc_table[7][word & 255] ^ mq_crc_table[6][(word >> 8) & 255] ^
          mq_crc_table[5][(word >> 16) & 255] ^ mq_crc_table[4][(word >> 24) & 255] ^
          mq_crc_table[3][(word >> 32) & 255] ^ mq_crc_table[2][(word >> 40) & 255] ^
          mq_crc_table[1][(word >> 48) & 255] ^ mq_crc_table[0][word >> 56];
    data += 8;
    length -= 8;
  }
  while (length--) crc = (crc >> 8) ^ mq_crc_table[0][(crc ^ *data++) & 255];
  return crc;
}

#if defined(__x86_64__)
#define MQ_CRC_TARGET __attribute__((target("pclmul,sse4.1")))

MQ_CRC_TARGET static inline __m128i mq_crc_fold(__m128i lane, __m128i next, __m128i by) {
  __m128i low = _mm_clmulepi64_si128(lane, by, 0x00);
  __m128i high = _mm_clmulepi64_si128(lane, by, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* length: a multiple of 16, at least 64 */
MQ_CRC_TARGET static uint32_t mq_crc32_folded(uint32_t crc, const uint8_t *data, size_t length) {
  const __m128i by_four = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
  const __m128i by_one = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
  const __m128i by_half = _mm_set_epi64x(0, 0x0163cd6124);
  const __m128i barrett = _mm_set_epi64x(0x01f7011641, 0x01db710641);
  const __m128i low_words = _mm_setr_epi32(-1, 0, -1, 0);
  const __m128i *at = (const __m128i *)data;
  __m128i a = _mm_xor_si128(_mm_loadu_si128(at), _mm_cvtsi32_si128((int)crc));
  __m128i b = _mm_loadu_si128(at + 1), c = _mm_loadu_si128(at + 2), d = _mm_loadu_si128(at + 3);
  at += 4;
  length -= 64;
  while (length >= 64) {
    a = mq_crc_fold(a, _mm_loadu_si128(at), by_four);
    b = mq_crc_fold(b, _mm_loadu_si128(at + 1), by_four);
    c = mq_crc_fold(c, _mm_loadu_si128(at + 2), by_four);
    d = mq_crc_fold(d, _mm_loadu_si128(at + 3), by_four);
    at += 4;
    length -= 64;
  }
  a = mq_crc_fold(a, b, by_one);
  a = mq_crc_fold(a, c, by_one);
  a = mq_crc_fold(a, d, by_one);
  while (length >= 16) {
    a = mq_crc_fold(a, _mm_loadu_si128(at++), by_one);
    length -= 16;
  }
  /* 128 bits to 96 to 64 */
  b = _mm_clmulepi64_si128(a, by_one, 0x10);
  a = _mm_xor_si128(_mm_srli_si128(a, 8), b);
  b = _mm_srli_si128(a, 4);
  a = _mm_and_si128(a, low_words);
  a = _mm_xor_si128(_mm_clmulepi64_si128(a, by_half, 0x00), b);
  /* Barrett: 64 bits to 32 */
  b = _mm_and_si128(a, low_words);
  b = _mm_clmulepi64_si128(b, barrett, 0x10);
  b = _mm_and_si128(b, low_words);
  b = _mm_clmulepi64_si128(b, barrett, 0x00);
  return (uint32_t)_mm_extract_epi32(_mm_xor_si128(a, b), 1);
}
#endif

static uint32_t mq_crc32(const uint8_t *data, size_t length) {
  uint32_t crc = 0xFFFFFFFFu;
#if defined(__x86_64__)
  if (mq_crc_folds && length >= 64) {
    size_t folded = length & ~(size_t)15;
    crc = mq_crc32_folded(crc, data, folded);
    data += folded;
    length -= folded;
  }
#endif
  return ~mq_crc32_tables(crc, data, length);
}
#endif
