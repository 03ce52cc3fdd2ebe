// Convolutions by tiles: a thread has two rows of four columns of `O` output channels in its
// registers, and goes through the channels that it is made of in order, some of which at a time lie
// in shared memory with their weights. Slopes of inputs are the same with channels exchanged and
// the kernel turned. Included by `net.cu`.
//
// A block has `a.group` samples of one seat, `a.band` rows and `a.chunk` output channels.

// So many numbers are on their way before a thread uses the first.
#define SOME 5

#define STRIP 4
#define PAIR 2

template <int K, int S, bool BACK> struct Tiles {
    u32 outputs, inputs, rows, columns, height, width;  // of what is made, and of what from
    u32 strips, across, groups;  // strips of a row, tiles of a channel, groups of channels
    u32 tall;                    // rows of an image in shared memory
    u32 seat, first;             // the first sample, within the seat
    u32 top, low;                // the first row and the first output channel

    static constexpr int PAD = (K - 1) / 2;
    // rows and columns from which a tile is made
    static constexpr bool SPARSE = BACK && S > 1;
    static constexpr int DEEP = SPARSE ? (PAIR - 1 + PAD) / S + 1 : S * (PAIR - 1) + K;
    static constexpr int BROAD = SPARSE ? (STRIP - 1 + PAD) / S + 1 : S * (STRIP - 1) + K;
    // where images start in their rows, and how far from the corner of a tile fours begin
    static constexpr int MARGIN = K == 3 && !SPARSE ? 4 : 0, LONE = MARGIN ? MARGIN - PAD : 0;
    // from the corner of a tile to that of the next one
    static constexpr int DOWN = SPARSE ? PAIR / S : PAIR * S;
    static constexpr int RIGHT = SPARSE ? STRIP / S : STRIP * S;

    template <int O> __device__ static __forceinline__ Tiles of(const Conv &a) {
        Tiles t;
        t.outputs = BACK ? a.inputs : a.outputs;
        t.inputs = BACK ? a.outputs : a.inputs;
        t.rows = BACK ? a.height : a.rows;
        t.columns = BACK ? a.width : a.columns;
        t.height = BACK ? a.rows : a.height;
        t.width = BACK ? a.columns : a.width;
        t.strips = (t.columns + STRIP - 1) / STRIP;
        t.across = t.strips * (a.band / PAIR);
        t.groups = (a.chunk + O - 1) / O;
        t.tall = DOWN * (a.band / PAIR - 1) + DEEP;
        u32 parts = (a.pass.each + a.group - 1) / a.group, bands = (t.rows + a.band - 1) / a.band;
        t.seat = blockIdx.x / parts;
        t.first = blockIdx.x % parts * a.group;
        t.top = blockIdx.y % bands * a.band;
        t.low = blockIdx.y / bands * a.chunk;
        return t;
    }

    __device__ static __forceinline__ u32 before(const Conv &a) {
        return K == 5 ? (BACK ? K - 1 - a.pad : a.pad) : MARGIN;
    }

    __device__ __forceinline__ u32 sample(const Conv &a, u32 g) const {
        u32 at = first + g;
        return seat * a.pass.each + (at < a.pass.each ? at : a.pass.each - 1);
    }
};

// Which tile a thread has. Where it can be, the threads of a warp have places of a few groups of
// channels, so that few numbers are read by many.
struct Spot {
    u32 g, group, row, left;
};

template <class T> __device__ static __forceinline__ Spot spot(const T &t) {
    u32 at = threadIdx.x, place, group, g = at / (t.across * t.groups);
    u32 few = t.groups % 4 == 0 ? 4 : t.groups % 2 == 0 ? 2 : 1, many = 32 / few;
    if (t.across % many == 0) {
        place = at % many + at / 32 % (t.across / many) * many;
        group = at / many % few + at / (few * t.across) % (t.groups / few) * few;
    } else {
        place = at % t.across;
        group = at / t.across % t.groups;
    }
    return {g, group, place / t.strips, place % t.strips};
}

