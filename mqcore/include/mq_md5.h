/* The digest of RFC 1321, in hex: clients of gRPC compare a body with it. */
#ifndef MQ_MD5_H
#define MQ_MD5_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define MQ_MD5_HEX 32
#define MQ_MD5_BLOCK 64

static const uint32_t mq_md5_sines[64] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391};
static const uint8_t mq_md5_turns[4][4] = {
    {7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};

static inline uint32_t mq_md5_word(const uint8_t* at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static inline void mq_md5_block(uint32_t state[4], const uint8_t* block) {
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3], mix, kept;
    int i, word, turn;
    for (i = 0; i < 64; i++) {
        switch (i >> 4) {
        case 0: mix = d ^ (b & (c ^ d)); word = i; break;
        case 1: mix = c ^ (d & (b ^ c)); word = (5 * i + 1) & 15; break;
        case 2: mix = b ^ c ^ d; word = (3 * i + 5) & 15; break;
        default: mix = c ^ (b | ~d); word = (7 * i) & 15; break;
        }
        turn = mq_md5_turns[i >> 4][i & 3];
        mix += a + mq_md5_sines[i] + mq_md5_word(block + 4 * word);
        kept = d;
        d = c;
        c = b;
        b += mix << turn | mix >> (32 - turn);
        a = kept;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
}

static inline void mq_md5_hex(const uint8_t* data, size_t length, uint8_t hex[MQ_MD5_HEX]) {
    uint32_t state[4] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
    uint8_t last[2 * MQ_MD5_BLOCK] = {0};
    size_t left = length % MQ_MD5_BLOCK, whole = length - left;
    size_t end = left < MQ_MD5_BLOCK - 8 ? MQ_MD5_BLOCK : 2 * MQ_MD5_BLOCK, at;
    int i;
    for (at = 0; at < whole; at += MQ_MD5_BLOCK)
        mq_md5_block(state, data + at);
    if (left)
        memcpy(last, data + whole, left);
    last[left] = 0x80;
    for (i = 0; i < 8; i++)
        last[end - 8 + i] = (uint8_t)((uint64_t)length * 8 >> 8 * i);
    for (at = 0; at < end; at += MQ_MD5_BLOCK)
        mq_md5_block(state, last + at);
    for (i = 0; i < 16; i++) {
        hex[2 * i] = (uint8_t)"0123456789ABCDEF"[state[i >> 2] >> (8 * (i & 3) + 4) & 15];
        hex[2 * i + 1] = (uint8_t)"0123456789ABCDEF"[state[i >> 2] >> 8 * (i & 3) & 15];
    }
}

#endif
