// The steps of a net on many rows at once, forth and back, with the bits of the core's kernels:
// `crates/core/src/model/net/kernels/mod.rs` says in which order every sum is taken. Here a thread
// has one row (or eight) and a few outputs; what is added to one number is added by one thread.
//
// A *seat* is a party at a point: it has parameters and up to 512 rows. A row of a seat is a
// *sample*, with an arena of numbers of its own. Products are fused where `fmaf` stands, and
// nowhere else (`-fmad=false`, `-ffp-contract=off`).

#include "random.h"

#ifndef THREADS
#define THREADS
#define BARRIER __syncthreads();
#define SHARED(name) extern __shared__ __align__(16) float name[];
#endif

#define MIN(a, b) ((a) < (b) ? (a) : (b))

// Who is seated, and where everything is.
struct Pass {
    const float *table;    // rows, one behind the other
    const u32 *rows;       // those of every party, `pitch` each
    const u32 *counts;     // how many each has
    const u32 *slots;      // the parameters of every seat
    const float *weights;  // parameters, `dim` each: rounded up, so that each starts at a multiple
    float *arena;          // samples, `stride` numbers each
    float *sums;           // gradients of every seat, `dim` each
    u32 dim, stride, width, pitch;
    u32 first;             // the first row of all parties that is seated
    u32 each;              // samples of a seat
    u32 points;            // seats of a party
    u32 samples;           // of all seats
    u32 resume;            // whether gradients go on from those of rows before
    u32 unused;
};

// A tensor: its place in the arena of a sample, or the table itself.
#define TABLE 0xffffffffu

__device__ static inline u32 seat_of(const Pass &p, u32 sample) { return sample / p.each; }

// How many rows of a seat there are; samples beyond have no slopes.
__device__ static inline u32 seated(const Pass &p, u32 seat) {
    u32 all = p.counts[seat / p.points];
    return all > p.first ? MIN(all - p.first, p.each) : 0;
}

__device__ static inline u32 row_of(const Pass &p, u32 sample) {
    u32 seat = sample / p.each, at = p.first + sample % p.each, party = seat / p.points;
    u32 count = p.counts[party];
    return p.rows[(u64)party * p.pitch + (at < count ? at : 0)];
}

__device__ static inline float *tensor(const Pass &p, u32 sample, u32 place) {
    return p.arena + (u64)sample * p.stride + place;
}

__device__ static inline const float *input(const Pass &p, u32 sample, u32 place) {
    if (place == TABLE) return p.table + (u64)row_of(p, sample) * p.width;
    return tensor(p, sample, place);
}

__device__ static inline const float *weights_of(const Pass &p, u32 seat) {
    return p.weights + (u64)p.slots[seat] * p.dim;
}

__device__ static inline bool fours(const float *x) { return ((u64)x & 15) == 0; }

struct Four { float x, y, z, w; };

__device__ static inline Four four(const float *x) {
#ifdef __CUDACC__
    float4 v = *(const float4 *)x;
    return {v.x, v.y, v.z, v.w};
#else
    return {x[0], x[1], x[2], x[3]};
#endif
}

__device__ static inline float tree(const float *r, u32 by) {
    return ((r[0] + r[4 * by]) + (r[2 * by] + r[6 * by]))
        + ((r[by] + r[5 * by]) + (r[3 * by] + r[7 * by]));
}

// Exponential of the core, in 32 bits.
__device__ static inline float exponential(float x) {
    const float ln2_high = 0.6933594f, ln2_low = -2.1219444e-4f, round = 12582912.0f;
    x = x > 88.0f ? 88.0f : x;
    x = x < -87.0f ? -87.0f : x;
    float shifted = x * 1.44269504088896340736f + round;
    float k = shifted - round;
    float r = (x - k * ln2_high) - k * ln2_low;
    float p = 1.0f + r * (1.0f + r * (0.5f + r * (1.0f / 6.0f + r * (1.0f / 24.0f
        + r * (1.0f / 120.0f + r * (1.0f / 720.0f + r * (1.0f / 5040.0f)))))));
    return __uint_as_float(__float_as_uint(p) + (__float_as_uint(shifted) << 23));
}

__device__ static inline float sigmoid(float x) { return 1.0f / (1.0f + exponential(0.0f - x)); }

__device__ static inline float relu(float x) { return x < 0.0f ? 0.0f : x; }

// ---------------------------------------------------------------------------------- convolutions

struct Conv {
    Pass pass;
    u32 x, y;              // tensors
    u32 weight, bias;      // where parameters start; no bias: TABLE
    u32 inputs, height, width, outputs, rows, columns;  // channels and sides
    u32 kernel, stride, pad;
    u32 relu;              // forth: whether the output goes through relu
    u32 of;                // back: what the slopes go through relu by; none: TABLE
    u32 tile;              // weights: the side of the squares that were pooled
    u32 winners;           // weights: which of each square it was
    u32 room;              // weights: where a sample has its own
    u32 abreast;           // weights: how many a thread sums; else whether weights are shared, too
    u32 chunk;             // weights: so many output channels a block
};

// A kernel of side `K` that moves by 1: a block has one sample, whose image lies in shared memory
// with its zeros around it, and behind it the weights. A thread has four rows of two columns of one
// output channel. Slopes of inputs are the same with the kernel turned and channels exchanged.
// Where squares of side 2 are pooled, only their largest number is kept, and going back the image
// is made of the slopes of squares.
#define HIGH 4
#define BROAD 2

struct Sides {
    u32 outputs, inputs, rows, columns, height, width, pad, tall, broad;
};

template <int K, bool BACK> __device__ static inline Sides sides(const Conv &a) {
    Sides s;
    s.outputs = BACK ? a.inputs : a.outputs;
    s.inputs = BACK ? a.outputs : a.inputs;
    s.rows = BACK ? a.height : a.rows;
    s.columns = BACK ? a.width : a.columns;
    s.height = BACK ? a.rows : a.height;
    s.width = BACK ? a.columns : a.width;
    s.pad = BACK ? K - 1 - a.pad : a.pad;
    // what threads read beyond the last row and column is there
    s.tall = (s.rows + HIGH - 1) / HIGH * HIGH + K - 1;
    s.broad = (s.columns + BROAD - 1) / BROAD * BROAD + K - 1;
    return s;
}

