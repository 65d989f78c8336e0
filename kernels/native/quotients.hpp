// Exact sums divided by a whole number and rounded once, to nearest even, for types of elements: float16 and bfloat16 too.
#pragma once
#include <algorithm>
#include <cstdint>

#include "../include/elements.hpp"
#include "../include/superaccumulator.hpp"
#include "arrays.hpp"

template <>
struct Format<float16> {
    static constexpr int DIGITS = 11, LEAST = -14, MOST = 15;
    static float16 of_bits(unsigned long long bits) { return {static_cast<unsigned short>(bits)}; }
};

template <>
struct Format<bfloat16> {
    static constexpr int DIGITS = 8, LEAST = -126, MOST = 127;
    static bfloat16 of_bits(unsigned long long bits) { return {static_cast<unsigned short>(bits)}; }
};

template <typename Number>
Number infinity(bool negative) {
    using F = Format<Number>;
    return with_sign<Number>((unsigned long long)(F::MOST + F::MOST + 1) << (F::DIGITS - 1), negative);
}

template <typename Number>
Number not_a_number() {
    using F = Format<Number>;
    return with_sign<Number>((4ull * F::MOST + 3) << (F::DIGITS - 2), false);
}

// The sum in words, which stay as they are, divided by at least 1: long division; the remainder counts below the last chunk.
template <typename Number>
Number quotient(const long long *words, long long divisor) {
    constexpr int BELOW = 2;  // chunks of a quotient below the least unit of a sum
    constexpr int COUNT = CHUNKS + BELOW;
    const bool plus = words[PLUS_INF], minus = words[MINUS_INF];
    if (words[NOT_A_NUMBER] || (plus && minus)) return not_a_number<Number>();
    if (plus || minus) return infinity<Number>(minus);
    long long w[COUNT] = {};
    std::copy(words, words + CHUNKS, w + BELOW);
    carry<32, COUNT>(w);
    const bool negative = w[COUNT - 1] < 0;
    if (negative) {
        for (long long &word : w) word = -word;
        carry<32, COUNT>(w);
    }
    unsigned __int128 rest = 0;
    for (int i = COUNT; i-- > 0;) {
        const unsigned __int128 part = rest << 32 | (unsigned long long)w[i];
        w[i] = (long long)(part / (unsigned long long)divisor);
        rest = part % (unsigned long long)divisor;
    }
    w[0] |= rest != 0;
    if (negative)
        for (long long &word : w) word = -word;
    return round_words<Number, 32, COUNT>(w, LOWEST - 32 * BELOW);
}

constexpr std::uint64_t NEAR = 8;

// Whether a number of float64 lies within NEAR units of its last place from the middle between two of `Number`.
template <typename Number>
inline bool near_middle(std::uint64_t bits) {
    constexpr std::uint64_t BELOW = (1ull << (53 - Format<Number>::DIGITS)) - 1, MIDDLE = BELOW / 2 + 1;
    return (bits & BELOW) - (MIDDLE - NEAR) <= 2 * NEAR;
}

// sums / divisor rounded to float32; `unsure` where a relative error of 2^-51 might show.
inline FPNA_CLONES void quotients(const double *sums, std::int64_t n, double divisor, float *out, bool *unsure) {
    for (std::int64_t i = 0; i < n; ++i) {
        const double q = sums[i] / divisor, size = q < 0 ? -q : q;
        out[i] = float(q);
        const bool fits = ((size >= 0x1p-126) & (size <= 0x1p127)) | (size == 0);
        unsure[i] = near_middle<float>(bits_of(q)) | !fits;
    }
}

// sum 2^unit / divisor, which is at least 1.
//
// A division of float64 has a relative error below 2^-51. It decides for types of up to 24 digits, unless it lies within
// NEAR units of its last place from the middle between two of their numbers. Otherwise both are moved up until their first
// bit is set, so that the quotient has 63 or 64 bits, more than any type; the remainder only breaks ties.
template <typename Number>
Number quotient(__int128 sum, int unit, std::int64_t divisor) {
    if (sum == 0) return with_sign<Number>(0, false);
    unsigned __int128 magnitude = sum < 0 ? -(unsigned __int128)sum : (unsigned __int128)sum;
    if constexpr (Format<Number>::DIGITS <= 24) {
        const double whole = double(std::uint64_t(magnitude >> 64)) * 0x1p64 + double(std::uint64_t(magnitude));
        const std::uint64_t bits = bits_of(whole / double(divisor));
        const int exponent = int(bits >> 52) - 1023;  // the quotient is at least 1/2^63, and no subnormal number
        if (!near_middle<Number>(bits) && exponent + unit >= Format<Number>::LEAST)
            return with_sign<Number>(nearest<Number>(bits << 11 | 1ull << 63, false, exponent + unit - 63), sum < 0);
    }
    const std::uint64_t high = std::uint64_t(magnitude >> 64);
    const int up = high ? __builtin_clzll(high) : 64 + __builtin_clzll(std::uint64_t(magnitude));
    const int wide = __builtin_clzll(std::uint64_t(divisor));
    const std::uint64_t by = std::uint64_t(divisor) << wide;
    magnitude <<= up;
    const bool lost = magnitude & 1;
    magnitude >>= 1;
    const std::uint64_t whole = std::uint64_t(magnitude / by);
    const bool below = lost || magnitude - (unsigned __int128)whole * by != 0;
    const int zeros = __builtin_clzll(whole);
    return with_sign<Number>(nearest<Number>(whole << zeros, below, unit - up + 1 + wide - zeros), sum < 0);
}
