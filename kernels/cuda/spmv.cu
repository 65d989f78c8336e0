// Sparse matrix-vector products on a GPU, for kernels/sparse/cupy.py; row i of the matrix goes to y[i], or to y[rows[i]].
//
//   csr           four threads add a row, one for each lane of native/entries.hpp: the bits of the CPU
//   merge         the merge path is cut into pieces of `items`, one per thread; a second kernel adds the pieces of cut
//                 rows, in order. The bits of the CPU with as many threads as pieces
//   coo_atomic    every entry by one atomic addition, in the order in which the hardware serves them
//
//   nvcc -cubin -arch sm_90 --fmad=false -DNUMBER=float kernels/cuda/spmv.cu
#include "../include/merge.hpp"
#include "portable.hpp"

#ifndef NUMBER
#define NUMBER double
#endif

using Number = NUMBER;
using Index = int;

constexpr int LANES = 4;            // of a row, as in native/entries.hpp
constexpr int ROW_THREADS = 256;    // of a block, LANES for each row
constexpr int PIECE_THREADS = 128;  // of a block, one for each piece of the merge path

// (l0 + l2) + (l1 + l3)
__device__ inline Number add_lanes(const Number *lane) { return (lane[0] + lane[2]) + (lane[1] + lane[3]); }

extern "C" __global__ void __launch_bounds__(ROW_THREADS)
spmv_csr(i64 m, const i64 *indptr, const Index *indices, const Number *data, const Index *rows, i64 mapped,
         const Number *x, Number *y) {
    __shared__ Number lanes[ROW_THREADS];
    constexpr int ROWS = ROW_THREADS / LANES;
    const int lane = threadIdx.x % LANES;
    for (i64 first = i64(blockIdx.x) * ROWS; first < m; first += i64(gridDim.x) * ROWS) {
        const i64 i = first + threadIdx.x / LANES;
        Number sum = 0;
        if (i < m)
            for (i64 e = indptr[i] + lane, end = indptr[i + 1]; e < end; e += LANES) sum += data[e] * x[indices[e]];
        lanes[threadIdx.x] = sum;
        __syncthreads();
        if (lane == 0 && i < m) y[mapped ? i64(rows[i]) : i] = add_lanes(lanes + threadIdx.x);
        __syncthreads();
    }
}

// The sum of products begin ... end - 1 in lanes.
__device__ inline Number add_products(const Number *products, i64 begin, i64 end) {
    Number lane[LANES] = {};
    i64 e = begin;
    for (; e + LANES <= end; e += LANES)
        for (int l = 0; l < LANES; ++l) lane[l] += products[e + l];
    if (e < end) lane[0] += products[e];
    if (e + 1 < end) lane[1] += products[e + 1];
    if (e + 2 < end) lane[2] += products[e + 2];
    return add_lanes(lane);
}

// The block's products pass through shared memory (`items` for each thread), so that neighbouring threads read
// neighbours. left: (pieces,), each piece's sum for the row that ends later; cut_rows: (pieces + 1,), the row in which
// each piece begins.
extern "C" __global__ void __launch_bounds__(PIECE_THREADS)
spmv_merge(i64 m, i64 nnz, i64 items, const i64 *indptr, const Index *indices, const Number *data, const Index *rows,
           i64 mapped, const Number *x, Number *y, Number *left, i64 *cut_rows) {
    DYNAMIC_SHARED(Number, products);
    const i64 path = m + nnz, tile = items * PIECE_THREADS, begin = blockIdx.x * tile;
    const i64 first = cut_path(indptr, m, begin).entry, last = cut_path(indptr, m, least(path, begin + tile)).entry;
    for (i64 e = first + threadIdx.x; e < last; e += PIECE_THREADS) products[e - first] = data[e] * x[indices[e]];
    __syncthreads();
    const i64 at = begin + i64(threadIdx.x) * items, piece = i64(blockIdx.x) * PIECE_THREADS + threadIdx.x;
    if (at >= path) return;
    const Cut from = cut_path(indptr, m, at), to = cut_path(indptr, m, least(path, at + items));
    i64 entry = from.entry;
    for (i64 i = from.row; i < to.row; ++i) {
        y[mapped ? i64(rows[i]) : i] = add_products(products, entry - first, indptr[i + 1] - first);
        entry = indptr[i + 1];
    }
    left[piece] = add_products(products, entry - first, to.entry - first);
    cut_rows[piece] = from.row;
    if (at + items >= path) cut_rows[piece + 1] = to.row;
}

// One thread for each piece in which a row begins that ends later: it adds the pieces of that row.
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
spmv_merge_cut_rows(i64 pieces, i64 items, const i64 *indptr, const Index *rows, i64 mapped, const Number *left,
                    const i64 *cut_rows, Number *y) {
    for (i64 p = i64(blockIdx.x) * blockDim.x + threadIdx.x; p < pieces; p += i64(gridDim.x) * blockDim.x) {
        const i64 row = cut_rows[p + 1], begin = indptr[row] + row;
        if (p + 1 == pieces || begin < p * items || begin >= (p + 1) * items) continue;
        Number sum = left[p];
        i64 q = p + 1;
        for (; cut_rows[q + 1] == row; ++q) sum += left[q];
        Number *to = y + (mapped ? i64(rows[row]) : row);
        *to = sum + *to;
    }
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS)
spmv_clear(i64 m, const Index *rows, i64 mapped, Number *y) {
    for (i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x; i < m; i += i64(gridDim.x) * blockDim.x)
        y[mapped ? i64(rows[i]) : i] = 0;
}

// places: (nnz,), where in y each entry belongs
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
spmv_coo_atomic(i64 nnz, const Index *places, const Index *indices, const Number *data, const Number *x, Number *y) {
    for (i64 e = i64(blockIdx.x) * blockDim.x + threadIdx.x; e < nnz; e += i64(gridDim.x) * blockDim.x)
        atomic_add(y + places[e], data[e] * x[indices[e]]);
}
