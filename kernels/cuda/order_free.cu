// Sums and dot products on a GPU whose bits do not depend on any order, for kernels/sums/cupy.py:
//
//   binned        elements rounded to a unit 80 to 120 bits below the largest; one pass, which finds `top` on the way
//   fixed_point   elements rounded to a unit 84 (float64) or 42 bits below the largest, which is guessed from a part
//                 of them; one pass, and a second if the first meets a larger one
//   exact         as binned, but the parts rounded off there go to a superaccumulator: rare for numbers of similar size
//
// Each thread adds in registers (bins.hpp); each block adds integers and writes a record; the last block to end adds
// the records. The host joins the words and rounds once. Launch shapes do not affect the bits. Dot products add both
// parts of TwoProduct or, for narrower types, the product in float64, which is exact.
//
//   nvcc -cubin -arch sm_90 --fmad=false -DELEMENT=float kernels/cuda/order_free.cu
#include "../include/elements.hpp"
#include "bins.hpp"
#include "lanes.hpp"
#include "portable.hpp"
#include "../include/rounding.hpp"
#include "superaccumulator.hpp"

#ifndef ELEMENT
#define ELEMENT double
#endif

constexpr int BATCH = 8;
constexpr int PIECES = 64;  // of a segment, one of which is searched for its largest term
constexpr unsigned MAX_THREADS = 1024;
constexpr bool WIDE = sizeof(Accumulator<ELEMENT>) == sizeof(double);
constexpr int CHUNKS = Super<double>::WORDS;
constexpr unsigned NOT_A_NUMBER = 1, PLUS_INF = 2, MINUS_INF = 4;

enum class Kind { BINNED, FIXED_POINT, EXACT };

struct Elements {
    static constexpr int PARTS = 1;
    const ELEMENT *x;
    __device__ double first(i64 i) const { return widen(x[i]); }
    __device__ void load(i64 i, double *to) const { to[0] = first(i); }
};

struct Products {
    static constexpr int PARTS = WIDE ? 2 : 1;
    const ELEMENT *x, *y;
    __device__ double first(i64 i) const { return double(widen(x[i])) * double(widen(y[i])); }
    __device__ void load(i64 i, double *to) const {
        const double a = widen(x[i]), b = widen(y[i]), p = a * b;
        to[0] = p;
        if (PARTS == 2) to[PARTS - 1] = magnitude(p) < INFINITE ? fma(a, b, -p) : 0.0;
    }
};

// The result of one block: words[k] counts multiples of 2^(top - WIDTH (k + 1)).
template <int FOLD>
struct Record {
    i64 top, flags, words[FOLD];
};

template <int COUNT>
struct Words {
    i64 word[COUNT];
    __device__ Words &operator+=(const Words &other) {
#pragma unroll
        for (int k = 0; k < COUNT; ++k) word[k] += other.word[k];
        return *this;
    }
};

template <int FOLD>
struct Result {
    i64 top, flags, low[FOLD], high[FOLD];  // a word is high * 2^32 + low
    i64 chunks[CHUNKS];                     // of EXACT alone: others have no memory here
};

// The memory that the threads of a block share.
struct Block {
    int top;
    unsigned flags, spilled, most;
    i64 chunks[CHUNKS];  // used by EXACT alone

    __device__ void spill(double x) {
        deposit(chunks, x);
        spilled = 1;
    }
    __device__ void raise(int to) {
        if (to > *static_cast<volatile int *>(&top)) atomicMax(&top, to);
    }
};

