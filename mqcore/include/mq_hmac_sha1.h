/* HMAC-SHA1 (RFC 2104, FIPS 180-4) whose key is kept as the two states that its pads leave.
 *
 * With the instructions of x86's SHA extension where there are such, elsewhere in plain C; both are
 * held against each other in tests/acl/test_hmac.py.
 */
#ifndef MQ_HMAC_SHA1_H
#define MQ_HMAC_SHA1_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "mq_text.h"
#if defined(__x86_64__)
#include <cpuid.h>
#include <smmintrin.h>
#endif

#define MQ_SHA1_WORDS 5
#define MQ_SHA1_SIZE 20
#define MQ_SHA1_BLOCK 64
#define MQ_HMAC_SLACK 72 /* of padding, at most */

typedef struct {
  uint32_t words[MQ_SHA1_WORDS];
} mq_sha1_state_t;

typedef struct {
  mq_sha1_state_t state;
  uint64_t length; /* bytes, with those of the pad */
  uint32_t used;   /* of the block */
  uint8_t block[MQ_SHA1_BLOCK];
} mq_hmac_t;

static inline uint32_t mq_sha1_load(const uint8_t *at) {
  uint32_t word;
  memcpy(&word, at, 4);
  return __builtin_bswap32(word);
}

static inline void mq_sha1_store(uint8_t *at, uint32_t word) {
  word = __builtin_bswap32(word);
  memcpy(at, &word, 4);
}

static inline uint32_t mq_sha1_turned(uint32_t word, int by) {
  return (word << by) | (word >> (32 - by));
}

static void mq_sha1_plain(mq_sha1_state_t *state, const uint8_t *data, size_t blocks) {
  uint32_t w[80];
  for (; blocks; blocks--, data += MQ_SHA1_BLOCK) {
    uint32_t a = state->words[0], b = state->words[1], c = state->words[2];
    uint32_t d = state->words[3], e = state->words[4];
    for (int i = 0; i < 16; i++) w[i] = mq_sha1_load(data + 4 * i);
    for (int i = 16; i < 80; i++)
      w[i] = mq_sha1_turned(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    for (int i = 0; i < 80; i++) {
      uint32_t mixed, constant;
      if (i < 20) {
        mixed = d ^ (b & (c ^ d));
        constant = 0x5A827999u;
      } else if (i < 40) {
        mixed = b ^ c ^ d;
        constant = 0x6ED9EBA1u;
      } else if (i < 60) {
        mixed = (b & c) | (d & (b | c));
        constant = 0x8F1BBCDCu;
      } else {
        mixed = b ^ c ^ d;
        constant = 0xCA62C1D6u;
      }
      mixed += mq_sha1_turned(a, 5) + e + constant + w[i];
      e = d;
      d = c;
      c = mq_sha1_turned(b, 30);
      b = a;
      a = mixed;
    }
    state->words[0] += a;
    state->words[1] += b;
    state->words[2] += c;
    state->words[3] += d;
    state->words[4] += e;
  }
}

#if defined(__x86_64__)
/* <immintrin.h> has these by name, and is half a second's work for a compiler. */
#define MQ_SHA1_DO(what, a, b) ((__m128i)__builtin_ia32_sha1##what((__v4si)(a), (__v4si)(b)))
#define MQ_SHA1_FOUR(abcd, e, kind) \
  ((__m128i)__builtin_ia32_sha1rnds4((__v4si)(abcd), (__v4si)(e), kind))
/* Four rounds; words: those of these rounds. */
#define MQ_SHA1_ROUNDS(kind, words)     \
  do {                                  \
    __m128i next = abcd;                \
    e = MQ_SHA1_DO(nexte, e, words);    \
    abcd = MQ_SHA1_FOUR(abcd, e, kind); \
    e = next;                           \
  } while (0)
/* The words that follow w0 to w3, in w0's place. */
#define MQ_SHA1_EXTEND(w0, w1, w2, w3) \
  (w0 = MQ_SHA1_DO(msg2, _mm_xor_si128(MQ_SHA1_DO(msg1, w0, w1), w2), w3))
#define MQ_SHA1_STEP(kind, w0, w1, w2, w3) \
  do {                                     \
    MQ_SHA1_EXTEND(w0, w1, w2, w3);        \
    MQ_SHA1_ROUNDS(kind, w0);              \
  } while (0)

#define MQ_SHA1_TARGET __attribute__((target("sha,sse4.1,ssse3")))

typedef struct { /* words of a state, the first in the highest lane; beside that of `e` are zeros */
  __m128i abcd, e;
} mq_sha1_lanes_t;

MQ_SHA1_TARGET static inline mq_sha1_lanes_t mq_sha1_lanes(const mq_sha1_state_t *state) {
  return (mq_sha1_lanes_t){
      _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)state->words), 0x1B),
      _mm_set_epi32((int)state->words[4], 0, 0, 0)};
}