template <int K, bool BACK> __device__ static void stage(const Conv &a, float *image) {
    Sides s = sides<K, BACK>(a);
    u32 sample = blockIdx.x, area = s.tall * s.broad;
    const float *x = input(a.pass, sample, BACK ? a.y : a.x);
    if (BACK && a.tile > 1) {
        for (u32 at = threadIdx.x; at < s.inputs * area; at += blockDim.x) image[at] = 0.0f;
    } else {
#pragma unroll 4
        for (u32 at = threadIdx.x; at < s.inputs * area; at += blockDim.x) {
            u32 c = at / area, i = at % area / s.broad - s.pad, j = at % s.broad - s.pad;
            bool is = i < s.height && j < s.width;
            image[at] = is ? x[(c * s.height + i) * s.width + j] : 0.0f;
        }
    }
    if (!a.abreast) return;
    const float *w = weights_of(a.pass, seat_of(a.pass, sample)) + a.weight;
    float *weights = image + s.inputs * area;
#pragma unroll 4
    for (u32 at = threadIdx.x; at < s.inputs * s.outputs * K * K; at += blockDim.x) {
        u32 to = at;
        if (BACK) {
            u32 e = at % (K * K), o = at / (K * K) % s.outputs, c = at / (K * K) / s.outputs;
            to = (o * s.inputs + c) * (K * K) + K * K - 1 - e;
        }
        weights[to] = w[at];
    }
}

// Slopes of squares, to where their largest numbers were.
template <int K> __device__ static void scatter(const Conv &a, float *image) {
    if (a.tile <= 1) return;
    Sides s = sides<K, true>(a);
    u32 sample = blockIdx.x, area = s.tall * s.broad, half = s.width / 2;
    u32 halves = half * (s.height / 2);
    const float *dy = tensor(a.pass, sample, a.y), *winners = tensor(a.pass, sample, a.winners);
    for (u32 at = threadIdx.x; at < s.inputs * halves; at += blockDim.x) {
        u32 c = at / halves, i = at % halves / half * 2, j = at % half * 2;
        u32 won = (u32)winners[at];
        image[c * area + (i + won / 2 + s.pad) * s.broad + j + won % 2 + s.pad] = dy[at];
    }
}

template <int K, bool BACK> __device__ static void convolve(const Conv &a, const float *image) {
    Sides s = sides<K, BACK>(a);
    u32 sample = blockIdx.x, area = s.tall * s.broad;
    u32 bands = (s.rows + HIGH - 1) / HIGH, pairs = (s.columns + BROAD - 1) / BROAD;
    const float *w = weights_of(a.pass, seat_of(a.pass, sample)), *bias = w + a.bias;
    bool turned = BACK && !a.abreast;
    const float *weights = a.abreast ? image + s.inputs * area : w + a.weight;
    u32 by = turned ? s.outputs * K * K : K * K;
    for (u32 at = threadIdx.x; at < s.outputs * bands * pairs; at += blockDim.x) {
        u32 left = at % pairs * BROAD, top = at / pairs % bands * HIGH, o = at / pairs / bands;
        float sums[HIGH][BROAD];
        float start = BACK || a.bias == TABLE ? 0.0f : bias[o];
#pragma unroll
        for (int r = 0; r < HIGH; r++) {
#pragma unroll
            for (int q = 0; q < BROAD; q++) sums[r][q] = start;
        }
        const float *corner = image + top * s.broad + left;
        const float *from = weights + (turned ? o : o * s.inputs) * (K * K);
        for (u32 c = 0; c < s.inputs; c++, corner += area, from += by) {
            float k[K * K];
#pragma unroll
            for (int e = 0; e < K * K; e++) k[e] = from[turned ? K * K - 1 - e : e];
#pragma unroll
            for (int y = 0; y < HIGH + K - 1; y++) {
                float seen[K + BROAD - 1];
#pragma unroll
                for (int v = 0; v < K + BROAD - 1; v++) seen[v] = corner[y * s.broad + v];
#pragma unroll
                for (int r = 0; r < HIGH; r++) {
                    if (y - r < 0 || y - r >= K) continue;
#pragma unroll
                    for (int v = 0; v < K; v++) {
#pragma unroll
                        for (int q = 0; q < BROAD; q++) {
                            sums[r][q] = fmaf(seen[v + q], k[(y - r) * K + v], sums[r][q]);
                        }
                    }
                }
            }
        }
        if (!BACK && a.tile > 1) {
#pragma unroll
            for (int r = 0; r < HIGH; r += 2) {
                if (top + r >= s.rows) continue;
                float most = sums[r][0], winner = 0.0f;
                if (sums[r][1] > most) { most = sums[r][1]; winner = 1.0f; }
                if (sums[r + 1][0] > most) { most = sums[r + 1][0]; winner = 2.0f; }
                if (sums[r + 1][1] > most) { most = sums[r + 1][1]; winner = 3.0f; }
                u32 to = (o * (s.rows / 2) + (top + r) / 2) * (s.columns / 2) + left / 2;
                tensor(a.pass, sample, a.y)[to] = a.relu ? relu(most) : most;
                tensor(a.pass, sample, a.winners)[to] = winner;
            }
            continue;
        }
        float *out = tensor(a.pass, sample, BACK ? a.x : a.y);
#pragma unroll
        for (int r = 0; r < HIGH; r++) {
#pragma unroll
            for (int q = 0; q < BROAD; q++) {
                if (top + r >= s.rows || left + q >= s.columns) continue;
                u32 to = (o * s.rows + top + r) * s.columns + left + q;
                float sum = !BACK && a.relu ? relu(sums[r][q]) : sums[r][q];
                if (BACK && a.of != TABLE && !(tensor(a.pass, sample, a.of)[to] > 0.0f)) {
                    sum = 0.0f;
                }
                out[to] = sum;
            }
        }
    }
}

#define CONVOLUTION(K) \
    extern "C" __global__ void conv_##K(Conv a) { \
        SHARED(image) \
        THREADS stage<K, false>(a, image); \
        BARRIER \
        THREADS convolve<K, false>(a, image); \
    } \
    extern "C" __global__ void conv_slopes_##K(Conv a) { \
        SHARED(image) \
        THREADS stage<K, true>(a, image); \
        BARRIER \
        THREADS scatter<K>(a, image); \
        BARRIER \
        THREADS convolve<K, true>(a, image); \
    }
CONVOLUTION(5)
CONVOLUTION(3)

// Any kernel, output by output.
__device__ static void conv_thread(const Conv &a) {
    u32 sample = blockIdx.x, at = blockIdx.y * blockDim.x + threadIdx.x;
    if (at >= a.outputs * a.rows * a.columns) return;
    u32 j = at % a.columns, i = at / a.columns % a.rows, o = at / a.columns / a.rows;
    const float *w = weights_of(a.pass, seat_of(a.pass, sample));
    const float *x = input(a.pass, sample, a.x);
    float sum = a.bias == TABLE ? 0.0f : w[a.bias + o];
    w += a.weight + (u64)o * a.inputs * a.kernel * a.kernel;
    for (u32 c = 0; c < a.inputs; c++) {
        for (u32 u = 0; u < a.kernel; u++) {
            u32 y = i * a.stride + u - a.pad;  // wraps where it lies outside
            if (y >= a.height) continue;
            for (u32 v = 0; v < a.kernel; v++) {
                u32 at = j * a.stride + v - a.pad;
                if (at >= a.width) continue;
                sum = fmaf(x[((u64)c * a.height + y) * a.width + at],
                           w[(c * a.kernel + u) * a.kernel + v], sum);
            }
        }
    }
    tensor(a.pass, sample, a.y)[at] = a.relu ? relu(sum) : sum;
}