// Adds the terms of this thread; returns flags for NaN and infinities, which then decide the result.
template <Kind KIND, typename Terms, typename SomeBins>
__device__ unsigned add_terms(const Terms &term, i64 from, i64 to, SomeBins &bins, Block &block) {
    constexpr int COUNT = BATCH / Terms::PARTS, VALUES = COUNT * Terms::PARTS;
    const i64 pitch = blockDim.x;
    const auto spill = [&](double x) {
        if (KIND == Kind::EXACT) block.spill(x);
    };
    unsigned flags = 0, largest = 0;
    for (i64 i = from + threadIdx.x; i < to; i += COUNT * pitch) {
        double v[VALUES] = {};
        if (i + (COUNT - 1) * pitch < to) {
#pragma unroll
            for (int k = 0; k < COUNT; ++k) term.load(i + k * pitch, v + k * Terms::PARTS);
        } else {
#pragma unroll
            for (int k = 0; k < COUNT; ++k)
                if (i + k * pitch < to) term.load(i + k * pitch, v + k * Terms::PARTS);
        }
        unsigned most = 0;
#pragma unroll
        for (int k = 0; k < VALUES; ++k) most = magnitude(v[k]) > most ? magnitude(v[k]) : most;
        if (most >= INFINITE) {
            for (int k = 0; k < VALUES; ++k)
                if (magnitude(v[k]) >= INFINITE) flags |= v[k] != v[k] ? NOT_A_NUMBER : v[k] > 0 ? PLUS_INF : MINUS_INF;
            continue;
        }
        if (KIND == Kind::EXACT && most >= unsigned(SomeBins::HIGH + 1023) << 20) {  // beyond the range of rounders
            for (int k = 0; k < VALUES; ++k) block.spill(v[k]);
            continue;
        }
        if constexpr (KIND != Kind::FIXED_POINT)
            if (most >= bins.limit) bins.rise(aligned_top(most), spill);
        if (KIND == Kind::FIXED_POINT) largest = most > largest ? most : largest;
        if (KIND != Kind::EXACT && bins.high())
            for (int k = 0; k < VALUES; ++k) v[k] *= SomeBins::DOWN;
        u64 rest = 0;
#pragma unroll
        for (int k = 0; k < VALUES; ++k) {
            v[k] = bins.add(v[k]);
            if (KIND == Kind::EXACT) rest |= bits_of(v[k]) << 1;
        }
        if (KIND == Kind::EXACT && rest)
            for (int k = 0; k < VALUES; ++k)
                if (v[k] != 0.0) block.spill(v[k]);
    }
    if (KIND == Kind::FIXED_POINT && largest > *static_cast<volatile unsigned *>(&block.most))
        atomicMax(&block.most, largest);
    return flags;
}

// Adds the spilled numbers of the block to the chunks in global memory. Every thread of the block must call it.
__device__ inline void flush(Block &block, i64 *chunks) {
    __syncthreads();
    if (block.spilled) {
        if (threadIdx.x == 0) carry<32, CHUNKS>(block.chunks);
        __syncthreads();
        for (unsigned k = threadIdx.x; k < CHUNKS; k += blockDim.x)
            if (block.chunks[k]) atomic_add(chunks + k, block.chunks[k]);
    }
    __syncthreads();
}

__device__ inline void clear(Block &block) {
    for (unsigned k = threadIdx.x; k < CHUNKS; k += blockDim.x) block.chunks[k] = 0;
    if (threadIdx.x == 0) block.spilled = 0;
    __syncthreads();
}

// Returns the sum over the threads in thread 0; the others must not read it while thread 0 writes it.
template <int COUNT>
__device__ Words<COUNT> add_words(const Words<COUNT> &mine, Words<COUNT> *lanes) {
    __syncthreads();
    lanes[threadIdx.x] = mine;
    add_lanes(lanes, threadIdx.x, blockDim.x);
    return threadIdx.x == 0 ? lanes[0] : mine;
}