/* One block, whose words are m0 to m3, the first of each in the highest lane. */
MQ_SHA1_TARGET static inline mq_sha1_lanes_t mq_sha1_block(mq_sha1_lanes_t before, __m128i m0,
                                                           __m128i m1, __m128i m2, __m128i m3) {
  __m128i abcd = before.abcd;
  __m128i e = _mm_add_epi32(before.e, m0);
  abcd = MQ_SHA1_FOUR(abcd, e, 0);
  e = before.abcd;
  MQ_SHA1_ROUNDS(0, m1);
  MQ_SHA1_ROUNDS(0, m2);
  MQ_SHA1_ROUNDS(0, m3);
  MQ_SHA1_STEP(0, m0, m1, m2, m3);
  MQ_SHA1_STEP(1, m1, m2, m3, m0);
  MQ_SHA1_STEP(1, m2, m3, m0, m1);
  MQ_SHA1_STEP(1, m3, m0, m1, m2);
  MQ_SHA1_STEP(1, m0, m1, m2, m3);
  MQ_SHA1_STEP(1, m1, m2, m3, m0);
  MQ_SHA1_STEP(2, m2, m3, m0, m1);
  MQ_SHA1_STEP(2, m3, m0, m1, m2);
  MQ_SHA1_STEP(2, m0, m1, m2, m3);
  MQ_SHA1_STEP(2, m1, m2, m3, m0);
  MQ_SHA1_STEP(2, m2, m3, m0, m1);
  MQ_SHA1_STEP(3, m3, m0, m1, m2);
  MQ_SHA1_STEP(3, m0, m1, m2, m3);
  MQ_SHA1_STEP(3, m1, m2, m3, m0);
  MQ_SHA1_STEP(3, m2, m3, m0, m1);
  MQ_SHA1_STEP(3, m3, m0, m1, m2);
  return (mq_sha1_lanes_t){_mm_add_epi32(abcd, before.abcd), MQ_SHA1_DO(nexte, e, before.e)};
}

MQ_SHA1_TARGET static inline mq_sha1_lanes_t mq_sha1_lanes_of(mq_sha1_lanes_t lanes,
                                                              const uint8_t *data, size_t blocks) {
  const __m128i turn = _mm_set_epi64x(0x0001020304050607LL, 0x08090A0B0C0D0E0FLL);
  for (; blocks; blocks--, data += MQ_SHA1_BLOCK) {
    const __m128i *at = (const __m128i *)data;
    lanes = mq_sha1_block(lanes, _mm_shuffle_epi8(_mm_loadu_si128(at), turn),
                          _mm_shuffle_epi8(_mm_loadu_si128(at + 1), turn),
                          _mm_shuffle_epi8(_mm_loadu_si128(at + 2), turn),
                          _mm_shuffle_epi8(_mm_loadu_si128(at + 3), turn));
  }
  return lanes;
}

