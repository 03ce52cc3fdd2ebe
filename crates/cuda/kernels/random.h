// The random numbers of the core: ChaCha with eight rounds, normals by Box and Muller in 32-bit
// arithmetic. `crates/core/src/rng/{blocks,normal}.rs` say the same in Rust.
#ifndef RANDOM_H
#define RANDOM_H

typedef unsigned int u32;
typedef unsigned long long u64;

// Normals of a group of four blocks: word `i` of all four before word `i + 1` of any, two rows of
// words giving four cosines and then four sines.
#define BLOCKS 4
#define GROUP 64

__device__ static inline u32 turned(u32 x, int by) { return (x << by) | (x >> (32 - by)); }

__device__ static inline void quarter_round(u32 &a, u32 &b, u32 &c, u32 &d) {
    a += b; d = turned(d ^ a, 16);
    c += d; b = turned(b ^ c, 12);
    a += b; d = turned(d ^ a, 8);
    c += d; b = turned(b ^ c, 7);
}

__device__ static inline void chacha8(const u32 *key, u32 block, u32 client, u64 tag, u32 *out) {
    u32 start[16] = {0x61707865u, 0x3320646eu, 0x79622d32u, 0x6b206574u,
                     key[0], key[1], key[2], key[3], key[4], key[5], key[6], key[7],
                     block, client, (u32)tag, (u32)(tag >> 32)};
    u32 x[16];
#pragma unroll
    for (int i = 0; i < 16; i++) x[i] = start[i];
#pragma unroll
    for (int twice = 0; twice < 4; twice++) {
        quarter_round(x[0], x[4], x[8], x[12]);
        quarter_round(x[1], x[5], x[9], x[13]);
        quarter_round(x[2], x[6], x[10], x[14]);
        quarter_round(x[3], x[7], x[11], x[15]);
        quarter_round(x[0], x[5], x[10], x[15]);
        quarter_round(x[1], x[6], x[11], x[12]);
        quarter_round(x[2], x[7], x[8], x[13]);
        quarter_round(x[3], x[4], x[9], x[14]);
    }
#pragma unroll
    for (int i = 0; i < 16; i++) out[i] = x[i] + start[i];
}

// Natural logarithm of (word + 1/2) / 2^32.
__device__ static inline float ln_of_unit(u32 word) {
    const u32 sqrt_half = 0x3f3504f3u;
    const float ln2_high = 0.69314575f, ln2_low = 1.4286068e-6f;
    float x = (float)word + 0.5f;
    u32 shifted = __float_as_uint(x) + (0x3f800000u - sqrt_half);
    float k = (float)((int)(shifted >> 23) - 127 - 32);
    float m = __uint_as_float((shifted & 0x007fffffu) + sqrt_half);
    float f = m - 1.0f;
    float s = f / (2.0f + f);
    float z = s * s;
    float r = z * (2.0f / 3.0f + z * (2.0f / 5.0f + z * (2.0f / 7.0f + z * (2.0f / 9.0f))));
    return k * ln2_high + (f - (s * (f - r) - k * ln2_low));
}

// Cosine and sine of 2 pi word / 2^32.
__device__ static inline void cos_sin_turns(u32 word, float &cosine, float &sine) {
    u32 quarter = (word + (1u << 29)) >> 30;
    int rest = (int)(word - (quarter << 30));
    float t = (float)rest * (6.28318530717958647692f / 4294967296.0f);
    float z = t * t;
    float sin = t + t * (z * (-1.0f / 6.0f + z * (1.0f / 120.0f + z * (-1.0f / 5040.0f
        + z * (1.0f / 362880.0f)))));
    float cos = 1.0f - z * (0.5f - z * (1.0f / 24.0f - z * (1.0f / 720.0f
        - z * (1.0f / 40320.0f))));
    bool odd = (quarter & 1u) == 1u;
    u32 flip_cos = (quarter ^ (quarter >> 1)) << 31, flip_sin = (quarter >> 1) << 31;
    cosine = __uint_as_float(__float_as_uint(odd ? sin : cos) ^ flip_cos);
    sine = __uint_as_float(__float_as_uint(odd ? cos : sin) ^ flip_sin);
}

// The sixteen normals of a block: cosine and sine of each of its eight pairs of words.
__device__ static inline void normals_of(const u32 *words, float *cosines, float *sines) {
#pragma unroll
    for (int pair = 0; pair < 8; pair++) {
        float size = sqrtf(-2.0f * ln_of_unit(words[2 * pair]));
        cos_sin_turns(words[2 * pair + 1], cosines[pair], sines[pair]);
        cosines[pair] *= size;
        sines[pair] *= size;
    }
}

#endif
