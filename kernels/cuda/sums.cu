// Sums and dot products on a GPU in an order of additions that follows the launch shape, for kernels/sums/cupy.py.
// docs/reference/definitions.md defines the trees; deterministic sums have CPU variants with the same bits.
//
//   ao            every element by one atomic addition, in the order in which the hardware serves them
//   spa           a tree in each block, then one atomic addition per block, in the order in which blocks end
//   tprc          a tree in each block; the host adds the partial sums
//   sptr          a tree in each block; the last block to end adds the partial sums by the same tree
//   sprg          the last block adds them left to right
//   sp_pairwise   the last block adds them by an aligned binary tree
//   sp_neumaier   the last block adds them left to right, errors apart
//
// It does not matter which block ends last: it reads finished partial sums, in a fixed order. Memory is read once. Each
// lane keeps BATCH loads in flight, and adds them one after another, as the order requires. A lane starts from +0.0 and
// so never becomes -0.0: adding +0.0 in place of an absent element changes no bit.
//
//   nvcc -cubin -arch sm_90 --fmad=false -DELEMENT=float kernels/cuda/sums.cu
#include "../include/compensated.hpp"
#include "../include/elements.hpp"
#include "lanes.hpp"
#include "portable.hpp"

#ifndef ELEMENT
#define ELEMENT double
#endif

using Number = Accumulator<ELEMENT>;

constexpr int BATCH = 8;
constexpr unsigned MAX_THREADS = 1024;

enum class Ending { ATOMIC, NONE, TREE, LEFT_TO_RIGHT, PAIRWISE, NEUMAIER };

struct Elements {
    const ELEMENT *x;
    __device__ Number operator()(i64 i) const { return widen(x[i]); }
};

struct Products {
    const ELEMENT *x, *y;
    __device__ Number operator()(i64 i) const { return widen(x[i]) * widen(y[i]); }
};

struct Partials {
    const Number *sums;
    __device__ Number operator()(i64 i) const { return sums[i]; }
};

// The sum of this thread's lane over terms [from, to): lane, lane + blockDim, ... in ascending order.
template <typename Terms>
__device__ Number lane_sum(const Terms &term, i64 from, i64 to) {
    const i64 pitch = blockDim.x;
    Number sum = 0, batch[BATCH];
    i64 i = from + threadIdx.x;
    for (; i + (BATCH - 1) * pitch < to; i += BATCH * pitch) {
#pragma unroll
        for (int k = 0; k < BATCH; ++k) batch[k] = term(i + k * pitch);
#pragma unroll
        for (int k = 0; k < BATCH; ++k) sum += batch[k];
    }
    if (i < to) {
#pragma unroll
        for (int k = 0; k < BATCH; ++k) batch[k] = i + k * pitch < to ? term(i + k * pitch) : Number(0);
#pragma unroll
        for (int k = 0; k < BATCH; ++k) sum += batch[k];
    }
    return sum;
}

// The sum of the terms [from, to) by lanes and the tree over them, in thread 0.
template <typename Terms>
__device__ Number block_sum(const Terms &term, i64 from, i64 to, Number *lanes) {
    lanes[threadIdx.x] = lane_sum(term, from, to);
    add_lanes(lanes, threadIdx.x, blockDim.x);
    return lanes[0];
}

// Calls add(p) for every partial sum from left to right, in thread 0 alone.
template <typename Add>
__device__ void in_turn(const Number *partial, unsigned count, Number *lanes, Add &&add) {
    for (unsigned start = 0; start < count; start += blockDim.x) {
        __syncthreads();
        if (start + threadIdx.x < count) lanes[threadIdx.x] = partial[start + threadIdx.x];
        __syncthreads();
        if (threadIdx.x == 0)
            for (unsigned k = 0; k < blockDim.x && start + k < count; ++k) add(lanes[k]);
    }
}

// The aligned binary tree over `count` partial sums, whose memory it uses. Each thread adds a run of BATCH, the threads
// add these results, and so on until one is left. An absent number is +0.0, which changes no partial sum.
__device__ inline Number pairwise(Number *partial, unsigned count, Number *lanes) {
    const unsigned tile = BATCH * blockDim.x;
    for (;; count = (count + tile - 1) / tile) {
        for (unsigned start = 0; start < count; start += tile) {
            const unsigned first = start + BATCH * threadIdx.x;
            Number run[BATCH];
#pragma unroll
            for (unsigned k = 0; k < BATCH; ++k) run[k] = first + k < count ? partial[first + k] : Number(0);
#pragma unroll
            for (unsigned s = 1; s < BATCH; s *= 2)
#pragma unroll
                for (unsigned k = 0; k < BATCH; k += 2 * s) run[k] += run[k + s];
            lanes[threadIdx.x] = run[0];
            for (unsigned s = 1; s < blockDim.x; s *= 2) {
                __syncthreads();
                if ((threadIdx.x & (2 * s - 1)) == 0) lanes[threadIdx.x] += lanes[threadIdx.x + s];
            }
            if (threadIdx.x == 0) partial[start / tile] = lanes[0];
            __syncthreads();
        }
        if (count <= tile) return lanes[0];
    }
}