MQ_SHA1_TARGET static void mq_sha1_with_instructions(mq_sha1_state_t *state, const uint8_t *data,
                                                     size_t blocks) {
  const mq_sha1_lanes_t lanes = mq_sha1_lanes_of(mq_sha1_lanes(state), data, blocks);
  _mm_storeu_si128((__m128i *)state->words, _mm_shuffle_epi32(lanes.abcd, 0x1B));
  state->words[4] = (uint32_t)_mm_extract_epi32(lanes.e, 3);
}

/* The digest of blocks that end in padding, by both states; what is between them stays in registers. */
MQ_SHA1_TARGET static void mq_hmac_with_instructions(const mq_sha1_state_t *inner,
                                                     const mq_sha1_state_t *outer,
                                                     const uint8_t *data, size_t blocks,
                                                     uint8_t *digest) {
  const __m128i turn = _mm_set_epi64x(0x0001020304050607LL, 0x08090A0B0C0D0E0FLL);
  mq_sha1_lanes_t lanes = mq_sha1_lanes_of(mq_sha1_lanes(inner), data, blocks);
  lanes = mq_sha1_block(
      mq_sha1_lanes(outer), lanes.abcd,
      _mm_or_si128(lanes.e, _mm_set_epi32(0, (int)0x80000000u, 0, 0)),
      _mm_setzero_si128(), _mm_set_epi32(0, 0, 0, 8 * (MQ_SHA1_BLOCK + MQ_SHA1_SIZE)));
  _mm_storeu_si128((__m128i *)digest, _mm_shuffle_epi8(lanes.abcd, turn));
  mq_sha1_store(digest + 16, (uint32_t)_mm_extract_epi32(lanes.e, 3));
}
#endif

static int mq_sha1_instructions; /* the processor has them */

static void mq_sha1_init(void) {
#if defined(__x86_64__)
  unsigned int a, b, c, d;
  __builtin_cpu_init();
  mq_sha1_instructions = __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("ssse3") &&
                         __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & (1u << 29)) != 0;
#endif
}

static inline void mq_sha1_blocks(mq_sha1_state_t *state, const uint8_t *data, size_t blocks) {
#if defined(__x86_64__)
  if (mq_sha1_instructions) {
    mq_sha1_with_instructions(state, data, blocks);
    return;
  }
#endif
  mq_sha1_plain(state, data, blocks);
}

static inline void mq_hmac_add(mq_hmac_t *hmac, const uint8_t *data, size_t length) {
  hmac->length += length;
  if (hmac->used + length < MQ_SHA1_BLOCK) {
    mq_put_short(hmac->block + hmac->used, data, length);
    hmac->used += (uint32_t)length;
    return;
  }
  if (hmac->used) {
    size_t part = MQ_SHA1_BLOCK - hmac->used;
    if (part > length) part = length;
    memcpy(hmac->block + hmac->used, data, part);
    hmac->used += (uint32_t)part;
    data += part;
    length -= part;
    if (hmac->used < MQ_SHA1_BLOCK) return;
    mq_sha1_blocks(&hmac->state, hmac->block, 1);
    hmac->used = 0;
  }
  if (length >= MQ_SHA1_BLOCK) {
    mq_sha1_blocks(&hmac->state, data, length / MQ_SHA1_BLOCK);
    data += length / MQ_SHA1_BLOCK * MQ_SHA1_BLOCK;
    length %= MQ_SHA1_BLOCK;
  }
  if (length) memcpy(hmac->block, data, length);
  hmac->used = (uint32_t)length;
}

static inline void mq_hmac_begin(mq_hmac_t *hmac, const mq_sha1_state_t *state) {
  hmac->state = *state;
  hmac->length = MQ_SHA1_BLOCK;
  hmac->used = 0;
}

