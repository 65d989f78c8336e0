// Attention on a GPU, for kernels/contract/cupy_attention.py: the bits of kernels/contract/reference_attention.py.
//
//   attention_forward       a block per row: its scores, their exponentials, the sums over its keys
//   attention_dots          a thread per row: the dot product of gradient and result
//   attention_backward_q    a block per row, as above: the gradient of a query
//   attention_backward_kv   a block per key, with the weights of all queries that see it
//
// One thread computes each score and each element of a result, so the order of threads cannot show. The weights of a
// row or of a key pass through a line of `work` that the block owns. Matrices are contiguous.
//
//   nvcc -cubin -arch sm_90 --fmad=false -DNUMBER=float kernels/cuda/attention.cu
#include "chains.hpp"

constexpr int THREADS = 128;
constexpr int SUMS = 16;  // parts of a sum: part t has terms t, t + SUMS, ...

__device__ inline float infinity(float) { return float_of_bits(0x7f800000u); }
__device__ inline double infinity(double) { return double_of_bits(0x7ff0000000000000ull); }

// 2^n, given n + SHIFT, whose last bits are those of n.
__device__ inline float power_of_two(float shifted) {
    return float_of_bits((bits_of_float(shifted) << 23) + (127u << 23));
}
__device__ inline double power_of_two(double shifted) {
    return double_of_bits((bits_of(shifted) << 52) + (1023ull << 52));
}

// e of x = 2^e f with f in [sqrt(1/2), sqrt(2)); the numbers are the bits of sqrt(1/2).
__device__ inline float split(float x, float &f) {
    const int bits = int(bits_of_float(x)), e = (bits - 0x3f3504f3) >> 23;
    f = float_of_bits(unsigned(bits) - (unsigned(e) << 23));
    return float(e);
}
__device__ inline double split(double x, double &f) {
    const i64 bits = i64(bits_of(x)), e = (bits - 0x3fe6a09e667f3bcdll) >> 52;
    f = double_of_bits(u64(bits) - (u64(e) << 52));
    return double(e);
}

#if defined(__CUDACC__)
#pragma nv_diag_suppress 1675  // unknown GCC pragmas; loops of constant length are unrolled without them
#endif
#define FPNA_EACH __device__ inline
#include "../include/exponential.hpp"

// The chain over k in [0, depth) of a[k * a_step] * b[k * b_step], pieces of PIECE added in order.
__device__ inline Number chain(const Number *a, i64 a_step, const Number *b, i64 b_step, i64 depth) {
    Number total = 0;
    for (i64 k0 = 0; k0 < depth; k0 += PIECE) {
        Number piece = 0;
        const i64 end = least(depth, k0 + PIECE);
        for (i64 k = k0; k < end; ++k) piece = fused(a[k * a_step], b[k * b_step], piece);
        total = k0 ? total + piece : piece;
    }
    return total == total ? total : one_nan(total);
}

// The sum over queries i in [first, queries) of weights[i] * rows[i * step]: pieces begin at multiples of PIECE.
__device__ inline Number over_queries(const Number *weights, const Number *rows, i64 step, i64 first, i64 queries) {
    Number total = 0;
    for (i64 i0 = 0; i0 < queries; i0 += PIECE) {
        Number piece = 0;
        const i64 end = least(queries, i0 + PIECE);
        for (i64 i = i0 < first ? first : i0; i < end; ++i) piece = fused(weights[i], rows[i * step], piece);
        total = total + piece;
    }
    return total;
}

// Parts are joined by halves: t and t + 8, then t and t + 4, ...
__device__ inline Number joined(const Number *parts) {
    Number sums[SUMS];
    for (int t = 0; t < SUMS; ++t) sums[t] = parts[t];
    for (int half = SUMS / 2; half; half /= 2)
        for (int t = 0; t < half; ++t) sums[t] = sums[t] + sums[t + half];
    return sums[0];
}

// x, without the sign of a zero or a NaN.
__device__ inline Number unsigned_zero(Number x) { return x == x ? x + Number(0) : one_nan(x); }

// Sizes, options and operands of a call: the launch hands them over one by one.
struct Heads {
    i64 heads, queries, keys, depth, width, causal;
    Number scale;
    const Number *q, *k, *v, *mask;  // mask: if there is one
    i64 masked, by_sample, by_head, by_query, by_key;  // steps of the mask, 0 in dims that it is broadcast along

    // The number of keys that query i sees, and the first query that sees key j.
    __device__ i64 seen(i64 i) const { return causal ? least(i + 1, keys) : keys; }
    __device__ i64 first(i64 j) const { return causal ? least(j, queries) : 0; }

    // The score of query i and key j of a head; `head` counts them through all samples.
    __device__ Number score(i64 head, i64 i, i64 j) const {
        const Number x = chain(q + (head * queries + i) * depth, 1, k + (head * keys + j) * depth, 1, depth) * scale;
        if (!masked) return x;
        return x + mask[head / heads * by_sample + head % heads * by_head + i * by_query + j * by_key];
    }

    // The weight of query i and key j, and its gradient `g`.
    __device__ Number weight(i64 head, i64 i, i64 j, const Number *gradient, Number log, Number dot, Number &g) const {
        const Number x = score(head, i, j);
        const Number product =
            chain(gradient + (head * queries + i) * width, 1, v + (head * keys + j) * width, 1, width);
        const Number p = exponential<Number>(x - (log == -infinity(log) ? Number(0) : log));
        g = p * (product - dot);
        return p;
    }
};

