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
#define BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)
#define KEPT(type, name) type name;
#define MINE(name) name
#define ARRIVED asm volatile("cp.async.wait_all;" ::: "memory");
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
    u32 *turn;             // which iteration this is; none: there is but one
    u32 dim, stride, width, pitch;
    u32 first;             // the first row of all parties that is seated
    u32 each;              // samples of a seat
    u32 points;            // seats of a party
    u32 samples;           // of all seats
    u32 resume;            // whether gradients go on from those of rows before
    u32 every;             // from the rows of an iteration to those of the next
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
    u64 turn = p.turn ? (u64)p.turn[0] * p.every : 0;
    return p.rows[turn + (u64)party * p.pitch + (at < count ? at : 0)];
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

__device__ static inline void put_four(float *x, Four v) {
#ifdef __CUDACC__
    *(float4 *)x = make_float4(v.x, v.y, v.z, v.w);
#else
    x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
#endif
}

// Copies to shared memory that have arrived behind `ARRIVED`; zeros, if there is nothing.
__device__ static __forceinline__ void copy_four(float *to, const float *from, bool is) {
#ifdef __CUDACC__
    u32 at = (u32)__cvta_generic_to_shared(to), bytes = is ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes)
                 : "memory");
#else
    for (int k = 0; k < 4; k++) to[k] = is ? from[k] : 0.0f;
#endif
}

__device__ static __forceinline__ void copy_one(float *to, const float *from, bool is) {
#ifdef __CUDACC__
    u32 at = (u32)__cvta_generic_to_shared(to), bytes = is ? 4 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(at), "l"(from), "r"(bytes)
                 : "memory");
#else
    *to = is ? *from : 0.0f;
#endif
}

// x / y, with 1.0f / y at hand: x below 2^20.
__device__ static __forceinline__ u32 over(u32 x, float inverse) {
    return (u32)(((float)x + 0.5f) * inverse);
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
    u32 abreast;           // weights: how many a thread sums
    u32 chunk;             // so many output channels a block
    u32 group, band, slab; // samples and rows a block, and input channels at a time
    u32 pitch, wide;       // in shared memory: from a row, or weights of an input, to the next
    u32 turned;            // weights: whether input channels lie next to each other in the room
};

#include "tiles.h"

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

// The same for a sample that has its image, and slopes with their corners of the image, in shared
// memory: what it adds goes to its own room, and is summed over rows afterwards. `V` weights next
// to each other a thread, or a bias.
struct Slope {
    float slope;
    u32 corner;
};

template <int V> __device__ static __forceinline__ void weights_thread(const Conv &a,
                                                                       const float *image,
                                                                       const Slope *slopes) {
    u32 squares = a.rows / a.tile * (a.columns / a.tile);
    u32 each = a.inputs * a.kernel * a.kernel, weights = a.outputs * each;
    u32 first = blockIdx.y * a.chunk, last = MIN(first + a.chunk, a.outputs);
    float *room = tensor(a.pass, blockIdx.x, a.room);
    u32 tasks = (last - first) * each / V, biases = a.bias == TABLE ? 0 : last - first;
    for (u32 task = threadIdx.x; task < tasks + biases; task += blockDim.x) {
        float sums[V];
#pragma unroll
        for (int k = 0; k < V; k++) sums[k] = 0.0f;
        if (task >= tasks) {
            const Slope *slope = slopes + (task - tasks) * squares;
#pragma unroll 7
            for (u32 e = 0; e < squares; e++) sums[0] += slope[e].slope;
            room[weights + first + task - tasks] = sums[0];
            continue;
        }
        u32 at = first * each + task * V;
        u32 v = at % a.kernel, u = at / a.kernel % a.kernel;
        u32 c = at / (a.kernel * a.kernel) % a.inputs, o = at / each - first;
        const float *x = image + c * a.wide + u * a.pitch + v;
        const Slope *slope = slopes + o * squares;
#pragma unroll 7
        for (u32 e = 0; e < squares; e++) {
            Slope s = slope[e];
            const float *from = x + s.corner;
#pragma unroll
            for (int k = 0; k < V; k++) sums[k] = fmaf(from[k], s.slope, sums[k]);
        }
#pragma unroll
        for (int k = 0; k < V; k++) room[at + k] = sums[k];
    }
}

