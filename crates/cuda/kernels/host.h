// Run a kernel as C++, thread after thread: what CUDA has and C++ has not.
#include <cmath>
#include <cstring>
#define __global__
#define __device__
struct Index { unsigned int x, y, z; };
static Index threadIdx, blockIdx, blockDim, gridDim;
static inline unsigned int __float_as_uint(float x) {
    unsigned int bits;
    std::memcpy(&bits, &x, 4);
    return bits;
}
static inline float __uint_as_float(unsigned int bits) {
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}
// A kernel is called once for each block, and takes its threads one after the other between two
// barriers.
#define __shared__ static
#define THREADS for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++)
#define BARRIER
#define SHARED(name) static float name[1 << 16];
#define __forceinline__ inline
#define BOUNDS(threads, blocks)
// What a thread has from one stretch between barriers to the next.
#define KEPT(type, name) static type name##_of_all[1024];
#define MINE(name) name##_of_all[threadIdx.x]
#define ARRIVED