#define HEADS                                                                                                      \
    i64 samples, i64 heads, i64 queries, i64 keys, i64 depth, i64 width, i64 causal, double scale, const Number *q, \
        const Number *k, const Number *v, const Number *mask, i64 masked, i64 by_sample, i64 by_head, i64 by_query, \
        i64 by_key
#define GIVEN \
    {heads, queries, keys, depth, width, causal, Number(scale), q, k, v, mask, \
     masked, by_sample, by_head, by_query, by_key}

// out (samples, heads, queries, width), logs (samples, heads, queries); work (blocks, keys).
extern "C" __global__ void __launch_bounds__(THREADS)
attention_forward(HEADS, Number *out, Number *logs, Number *work) {
    __shared__ Number largest[THREADS], parts[SUMS];
    const Heads of = GIVEN;
    Number *weights = work + blockIdx.x * keys;
    for (i64 row = blockIdx.x; row < samples * heads * queries; row += gridDim.x) {
        const i64 head = row / queries, i = row % queries, seen = of.seen(i);
        Number top = -infinity(Number(0));
        for (i64 j = threadIdx.x; j < seen; j += THREADS) {
            const Number x = of.score(head, i, j);
            weights[j] = x;
            if (x > top) top = x;
        }
        largest[threadIdx.x] = top;
        __syncthreads();
        for (int t = 0; t < THREADS; ++t)
            if (largest[t] > top) top = largest[t];
        if (top == -infinity(top)) top = 0;
        for (i64 j = threadIdx.x; j < seen; j += THREADS) weights[j] = exponential<Number>(weights[j] - top);
        __syncthreads();
        if (threadIdx.x < SUMS) {
            Number sum = 0;
            for (i64 j = threadIdx.x; j < seen; j += SUMS) sum = sum + weights[j];
            parts[threadIdx.x] = sum;
        }
        __syncthreads();
        const Number total = joined(parts);
        for (i64 c = threadIdx.x; c < width; c += THREADS) {
            const Number sum = chain(weights, 1, v + head * keys * width + c, width, seen);
            out[row * width + c] = total == 0 ? Number(0) : unsigned_zero(sum * (Number(1) / total));
        }
        if (threadIdx.x == 0) {
            if (total > 0)
                logs[row] = unsigned_zero(top + logarithm<Number>(total));
            else
                logs[row] = total == 0 ? -infinity(total) : one_nan(total);
        }
        __syncthreads();  // the next row has the same memory
    }
}

// dots[row] = the dot product of rows of a and b, (rows, width).
extern "C" __global__ void __launch_bounds__(THREADS)
attention_dots(i64 rows, i64 width, const Number *a, const Number *b, Number *dots) {
    for (i64 row = blockIdx.x * i64(THREADS) + threadIdx.x; row < rows; row += gridDim.x * i64(THREADS)) {
        Number parts[SUMS] = {};
        for (i64 c = 0; c < width; ++c)
            parts[c % SUMS] = fused(a[row * width + c], b[row * width + c], parts[c % SUMS]);
        dots[row] = joined(parts);
    }
}

// found (samples, heads, queries, depth): the gradient of q; work (blocks, keys).
extern "C" __global__ void __launch_bounds__(THREADS)
attention_backward_q(HEADS, const Number *gradient, const Number *logs, const Number *dots, Number *found,
                     Number *work) {
    const Heads of = GIVEN;
    Number *weights = work + blockIdx.x * keys;
    for (i64 row = blockIdx.x; row < samples * heads * queries; row += gridDim.x) {
        const i64 head = row / queries, i = row % queries, seen = of.seen(i);
        for (i64 j = threadIdx.x; j < seen; j += THREADS)
            of.weight(head, i, j, gradient, logs[row], dots[row], weights[j]);
        __syncthreads();
        for (i64 c = threadIdx.x; c < depth; c += THREADS)
            found[row * depth + c] =
                unsigned_zero(chain(weights, 1, k + head * keys * depth + c, depth, seen) * of.scale);
        __syncthreads();  // the next row has the same memory
    }
}

// found_k (samples, heads, keys, depth), found_v (samples, heads, keys, width); work (blocks, 2, queries).
extern "C" __global__ void __launch_bounds__(THREADS)
attention_backward_kv(HEADS, const Number *gradient, const Number *logs, const Number *dots, Number *found_k,
                      Number *found_v, Number *work) {
    const Heads of = GIVEN;
    Number *weights = work + blockIdx.x * 2 * queries, *slopes = weights + queries;
    for (i64 row = blockIdx.x; row < samples * heads * keys; row += gridDim.x) {
        const i64 head = row / keys, j = row % keys, first = of.first(j);
        for (i64 i = first + threadIdx.x; i < queries; i += THREADS) {
            const i64 at = head * queries + i;
            weights[i] = of.weight(head, i, j, gradient, logs[at], dots[at], slopes[i]);
        }
        __syncthreads();
        for (i64 c = threadIdx.x; c < depth; c += THREADS)
            found_k[row * depth + c] = unsigned_zero(
                over_queries(slopes, q + head * queries * depth + c, depth, first, queries) * of.scale);
        for (i64 c = threadIdx.x; c < width; c += THREADS)
            found_v[row * width + c] =
                unsigned_zero(over_queries(weights, gradient + head * queries * width + c, width, first, queries));
        __syncthreads();  // the next key has the same memory
    }
}