template <int O> struct Tile {
    float sums[O][PAIR][STRIP];
};

template <int O, int K, int S, bool BACK>
__device__ static __forceinline__ void tile_start(const Conv &a, Tile<O> &tile) {
    auto t = Tiles<K, S, BACK>::template of<O>(a);
    Spot is = spot(t);
    const float *w = weights_of(a.pass, t.seat);
#pragma unroll
    for (int o = 0; o < O; o++) {
        u32 channel = t.low + is.group * O + o;
        bool biased = !BACK && a.bias != TABLE && channel < t.outputs;
        float start = biased ? w[a.bias + channel] : 0.0f;
#pragma unroll
        for (int r = 0; r < PAIR; r++) {
#pragma unroll
            for (int q = 0; q < STRIP; q++) tile.sums[o][r][q] = start;
        }
    }
}

// Zeros everywhere: what lies around images stays so.
__device__ static __forceinline__ void zeros(float *to, u32 count) {
    for (u32 at = 4 * threadIdx.x; at < count; at += 4 * blockDim.x) {
        put_four(to + at, {0.0f, 0.0f, 0.0f, 0.0f});
    }
}

// Rows of one channel of an image to shared memory by a warp, `1 << lanes` threads a row; rows that
// are not there are zeros. The copy has arrived behind `ARRIVED`.
__device__ static __forceinline__ void bring_rows(const float *channel, u32 above, u32 tall,
                                                  u32 height, u32 width, u32 lanes, float *to,
                                                  u32 pitch) {
    u32 lane = threadIdx.x % 32, by = 1u << lanes, first = lane & (by - 1);
    bool whole = width % 4 == 0 && fours(channel) && fours(to);
    for (u32 i = lane >> lanes; i < tall; i += 32u >> lanes) {
        bool is = above + i < height;
        const float *from = channel + (is ? (u64)(above + i) * width : 0);
        float *row = to + i * pitch;
        if (whole) {
            for (u32 j = 4 * first; j < width; j += 4 * by) copy_four(row + j, from + j, is);
        } else {
            for (u32 j = first; j < width; j += by) copy_one(row + j, from + j, is);
        }
    }
}

// Channels `from` and on, as many as there are at a time.
template <int O, int K, int S, bool BACK>
__device__ static __forceinline__ void tile_images(const Conv &a, u32 from, float *images) {
    using T = Tiles<K, S, BACK>;
    T t = T::template of<O>(a);
    u32 warp = threadIdx.x / 32, warps = blockDim.x / 32;
    u32 above = T::SPARSE ? t.top / S : BACK ? t.top - (K - 1 - a.pad) : t.top * S - a.pad;
    u32 count = MIN(a.slab, t.inputs - from);
    for (u32 g = 0; g < a.group; g++) {
        const float *x = input(a.pass, t.sample(a, g), BACK ? a.y : a.x);
        for (u32 c = warp; c < count; c += warps) {
            bring_rows(x + (u64)(from + c) * t.height * t.width, above, t.tall, t.height, t.width,
                       a.abreast, images + (g * a.slab + c) * t.tall * a.pitch + T::before(a),
                       a.pitch);
        }
    }
}