extern "C" __global__ void conv_any(Conv a) { THREADS conv_thread(a); }

__device__ static void conv_slopes_thread(const Conv &a) {
    u32 sample = blockIdx.x, at = blockIdx.y * blockDim.x + threadIdx.x;
    if (at >= a.inputs * a.height * a.width) return;
    u32 s = at % a.width, r = at / a.width % a.height, c = at / a.width / a.height;
    const float *w = weights_of(a.pass, seat_of(a.pass, sample)) + a.weight;
    const float *dy = tensor(a.pass, sample, a.y);
    u32 low = r + a.pad + 1 > a.kernel ? r + a.pad + 1 - a.kernel : 0;
    u32 left = s + a.pad + 1 > a.kernel ? s + a.pad + 1 - a.kernel : 0;
    low = (low + a.stride - 1) / a.stride;
    left = (left + a.stride - 1) / a.stride;
    u32 high = MIN(a.rows, (r + a.pad) / a.stride + 1);
    u32 right = MIN(a.columns, (s + a.pad) / a.stride + 1);
    float sum = 0.0f;
    for (u32 o = 0; o < a.outputs; o++) {
        for (u32 i = low; i < high; i++) {
            u32 u = r + a.pad - i * a.stride;
            for (u32 j = left; j < right; j++) {
                u32 v = s + a.pad - j * a.stride;
                sum = fmaf(dy[((u64)o * a.rows + i) * a.columns + j],
                           w[(((u64)o * a.inputs + c) * a.kernel + u) * a.kernel + v], sum);
            }
        }
    }
    if (a.of != TABLE && !(tensor(a.pass, sample, a.of)[at] > 0.0f)) sum = 0.0f;
    tensor(a.pass, sample, a.x)[at] = sum;
}

extern "C" __global__ void conv_slopes_any(Conv a) { THREADS conv_slopes_thread(a); }

// Gradients of weights and biases: 32 of them in a block, and eight rows at a time of up to 128.
#define ABREAST 32
#define CHUNK 128

__device__ static float conv_weight(const Conv &a, u32 sample, u32 at) {
    u32 weights = a.outputs * a.inputs * a.kernel * a.kernel;
    bool bias = at >= weights;
    u32 o = bias ? at - weights : at / (a.inputs * a.kernel * a.kernel);
    u32 v = at % a.kernel, u = at / a.kernel % a.kernel, c = at / (a.kernel * a.kernel) % a.inputs;
    const float *x = input(a.pass, sample, a.x) + (bias ? 0 : (u64)c * a.height * a.width);
    float sum = 0.0f;
    if (a.tile > 1) {
        u32 down = a.rows / a.tile, across = a.columns / a.tile;
        const float *dy = tensor(a.pass, sample, a.y) + (u64)o * down * across;
        const float *winners = tensor(a.pass, sample, a.winners) + (u64)o * down * across;
        for (u32 ti = 0; ti < down; ti++) {
            for (u32 tj = 0; tj < across; tj++) {
                float slope = dy[ti * across + tj];
                if (bias) {
                    sum += slope;
                    continue;
                }
                u32 won = (u32)winners[ti * across + tj];
                u32 y = (ti * a.tile + won / a.tile) * a.stride + u - a.pad;
                u32 at = (tj * a.tile + won % a.tile) * a.stride + v - a.pad;
                if (y < a.height && at < a.width) sum = fmaf(x[y * a.width + at], slope, sum);
            }
        }
        return sum;
    }
    const float *dy = tensor(a.pass, sample, a.y) + (u64)o * a.rows * a.columns;
    for (u32 i = 0; i < a.rows; i++) {
        u32 y = i * a.stride + u - a.pad;
        if (!bias && y >= a.height) continue;
        for (u32 j = 0; j < a.columns; j++) {
            float slope = dy[i * a.columns + j];
            u32 at = j * a.stride + v - a.pad;
            if (bias) sum += slope;
            else if (at < a.width) sum = fmaf(x[y * a.width + at], slope, sum);
        }
    }
    return sum;
}

__device__ static void conv_weights_rows(const Conv &a, u32 from, float *parts) {
    u32 seat = blockIdx.x, at = blockIdx.y * ABREAST + threadIdx.x % ABREAST;
    u32 all = a.outputs * a.inputs * a.kernel * a.kernel + (a.bias == TABLE ? 0 : a.outputs);
    u32 rows = seated(a.pass, seat);
    for (u32 n = threadIdx.x / ABREAST; n < CHUNK; n += blockDim.x / ABREAST) {
        if (from + n >= (rows + 7) / 8 * 8) break;
        bool is = at < all && from + n < rows;
        parts[n * ABREAST + threadIdx.x % ABREAST] =
            is ? conv_weight(a, seat * a.pass.each + from + n, at) : 0.0f;
    }
}

__device__ static void conv_weights_chunk(const Conv &a, u32 from, const float *parts) {
    u32 seat = blockIdx.x, at = blockIdx.y * ABREAST + threadIdx.x;
    u32 weights = a.outputs * a.inputs * a.kernel * a.kernel;
    u32 all = weights + (a.bias == TABLE ? 0 : a.outputs);
    if (threadIdx.x >= ABREAST || at >= all) return;
    u32 rows = seated(a.pass, seat);
    float *to = a.pass.sums + (u64)seat * a.pass.dim
        + (at < weights ? a.weight + at : a.bias + at - weights);
    float sum = from == 0 && !a.pass.resume ? 0.0f : *to;
    for (u32 n = 0; n < CHUNK && from + n < rows; n += 8) {
        sum += tree(parts + n * ABREAST + threadIdx.x, ABREAST);
    }
    *to = sum;
}

extern "C" __global__ void conv_weights(Conv a) {
    __shared__ float parts[CHUNK * ABREAST];
    u32 from = 0;
    do {
        THREADS conv_weights_rows(a, from, parts);
        BARRIER
        THREADS conv_weights_chunk(a, from, parts);
        BARRIER
        from += CHUNK;
    } while (from < a.pass.each);
}