// The last block adds the records of all blocks; `block` holds its own top and flags.
template <Kind KIND, int WIDTH, int FOLD>
__device__ void add_records(const Record<FOLD> *records, Block &block, Words<FOLD> *lanes, i64 *chunks,
                            Result<FOLD> *out) {
    int top = LOWEST_TOP;
    unsigned flags = 0;
    for (unsigned b = threadIdx.x; b < gridDim.x; b += blockDim.x) {
        top = records[b].top > top ? int(records[b].top) : top;
        flags |= unsigned(records[b].flags);
    }
    if (KIND != Kind::FIXED_POINT) block.raise(top);
    if (flags) atomicOr(&block.flags, flags);
    if (KIND == Kind::EXACT) clear(block);
    __syncthreads();
    top = block.top;

    Words<FOLD> low{}, high{};
    for (unsigned b = threadIdx.x; b < gridDim.x; b += blockDim.x) {
        const Record<FOLD> record = records[b];
        const int down = (top - int(record.top)) / WIDTH;
#pragma unroll
        for (int k = 0; k < FOLD; ++k) {
            const i64 word = record.words[k];
#pragma unroll
            for (int to = k; to < FOLD; ++to)
                if (to - k == down) {
                    low.word[to] += word & 0xFFFFFFFF;
                    high.word[to] += word >> 32;
                }
            if (KIND == Kind::EXACT && k + down >= FOLD && word) {
                const int unit = int(record.top) - WIDTH * (k + 1);
                block.spill(scaled(double(word >> 32), unit + 32));
                block.spill(scaled(double(word & 0xFFFFFFFF), unit));
            }
        }
    }
    low = add_words(low, lanes);
    high = add_words(high, lanes);
    if (threadIdx.x == 0) {
        out->top = top;
        out->flags = block.flags;
        for (int k = 0; k < FOLD; ++k) {
            out->low[k] = low.word[k];
            out->high[k] = high.word[k];
        }
    }
    if (KIND == Kind::EXACT) {
        flush(block, chunks);
        for (unsigned k = threadIdx.x; k < CHUNKS; k += blockDim.x)  // and zero again for the next launch
            out->chunks[k] = i64(atomicExch(reinterpret_cast<u64 *>(chunks) + k, u64(0)));
    }
}

// A thread adds at most 1024 elements. records: (gridDim,), scratch; shared memory: FOLD words per thread.
// most: receives the magnitude of the largest term, for FIXED_POINT.
template <Kind KIND, int WIDTH, int FOLD, typename Terms>
__device__ void sum_blocks(const Terms &term, i64 n, i64 segment, int top, Record<FOLD> *records, unsigned *ticket,
                           i64 *chunks, Result<FOLD> *out, unsigned *most = nullptr) {
    DYNAMIC_SHARED(Words<FOLD>, lanes);
    __shared__ Block block;
    if (threadIdx.x == 0) {
        block.top = top;
        block.flags = block.most = 0;
    }
    if (KIND == Kind::EXACT) clear(block);
    __syncthreads();

    Bins<WIDTH, FOLD> bins(top);
    const i64 from = blockIdx.x * segment;
    const unsigned flags = add_terms<KIND>(term, from, least(from + segment, n), bins, block);
    if (KIND != Kind::FIXED_POINT) block.raise(bins.top);
    if (flags) atomicOr(&block.flags, flags);
    __syncthreads();

    if constexpr (KIND != Kind::FIXED_POINT)
        if (block.top != bins.top)
            bins.rise(block.top, [&](double x) {
                if (KIND == Kind::EXACT) block.spill(x);
            });
    Words<FOLD> mine;
#pragma unroll
    for (int k = 0; k < FOLD; ++k) mine.word[k] = bins.word(k);
    const Words<FOLD> total = add_words(mine, lanes);
    if (KIND == Kind::EXACT) flush(block, chunks);
    if (threadIdx.x == 0) {
        if (KIND == Kind::FIXED_POINT) atomicMax(most, block.most);
        Record<FOLD> &record = records[blockIdx.x];
        record.top = block.top;
        record.flags = block.flags;
        for (int k = 0; k < FOLD; ++k) record.words[k] = total.word[k];
    }
    if (last_block(ticket)) add_records<KIND, WIDTH>(records, block, lanes, chunks, out);
}

constexpr int FIXED_FOLD = WIDE ? 2 : 1;

extern "C" __global__ void __launch_bounds__(MAX_THREADS)
sum_binned(const ELEMENT *x, i64 n, i64 segment, Record<3> *records, unsigned *ticket, i64 *chunks, Result<3> *out) {
    sum_blocks<Kind::BINNED, 40, 3>(Elements{x}, n, segment, LOWEST_TOP, records, ticket, chunks, out);
}

extern "C" __global__ void __launch_bounds__(MAX_THREADS)
sum_exact(const ELEMENT *x, i64 n, i64 segment, Record<3> *records, unsigned *ticket, i64 *chunks, Result<3> *out) {
    sum_blocks<Kind::EXACT, 40, 3>(Elements{x}, n, segment, LOWEST_TOP, records, ticket, chunks, out);
}