// Their weights, output channels next to each other. The threads of a warp bring eight numbers of
// four output channels, which go to different banks.
template <int O, int K, int S, bool BACK>
__device__ static __forceinline__ void tile_weights(const Conv &a, u32 from, float *weights) {
    auto t = Tiles<K, S, BACK>::template of<O>(a);
    const float *w = weights_of(a.pass, t.seat) + a.weight;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    u32 count = MIN(a.slab, t.inputs - from);
    if (!BACK) {
        for (u32 o = 4 * warp + lane / 8; o < a.chunk; o += 4 * warps) {
            bool is = t.low + o < t.outputs;
            const float *f = w + (is ? ((u64)(t.low + o) * t.inputs + from) * (K * K) : 0);
            for (u32 i = lane % 8; i < count * K * K; i += 8) {
                copy_one(weights + i * a.wide + o, f + i, is);
            }
        }
        return;
    }
    u32 left = MIN(a.chunk, t.outputs - t.low);
    for (u32 k = warp; k < count; k += warps) {
        const float *f = w + ((u64)(from + k) * t.outputs + t.low) * (K * K);
        for (u32 i = lane; i < left * K * K; i += 32) {
            u32 e = i % (K * K), to = k * K * K + (S == 1 ? K * K - 1 - e : e);
            copy_one(weights + to * a.wide + i / (K * K), f + i, true);
        }
    }
}

// Slopes of squares, to where their largest numbers were.
template <int O, int K, int S, bool BACK>
__device__ static __forceinline__ void tile_scatter(const Conv &a, u32 from, float *images) {
    auto t = Tiles<K, S, BACK>::template of<O>(a);
    u32 half = t.width / 2, halves = half * (t.height / 2), count = MIN(a.slab, t.inputs - from);
    u32 above = t.top - (K - 1 - a.pad), before = Tiles<K, S, BACK>::before(a);
    float by_halves = 1.0f / (float)halves, by_half = 1.0f / (float)half;
    for (u32 g = 0; g < a.group; g++) {
        u32 sample = t.sample(a, g);
        const float *dy = tensor(a.pass, sample, a.y) + from * halves;
        const float *winners = tensor(a.pass, sample, a.winners) + from * halves;
        float *image = images + g * a.slab * t.tall * a.pitch;
        for (u32 first = threadIdx.x; first < count * halves; first += SOME * blockDim.x) {
            float slopes[SOME], won[SOME];
#pragma unroll
            for (int k = 0; k < SOME; k++) {
                u32 at = first + k * blockDim.x;
                bool is = at < count * halves;
                slopes[k] = is ? dy[at] : 0.0f;
                won[k] = is ? winners[at] : 0.0f;
            }
#pragma unroll
            for (int k = 0; k < SOME; k++) {
                u32 at = first + k * blockDim.x, winner = (u32)won[k], c = over(at, by_halves);
                u32 square = at - c * halves, row = over(square, by_half);
                u32 y = row * 2 + winner / 2 - above;
                u32 j = (square - row * half) * 2 + winner % 2 + before;
                if (at >= count * halves || y >= t.tall) continue;
                image[(c * t.tall + y) * a.pitch + j] = slopes[k];
            }
        }
    }
}

// `N` numbers next to each other, of which fours start at a multiple of four before the first, plus
// `LONE`.
template <int N> struct Window {
    float v[N];
};

template <int N, int LONE, bool FOURS>
__device__ static __forceinline__ Window<N> window_of(const float *x) {
    Window<N> w;
    constexpr int HEAD = FOURS ? (4 - LONE) % 4 : N;
    x += LONE;
#pragma unroll
    for (int j = 0; j < HEAD; j++) w.v[j] = x[j];
#pragma unroll
    for (int j = HEAD; j + 4 <= N; j += 4) {
        Four f = four(x + j);
        w.v[j] = f.x; w.v[j + 1] = f.y; w.v[j + 2] = f.z; w.v[j + 3] = f.w;
    }
#pragma unroll
    for (int j = HEAD + (N - HEAD) / 4 * 4; j < N; j++) w.v[j] = x[j];
    return w;
}

template <int O> struct Weight {
    float v[O];
};

template <int O> __device__ static __forceinline__ Weight<O> weight_of(const float *w) {
    Weight<O> all;
    if constexpr (O % 4 == 0) {
#pragma unroll
        for (int o = 0; o < O; o += 4) {
            Four f = four(w + o);
            all.v[o] = f.x; all.v[o + 1] = f.y; all.v[o + 2] = f.z; all.v[o + 3] = f.w;
        }
    } else {
#pragma unroll
        for (int o = 0; o < O; o++) all.v[o] = w[o];
    }
    return all;
}

