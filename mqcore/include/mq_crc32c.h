/* CRC-32C (Castagnoli, reflected polynomial 0x82F63B78), as iSCSI and ext4 have it.
 *
 * With the instructions of SSE4.2 or ARMv8, elsewhere with tables, eight bytes a step in both cases.
 * (Folding, as in mq_crc32.h, is no faster here: the instruction takes 8 bytes in 3 cycles.) Both
 * are held against each other in tests/store/test_crc32.py.
 */
#ifndef MQ_CRC32C_H
#define MQ_CRC32C_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

static uint32_t mq_crc32c_table[8][256];
static int mq_crc32c_steps;                     /* the processor has an instruction for eight bytes */

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
#if defined(__x86_64__)
  __builtin_cpu_init();
  mq_crc32c_steps = __builtin_cpu_supports("sse4.2");
#elif defined(__aarch64__) && defined(__linux__)
  mq_crc32c_steps = (getauxval(AT_HWCAP) & (1 << 7)) != 0;      /* HWCAP_CRC32 */
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

static uint32_t mq_crc32c(const uint8_t *data, size_t length) {
  uint32_t crc = 0xFFFFFFFFu;
#if defined(__x86_64__) || (defined(__aarch64__) && defined(__linux__))
  if (mq_crc32c_steps) return ~mq_crc32c_stepped(crc, data, length);
#endif
  return ~mq_crc32c_tables(crc, data, length);
}
#endif