// The same for a sample that has its image, slopes and squares in shared memory: what it adds goes
// to its own room, and is summed over rows afterwards. `V` weights next to each other a thread.
template <int V> __device__ static void weights_thread(const Conv &a, const float *image,
                                                       const float *slopes, const u32 *corners) {
    u32 broad = a.width + 2 * a.pad, area = (a.height + 2 * a.pad) * broad;
    u32 squares = a.rows / a.tile * (a.columns / a.tile);
    u32 each = a.inputs * a.kernel * a.kernel, weights = a.outputs * each;
    u32 first = blockIdx.y * a.chunk, last = MIN(first + a.chunk, a.outputs);
    float *room = tensor(a.pass, blockIdx.x, a.room);
    for (u32 at = first * each + threadIdx.x * V; at < last * each; at += blockDim.x * V) {
        u32 v = at % a.kernel, u = at / a.kernel % a.kernel;
        u32 c = at / (a.kernel * a.kernel) % a.inputs, o = at / each - first;
        const float *x = image + c * area + u * broad + v;
        const float *slope = slopes + o * squares;
        const u32 *corner = corners + (a.tile > 1 ? o * squares : 0);
        float sums[V];
#pragma unroll
        for (int k = 0; k < V; k++) sums[k] = 0.0f;
#pragma unroll 7
        for (u32 e = 0; e < squares; e++) {
            float s = slope[e];
            const float *from = x + corner[e];
#pragma unroll
            for (int k = 0; k < V; k++) sums[k] = fmaf(from[k], s, sums[k]);
        }
#pragma unroll
        for (int k = 0; k < V; k++) room[at + k] = sums[k];
    }
    if (a.bias == TABLE) return;
    for (u32 o = first + threadIdx.x; o < last; o += blockDim.x) {
        float sum = 0.0f;
#pragma unroll 4
        for (u32 e = 0; e < squares; e++) sum += slopes[(o - first) * squares + e];
        room[weights + o] = sum;
    }
}

__device__ static void weights_stage(const Conv &a, float *image, float *slopes, u32 *corners) {
    u32 broad = a.width + 2 * a.pad, area = (a.height + 2 * a.pad) * broad;
    u32 across = a.columns / a.tile, squares = a.rows / a.tile * across;
    const float *x = input(a.pass, blockIdx.x, a.x), *dy = tensor(a.pass, blockIdx.x, a.y);
#pragma unroll 4
    for (u32 at = threadIdx.x; at < a.inputs * area; at += blockDim.x) {
        u32 c = at / area, i = at % area / broad - a.pad, j = at % broad - a.pad;
        bool is = i < a.height && j < a.width;
        image[at] = is ? x[(c * a.height + i) * a.width + j] : 0.0f;
    }
    const float *winners = a.tile > 1 ? tensor(a.pass, blockIdx.x, a.winners) : dy;
    u32 first = blockIdx.y * a.chunk, last = MIN(first + a.chunk, a.outputs);
    dy += first * squares;
    winners += first * squares;
    for (u32 at = threadIdx.x; at < (last - first) * squares; at += blockDim.x) {
        slopes[at] = dy[at];
        if (a.tile == 1 && at >= squares) continue;
        u32 won = a.tile > 1 ? (u32)winners[at] : 0, e = at % squares;
        u32 i = e / across * a.tile + won / a.tile, j = e % across * a.tile + won % a.tile;
        corners[at] = i * a.stride * broad + j * a.stride;
    }
}

__device__ static inline void weights_all(const Conv &a, const float *image, const float *slopes,
                                          const u32 *corners) {
    if (a.abreast == 5) weights_thread<5>(a, image, slopes, corners);
    else if (a.abreast == 3) weights_thread<3>(a, image, slopes, corners);
    else weights_thread<1>(a, image, slopes, corners);
}

extern "C" __global__ void conv_weights_staged(Conv a) {
    SHARED(image)
    u32 squares = a.rows / a.tile * (a.columns / a.tile);
    float *slopes = image + a.inputs * (a.height + 2 * a.pad) * (a.width + 2 * a.pad);
    u32 *corners = (u32 *)(slopes + a.chunk * squares);
    THREADS weights_stage(a, image, slopes, corners);
    BARRIER
    THREADS weights_all(a, image, slopes, corners);
}

__device__ static void conv_weights_rows_sum(const Conv &a) {
    u32 seat = blockIdx.x, at = blockIdx.y * blockDim.x + threadIdx.x;
    u32 weights = a.outputs * a.inputs * a.kernel * a.kernel;
    if (at >= weights + (a.bias == TABLE ? 0 : a.outputs)) return;
    u32 rows = seated(a.pass, seat);
    float *to = a.pass.sums + (u64)seat * a.pass.dim
        + (at < weights ? a.weight + at : a.bias + at - weights);
    float sum = a.pass.resume ? *to : 0.0f;
    for (u32 n = 0; n < rows; n += 8) {
        float parts[8];
#pragma unroll
        for (u32 k = 0; k < 8; k++) {
            u32 sample = seat * a.pass.each + n + k;
            parts[k] = n + k < rows ? tensor(a.pass, sample, a.room)[at] : 0.0f;
        }
        sum += tree(parts, 1);
    }
    *to = sum;
}

extern "C" __global__ void conv_weights_sum(Conv a) { THREADS conv_weights_rows_sum(a); }

// ---------------------------------------------------------------------------------- dense layers

struct Dense {
    Pass pass;
    u32 x, y;              // tensors
    u32 weight, bias;      // where parameters start
    u32 inputs, outputs;
    u32 relu;              // forth: whether the output goes through relu
    u32 of;                // back: what the slopes go through relu by; none: TABLE
};

// A block has eight rows, which lie in shared memory input by input. A thread has an output of four
// of them.
#define FEW 4
__device__ static void dense_stage(const Dense &a, float *rows) {
    u32 most = a.pass.each - 1, group = blockIdx.y % ((a.pass.each + 7) / 8);
    const float *from[8];
#pragma unroll
    for (u32 n = 0; n < 8; n++) {
        from[n] = input(a.pass, blockIdx.x * a.pass.each + MIN(group * 8 + n, most), a.x);
    }
#pragma unroll 2
    for (u32 i = threadIdx.x; i < a.inputs; i += blockDim.x) {
#pragma unroll
        for (u32 n = 0; n < 8; n++) rows[i * 8 + n] = from[n][i];
    }
}