extern "C" __global__ void __launch_bounds__(MAX_THREADS)
dot_binned(const ELEMENT *x, const ELEMENT *y, i64 n, i64 segment, Record<3> *records, unsigned *ticket, i64 *chunks,
           Result<3> *out) {
    sum_blocks<Kind::BINNED, 40, 3>(Products{x, y}, n, segment, LOWEST_TOP, records, ticket, chunks, out);
}

// Errors of products reach 106 bits below the products: with three words nearly every batch would spill a term.
constexpr int EXACT_DOT_FOLD = WIDE ? 5 : 3;

extern "C" __global__ void __launch_bounds__(MAX_THREADS)
dot_exact(const ELEMENT *x, const ELEMENT *y, i64 n, i64 segment, Record<EXACT_DOT_FOLD> *records, unsigned *ticket,
          i64 *chunks, Result<EXACT_DOT_FOLD> *out) {
    sum_blocks<Kind::EXACT, 40, EXACT_DOT_FOLD>(Products{x, y}, n, segment, LOWEST_TOP, records, ticket, chunks, out);
}

// most[0]: the magnitude of the largest term of a part of each segment, by atomic maximum; 0 before.
template <typename Terms>
__device__ void guess_largest(const Terms &term, i64 n, i64 segment, unsigned *most) {
    __shared__ unsigned of_block;
    if (threadIdx.x == 0) of_block = 0;
    __syncthreads();
    const i64 pitch = blockDim.x, part = segment / PIECES > BATCH * pitch ? segment / PIECES : BATCH * pitch;
    const i64 from = blockIdx.x * segment, to = least(from + least(segment, part), n);
    unsigned mine = 0;
    for (i64 i = from + threadIdx.x; i < to; i += BATCH * pitch) {
        double v[BATCH] = {};
#pragma unroll
        for (int k = 0; k < BATCH; ++k)
            if (i + k * pitch < to) v[k] = term.first(i + k * pitch);
#pragma unroll
        for (int k = 0; k < BATCH; ++k) {
            const unsigned m = magnitude(v[k]);
            mine = m < INFINITE && m > mine ? m : mine;
        }
    }
    if (mine > *static_cast<volatile unsigned *>(&of_block)) atomicMax(&of_block, mine);
    __syncthreads();
    if (threadIdx.x == 0) atomicMax(most, of_block);
}

extern "C" __global__ void __launch_bounds__(MAX_THREADS)
largest_element(const ELEMENT *x, i64 n, i64 segment, unsigned *most) {
    guess_largest(Elements{x}, n, segment, most);
}

extern "C" __global__ void __launch_bounds__(MAX_THREADS)
largest_product(const ELEMENT *x, const ELEMENT *y, i64 n, i64 segment, unsigned *most) {
    guess_largest(Products{x, y}, n, segment, most);
}

// Launched twice. The first launch sums by the guess most[0], and writes the largest term of all to most[1]. The
// second, with `again`, sums by most[1], and does nothing if the guess was right.
template <typename Terms>
__device__ void sum_guessed(const Terms &term, i64 n, i64 segment, unsigned *most, i64 again,
                            Record<FIXED_FOLD> *records, unsigned *ticket, i64 *chunks, Result<FIXED_FOLD> *out) {
    if (again && exponent(most[0]) == exponent(most[1])) return;
    sum_blocks<Kind::FIXED_POINT, 42, FIXED_FOLD>(term, n, segment, exponent(most[again]), records, ticket, chunks, out,
                                                  most + 1);
}

extern "C" __global__ void __launch_bounds__(MAX_THREADS)
sum_fixed_point(const ELEMENT *x, i64 n, i64 segment, unsigned *most, i64 again, Record<FIXED_FOLD> *records,
                unsigned *ticket, i64 *chunks, Result<FIXED_FOLD> *out) {
    sum_guessed(Elements{x}, n, segment, most, again, records, ticket, chunks, out);
}

extern "C" __global__ void __launch_bounds__(MAX_THREADS)
dot_fixed_point(const ELEMENT *x, const ELEMENT *y, i64 n, i64 segment, unsigned *most, i64 again,
                Record<FIXED_FOLD> *records, unsigned *ticket, i64 *chunks, Result<FIXED_FOLD> *out) {
    sum_guessed(Products{x, y}, n, segment, most, again, records, ticket, chunks, out);
}