template <int O, int K, int S, bool BACK>
__device__ static __forceinline__ void tile_slab(const Conv &a, u32 from, const float *images,
                                                 const float *weights, Tile<O> &tile) {
    using T = Tiles<K, S, BACK>;
    T t = T::template of<O>(a);
    Spot is = spot(t);
    if (is.g >= a.group) return;
    u32 area = t.tall * a.pitch, count = MIN(a.slab, t.inputs - from);
    const float *x = images + is.g * a.slab * area + is.row * T::DOWN * a.pitch
        + is.left * T::RIGHT;
    const float *w = weights + is.group * O;
#pragma unroll 1
    for (u32 c = 0; c < count; c++, x += area, w += K * K * a.wide) {
#pragma unroll
        for (int y = 0; y < T::DEEP; y++) {
            Window<T::BROAD> window = window_of<T::BROAD, T::LONE, !T::SPARSE>(x + y * a.pitch);
            const float(&seen)[T::BROAD] = window.v;
#pragma unroll
            for (int r = 0; r < PAIR; r++) {
                if constexpr (T::SPARSE) {
                    int u = r + T::PAD - S * y;
                    if (u < 0 || u >= K) continue;
#pragma unroll
                    for (int j = 0; j < T::BROAD; j++) {
#pragma unroll
                        for (int q = 0; q < STRIP; q++) {
                            int v = q + T::PAD - S * j;
                            if (v < 0 || v >= K) continue;
                            Weight<O> k = weight_of<O>(w + (u * K + v) * a.wide);
#pragma unroll
                            for (int o = 0; o < O; o++) {
                                tile.sums[o][r][q] = fmaf(seen[j], k.v[o], tile.sums[o][r][q]);
                            }
                        }
                    }
                } else {
                    int u = y - S * r;
                    if (u < 0 || u >= K) continue;
#pragma unroll
                    for (int v = 0; v < K; v++) {
                        Weight<O> k = weight_of<O>(w + (u * K + v) * a.wide);
#pragma unroll
                        for (int q = 0; q < STRIP; q++) {
#pragma unroll
                            for (int o = 0; o < O; o++) {
                                tile.sums[o][r][q] =
                                    fmaf(seen[S * q + v], k.v[o], tile.sums[o][r][q]);
                            }
                        }
                    }
                }
            }
        }
    }
}

// The largest of each square, and which it was; or all, forth through relu, back by what went
// through it.
template <int O, int K, int S, bool BACK>
__device__ static __forceinline__ void tile_end(const Conv &a, const Tile<O> &tile) {
    auto t = Tiles<K, S, BACK>::template of<O>(a);
    Spot is = spot(t);
    if (is.g >= a.group || t.first + is.g >= a.pass.each) return;
    u32 sample = t.sample(a, is.g), top = t.top + is.row * PAIR, left = is.left * STRIP;
    float *out = tensor(a.pass, sample, BACK ? a.x : a.y);
    if (top >= t.rows) return;
#pragma unroll
    for (int o = 0; o < O; o++) {
        u32 channel = t.low + is.group * O + o;
        if (is.group * O + o >= a.chunk || channel >= t.outputs) continue;
        if (!BACK && a.tile > 1) {
            float *winners = tensor(a.pass, sample, a.winners);
#pragma unroll
            for (int q = 0; q < STRIP; q += 2) {
                if (left + q >= t.columns) continue;
                float most = tile.sums[o][0][q], winner = 0.0f;
                if (tile.sums[o][0][q + 1] > most) { most = tile.sums[o][0][q + 1]; winner = 1.0f; }
                if (tile.sums[o][1][q] > most) { most = tile.sums[o][1][q]; winner = 2.0f; }
                if (tile.sums[o][1][q + 1] > most) { most = tile.sums[o][1][q + 1]; winner = 3.0f; }
                u32 to = (channel * (t.rows / 2) + top / 2) * (t.columns / 2) + (left + q) / 2;
                out[to] = a.relu ? relu(most) : most;
                winners[to] = winner;
            }
            continue;
        }
#pragma unroll
        for (int r = 0; r < PAIR; r++) {
            if (top + r >= t.rows) continue;
            u32 to = (channel * t.rows + top + r) * t.columns + left;
            float v[STRIP];
#pragma unroll
            for (int q = 0; q < STRIP; q++) {
                float sum = tile.sums[o][r][q];
                v[q] = !BACK && a.relu ? relu(sum) : sum;
            }
            if (BACK && a.of != TABLE) {
                const float *of = tensor(a.pass, sample, a.of) + to;
#pragma unroll
                for (int q = 0; q < STRIP; q++) {
                    if (left + q < t.columns && !(of[q] > 0.0f)) v[q] = 0.0f;
                }
            }
            if (left + STRIP <= t.columns && fours(out + to)) {
                put_four(out + to, {v[0], v[1], v[2], v[3]});
                continue;
            }
#pragma unroll
            for (int q = 0; q < STRIP; q++) {
                if (left + q < t.columns) out[to + q] = v[q];
            }
        }
    }
}