__device__ static void dense_thread(const Dense &a, const float *rows) {
    const float *w = weights_of(a.pass, blockIdx.x);
    u32 group = blockIdx.y % ((a.pass.each + 7) / 8), part = blockIdx.y / ((a.pass.each + 7) / 8);
    u32 at = part * blockDim.x + threadIdx.x;
    if (at < 2 * a.outputs) {
        u32 o = at / 2, n = at % 2 * FEW;
        const float *from = w + a.weight + (u64)o * a.inputs, *x = rows + n;
        float sums[FEW];
#pragma unroll
        for (int k = 0; k < FEW; k++) sums[k] = w[a.bias + o];
        u32 i = 0;
        if (fours(from)) {
#pragma unroll 8
            for (; i + 4 <= a.inputs; i += 4) {
                Four v = four(from + i);
                Four p = four(x + i * 8), q = four(x + i * 8 + 8);
                Four r = four(x + i * 8 + 16), s = four(x + i * 8 + 24);
                sums[0] = fmaf(p.x, v.x, sums[0]); sums[1] = fmaf(p.y, v.x, sums[1]);
                sums[2] = fmaf(p.z, v.x, sums[2]); sums[3] = fmaf(p.w, v.x, sums[3]);
                sums[0] = fmaf(q.x, v.y, sums[0]); sums[1] = fmaf(q.y, v.y, sums[1]);
                sums[2] = fmaf(q.z, v.y, sums[2]); sums[3] = fmaf(q.w, v.y, sums[3]);
                sums[0] = fmaf(r.x, v.z, sums[0]); sums[1] = fmaf(r.y, v.z, sums[1]);
                sums[2] = fmaf(r.z, v.z, sums[2]); sums[3] = fmaf(r.w, v.z, sums[3]);
                sums[0] = fmaf(s.x, v.w, sums[0]); sums[1] = fmaf(s.y, v.w, sums[1]);
                sums[2] = fmaf(s.z, v.w, sums[2]); sums[3] = fmaf(s.w, v.w, sums[3]);
            }
        }
        for (; i < a.inputs; i++) {
#pragma unroll
            for (int k = 0; k < FEW; k++) sums[k] = fmaf(x[i * 8 + k], from[i], sums[k]);
        }
#pragma unroll
        for (int k = 0; k < FEW; k++) {
            u32 row = group * 8 + n + k;
            if (row >= a.pass.each) continue;
            float sum = a.relu ? relu(sums[k]) : sums[k];
            tensor(a.pass, blockIdx.x * a.pass.each + row, a.y)[o] = sum;
        }
    }
}

extern "C" __global__ void dense(Dense a) {
    SHARED(rows)
    THREADS dense_stage(a, rows);
    BARRIER
    THREADS dense_thread(a, rows);
}

// More inputs than that: one output of one row a thread.
__device__ static void dense_alone(const Dense &a) {
    u32 sample = blockIdx.x, o = blockIdx.y * blockDim.x + threadIdx.x;
    if (o >= a.outputs) return;
    const float *w = weights_of(a.pass, seat_of(a.pass, sample)), *x = input(a.pass, sample, a.x);
    const float *from = w + a.weight + (u64)o * a.inputs;
    float sum = w[a.bias + o];
    for (u32 i = 0; i < a.inputs; i++) sum = fmaf(x[i], from[i], sum);
    tensor(a.pass, sample, a.y)[o] = a.relu ? relu(sum) : sum;
}

extern "C" __global__ void dense_any(Dense a) { THREADS dense_alone(a); }

// Four rows and one input a thread.
#define DEEP 4
__device__ static void dense_slopes_thread(const Dense &a) {
    u32 seat = blockIdx.x, at = blockIdx.y * blockDim.x + threadIdx.x;
    u32 groups = (a.pass.each + DEEP - 1) / DEEP;
    if (at >= groups * a.inputs) return;
    u32 i = at % a.inputs, n = at / a.inputs * DEEP, base = seat * a.pass.each;
    const float *w = weights_of(a.pass, seat) + a.weight + i;
    const float *dy[DEEP];
    float sums[DEEP];
    bool wide = true;
#pragma unroll
    for (u32 k = 0; k < DEEP; k++) {
        dy[k] = tensor(a.pass, base + MIN(n + k, a.pass.each - 1), a.y);
        sums[k] = 0.0f;
        wide = wide && fours(dy[k]);
    }
    u32 o = 0;
    if (wide) {
#pragma unroll 4
        for (; o + 4 <= a.outputs; o += 4) {
            float w0 = w[(u64)o * a.inputs], w1 = w[(u64)(o + 1) * a.inputs];
            float w2 = w[(u64)(o + 2) * a.inputs], w3 = w[(u64)(o + 3) * a.inputs];
#pragma unroll
            for (u32 k = 0; k < DEEP; k++) {
                Four d = four(dy[k] + o);
                sums[k] = fmaf(d.x, w0, sums[k]);
                sums[k] = fmaf(d.y, w1, sums[k]);
                sums[k] = fmaf(d.z, w2, sums[k]);
                sums[k] = fmaf(d.w, w3, sums[k]);
            }
        }
    }
    for (; o < a.outputs; o++) {
        float w0 = w[(u64)o * a.inputs];
#pragma unroll
        for (u32 k = 0; k < DEEP; k++) sums[k] = fmaf(dy[k][o], w0, sums[k]);
    }
#pragma unroll
    for (u32 k = 0; k < DEEP; k++) {
        if (n + k >= a.pass.each) continue;
        bool off = a.of != TABLE && !(tensor(a.pass, base + n + k, a.of)[i] > 0.0f);
        tensor(a.pass, base + n + k, a.x)[i] = off ? 0.0f : sums[k];
    }
}

extern "C" __global__ void dense_slopes(Dense a) { THREADS dense_slopes_thread(a); }

