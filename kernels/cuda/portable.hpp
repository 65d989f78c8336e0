// Features of CUDA and HIP beyond the language, under names that suit both and the host build of the tests.
#pragma once
#include "../include/bits.hpp"

using i64 = long long;
using u64 = unsigned long long;

// Shared memory whose size the launch gives; one array per kernel.
#ifndef DYNAMIC_SHARED
#define DYNAMIC_SHARED(type, name)             \
    extern __shared__ double dynamic_shared[]; \
    type *name = reinterpret_cast<type *>(dynamic_shared)
#endif

// x * 2^e for |e| < 2000, rounded once if at all; cheaper than ldexp.
__device__ inline double scaled(double x, int e) {
    const int first = e / 2, second = e - first;
    return x * double_of_bits(u64(first + 1023) << 52) * double_of_bits(u64(second + 1023) << 52);
}

__device__ inline i64 least(i64 a, i64 b) { return a < b ? a : b; }

__device__ inline void atomic_add(double *to, double x) { atomicAdd(to, x); }
__device__ inline void atomic_add(float *to, float x) { atomicAdd(to, x); }

// Two's complement: the sum has the bits of the unsigned sum.
__device__ inline void atomic_add(i64 *to, i64 x) { atomicAdd(reinterpret_cast<u64 *>(to), static_cast<u64>(x)); }

// True for all threads of the last block to come here. They see what their block, and thread 0 of every other block,
// wrote before. *ticket is 0 before the first block and after the last.
__device__ inline bool last_block(unsigned *ticket) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    return last;
}