#define TILES(NAME, O, THREADS_OF_ALL, K, S, BACK) \
    extern "C" __global__ void BOUNDS(THREADS_OF_ALL, (O < 8 ? 768 : 512) / THREADS_OF_ALL) \
    NAME(Conv a) { \
        SHARED(images) \
        using T = Tiles<K, S, BACK>; \
        u32 tall = T::DOWN * (a.band / PAIR - 1) + T::DEEP; \
        u32 numbers = a.group * a.slab * tall * a.pitch; \
        float *weights = images + numbers; \
        KEPT(Tile<O>, tile) \
        THREADS zeros(images, numbers); \
        BARRIER \
        for (u32 from = 0; from < (BACK ? a.outputs : a.inputs); from += a.slab) { \
            if (BACK && a.tile > 1) { \
                if (from) { \
                    THREADS zeros(images, numbers); \
                    BARRIER \
                } \
                THREADS { \
                    tile_weights<O, K, S, BACK>(a, from, weights); \
                    tile_scatter<O, K, S, BACK>(a, from, images); \
                    if (!from) tile_start<O, K, S, BACK>(a, MINE(tile)); \
                    ARRIVED \
                } \
            } else { \
                THREADS { \
                    tile_images<O, K, S, BACK>(a, from, images); \
                    tile_weights<O, K, S, BACK>(a, from, weights); \
                    if (!from) tile_start<O, K, S, BACK>(a, MINE(tile)); \
                    ARRIVED \
                } \
            } \
            BARRIER \
            THREADS tile_slab<O, K, S, BACK>(a, from, images, weights, MINE(tile)); \
            BARRIER \
        } \
        THREADS tile_end<O, K, S, BACK>(a, MINE(tile)); \
    }
TILES(conv_5_1, 2, 256, 5, 1, false)
TILES(conv_3_1, 4, 256, 3, 1, false)
TILES(conv_3_1_many, 8, 128, 3, 1, false)
TILES(conv_3_2, 4, 256, 3, 2, false)
TILES(conv_1_1, 4, 256, 1, 1, false)
TILES(conv_1_2, 4, 256, 1, 2, false)
TILES(conv_slopes_5_1, 2, 256, 5, 1, true)
TILES(conv_slopes_3_1, 4, 256, 3, 1, true)
TILES(conv_slopes_3_1_many, 8, 128, 3, 1, true)
TILES(conv_slopes_3_2, 4, 256, 3, 2, true)
TILES(conv_slopes_1_1, 4, 256, 1, 1, true)
TILES(conv_slopes_1_2, 4, 256, 1, 2, true)