// partial: (gridDim,), scratch; shared memory: one Number per thread.
template <Ending ENDING, typename Terms>
__device__ void sum_blocks(const Terms &term, i64 n, i64 segment, Number *partial, unsigned *ticket, Number *out) {
    DYNAMIC_SHARED(Number, lanes);
    const i64 from = blockIdx.x * segment;
    const Number sum = block_sum(term, from, least(from + segment, n), lanes);
    if (ENDING == Ending::ATOMIC) {
        if (threadIdx.x == 0) atomic_add(out, sum);
        return;
    }
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
    if (ENDING == Ending::NONE || !last_block(ticket)) return;

    const unsigned count = gridDim.x;
    Number total = 0;
    if (ENDING == Ending::TREE) total = block_sum(Partials{partial}, 0, count, lanes);
    if (ENDING == Ending::LEFT_TO_RIGHT) in_turn(partial, count, lanes, [&](Number p) { total += p; });
    if (ENDING == Ending::PAIRWISE) total = pairwise(partial, count, lanes);
    if (ENDING == Ending::NEUMAIER) {
        Neumaier<Number> compensated;
        in_turn(partial, count, lanes, [&](Number p) { compensated.add(p); });
        total = compensated.total();
    }
    if (threadIdx.x == 0) *out = total;
}

// out: holds +0.0
extern "C" __global__ void __launch_bounds__(MAX_THREADS) sum_ao(const ELEMENT *x, i64 n, i64 segment, Number *out) {
    const i64 from = blockIdx.x * segment, to = least(from + segment, n);
    for (i64 i = from + threadIdx.x; i < to; i += blockDim.x) atomic_add(out, widen(x[i]));
}

#define SUM_ARGUMENTS const ELEMENT *x, i64 n, i64 segment, Number *partial, unsigned *ticket, Number *out
#define DOT_ARGUMENTS \
    const ELEMENT *x, const ELEMENT *y, i64 n, i64 segment, Number *partial, unsigned *ticket, Number *out

extern "C" __global__ void __launch_bounds__(MAX_THREADS) sum_spa(SUM_ARGUMENTS) {  // out: holds +0.0
    sum_blocks<Ending::ATOMIC>(Elements{x}, n, segment, partial, ticket, out);
}

extern "C" __global__ void __launch_bounds__(MAX_THREADS) sum_tprc(SUM_ARGUMENTS) {
    sum_blocks<Ending::NONE>(Elements{x}, n, segment, partial, ticket, out);
}

extern "C" __global__ void __launch_bounds__(MAX_THREADS) sum_sptr(SUM_ARGUMENTS) {
    sum_blocks<Ending::TREE>(Elements{x}, n, segment, partial, ticket, out);
}

extern "C" __global__ void __launch_bounds__(MAX_THREADS) sum_sprg(SUM_ARGUMENTS) {
    sum_blocks<Ending::LEFT_TO_RIGHT>(Elements{x}, n, segment, partial, ticket, out);
}

extern "C" __global__ void __launch_bounds__(MAX_THREADS) sum_sp_pairwise(SUM_ARGUMENTS) {
    sum_blocks<Ending::PAIRWISE>(Elements{x}, n, segment, partial, ticket, out);
}

extern "C" __global__ void __launch_bounds__(MAX_THREADS) sum_sp_neumaier(SUM_ARGUMENTS) {
    sum_blocks<Ending::NEUMAIER>(Elements{x}, n, segment, partial, ticket, out);
}

extern "C" __global__ void __launch_bounds__(MAX_THREADS) dot_spa(DOT_ARGUMENTS) {  // out: holds +0.0
    sum_blocks<Ending::ATOMIC>(Products{x, y}, n, segment, partial, ticket, out);
}

extern "C" __global__ void __launch_bounds__(MAX_THREADS) dot_sptr(DOT_ARGUMENTS) {
    sum_blocks<Ending::TREE>(Products{x, y}, n, segment, partial, ticket, out);
}