// Four outputs and one input a thread; behind the last input, the bias.
__device__ static void dense_weights_thread(const Dense &a) {
    u32 seat = blockIdx.x, at = blockIdx.y * blockDim.x + threadIdx.x;
    u32 across = a.inputs + 1, bands = (a.outputs + 3) / 4;
    if (at >= across * bands) return;
    u32 i = at % across, o = at / across * 4, rows = seated(a.pass, seat);
    u32 base = seat * a.pass.each, left = MIN(a.outputs - o, 4u);
    float s[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    float *to = a.pass.sums + (u64)seat * a.pass.dim;
    to += i == a.inputs ? a.bias + o : a.weight + (u64)o * a.inputs + i;
    u32 by = i == a.inputs ? 1 : a.inputs;
    if (a.pass.resume) {
        for (u32 k = 0; k < left; k++) s[k] = to[(u64)k * by];
    }
    const float *dy = tensor(a.pass, base, a.y) + o;
    if (i == a.inputs) {
        for (u32 n = 0; n < rows; n++, dy += a.pass.stride) {
#pragma unroll
            for (u32 k = 0; k < 4; k++) s[k] += k < left ? dy[k] : 0.0f;
        }
    } else if (left == 4 && fours(dy) && a.x != TABLE) {
        const float *x = tensor(a.pass, base, a.x) + i;
#pragma unroll 8
        for (u32 n = 0; n < rows; n++, dy += a.pass.stride, x += a.pass.stride) {
            Four d = four(dy);
            float v = *x;
            s[0] = fmaf(d.x, v, s[0]); s[1] = fmaf(d.y, v, s[1]);
            s[2] = fmaf(d.z, v, s[2]); s[3] = fmaf(d.w, v, s[3]);
        }
    } else {
#pragma unroll 4
        for (u32 n = 0; n < rows; n++, dy += a.pass.stride) {
            float v = input(a.pass, base + n, a.x)[i];
#pragma unroll
            for (u32 k = 0; k < 4; k++) s[k] = fmaf(k < left ? dy[k] : 0.0f, v, s[k]);
        }
    }
    for (u32 k = 0; k < left; k++) to[(u64)k * by] = s[k];
}

extern "C" __global__ void dense_weights(Dense a) { THREADS dense_weights_thread(a); }

// ----------------------------------------------------------------- pools, functions and shortcuts

struct Image {
    Pass pass;
    u32 x, y, winners;     // tensors
    u32 channels, height, width;
    u32 down, across;      // the sides of a rectangle, or strides
    u32 outputs, rows, columns;
    u32 kind;              // of a function, or of a shortcut; forth: whether relu follows
};

__device__ static void max_pool_thread(const Image &a) {
    u32 sample = blockIdx.x, at = blockIdx.y * blockDim.x + threadIdx.x;
    u32 rows = a.height / a.down, columns = a.width / a.across;
    if (at >= a.channels * rows * columns) return;
    u32 j = at % columns, i = at / columns % rows, c = at / columns / rows;
    const float *x = input(a.pass, sample, a.x)
        + ((u64)c * a.height + i * a.down) * a.width + j * a.across;
    float most = x[0], winner = 0.0f, number = 0.0f;
    for (u32 r = 0; r < a.down; r++) {
        for (u32 s = 0; s < a.across; s++) {
            float next = x[r * a.width + s];
            bool more = next > most;
            most = more ? next : most;
            winner = more ? number : winner;
            number += 1.0f;
        }
    }
    tensor(a.pass, sample, a.y)[at] = a.kind ? relu(most) : most;
    tensor(a.pass, sample, a.winners)[at] = winner;
}

extern "C" __global__ void max_pool(Image a) { THREADS max_pool_thread(a); }

__device__ static void max_pool_slopes_thread(const Image &a) {
    u32 sample = blockIdx.x, at = blockIdx.y * blockDim.x + threadIdx.x;
    if (at >= a.channels * a.height * a.width) return;
    u32 rows = a.height / a.down, columns = a.width / a.across;
    u32 j = at % a.width, i = at / a.width % a.height, c = at / a.width / a.height;
    u32 square = (c * rows + i / a.down) * columns + j / a.across;
    u32 winner = (u32)tensor(a.pass, sample, a.winners)[square];
    bool won = winner == i % a.down * a.across + j % a.across;
    tensor(a.pass, sample, a.x)[at] = won ? tensor(a.pass, sample, a.y)[square] : 0.0f;
}

extern "C" __global__ void max_pool_slopes(Image a) { THREADS max_pool_slopes_thread(a); }

__device__ static void avg_pool_thread(const Image &a) {
    u32 sample = blockIdx.x, at = blockIdx.y * blockDim.x + threadIdx.x;
    u32 rows = a.height / a.down, columns = a.width / a.across;
    if (at >= a.channels * rows * columns) return;
    u32 j = at % columns, i = at / columns % rows, c = at / columns / rows;
    const float *x = input(a.pass, sample, a.x)
        + ((u64)c * a.height + i * a.down) * a.width + j * a.across;
    float share = (float)(1.0 / (double)(a.down * a.across)), sum = 0.0f;
    for (u32 r = 0; r < a.down; r++) {
        for (u32 s = 0; s < a.across; s++) sum += x[r * a.width + s];
    }
    tensor(a.pass, sample, a.y)[at] = sum * share;
}

extern "C" __global__ void avg_pool(Image a) { THREADS avg_pool_thread(a); }

__device__ static void avg_pool_slopes_thread(const Image &a) {
    u32 sample = blockIdx.x, at = blockIdx.y * blockDim.x + threadIdx.x;
    if (at >= a.channels * a.height * a.width) return;
    u32 rows = a.height / a.down, columns = a.width / a.across;
    u32 j = at % a.width, i = at / a.width % a.height, c = at / a.width / a.height;
    u32 square = (c * rows + i / a.down) * columns + j / a.across;
    float share = (float)(1.0 / (double)(a.down * a.across));
    tensor(a.pass, sample, a.x)[at] = tensor(a.pass, sample, a.y)[square] * share;
}

extern "C" __global__ void avg_pool_slopes(Image a) { THREADS avg_pool_slopes_thread(a); }

// Functions: relu, tanh, sigmoid, swish.
__device__ static void activate_thread(const Image &a) {
    u32 sample = blockIdx.x, at = blockIdx.y * blockDim.x + threadIdx.x;
    if (at >= a.channels) return;
    float x = input(a.pass, sample, a.x)[at], y;
    if (a.kind == 0) {
        y = relu(x);
    } else if (a.kind == 1) {
        float s = sigmoid(x + x);
        y = s + s - 1.0f;
    } else if (a.kind == 2) {
        y = sigmoid(x);
    } else {
        y = x * sigmoid(x);
    }
    tensor(a.pass, sample, a.y)[at] = y;
}

extern "C" __global__ void activate(Image a) { THREADS activate_thread(a); }

// `winners` is here what the derivative is taken from.
__device__ static void activate_slopes_thread(const Image &a) {
    u32 sample = blockIdx.x, at = blockIdx.y * blockDim.x + threadIdx.x;
    if (at >= a.channels) return;
    float slope = tensor(a.pass, sample, a.y)[at], v = input(a.pass, sample, a.winners)[at];
    if (a.kind == 0) {
        slope = v > 0.0f ? slope : 0.0f;
    } else if (a.kind == 1) {
        slope = slope * (1.0f - v * v);
    } else if (a.kind == 2) {
        slope = slope * (v * (1.0f - v));
    } else {
        float s = sigmoid(v);
        slope = slope * (s + v * s * (1.0f - s));
    }
    tensor(a.pass, sample, a.x)[at] = slope;
}

extern "C" __global__ void activate_slopes(Image a) { THREADS activate_slopes_thread(a); }

// y += x (kind 0), or y = x (1).
__device__ static void add_thread(const Image &a) {
    u32 sample = blockIdx.x, at = blockIdx.y * blockDim.x + threadIdx.x;
    if (at >= a.channels) return;
    float x = input(a.pass, sample, a.x)[at], *y = tensor(a.pass, sample, a.y) + at;
    *y = a.kind ? x : *y + x;
}

extern "C" __global__ void add(Image a) { THREADS add_thread(a); }

// Every `down`th row and column, and channels of zeros; or back (kind 1).
__device__ static void skip_thread(const Image &a) {
    u32 sample = blockIdx.x, at = blockIdx.y * blockDim.x + threadIdx.x;
    u32 columns = a.kind ? a.width : a.columns, rows = a.kind ? a.height : a.rows;
    if (at >= (a.kind ? a.channels : a.outputs) * rows * columns) return;
    u32 j = at % columns, i = at / columns % rows, c = at / columns / rows;
    float value = 0.0f;
    if (a.kind) {
        bool seen = i % a.down == 0 && j % a.down == 0 && i / a.down < a.rows
            && j / a.down < a.columns;
        if (seen) {
            value = tensor(a.pass, sample, a.y)[((u64)c * a.rows + i / a.down) * a.columns
                                               + j / a.down];
        }
        tensor(a.pass, sample, a.x)[at] = value;
    } else {
        if (c < a.channels) {
            value = input(a.pass, sample, a.x)[((u64)c * a.height + i * a.down) * a.width
                                              + j * a.down];
        }
        tensor(a.pass, sample, a.y)[at] = value;
    }
}

extern "C" __global__ void skip(Image a) { THREADS skip_thread(a); }

// --------------------------------------------------------------------------------- normalisation

struct Norm {
    Pass pass;
    u32 x, y, dx, rates, room;  // tensors; `y` is the output, or its slopes; room for two a channel
    u32 weight, bias;           // where scales and shifts start
    u32 channels, area, groups; // groups 0: filter response normalisation
};

// Rates of a channel, or mean and rate of a group.
__device__ static void norm_rates_thread(const Norm &a) {
    u32 sample = blockIdx.x, at = blockIdx.y * blockDim.x + threadIdx.x;
    if (at >= (a.groups ? a.groups : a.channels)) return;
    u64 count = a.groups ? (u64)(a.channels / a.groups) * a.area : a.area;
    const float *x = input(a.pass, sample, a.x) + at * count;
    float *rates = tensor(a.pass, sample, a.rates);
    float share = (float)(1.0 / (double)count), squares = 0.0f;
    if (!a.groups) {
        for (u64 k = 0; k < count; k++) squares = fmaf(x[k], x[k], squares);
        rates[at] = 1.0f / sqrtf(squares * share + (float)1e-6);
        return;
    }
    float sum = 0.0f;
    for (u64 k = 0; k < count; k++) sum += x[k];
    float mean = sum * share;
    for (u64 k = 0; k < count; k++) squares = fmaf(x[k] - mean, x[k] - mean, squares);
    rates[2 * at] = mean;
    rates[2 * at + 1] = 1.0f / sqrtf(squares * share + (float)1e-5);
}

extern "C" __global__ void norm_rates(Norm a) { THREADS norm_rates_thread(a); }

__device__ static void norm_thread(const Norm &a) {
    u32 sample = blockIdx.x, at = blockIdx.y * blockDim.x + threadIdx.x;
    if (at >= a.channels * a.area) return;
    u32 c = at / a.area, group = a.groups ? c / (a.channels / a.groups) : c;
    const float *w = weights_of(a.pass, seat_of(a.pass, sample));
    const float *rates = tensor(a.pass, sample, a.rates);
    float mean = a.groups ? rates[2 * group] : 0.0f;
    float rate = a.groups ? rates[2 * group + 1] : rates[c];
    float x = input(a.pass, sample, a.x)[at];
    float off = a.groups ? x - mean : x, scale = w[a.weight + c] * rate;
    tensor(a.pass, sample, a.y)[at] = fmaf(off, scale, w[a.bias + c]);
}

extern "C" __global__ void norm_forth(Norm a) { THREADS norm_thread(a); }

// Sums of products and of slopes of a channel, into the room.
__device__ static void norm_sums_thread(const Norm &a) {
    u32 sample = blockIdx.x, c = blockIdx.y * blockDim.x + threadIdx.x;
    if (c >= a.channels) return;
    u32 group = a.groups ? c / (a.channels / a.groups) : c;
    const float *rates = tensor(a.pass, sample, a.rates);
    const float *x = input(a.pass, sample, a.x) + (u64)c * a.area;
    const float *dy = tensor(a.pass, sample, a.y) + (u64)c * a.area;
    float products = 0.0f, sums = 0.0f;
    for (u32 k = 0; k < a.area; k++) {
        float n = a.groups ? (x[k] - rates[2 * group]) * rates[2 * group + 1] : x[k];
        products = fmaf(n, dy[k], products);
        sums += dy[k];
    }
    float *room = tensor(a.pass, sample, a.room);
    room[2 * c] = products;
    room[2 * c + 1] = sums;
}

extern "C" __global__ void norm_sums(Norm a) { THREADS norm_sums_thread(a); }

// Gradients of scales and shifts, from the room of all rows of a seat.
__device__ static void norm_weights_thread(const Norm &a) {
    u32 seat = blockIdx.x, at = blockIdx.y * blockDim.x + threadIdx.x;
    if (at >= 2 * a.channels) return;
    u32 c = at / 2, rows = seated(a.pass, seat);
    float *to = a.pass.sums + (u64)seat * a.pass.dim + (at % 2 ? a.bias : a.weight) + c;
    float sum = a.pass.resume ? *to : 0.0f;
    for (u32 n = 0; n < rows; n += 8) {
        float parts[8];
        for (u32 k = 0; k < 8; k++) {
            u32 sample = seat * a.pass.each + n + k;
            parts[k] = 0.0f;
            if (n + k >= rows) continue;
            parts[k] = tensor(a.pass, sample, a.room)[at];
            if (at % 2 == 0 && !a.groups) parts[k] *= tensor(a.pass, sample, a.rates)[c];
        }
        sum += tree(parts, 1);
    }
    *to = sum;
}

extern "C" __global__ void norm_weights(Norm a) { THREADS norm_weights_thread(a); }

__device__ static void norm_slopes_thread(const Norm &a) {
    u32 sample = blockIdx.x, at = blockIdx.y * blockDim.x + threadIdx.x;
    if (at >= a.channels * a.area) return;
    u32 c = at / a.area;
    const float *w = weights_of(a.pass, seat_of(a.pass, sample)) + a.weight;
    const float *rates = tensor(a.pass, sample, a.rates), *room = tensor(a.pass, sample, a.room);
    float x = input(a.pass, sample, a.x)[at], dy = tensor(a.pass, sample, a.y)[at], slope;
    if (!a.groups) {
        float share = (float)(1.0 / (double)a.area), r = rates[c];
        float pull = 0.0f - r * r * (room[2 * c] * share);
        slope = fmaf(x, pull, dy) * (w[c] * r);
    } else {
        u32 channels = a.channels / a.groups, group = c / channels;
        float share = (float)(1.0 / (double)((u64)channels * a.area));
        float mean = rates[2 * group], rate = rates[2 * group + 1], total = 0.0f, along = 0.0f;
        for (u32 k = group * channels; k < (group + 1) * channels; k++) {
            along = fmaf(w[k], room[2 * k], along);
            total = fmaf(w[k], room[2 * k + 1], total);
        }
        float centred = dy * w[c] - total * share;
        slope = fmaf((x - mean) * rate, 0.0f - along * share, centred) * rate;
    }
    tensor(a.pass, sample, a.dx)[at] = slope;
}

extern "C" __global__ void norm_slopes(Norm a) { THREADS norm_slopes_thread(a); }

// ------------------------------------------------------------------------------------------ loss

struct Loss {
    Pass pass;
    const u32 *labels;     // one a row of the table, or
    const double *numbers; // the responses
    double precision;
    u32 y, dy;             // tensors
    u32 outputs, unused;
};

#define FEW_CLASSES 10

__device__ static void loss_thread(const Loss &a) {
    u32 sample = blockIdx.x * blockDim.x + threadIdx.x;
    if (sample >= a.pass.samples) return;
    u32 seat = seat_of(a.pass, sample), n = sample % a.pass.each;
    const float *y = tensor(a.pass, sample, a.y);
    float *dy = tensor(a.pass, sample, a.dy);
    if (n >= seated(a.pass, seat)) {
        for (u32 k = 0; k < a.outputs; k++) dy[k] = 0.0f;
        return;
    }
    u32 row = row_of(a.pass, sample);
    if (a.numbers) {
        dy[0] = (float)(((double)y[0] - a.numbers[row]) * a.precision);
        return;
    }
    float most = -3.40282347e+38f, sum = 0.0f;
    if (a.outputs <= FEW_CLASSES) {
        float e[FEW_CLASSES];
        u32 label = a.labels[row];
#pragma unroll
        for (u32 k = 0; k < FEW_CLASSES; k++) {
            e[k] = k < a.outputs ? y[k] : -3.40282347e+38f;
            most = e[k] > most ? e[k] : most;
        }
#pragma unroll
        for (u32 k = 0; k < FEW_CLASSES; k++) {
            e[k] = exponential(e[k] - most);
            if (k < a.outputs) sum += e[k];
        }
#pragma unroll
        for (u32 k = 0; k < FEW_CLASSES; k++) {
            if (k < a.outputs) dy[k] = k == label ? e[k] / sum - 1.0f : e[k] / sum;
        }
        return;
    }
    for (u32 k = 0; k < a.outputs; k++) most = y[k] > most ? y[k] : most;
    for (u32 k = 0; k < a.outputs; k++) {
        dy[k] = exponential(y[k] - most);
        sum += dy[k];
    }
    for (u32 k = 0; k < a.outputs; k++) dy[k] = dy[k] / sum;
    dy[a.labels[row]] -= 1.0f;
}

extern "C" __global__ void loss(Loss a) { THREADS loss_thread(a); }

// ----------------------------------------------------------------------------------------- steps

// What a step of a party needs.
struct Party {
    double scale, prior, weight, shared, own;
    u32 key[8];
    u32 client, slot;
};

struct Step {
    double *x;             // positions of all parties, `dim` each
    const double *z;       // reference points and drifts there; none: 0
    const double *base;
    const double *precision;  // of a normal prior; none: 0
    const Party *parties;
    const float *sums;     // gradients of all seats, `wide` each, block of rows after block
    float *weights;        // parameters of all slots, `wide` each
    u64 tag;               // of this iteration's noise
    double step, sigma, laplace;  // the scale of a Laplace prior; none: 0
    u32 key[8];            // of everybody's noise
    u32 dim, wide, seats, blocks;
    u32 apart;             // whether every party has a reference point of its own
    u32 unused;
};

__device__ static inline double sign(double x) { return x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : 0.0; }

__device__ static inline void step_one(const Step &a, const Party &party, u32 who, u32 at,
                                       float shared, float own) {
    u64 mine = (u64)who * a.dim + at;
    double x = a.x[mine], g = 0.0;
    if (a.z) {
        u64 there = a.apart ? mine : at;
        double z = a.z[there];
        g = a.base[there];
        for (u32 b = 0; b < a.blocks; b++) {
            const float *sums = a.sums + ((u64)b * a.seats + 2 * who) * a.wide + at;
            g += party.scale * ((double)sums[0] - (double)sums[a.wide]);
        }
        if (party.prior != 0.0) {
            if (a.precision) g += party.prior * (a.precision[at] * (x - z));
            if (a.laplace != 0.0) g += party.prior * ((sign(x) - sign(z)) / a.laplace);
        }
    } else {
        for (u32 b = 0; b < a.blocks; b++) {
            g += party.scale * (double)a.sums[((u64)b * a.seats + who) * a.wide + at];
        }
        if (party.prior != 0.0) {
            if (a.precision) g += party.prior * (a.precision[at] * x);
            if (a.laplace != 0.0) g += party.prior * (sign(x) / a.laplace);
        }
    }
    double noise = party.shared == 0.0 ? party.own * (double)own
        : party.own == 0.0 ? party.shared * (double)shared
        : party.shared * (double)shared + party.own * (double)own;
    x = (x - a.step * (party.weight * g)) + a.sigma * noise;
    a.x[mine] = x;
    a.weights[(u64)party.slot * a.wide + at] = (float)x;
}

// A thread makes one block of words, and with it sixteen normals; then all take the steps of their
// coordinates, next to each other. A row of blocks for each party.
#define MAKERS 128

__device__ static inline void keep_normals(const u32 *words, float *normals) {
    u32 first = threadIdx.x / BLOCKS * GROUP + threadIdx.x % BLOCKS;
    float cosines[8], sines[8];
    normals_of(words, cosines, sines);
#pragma unroll
    for (int pair = 0; pair < 8; pair++) {
        normals[first + 2 * BLOCKS * pair] = cosines[pair];
        normals[first + 2 * BLOCKS * pair + BLOCKS] = sines[pair];
    }
}

__device__ static void step_noise(const Step &a, float *own, float *shared) {
    u32 block = blockIdx.x * MAKERS + threadIdx.x % MAKERS, words[16];
    const Party &party = a.parties[blockIdx.y];
    if (threadIdx.x < MAKERS && party.own != 0.0) {
        chacha8(party.key, block, party.client, a.tag, words);
        keep_normals(words, own);
    }
    if (threadIdx.x < MAKERS && party.shared != 0.0) {
        chacha8(a.key, block, 0xffffffffu, a.tag, words);
        keep_normals(words, shared);
    }
}

__device__ static void step_thread(const Step &a, const float *own, const float *shared) {
    Party party = a.parties[blockIdx.y];
#pragma unroll 4
    for (u32 k = threadIdx.x; k < 16 * MAKERS; k += blockDim.x) {
        u32 at = blockIdx.x * 16 * MAKERS + k;
        if (at < a.dim) step_one(a, party, blockIdx.y, at, shared[k], own[k]);
    }
}

extern "C" __global__ void step(Step a) {
    __shared__ float own[16 * MAKERS], shared[16 * MAKERS];
    THREADS step_noise(a, own, shared);
    BARRIER
    THREADS step_thread(a, own, shared);
}

// Parameters in 32 bits: `count` vectors, the first into slot `slots[0]`.
struct Narrow {
    const double *x;
    const u32 *slots;
    float *weights;
    u32 dim, wide;
};

__device__ static void narrow_thread(const Narrow &a) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x, which = blockIdx.y;
    if (at >= a.dim) return;
    a.weights[(u64)a.slots[which] * a.wide + at] = (float)a.x[(u64)which * a.dim + at];
}

extern "C" __global__ void narrow(Narrow a) { THREADS narrow_thread(a); }
