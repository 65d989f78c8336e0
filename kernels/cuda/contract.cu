// Products whose elements are chains of fused multiply-adds, on a GPU, for kernels/contract/cupy.py: the bits of
// native/contract.hpp. Tables give the places of elements, for matrices of any strides and windows of images alike.
//
//   contract_multiply   a block per tile of 64 x 64 elements, a thread per 4 x 4 of them; 16 terms at a time pass
//                       through shared memory. A thread adds its elements alone, k ascending: no order of threads can show
//
//   nvcc -cubin -arch sm_90 --fmad=false -DNUMBER=float kernels/cuda/contract.cu
#include "chains.hpp"

constexpr int TILE = 64, DEEP = 16, EACH = 4;
constexpr int THREADS = (TILE / EACH) * (TILE / EACH);

// c[c_batch[g] + c_row[i] + c_column[j]] = the chain over k of a[a_batch[g] + a_line[i] + a_at[k]] *
// b[b_batch[g] + b_line[j] + b_at[k]], pieces of PIECE added in order.
extern "C" __global__ void __launch_bounds__(THREADS)
contract_multiply(i64 batches, i64 m, i64 n, i64 depth, const Number *a, const i64 *a_batch, const i64 *a_line,
                  const i64 *a_at, const Number *b, const i64 *b_batch, const i64 *b_line, const i64 *b_at, Number *c,
                  const i64 *c_batch, const i64 *c_row, const i64 *c_column) {
    __shared__ Number left[DEEP][TILE], right[DEEP][TILE];
    const i64 down = (m + TILE - 1) / TILE, across = (n + TILE - 1) / TILE;
    const int row = threadIdx.x / (TILE / EACH) * EACH, column = threadIdx.x % (TILE / EACH) * EACH;
    for (i64 tile = blockIdx.x; tile < batches * down * across; tile += gridDim.x) {
        const i64 g = tile / (down * across), i0 = tile / across % down * TILE, j0 = tile % across * TILE;
        const Number *as = a + a_batch[g], *bs = b + b_batch[g];
        Number total[EACH][EACH] = {}, piece[EACH][EACH] = {};
        for (i64 k0 = 0; k0 < depth; k0 += DEEP) {
            if (k0 && k0 % PIECE == 0)
#pragma unroll
                for (int r = 0; r < EACH; ++r)
#pragma unroll
                    for (int s = 0; s < EACH; ++s) {
                        total[r][s] = k0 == PIECE ? piece[r][s] : total[r][s] + piece[r][s];
                        piece[r][s] = 0;
                    }
            const int now = int(least(DEEP, depth - k0));
            for (int e = threadIdx.x; e < DEEP * TILE; e += THREADS) {
                const int k = e / TILE, line = e % TILE;
                left[k][line] = k < now && i0 + line < m ? as[a_line[i0 + line] + a_at[k0 + k]] : Number(0);
                right[k][line] = k < now && j0 + line < n ? bs[b_line[j0 + line] + b_at[k0 + k]] : Number(0);
            }
            __syncthreads();
            for (int k = 0; k < now; ++k)
#pragma unroll
                for (int r = 0; r < EACH; ++r)
#pragma unroll
                    for (int s = 0; s < EACH; ++s)
                        piece[r][s] = fused(left[k][row + r], right[k][column + s], piece[r][s]);
            __syncthreads();
        }
#pragma unroll
        for (int r = 0; r < EACH; ++r)
#pragma unroll
            for (int s = 0; s < EACH; ++s) {
                const i64 i = i0 + row + r, j = j0 + column + s;
                if (i >= m || j >= n) continue;
                const Number sum = depth > PIECE ? total[r][s] + piece[r][s] : piece[r][s];
                c[c_batch[g] + c_row[i] + c_column[j]] = sum == sum ? sum : one_nan(sum);
            }
    }
}