__device__ static void weights_stage(const Conv &a, float *image, Slope *slopes) {
    u32 across = a.columns / a.tile, squares = a.rows / a.tile * across;
    const float *x = input(a.pass, blockIdx.x, a.x), *dy = tensor(a.pass, blockIdx.x, a.y);
    u32 warp = threadIdx.x / 32, warps = blockDim.x / 32;
    for (u32 c = warp; c < a.inputs; c += warps) {
        bring_rows(x + (u64)c * a.height * a.width, 0 - a.pad, a.height + 2 * a.pad, a.height,
                   a.width, a.group, image + c * a.wide + a.pad, a.pitch);
    }
    const float *winners = a.tile > 1 ? tensor(a.pass, blockIdx.x, a.winners) : dy;
    u32 low = blockIdx.y * a.chunk, last = MIN(low + a.chunk, a.outputs);
    u32 all = (last - low) * squares;
    float by_squares = 1.0f / (float)squares, by_across = 1.0f / (float)across;
    float by_tile = 1.0f / (float)a.tile;
    dy += low * squares;
    winners += low * squares;
    for (u32 first = threadIdx.x; first < all; first += SOME * blockDim.x) {
        float s[SOME], won[SOME];
#pragma unroll
        for (int k = 0; k < SOME; k++) {
            u32 at = first + k * blockDim.x;
            s[k] = at < all ? dy[at] : 0.0f;
            won[k] = at < all && a.tile > 1 ? winners[at] : 0.0f;
        }
#pragma unroll
        for (int k = 0; k < SOME; k++) {
            u32 at = first + k * blockDim.x, winner = (u32)won[k];
            u32 e = at - over(at, by_squares) * squares, row = over(e, by_across);
            u32 down = over(winner, by_tile);
            u32 i = row * a.tile + down, j = (e - row * across) * a.tile + winner - down * a.tile;
            if (at < all) slopes[at] = {s[k], i * a.stride * a.pitch + j * a.stride};
        }
    }
}

__device__ static inline void weights_all(const Conv &a, const float *image, const Slope *slopes) {
    if (a.abreast == 5) weights_thread<5>(a, image, slopes);
    else if (a.abreast == 3) weights_thread<3>(a, image, slopes);
    else weights_thread<1>(a, image, slopes);
}

extern "C" __global__ void conv_weights_staged(Conv a) {
    SHARED(image)
    u32 numbers = (a.inputs * a.wide + 3) / 4 * 4;
    Slope *slopes = (Slope *)(image + numbers);
    THREADS zeros(image, numbers);
    BARRIER
    THREADS {
        weights_stage(a, image, slopes);
        ARRIVED
    }
    BARRIER
    THREADS weights_all(a, image, slopes);
}