// Gradients of weights, row by row of the table: a thread has all numbers of the kernels of `O`
// output channels and one input channel, and goes through the image in order. What a sample adds
// lies in its room with input channels next to each other, and is summed over rows afterwards.
// The threads of a warp have eight input channels of four groups of outputs.
template <int O, int K> struct Kernels {
    float sums[O][K][K];
};

template <int K> struct SheetOf {
    static constexpr int MARGIN = K == 3 ? 4 : 0, LONE = K == 3 ? 3 : 0;
};

struct Sheet {
    u32 sample, low, outputs, inner, inputs;  // the first of the channels, and how many
    u32 rounds, groups;                       // of eight input channels, of output channels
    u32 across, tall, side, face;             // columns, rows, and numbers of a channel, padded
    u32 c, group;
};

template <int O, int K, int S> __device__ static __forceinline__ Sheet sheet(const Conv &a) {
    Sheet t;
    u32 chunks = (a.outputs + a.chunk - 1) / a.chunk;
    t.sample = blockIdx.x;
    t.low = blockIdx.y % chunks * a.chunk;
    t.outputs = MIN(a.chunk, a.outputs - t.low);
    t.inner = blockIdx.y / chunks * a.slab;
    t.inputs = MIN(a.slab, a.inputs - t.inner);
    t.rounds = (a.slab + 7) / 8;
    t.groups = (a.chunk + 4 * O - 1) / (4 * O) * 4;
    t.across = (a.columns + 3) / 4 * 4;
    t.tall = S * (a.band - 1) + K;
    t.side = t.tall * a.pitch + (t.tall * a.pitch / 4 % 2 ? 0 : 4);
    t.face = a.band * t.across + (a.band * t.across / 4 % 2 ? 0 : 4);
    t.c = threadIdx.x % 8 + threadIdx.x / 32 % t.rounds * 8;
    t.group = threadIdx.x / 8 % 4 + threadIdx.x / 32 / t.rounds * 4;
    return t;
}

template <int O, int K, int S>
__device__ static __forceinline__ void sheet_start(Kernels<O, K> &kernels) {
#pragma unroll
    for (int o = 0; o < O; o++) {
#pragma unroll
        for (int e = 0; e < K * K; e++) kernels.sums[o][e / K][e % K] = 0.0f;
    }
}

template <int O, int K, int S>
__device__ static __forceinline__ void sheet_stage(const Conv &a, u32 top, float *images,
                                                   float *slopes) {
    Sheet t = sheet<O, K, S>(a);
    u32 warp = threadIdx.x / 32, warps = blockDim.x / 32, above = top * S - a.pad;
    const float *x = input(a.pass, t.sample, a.x), *dy = tensor(a.pass, t.sample, a.y);
    for (u32 c = warp; c < t.inputs; c += warps) {
        bring_rows(x + (u64)(t.inner + c) * a.height * a.width, above, t.tall, a.height, a.width,
                   a.abreast, images + c * t.side + SheetOf<K>::MARGIN, a.pitch);
    }
    for (u32 o = warp; o < t.outputs; o += warps) {
        bring_rows(dy + (u64)(t.low + o) * a.rows * a.columns, top, a.band, a.rows, a.columns,
                   a.wide, slopes + o * t.face, t.across);
    }
}

