// Scatter-adds out[index[i]] += x[i] on a GPU, for kernels/scatter/cupy.py. A cell is a bin, or one column of a bin.
//
//   atomic        every element by one atomic addition, in the order in which the hardware serves them
//   sorted        one thread per cell adds its elements by ascending place: the host sorts the places by bin, stably
//   exact         a superaccumulator per cell, added to by integer atomics
//
// Integer sums do not depend on order. Words are carried between parts of the input, before they can overflow. NaN and
// infinities are noted per cell, and then decide its result. The caller has checked the indices.
//
//   nvcc -cubin -arch sm_90 --fmad=false -DELEMENT=float -DINDEX=int kernels/cuda/scatter.cu
#include "../include/elements.hpp"
#include "bins.hpp"
#include "portable.hpp"
#include "../include/rounding.hpp"
#include "superaccumulator.hpp"

#ifndef ELEMENT
#define ELEMENT double
#endif
#ifndef INDEX
#define INDEX i64
#endif

using Number = Accumulator<ELEMENT>;

constexpr int THREADS = 256, BATCH = 8;
constexpr int EXACT_WORDS = Super<Number>::WORDS;
constexpr unsigned NOT_A_NUMBER = 1, PLUS_INF = 2, MINUS_INF = 4;

// Calls each(k) for k in [0, count), shared among all threads of the grid.
template <typename Each>
__device__ void for_all(i64 count, Each &&each) {
    for (i64 k = i64(blockIdx.x) * blockDim.x + threadIdx.x; k < count; k += i64(gridDim.x) * blockDim.x) each(k);
}

// Calls add(cell, element) for the elements of rows [0, rows) of x.
template <typename Add>
__device__ void for_elements(const ELEMENT *x, const INDEX *index, i64 rows, i64 columns, Add &&add) {
    for_all(rows * columns, [&](i64 k) {
        // 64-bit division is slow, and seldom needed.
        const i64 row = columns == 1 ? k : k >> 32 ? k / columns : i64(unsigned(k) / unsigned(columns));
        add(i64(index[row]) * columns + (k - row * columns), widen(x[k]));
    });
}

__device__ inline unsigned flag_of(double v) { return v != v ? NOT_A_NUMBER : v > 0 ? PLUS_INF : MINUS_INF; }

__device__ inline Number flagged(unsigned flags) {
    const double infinity = double_of_bits(u64(INFINITE) << 32);
    if (flags == PLUS_INF) return Number(infinity);
    if (flags == MINUS_INF) return Number(-infinity);
    return Number(double_of_bits(u64(0x7FF80000u) << 32));
}

// *first: the place of the first index outside [0, bins); the caller sets it to n before.
extern "C" __global__ void __launch_bounds__(THREADS)
check_index(const INDEX *index, i64 n, i64 bins, u64 *first) {
    for_all(n, [&](i64 i) {
        if (index[i] < 0 || index[i] >= bins) atomicMin(first, u64(i));
    });
}

// out: holds +0.0
extern "C" __global__ void __launch_bounds__(THREADS)
scatter_atomic(const ELEMENT *x, const INDEX *index, i64 rows, i64 columns, Number *out) {
    for_elements(x, index, rows, columns, [&](i64 cell, Number v) { atomic_add(out + cell, v); });
}

// starts: (bins + 1,); bin b has places order[starts[b]] ... order[starts[b + 1] - 1]
extern "C" __global__ void __launch_bounds__(THREADS)
segment_starts(const INDEX *index, const i64 *order, i64 n, i64 bins, i64 *starts) {
    for_all(n + 1, [&](i64 k) {
        const i64 bin = k < n ? i64(index[order[k]]) : bins;
        for (i64 b = k > 0 ? i64(index[order[k - 1]]) + 1 : 0; b <= bin; ++b) starts[b] = k;
    });
}

extern "C" __global__ void __launch_bounds__(THREADS)
scatter_sorted(const ELEMENT *x, const i64 *order, const i64 *starts, i64 bins, i64 columns, Number *out) {
    for_all(bins * columns, [&](i64 cell) {
        const i64 bin = cell / columns, to = starts[bin + 1];
        const ELEMENT *column = x + (cell - bin * columns);
        Number sum = 0, batch[BATCH];
        i64 k = starts[bin];
        for (; k + BATCH <= to; k += BATCH) {
#pragma unroll
            for (int b = 0; b < BATCH; ++b) batch[b] = widen(column[order[k + b] * columns]);
#pragma unroll
            for (int b = 0; b < BATCH; ++b) sum += batch[b];
        }
        for (; k < to; ++k) sum += widen(column[order[k] * columns]);
        out[cell] = sum;
    });
}

// words: (cells, EXACT_WORDS) for the cells [first, first + cells), carried. At most 2^30 rows at once.
extern "C" __global__ void __launch_bounds__(THREADS)
scatter_exact(const ELEMENT *x, const INDEX *index, i64 rows, i64 columns, i64 first, i64 cells, i64 *words,
              unsigned *flags) {
    for_elements(x, index, rows, columns, [&](i64 cell, Number element) {
        cell -= first;
        if (cell < 0 || cell >= cells) return;
        if (magnitude(element) >= INFINITE)
            atomicOr(flags + cell, flag_of(element));
        else
            deposit(words + cell * EXACT_WORDS, element);
    });
}

extern "C" __global__ void __launch_bounds__(THREADS) carry_exact(i64 *words, i64 cells) {
    for_all(cells, [&](i64 cell) { carry<32, EXACT_WORDS>(words + cell * EXACT_WORDS); });
}

extern "C" __global__ void __launch_bounds__(THREADS)
round_exact(i64 *words, const unsigned *flags, i64 cells, Number *out) {
    for_all(cells, [&](i64 cell) {
        i64 *of_cell = words + cell * EXACT_WORDS;
        out[cell] = flags[cell] ? flagged(flags[cell])
                                : round_words<Number, 32, EXACT_WORDS>(of_cell, Super<Number>::LOWEST);
    });
}