__device__ static void conv_weights_rows_sum(const Conv &a) {
    u32 seat = blockIdx.x, at = blockIdx.y * blockDim.x + threadIdx.x, area = a.kernel * a.kernel;
    u32 kernels = a.outputs * a.inputs, weights = kernels * area;
    if (at >= weights + (a.bias == TABLE ? 0 : a.outputs)) return;
    u32 rows = seated(a.pass, seat), place = a.weight + at;
    if (at >= weights) place = a.bias + at - weights;
    else if (a.turned) place = a.weight + at % kernels * area + at / kernels;
    float *to = a.pass.sums + (u64)seat * a.pass.dim + place;
    const float *from = tensor(a.pass, seat * a.pass.each, a.room) + at;
    float sum = a.pass.resume ? *to : 0.0f;
#pragma unroll 2
    for (u32 n = 0; n < rows; n += 8) {
        float parts[8];
#pragma unroll
        for (u32 k = 0; k < 8; k++) {
            parts[k] = n + k < rows ? from[(u64)(n + k) * a.pass.stride] : 0.0f;
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
    u32 rows, chunk, slab; // rows and outputs of a block, and inputs at a time
    u32 pitch;             // from a row to the next in shared memory
};

// A block has `a.rows` rows and `a.chunk` outputs of one seat, and `a.slab` inputs at a time of
// both in shared memory. A thread has one output of `R` rows.
template <int R> struct Rows {
    float sums[R];
};

// Numbers of a row to shared memory: by a warp, four at a time where they lie so. They have arrived
// behind `ARRIVED`.
__device__ static __forceinline__ void bring(const float *from, float *to, u32 count) {
    u32 lane = threadIdx.x % 32, done = 0;
    if (fours(from) && fours(to)) {
        done = count / 4 * 4;
        for (u32 i = 4 * lane; i < done; i += 128) copy_four(to + i, from + i, true);
    }
    for (u32 i = done + lane; i < count; i += 32) copy_one(to + i, from + i, true);
}

template <int R> __device__ static __forceinline__ void dense_start(const Dense &a, u32 low,
                                                                    Rows<R> &mine) {
    u32 o = low + threadIdx.x / 8;
    float bias = o < a.outputs ? weights_of(a.pass, blockIdx.x)[a.bias + o] : 0.0f;
#pragma unroll
    for (int k = 0; k < R; k++) mine.sums[k] = bias;
}

__device__ static __forceinline__ void dense_stage(const Dense &a, u32 first, u32 low, u32 from,
                                                   float *rows, float *weights) {
    u32 warp = threadIdx.x / 32, warps = blockDim.x / 32, most = a.pass.each - 1;
    u32 count = MIN(a.slab, a.inputs - from);
    for (u32 n = warp; n < a.rows; n += warps) {
        u32 sample = blockIdx.x * a.pass.each + MIN(first + n, most);
        bring(input(a.pass, sample, a.x) + from, rows + n * a.pitch, count);
    }
    const float *w = weights_of(a.pass, blockIdx.x) + a.weight + from;
    for (u32 o = warp; o < a.chunk; o += warps) {
        u32 output = MIN(low + o, a.outputs - 1);
        bring(w + (u64)output * a.inputs, weights + o * a.pitch, count);
    }
}

template <int R> __device__ static __forceinline__ void dense_slab(const Dense &a, u32 from,
                                                                   const float *rows,
                                                                   const float *weights,
                                                                   Rows<R> &mine) {
    u32 count = MIN(a.slab, a.inputs - from), i = 0;
    const float *x = rows + threadIdx.x % 8 * a.pitch, *w = weights + threadIdx.x / 8 * a.pitch;
#pragma unroll 4
    for (; i + 4 <= count; i += 4) {
        Four v = four(w + i);
#pragma unroll
        for (int k = 0; k < R; k++) {
            Four p = four(x + 8 * k * a.pitch + i);
            mine.sums[k] = fmaf(p.x, v.x, mine.sums[k]);
            mine.sums[k] = fmaf(p.y, v.y, mine.sums[k]);
            mine.sums[k] = fmaf(p.z, v.z, mine.sums[k]);
            mine.sums[k] = fmaf(p.w, v.w, mine.sums[k]);
        }
    }
    for (; i < count; i++) {
#pragma unroll
        for (int k = 0; k < R; k++) mine.sums[k] = fmaf(x[8 * k * a.pitch + i], w[i], mine.sums[k]);
    }
}

template <int R> __device__ static __forceinline__ void dense_end(const Dense &a, u32 first,
                                                                  u32 low, const Rows<R> &mine) {
    u32 o = low + threadIdx.x / 8;
    if (o >= a.outputs) return;
#pragma unroll
    for (int k = 0; k < R; k++) {
        u32 row = first + threadIdx.x % 8 + 8 * k;
        if (row >= a.pass.each) continue;
        float sum = a.relu ? relu(mine.sums[k]) : mine.sums[k];
        tensor(a.pass, blockIdx.x * a.pass.each + row, a.y)[o] = sum;
    }
}

#define DENSE(NAME, R) \
    extern "C" __global__ void NAME(Dense a) { \
        SHARED(rows) \
        u32 parts = (a.outputs + a.chunk - 1) / a.chunk; \
        u32 first = blockIdx.y / parts * a.rows, low = blockIdx.y % parts * a.chunk; \
        float *weights = rows + a.rows * a.pitch; \
        KEPT(Rows<R>, mine) \
        THREADS dense_start<R>(a, low, MINE(mine)); \
        for (u32 from = 0; from < a.inputs; from += a.slab) { \
            THREADS { \
                dense_stage(a, first, low, from, rows, weights); \
                ARRIVED \
            } \
            BARRIER \
            THREADS dense_slab<R>(a, from, rows, weights, MINE(mine)); \
            BARRIER \
        } \
        THREADS dense_end<R>(a, first, low, MINE(mine)); \
    }
DENSE(dense_8, 1)
DENSE(dense_32, 4)

// A block has `a.rows` rows and 128 inputs of one seat, and `a.slab` outputs at a time in shared
// memory: slopes, and weights input by input. A thread has one input of four rows.
#define DEEP 4
#define ACROSS 128
struct Inputs {
    float sums[DEEP];
};

__device__ static __forceinline__ void dense_slopes_stage(const Dense &a, u32 first, u32 low,
                                                          u32 from, float *rows, float *weights) {
    u32 warp = threadIdx.x / 32, warps = blockDim.x / 32, most = a.pass.each - 1;
    u32 count = MIN(a.slab, a.outputs - from), across = MIN(ACROSS, a.inputs - low);
    for (u32 n = warp; n < a.rows; n += warps) {
        u32 sample = blockIdx.x * a.pass.each + MIN(first + n, most);
        bring(tensor(a.pass, sample, a.y) + from, rows + n * a.pitch, count);
    }
    const float *w = weights_of(a.pass, blockIdx.x) + a.weight + low;
    for (u32 o = warp; o < count; o += warps) {
        bring(w + (u64)(from + o) * a.inputs, weights + o * ACROSS, across);
    }
}

__device__ static __forceinline__ void dense_slopes_slab(const Dense &a, u32 from,
                                                         const float *rows, const float *weights,
                                                         Inputs &mine) {
    u32 count = MIN(a.slab, a.outputs - from), o = 0;
    const float *w = weights + threadIdx.x % ACROSS;
    const float *dy = rows + threadIdx.x / ACROSS * DEEP * a.pitch;
#pragma unroll 4
    for (; o + 4 <= count; o += 4) {
        float v[4];
#pragma unroll
        for (int e = 0; e < 4; e++) v[e] = w[(o + e) * ACROSS];
#pragma unroll
        for (u32 k = 0; k < DEEP; k++) {
            Four d = four(dy + k * a.pitch + o);
            mine.sums[k] = fmaf(d.x, v[0], mine.sums[k]);
            mine.sums[k] = fmaf(d.y, v[1], mine.sums[k]);
            mine.sums[k] = fmaf(d.z, v[2], mine.sums[k]);
            mine.sums[k] = fmaf(d.w, v[3], mine.sums[k]);
        }
    }
    for (; o < count; o++) {
#pragma unroll
        for (u32 k = 0; k < DEEP; k++) {
            mine.sums[k] = fmaf(dy[k * a.pitch + o], w[o * ACROSS], mine.sums[k]);
        }
    }
}

__device__ static __forceinline__ void dense_slopes_end(const Dense &a, u32 first, u32 low,
                                                        const Inputs &mine) {
    u32 i = low + threadIdx.x % ACROSS;
    if (i >= a.inputs) return;
#pragma unroll
    for (u32 k = 0; k < DEEP; k++) {
        u32 row = first + threadIdx.x / ACROSS * DEEP + k;
        if (row >= a.pass.each) continue;
        u32 sample = blockIdx.x * a.pass.each + row;
        bool off = a.of != TABLE && !(tensor(a.pass, sample, a.of)[i] > 0.0f);
        tensor(a.pass, sample, a.x)[i] = off ? 0.0f : mine.sums[k];
    }
}

extern "C" __global__ void dense_slopes(Dense a) {
    SHARED(rows)
    u32 parts = (a.inputs + ACROSS - 1) / ACROSS;
    u32 first = blockIdx.y / parts * a.rows, low = blockIdx.y % parts * ACROSS;
    float *weights = rows + a.rows * a.pitch;
    KEPT(Inputs, mine)
    THREADS {
        for (int k = 0; k < DEEP; k++) MINE(mine).sums[k] = 0.0f;
    }
    for (u32 from = 0; from < a.outputs; from += a.slab) {
        THREADS {
            dense_slopes_stage(a, first, low, from, rows, weights);
            ARRIVED
        }
        BARRIER
        THREADS dense_slopes_slab(a, from, rows, weights, MINE(mine));
        BARRIER
    }
    THREADS dense_slopes_end(a, first, low, MINE(mine));
}

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
#pragma unroll 8
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
#pragma unroll 8
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
__device__ static inline float activated(u32 kind, float x) {
    if (kind == 0) return relu(x);
    if (kind == 1) {
        float s = sigmoid(x + x);
        return s + s - 1.0f;
    }
    if (kind == 2) return sigmoid(x);
    return x * sigmoid(x);
}

// `v` is what the derivative is taken from.
__device__ static inline float activated_back(u32 kind, float slope, float v) {
    if (kind == 0) return v > 0.0f ? slope : 0.0f;
    if (kind == 1) return slope * (1.0f - v * v);
    if (kind == 2) return slope * (v * (1.0f - v));
    float s = sigmoid(v);
    return slope * (s + v * s * (1.0f - s));
}

// Four numbers a thread.
struct Quad {
    float v[4];
};

__device__ static inline Quad quad(const float *x, u32 left) {
    if (left >= 4 && fours(x)) {
        Four f = four(x);
        return {f.x, f.y, f.z, f.w};
    }
    Quad q;
#pragma unroll
    for (u32 k = 0; k < 4; k++) q.v[k] = k < left ? x[k] : 0.0f;
    return q;
}

__device__ static inline void put_quad(float *x, const Quad &q, u32 left) {
    if (left >= 4 && fours(x)) {
        put_four(x, {q.v[0], q.v[1], q.v[2], q.v[3]});
        return;
    }
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
        if (k < left) x[k] = q.v[k];
    }
}

__device__ static void activate_thread(const Image &a) {
    u32 sample = blockIdx.x, at = 4 * (blockIdx.y * blockDim.x + threadIdx.x);
    if (at >= a.channels) return;
    u32 left = a.channels - at;
    Quad q = quad(input(a.pass, sample, a.x) + at, left);
#pragma unroll
    for (int k = 0; k < 4; k++) q.v[k] = activated(a.kind, q.v[k]);
    put_quad(tensor(a.pass, sample, a.y) + at, q, left);
}

extern "C" __global__ void activate(Image a) { THREADS activate_thread(a); }

// `winners` is here what the derivative is taken from.
__device__ static void activate_slopes_thread(const Image &a) {
    u32 sample = blockIdx.x, at = 4 * (blockIdx.y * blockDim.x + threadIdx.x);
    if (at >= a.channels) return;
    u32 left = a.channels - at;
    Quad q = quad(tensor(a.pass, sample, a.y) + at, left);
    Quad v = quad(input(a.pass, sample, a.winners) + at, left);
#pragma unroll
    for (int k = 0; k < 4; k++) q.v[k] = activated_back(a.kind, q.v[k], v.v[k]);
    put_quad(tensor(a.pass, sample, a.x) + at, q, left);
}

extern "C" __global__ void activate_slopes(Image a) { THREADS activate_slopes_thread(a); }

// y += x (kind 0), or y = x (1). Where there are `winners`, these are then the function of y, or,
// going back (`down`), y is multiplied by its derivative there.
__device__ static void add_thread(const Image &a) {
    u32 sample = blockIdx.x, at = 4 * (blockIdx.y * blockDim.x + threadIdx.x);
    if (at >= a.channels) return;
    u32 left = a.channels - at;
    float *to = tensor(a.pass, sample, a.y) + at;
    Quad q = quad(input(a.pass, sample, a.x) + at, left);
    if (!a.kind) {
        Quad y = quad(to, left);
#pragma unroll
        for (int k = 0; k < 4; k++) q.v[k] = y.v[k] + q.v[k];
    }
    if (a.winners != TABLE) {
        float *other = tensor(a.pass, sample, a.winners) + at;
        if (a.down) {
            Quad v = quad(other, left);
#pragma unroll
            for (int k = 0; k < 4; k++) q.v[k] = activated_back(a.across, q.v[k], v.v[k]);
        } else {
            Quad z;
#pragma unroll
            for (int k = 0; k < 4; k++) z.v[k] = activated(a.across, q.v[k]);
            put_quad(other, z, left);
        }
    }
    put_quad(to, q, left);
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
    u32 chunk, pitch;           // channels of a block, and from one to the next in shared memory
    u32 swish, of;              // filters, with swish: its output, or what it was taken of
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
    bool by_rates = at % 2 == 0 && !a.groups;
    float *to = a.pass.sums + (u64)seat * a.pass.dim + (at % 2 ? a.bias : a.weight) + c;
    const float *room = tensor(a.pass, seat * a.pass.each, a.room) + at;
    const float *rates = tensor(a.pass, seat * a.pass.each, a.rates) + (by_rates ? c : 0);
    float sum = a.pass.resume ? *to : 0.0f;
#pragma unroll 2
    for (u32 n = 0; n < rows; n += 8) {
        float parts[8], by[8];
#pragma unroll
        for (u32 k = 0; k < 8; k++) {
            u64 from = (u64)(n + k) * a.pass.stride;
            parts[k] = n + k < rows ? room[from] : 0.0f;
            by[k] = by_rates && n + k < rows ? rates[from] : 1.0f;
        }
#pragma unroll
        for (u32 k = 0; k < 8; k++) parts[k] = by_rates ? parts[k] * by[k] : parts[k];
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

// Filter response normalisation of `a.chunk` channels of a sample, which lie in shared memory, and
// swish of it.
__device__ static __forceinline__ void filters_stage(const Norm &a, float *x) {
    u32 first = blockIdx.y * a.chunk, count = MIN(a.chunk, a.channels - first);
    const float *from = input(a.pass, blockIdx.x, a.x) + (u64)first * a.area;
    u32 quads = (a.area + 3) / 4;
#pragma unroll 4
    for (u32 k = threadIdx.x; k < count * quads; k += blockDim.x) {
        u32 c = k / quads, at = 4 * (k % quads);
        put_quad(x + c * a.pitch + at, quad(from + (u64)c * a.area + at, a.area - at), 4);
    }
}

__device__ static __forceinline__ void filters_rates(const Norm &a, const float *x, float *rates) {
    u32 c = threadIdx.x, first = blockIdx.y * a.chunk;
    if (c >= a.chunk || first + c >= a.channels) return;
    float share = (float)(1.0 / (double)a.area), squares = 0.0f;
    x += c * a.pitch;
    u32 at = 0;
#pragma unroll 8
    for (; at + 4 <= a.area; at += 4) {
        Four f = four(x + at);
        squares = fmaf(f.x, f.x, squares);
        squares = fmaf(f.y, f.y, squares);
        squares = fmaf(f.z, f.z, squares);
        squares = fmaf(f.w, f.w, squares);
    }
    for (; at < a.area; at++) squares = fmaf(x[at], x[at], squares);
    rates[c] = 1.0f / sqrtf(squares * share + (float)1e-6);
    tensor(a.pass, blockIdx.x, a.rates)[first + c] = rates[c];
}

__device__ static __forceinline__ void filters_end(const Norm &a, const float *x,
                                                   const float *rates) {
    u32 first = blockIdx.y * a.chunk, count = MIN(a.chunk, a.channels - first);
    const float *w = weights_of(a.pass, seat_of(a.pass, blockIdx.x));
    float *y = tensor(a.pass, blockIdx.x, a.y) + (u64)first * a.area;
    float *z = a.swish ? tensor(a.pass, blockIdx.x, a.of) + (u64)first * a.area : y;
    u32 quads = (a.area + 3) / 4;
#pragma unroll 2
    for (u32 k = threadIdx.x; k < count * quads; k += blockDim.x) {
        u32 c = k / quads, at = 4 * (k % quads);
        float scale = w[a.weight + first + c] * rates[c], shift = w[a.bias + first + c];
        Quad q = quad(x + c * a.pitch + at, 4);
#pragma unroll
        for (int e = 0; e < 4; e++) q.v[e] = fmaf(q.v[e], scale, shift);
        put_quad(y + (u64)c * a.area + at, q, a.area - at);
        if (!a.swish) continue;
#pragma unroll
        for (int e = 0; e < 4; e++) q.v[e] = activated(3, q.v[e]);
        put_quad(z + (u64)c * a.area + at, q, a.area - at);
    }
}

extern "C" __global__ void norm_filters(Norm a) {
    SHARED(x)
    float *rates = x + a.chunk * a.pitch;
    THREADS filters_stage(a, x);
    BARRIER
    THREADS filters_rates(a, x, rates);
    BARRIER
    THREADS filters_end(a, x, rates);
}

// Back: slopes come first through swish, if there is one; they are kept in place where others want
// them (`a.swish` 2).
__device__ static __forceinline__ void filters_back_stage(const Norm &a, float *x, float *slopes) {
    u32 first = blockIdx.y * a.chunk, count = MIN(a.chunk, a.channels - first);
    const float *from = input(a.pass, blockIdx.x, a.x) + (u64)first * a.area;
    float *dy = tensor(a.pass, blockIdx.x, a.y) + (u64)first * a.area;
    const float *of = a.swish ? tensor(a.pass, blockIdx.x, a.of) + (u64)first * a.area : dy;
    u32 quads = (a.area + 3) / 4;
#pragma unroll 4
    for (u32 k = threadIdx.x; k < count * quads; k += blockDim.x) {
        u32 c = k / quads, at = 4 * (k % quads), left = a.area - at;
        u64 place = (u64)c * a.area + at;
        put_quad(x + c * a.pitch + at, quad(from + place, left), 4);
        Quad q = quad(dy + place, left);
        if (a.swish) {
            Quad v = quad(of + place, left);
#pragma unroll
            for (int e = 0; e < 4; e++) q.v[e] = activated_back(3, q.v[e], v.v[e]);
            if (a.swish == 2) put_quad(dy + place, q, left);
        }
        put_quad(slopes + c * a.pitch + at, q, 4);
    }
}

// One warp sums products, another one slopes.
__device__ static __forceinline__ void filters_back_sums(const Norm &a, const float *x,
                                                         const float *slopes, float *sums) {
    u32 c = threadIdx.x % 32, which = threadIdx.x / 32, first = blockIdx.y * a.chunk;
    if (which > 1 || c >= a.chunk || first + c >= a.channels) return;
    const float *v = (which ? slopes : x) + c * a.pitch, *s = slopes + c * a.pitch;
    float sum = 0.0f;
    u32 at = 0;
    if (which) {
#pragma unroll 8
        for (; at + 4 <= a.area; at += 4) {
            Four f = four(s + at);
            sum += f.x;
            sum += f.y;
            sum += f.z;
            sum += f.w;
        }
        for (; at < a.area; at++) sum += s[at];
    } else {
#pragma unroll 8
        for (; at + 4 <= a.area; at += 4) {
            Four f = four(v + at), g = four(s + at);
            sum = fmaf(f.x, g.x, sum);
            sum = fmaf(f.y, g.y, sum);
            sum = fmaf(f.z, g.z, sum);
            sum = fmaf(f.w, g.w, sum);
        }
        for (; at < a.area; at++) sum = fmaf(v[at], s[at], sum);
    }
    tensor(a.pass, blockIdx.x, a.room)[2 * (first + c) + which] = sum;
    if (!which) sums[c] = sum;
}

__device__ static __forceinline__ void filters_back_end(const Norm &a, const float *x,
                                                        const float *slopes, const float *sums) {
    u32 first = blockIdx.y * a.chunk, count = MIN(a.chunk, a.channels - first);
    const float *w = weights_of(a.pass, seat_of(a.pass, blockIdx.x)) + a.weight + first;
    const float *rates = tensor(a.pass, blockIdx.x, a.rates) + first;
    float *dx = tensor(a.pass, blockIdx.x, a.dx) + (u64)first * a.area;
    float share = (float)(1.0 / (double)a.area);
    u32 quads = (a.area + 3) / 4;
#pragma unroll 2
    for (u32 k = threadIdx.x; k < count * quads; k += blockDim.x) {
        u32 c = k / quads, at = 4 * (k % quads);
        float r = rates[c], pull = 0.0f - r * r * (sums[c] * share), scale = w[c] * r;
        Quad q = quad(x + c * a.pitch + at, 4), d = quad(slopes + c * a.pitch + at, 4);
#pragma unroll
        for (int e = 0; e < 4; e++) q.v[e] = fmaf(q.v[e], pull, d.v[e]) * scale;
        put_quad(dx + (u64)c * a.area + at, q, a.area - at);
    }
}

extern "C" __global__ void norm_filters_slopes(Norm a) {
    SHARED(x)
    float *slopes = x + a.chunk * a.pitch, *sums = slopes + a.chunk * a.pitch;
    THREADS filters_back_stage(a, x, slopes);
    BARRIER
    THREADS filters_back_sums(a, x, slopes, sums);
    BARRIER
    THREADS filters_back_end(a, x, slopes, sums);
}

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
    if (sample == 0 && a.pass.turn) a.pass.turn[1] = a.pass.turn[0];  // for the step
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

// What differs from an iteration to the next.
struct Moment {
    u64 tag;               // of its noise
    double step, sigma;
};

struct Step {
    double *x;             // positions of all parties, `dim` each
    const double *z;       // reference points and drifts there; none: 0
    const double *base;
    const double *precision;  // of a normal prior; none: 0
    const Party *parties;
    const float *sums;     // gradients of all seats, `wide` each, block of rows after block
    float *weights;        // parameters of all slots, `wide` each
    float *noise;          // normals that were drawn before, `wide` each
    const Moment *moments; // one for each iteration
    u32 *turn;             // which it is: before the step, and in it
    double laplace;        // the scale of a Laplace prior; none: 0
    u32 key[8];            // of everybody's noise
    u32 dim, wide, seats, blocks;
    u32 apart;             // whether every party has a reference point of its own
    u32 unused;
};

__device__ static inline double sign(double x) { return x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : 0.0; }

// What a coordinate's step starts from.
struct Start {
    double x, z, base, precision;
    float sums[2];
};

__device__ static inline Start step_start(const Step &a, u32 who, u32 at) {
    u64 mine = (u64)who * a.dim + at, there = a.apart ? mine : at;
    Start s = {a.x[mine], 0.0, 0.0, 0.0, {0.0f, 0.0f}};
    const float *sums = a.sums + (u64)(a.z ? 2 * who : who) * a.wide + at;
    s.sums[0] = sums[0];
    if (a.z) {
        s.z = a.z[there];
        s.base = a.base[there];
        s.sums[1] = sums[a.wide];
    }
    if (a.precision) s.precision = a.precision[at];
    return s;
}

__device__ static inline double step_end(const Step &a, const Moment &now, const Party &party,
                                         u32 who, u32 at, const Start &start, float shared,
                                         float own) {
    double x = start.x, g = 0.0;
    u64 next = (u64)a.seats * a.wide;
    const float *sums = a.sums + (u64)(a.z ? 2 * who : who) * a.wide + at;
    if (a.z) {
        double z = start.z;
        g = start.base;
        g += party.scale * ((double)start.sums[0] - (double)start.sums[1]);
        for (u32 b = 1; b < a.blocks; b++) {
            g += party.scale * ((double)sums[b * next] - (double)sums[b * next + a.wide]);
        }
        if (party.prior != 0.0) {
            if (a.precision) g += party.prior * (start.precision * (x - z));
            if (a.laplace != 0.0) g += party.prior * ((sign(x) - sign(z)) / a.laplace);
        }
    } else {
        g += party.scale * (double)start.sums[0];
        for (u32 b = 1; b < a.blocks; b++) g += party.scale * (double)sums[b * next];
        if (party.prior != 0.0) {
            if (a.precision) g += party.prior * (start.precision * x);
            if (a.laplace != 0.0) g += party.prior * (sign(x) / a.laplace);
        }
    }
    double noise = party.shared == 0.0 ? party.own * (double)own
        : party.own == 0.0 ? party.shared * (double)shared
        : party.shared * (double)shared + party.own * (double)own;
    return (x - now.step * (party.weight * g)) + now.sigma * noise;
}

__device__ static inline void step_put(const Step &a, const Party &party, u32 who, u32 at,
                                       double x) {
    a.x[(u64)who * a.dim + at] = x;
    a.weights[(u64)party.slot * a.wide + at] = (float)x;
}

// A thread makes one block of words, and with it sixteen normals; then all take the steps of their
// coordinates, next to each other. A row of blocks for each party.
#define MAKERS 128
#define STEPS 4

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
    u64 tag = a.moments[a.turn[1]].tag;
    if (threadIdx.x < MAKERS && party.own != 0.0) {
        chacha8(party.key, block, party.client, tag, words);
        keep_normals(words, own);
    }
    if (threadIdx.x < MAKERS && party.shared != 0.0) {
        chacha8(a.key, block, 0xffffffffu, tag, words);
        keep_normals(words, shared);
    }
}

// Nobody reads this before the next iteration.
__device__ static inline void step_goes_on(const Step &a) {
    if (blockIdx.x + blockIdx.y + threadIdx.x == 0) a.turn[0] = a.turn[1] + 1;
}

__device__ static void step_thread(const Step &a, const float *own, const float *shared) {
    Party party = a.parties[blockIdx.y];
    Moment now = a.moments[a.turn[1]];
    step_goes_on(a);
    for (u32 first = threadIdx.x; first < 16 * MAKERS; first += STEPS * blockDim.x) {
        Start starts[STEPS];
#pragma unroll
        for (u32 k = 0; k < STEPS; k++) {
            u32 at = blockIdx.x * 16 * MAKERS + first + k * blockDim.x;
            if (at < a.dim) starts[k] = step_start(a, blockIdx.y, at);
        }
#pragma unroll
        for (u32 k = 0; k < STEPS; k++) {
            u32 here = first + k * blockDim.x, at = blockIdx.x * 16 * MAKERS + here;
            if (at >= a.dim) continue;
            double x = step_end(a, now, party, blockIdx.y, at, starts[k], shared[here], own[here]);
            step_put(a, party, blockIdx.y, at, x);
        }
    }
}

extern "C" __global__ void step(Step a) {
    __shared__ float own[16 * MAKERS], shared[16 * MAKERS];
    THREADS step_noise(a, own, shared);
    BARRIER
    THREADS step_thread(a, own, shared);
}

// The same in two kernels, of which the first needs no gradient: its normals lie in memory, those
// of everybody behind those of all parties.
__device__ static inline bool wanted(const Step &a) {
    bool everybody = blockIdx.y == gridDim.y - 1;
    return everybody ? a.parties[0].shared != 0.0 : a.parties[blockIdx.y].own != 0.0;
}

__device__ static void step_draw(const Step &a, float *normals) {
    u32 block = blockIdx.x * MAKERS + threadIdx.x, words[16];
    bool everybody = blockIdx.y == gridDim.y - 1;
    const Party &party = a.parties[everybody ? 0 : blockIdx.y];
    if (threadIdx.x >= MAKERS || !wanted(a)) return;
    chacha8(everybody ? a.key : party.key, block, everybody ? 0xffffffffu : party.client,
            a.moments[a.turn[0]].tag, words);
    keep_normals(words, normals);
}

__device__ static void step_keep(const Step &a, const float *normals) {
    if (!wanted(a)) return;
    for (u32 k = threadIdx.x; k < 16 * MAKERS; k += blockDim.x) {
        u32 at = blockIdx.x * 16 * MAKERS + k;
        if (at < a.dim) a.noise[(u64)blockIdx.y * a.wide + at] = normals[k];
    }
}

extern "C" __global__ void step_noise(Step a) {
    __shared__ float normals[16 * MAKERS];
    THREADS step_draw(a, normals);
    BARRIER
    THREADS step_keep(a, normals);
}

__device__ static void step_move(const Step &a) {
    Party party = a.parties[blockIdx.y];
    Moment now = a.moments[a.turn[1]];
    step_goes_on(a);
    u32 first = blockIdx.x * blockDim.x * STEPS + threadIdx.x;
    const float *own = a.noise + (u64)blockIdx.y * a.wide;
    const float *shared = a.noise + (u64)gridDim.y * a.wide;
    Start starts[STEPS];
    float mine[STEPS], everybodys[STEPS];
#pragma unroll
    for (u32 k = 0; k < STEPS; k++) {
        u32 at = first + k * blockDim.x;
        if (at >= a.dim) continue;
        starts[k] = step_start(a, blockIdx.y, at);
        mine[k] = party.own == 0.0 ? 0.0f : own[at];
        everybodys[k] = party.shared == 0.0 ? 0.0f : shared[at];
    }
#pragma unroll
    for (u32 k = 0; k < STEPS; k++) {
        u32 at = first + k * blockDim.x;
        if (at >= a.dim) continue;
        double x = step_end(a, now, party, blockIdx.y, at, starts[k], everybodys[k], mine[k]);
        step_put(a, party, blockIdx.y, at, x);
    }
}

extern "C" __global__ void BOUNDS(128, 7) step_taken(Step a) { THREADS step_move(a); }

// Parameters in 32 bits: `count` vectors, the first into slot `slots[0]`.
struct Narrow {
    double *x;
    const u32 *slots;
    float *weights;
    u32 dim, wide;
    u32 same;              // whether all are as the first one, and only that is there
    u32 unused;
};

__device__ static void narrow_thread(const Narrow &a) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x, which = blockIdx.y;
    if (at >= a.dim) return;
    double x = a.x[(u64)(a.same ? 0 : which) * a.dim + at];
    if (a.same && which) a.x[(u64)which * a.dim + at] = x;
    a.weights[(u64)a.slots[which] * a.wide + at] = (float)x;
}

extern "C" __global__ void narrow(Narrow a) { THREADS narrow_thread(a); }