template <int O, int K, int S>
__device__ static __forceinline__ void sheet_band(const Conv &a, u32 top, const float *images,
                                                  const float *slopes, Kernels<O, K> &kernels) {
    Sheet t = sheet<O, K, S>(a);
    constexpr int WIDE = S * (STRIP - 1) + K;
    const float *x = images + (t.c < t.inputs ? t.c : 0) * t.side, *dy[O];
#pragma unroll
    for (int o = 0; o < O; o++) {
        u32 channel = t.group + o * t.groups;
        dy[o] = slopes + (channel < t.outputs ? channel : 0) * t.face;
    }
    u32 last = MIN(a.band, a.rows - top);
#pragma unroll 1
    for (u32 i = 0; i < last; i++) {
#pragma unroll 1
        for (u32 j = 0; j < t.across; j += STRIP) {
            float slope[O][STRIP];
#pragma unroll
            for (int o = 0; o < O; o++) {
                Four f = four(dy[o] + i * t.across + j);
                slope[o][0] = f.x; slope[o][1] = f.y; slope[o][2] = f.z; slope[o][3] = f.w;
            }
#pragma unroll
            for (int u = 0; u < K; u++) {
                const float *from = x + (S * i + u) * a.pitch + S * j;
                Window<WIDE> window = window_of<WIDE, SheetOf<K>::LONE, true>(from);
                const float(&seen)[WIDE] = window.v;
#pragma unroll
                for (int q = 0; q < STRIP; q++) {
#pragma unroll
                    for (int v = 0; v < K; v++) {
#pragma unroll
                        for (int o = 0; o < O; o++) {
                            kernels.sums[o][u][v] =
                                fmaf(seen[S * q + v], slope[o][q], kernels.sums[o][u][v]);
                        }
                    }
                }
            }
        }
    }
    if (a.bias == TABLE || t.inner > 0) return;
    float *room = tensor(a.pass, t.sample, a.room) + a.outputs * a.inputs * K * K + t.low;
    for (u32 o = threadIdx.x; o < t.outputs; o += blockDim.x) {
        float sum = top ? room[o] : 0.0f;
        for (u32 e = 0; e < last * t.across; e++) sum += slopes[o * t.face + e];
        room[o] = sum;
    }
}

template <int O, int K, int S>
__device__ static __forceinline__ void sheet_end(const Conv &a, const Kernels<O, K> &kernels) {
    Sheet t = sheet<O, K, S>(a);
    float *room = tensor(a.pass, t.sample, a.room);
    if (t.c >= t.inputs) return;
#pragma unroll
    for (int o = 0; o < O; o++) {
        u32 channel = t.group + o * t.groups;
        if (channel >= t.outputs) continue;
#pragma unroll
        for (int e = 0; e < K * K; e++) {
            room[((u64)e * a.outputs + t.low + channel) * a.inputs + t.inner + t.c] =
                kernels.sums[o][e / K][e % K];
        }
    }
}

#define SHEETS(NAME, O, K, S) \
    extern "C" __global__ void BOUNDS(256, 2) NAME(Conv a) { \
        SHARED(images) \
        u32 tall = S * (a.band - 1) + K; \
        u32 side = tall * a.pitch + (tall * a.pitch / 4 % 2 ? 0 : 4); \
        u32 across = (a.columns + 3) / 4 * 4; \
        u32 face = a.band * across + (a.band * across / 4 % 2 ? 0 : 4); \
        float *slopes = images + a.slab * side; \
        using Sums = Kernels<O, K>; \
        KEPT(Sums, kernels) \
        THREADS { \
            zeros(images, a.slab * side + a.chunk * face); \
            sheet_start<O, K, S>(MINE(kernels)); \
        } \
        BARRIER \
        for (u32 top = 0; top < a.rows; top += a.band) { \
            THREADS { \
                sheet_stage<O, K, S>(a, top, images, slopes); \
                ARRIVED \
            } \
            BARRIER \
            THREADS sheet_band<O, K, S>(a, top, images, slopes, MINE(kernels)); \
            BARRIER \
        } \
        THREADS sheet_end<O, K, S>(a, MINE(kernels)); \
    }
SHEETS(conv_weights_3_1_few, 2, 3, 1)
SHEETS(conv_weights_3_1, 4, 3, 1)
SHEETS(conv_weights_3_2, 4, 3, 2)
SHEETS(conv_weights_1_1, 4, 1, 1)
SHEETS(conv_weights_1_2, 4, 1, 2)
