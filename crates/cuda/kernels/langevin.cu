// One Langevin step of several parties at once, with the very noise of the core: ChaCha with eight
// rounds, normals by Box and Muller in 32-bit arithmetic, the step in 64 bits and nothing fused.
// `crates/core/src/rng/{blocks,normal}.rs` and `crates/core/src/step.rs` say the same in Rust;
// every bit is the same, which tests hold.
//
// To be compiled without contraction of products and sums (`-fmad=false`, `-ffp-contract=off`).

#include "random.h"

// x <- (x - step drift) + sigma noise, party after party. A thread makes one block of words, and
// with it sixteen normals; a row of threads for each party.
extern "C" __global__ void langevin(double *x, const double *drift, u64 dim, const u32 *keys,
                                    const u32 *clients, u64 tag, double step, double sigma) {
    u64 block = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 first = block / BLOCKS * GROUP + block % BLOCKS;
    if (first >= dim) return;
    u32 party = blockIdx.y, words[16];
    chacha8(keys + 8 * party, (u32)block, clients[party], tag, words);
    x += party * dim;
    drift += party * dim;
#pragma unroll
    for (int pair = 0; pair < 8; pair++) {
        float cosine, sine, size = sqrtf(-2.0f * ln_of_unit(words[2 * pair]));
        cos_sin_turns(words[2 * pair + 1], cosine, sine);
        u64 at = first + 2 * BLOCKS * pair;
        if (at < dim) {
            x[at] = (x[at] - step * drift[at]) + sigma * (double)(size * cosine);
        }
        at += BLOCKS;
        if (at < dim) {
            x[at] = (x[at] - step * drift[at]) + sigma * (double)(size * sine);
        }
    }
}
