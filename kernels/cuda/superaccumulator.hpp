// Sums as integers wide enough for every number of a type, in words of 32 bits with room for carries. Adding is integer
// addition, so it may be atomic and is order-free (Neal, arXiv 1505.05571). Word i counts multiples of 2^(32 i +
// LOWEST).
#pragma once
#include "portable.hpp"

template <typename Number>
struct Super;

template <>
struct Super<double> {
    static constexpr int WORDS = 67, LOWEST = -1074;
};

template <>
struct Super<float> {
    static constexpr int WORDS = 10, LOWEST = -149;
};

// Adds mantissa * 2^(at + LOWEST), or subtracts it. A word grows by less than 2^32, so 2^30 numbers fit before carry().
__device__ inline void deposit(i64 *words, u64 mantissa, unsigned at, bool negative) {
    i64 *word = words + (at >> 5);
    const unsigned shift = at & 31;
    const u64 rest = mantissa >> (32 - shift);
    const i64 piece[3] = {i64((mantissa << shift) & 0xFFFFFFFFu), i64(rest & 0xFFFFFFFFu), i64(rest >> 32)};
#pragma unroll
    for (int k = 0; k < 3; ++k)
        if (piece[k]) atomic_add(word + k, negative ? -piece[k] : piece[k]);
}

__device__ inline void deposit(i64 *words, double x) {
    const u64 bits = bits_of(x);
    const unsigned biased = unsigned(bits >> 52) & 0x7FF, normal = biased != 0;
    deposit(words, (bits & ((u64(1) << 52) - 1)) | u64(normal) << 52, biased - normal, bits >> 63);
}

__device__ inline void deposit(i64 *words, float x) {
    const unsigned bits = bits_of_float(x);
    const unsigned biased = (bits >> 23) & 0xFF, normal = biased != 0;
    deposit(words, (bits & 0x7FFFFFu) | normal << 23, biased - normal, bits >> 31);
}