static inline void mq_sha1_end(mq_hmac_t *hmac, uint8_t *digest) {
  const uint64_t bits = 8 * hmac->length;
  hmac->block[hmac->used++] = 0x80;
  if (hmac->used > MQ_SHA1_BLOCK - 8) {
    memset(hmac->block + hmac->used, 0, MQ_SHA1_BLOCK - hmac->used);
    mq_sha1_blocks(&hmac->state, hmac->block, 1);
    hmac->used = 0;
  }
  memset(hmac->block + hmac->used, 0, MQ_SHA1_BLOCK - 8 - hmac->used);
  mq_sha1_store(hmac->block + MQ_SHA1_BLOCK - 8, (uint32_t)(bits >> 32));
  mq_sha1_store(hmac->block + MQ_SHA1_BLOCK - 4, (uint32_t)bits);
  mq_sha1_blocks(&hmac->state, hmac->block, 1);
  for (int i = 0; i < MQ_SHA1_WORDS; i++) mq_sha1_store(digest + 4 * i, hmac->state.words[i]);
}

/* outer: the other state of the key that it was begun with. */
static inline void mq_hmac_end(mq_hmac_t *hmac, const mq_sha1_state_t *outer, uint8_t *digest) {
  mq_sha1_end(hmac, digest);
  mq_hmac_begin(hmac, outer);
  mq_hmac_add(hmac, digest, MQ_SHA1_SIZE);
  mq_sha1_end(hmac, digest);
}

/* The digest of one text, which may be written over, and MQ_HMAC_SLACK bytes behind it. */
static inline void mq_hmac_whole(const mq_sha1_state_t *inner, const mq_sha1_state_t *outer,
                                 uint8_t *text, size_t length, uint8_t *digest) {
  const size_t blocks = (length + 8) / MQ_SHA1_BLOCK + 1;
  const uint64_t bits = 8 * (uint64_t)(MQ_SHA1_BLOCK + length);
  uint8_t *end = text + blocks * MQ_SHA1_BLOCK;
  mq_hmac_t hmac;
  memset(text + length, 0, MQ_HMAC_SLACK);
  text[length] = 0x80;
  mq_sha1_store(end - 8, (uint32_t)(bits >> 32));
  mq_sha1_store(end - 4, (uint32_t)bits);
#if defined(__x86_64__)
  if (mq_sha1_instructions) {
    mq_hmac_with_instructions(inner, outer, text, blocks, digest);
    return;
  }
#endif
  mq_hmac_begin(&hmac, inner);
  mq_sha1_plain(&hmac.state, text, blocks);
  for (int i = 0; i < MQ_SHA1_WORDS; i++) mq_sha1_store(digest + 4 * i, hmac.state.words[i]);
  mq_hmac_begin(&hmac, outer);
  mq_hmac_add(&hmac, digest, MQ_SHA1_SIZE);
  mq_sha1_end(&hmac, digest);
}

static const mq_sha1_state_t mq_sha1_start = {
    {0x67452301u, 0xEFCDAB89u, 0x98BADCFEu, 0x10325476u, 0xC3D2E1F0u}};

static void mq_hmac_key(const uint8_t *key, size_t length, mq_sha1_state_t *inner,
                        mq_sha1_state_t *outer) {
  uint8_t pad[MQ_SHA1_BLOCK] = {0};
  mq_hmac_t hash;
  if (length > MQ_SHA1_BLOCK) {
    mq_hmac_begin(&hash, &mq_sha1_start);
    hash.length = 0;
    mq_hmac_add(&hash, key, length);
    mq_sha1_end(&hash, pad);
  } else if (length) {
    memcpy(pad, key, length);
  }
  for (int i = 0; i < MQ_SHA1_BLOCK; i++) pad[i] ^= 0x36;
  *inner = mq_sha1_start;
  mq_sha1_blocks(inner, pad, 1);
  for (int i = 0; i < MQ_SHA1_BLOCK; i++) pad[i] ^= 0x36 ^ 0x5C;
  *outer = mq_sha1_start;
  mq_sha1_blocks(outer, pad, 1);
}
#endif
