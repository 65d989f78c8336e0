// Exact sums of a few numbers per element, rounded once, without integers in between; shared by contributions_exact.cpp
// and expansions.cpp. The bits are those of the words in kernels/exact, which stay the definition.
//
// Each element goes through a cascade of error-free additions (TwoSum: Knuth 1969; the cascade: Ogita, Rump,
// Oishi 2005): s the sum, e the sum of the errors of s, and for float64 the errors of e are what is left,
//
//     sum of all x  =  s + e + U,   |U| <= b (1 + 2^-52)^p,   b the sum of |errors of e|, added as floating-point numbers.
//
// TwoSum is exact also where results are subnormal, for a sum that is subnormal is exact. Let r = fl(s + e) and
// d = s + e - r, again exact. The sum rounds to r
//   - if b = 0, for then U = 0 and r = fl(s + e) is the result; or
//   - if fl(r + low) = r = fl(r + high) for some low <= d + U <= high, since rounding is monotonic.
// low, high = fl(d -+ h) with h = 2 b + 2^-51 |d| will do: with b > 0, b >= 2^-1074 as all numbers are multiples of
// that, so the product is off by at most 2^-1075 <= b/2 where it underflows, and h >= 1.4 b + (2^-51 - 2^-103) |d|; the
// rounding of d -+ h takes at most 2^-53 (|d| + h) of this away (nothing where the result is subnormal), which leaves
// more than 1.3 b >= |U| for all p below 2^50.
// Elements for which neither holds, as all with infinities, NaN or overflow, for their errors are NaN, are added by a
// superaccumulator. Of narrower results the number to be rounded is r, and all that is not in it counts as error:
// b + |d| in place of b, and r in place of d. Sums of float32 are cascaded once less.
//
// A sum that could not be held is a marked NaN: rounding keeps the mark, and all ranks add those elements again.
#pragma once
#include <algorithm>
#include <cmath>

#include "../include/narrow.hpp"
#include "../include/superaccumulator.hpp"
#include "contributions.hpp"

// ---------------------------------------------------------------- marks

// NaN whose bits no arithmetic makes.
constexpr unsigned long long MARK = 0x7FF8F1A6C0DEC0DEull;

inline double mark(double) { return double_of_bits(MARK); }
inline float mark(float) { return float_of_bits(0x7FC0F1A6u); }
inline float16 mark(float16) { return {0x7E5A}; }
inline bfloat16 mark(bfloat16) { return {0x7FDA}; }

inline bool is_mark(double x) { return bits_of(x) == MARK; }
inline bool is_mark(float x) { return bits_of_float(x) == 0x7FC0F1A6u; }
inline bool is_mark(float16 x) { return x.bits == 0x7E5A; }
inline bool is_mark(bfloat16 x) { return x.bits == 0x7FDA; }

// ---------------------------------------------------------------- rounding

// Float32 rounded to odd, from which a narrow type is rounded as from the number itself (Boldo, Melquiond 2008).
inline __attribute__((always_inline)) float odd_float(double x) {
    const float f = float(x);
    const double error = x - double(f);  // infinite where f is and x is not, NaN where x is no number
    const unsigned bits = bits_of_float(f), sign = bits_of_float(float(error)) & 0x80000000u;
    const bool inexact = error != 0, even = !(bits & 1u), away = (error > 0) == !(bits >> 31);
    const unsigned odd = f == 0 ? sign | 1u : bits + (away ? 1u : ~0u);
    return float_of_bits(inexact & even & (error == error) ? odd : bits);
}

inline __attribute__((always_inline)) double rounded(double x, double) { return x; }
inline __attribute__((always_inline)) float rounded(double x, float) { return float(x); }
inline __attribute__((always_inline)) float16 rounded(double x, float16) { return narrow(odd_float(x), float16()); }
inline __attribute__((always_inline)) bfloat16 rounded(double x, bfloat16) { return narrow(odd_float(x), bfloat16()); }

// The sum in words, rounded once; `room` for CHUNKS chunks. The words are used up.
inline double round_into(long long *words, long long *room, double) { return round_words<double>(words, room); }
inline float round_into(long long *words, long long *room, float) { return round_words<float>(words, room); }

template <typename Narrow>
Narrow round_into(long long *words, long long *room, Narrow) {
    const double r = round_words<double>(words, room);
    if (!std::isfinite(r)) return rounded(r, Narrow());
    deposit(words, -r);
    const double rest = round_words<double>(words, room);
    const unsigned long long bits = bits_of(r);
    if (rest == 0 || (bits & 1)) return rounded(r, Narrow());
    const bool away = (rest > 0) == !(bits >> 63);  // a sum that is not a float64 is not 0
    return rounded(double_of_bits(away ? bits + 1 : bits - 1), Narrow());
}

// ---------------------------------------------------------------- cascades

struct Block {
    alignas(64) double sum[BLOCK], error[BLOCK], left[BLOCK];
    alignas(64) long long unsure[BLOCK];
};

// x - x is 0, or NaN for an infinity or NaN.
template <typename Source>
inline __attribute__((always_inline)) void begin(Block &to, const Source *x, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
        const double v = widen(x[i]);
        to.sum[i] = v;
        to.error[i] = 0;
        to.left[i] = v - v;
    }
}

inline __attribute__((always_inline)) void cascade(Block &to, const double *x, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
        const double sum = to.sum[i] + x[i], error = error_of(to.sum[i], x[i], sum);
        const double errors = to.error[i] + error;
        to.left[i] += std::fabs(error_of(to.error[i], error, errors));
        to.sum[i] = sum;
        to.error[i] = errors;
    }
}

// For narrower numbers one step less: their sums mostly fit.
template <typename Source>
inline __attribute__((always_inline)) void cascade(Block &to, const Source *x, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
        const double v = widen(x[i]), sum = to.sum[i] + v;
        to.left[i] += std::fabs(error_of(to.sum[i], v, sum));
        to.sum[i] = sum;
    }
}

// The sums of the first n elements into `out`; returns whether some are unsure, and which. Adding 0 makes
// -0.0 to +0.0.
inline __attribute__((always_inline)) bool settle(Block &b, std::size_t n, double *out) {
    long long any = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const double r = b.sum[i] + b.error[i], d = error_of(b.sum[i], b.error[i], r);
        const double h = 2 * b.left[i] + 0x1p-51 * std::fabs(d);
        const bool sure = (b.left[i] == 0) | ((r + (d + h) == r) & (r + (d - h) == r));
        b.unsure[i] = !sure;
        any |= b.unsure[i];
        out[i] = r + 0.0;
    }
    return any;
}

template <typename Float>
inline __attribute__((always_inline)) bool settle(Block &b, std::size_t n, Float *out) {
    long long any = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const double r = b.sum[i] + b.error[i];
        const double left = b.left[i] + std::fabs(error_of(b.sum[i], b.error[i], r));
        const double h = 2 * left + 0x1p-51 * std::fabs(r);
        const float low = widen(rounded(r - h, Float())), high = widen(rounded(r + h, Float()));
        // A result of 0 takes the sign of the sum.
        const bool sure = (left == 0) | ((low == high) & (low != 0));
        b.unsure[i] = !sure;
        any |= b.unsure[i];
        out[i] = rounded(r + 0.0, Float());
    }
    return any;
}

template <typename Source, typename Float>
FPNA_CLONES bool sum_block(const Source *const *x, std::size_t sources, std::size_t from, std::size_t n, Block &block,
                           Float *out) {
    begin(block, x[0] + from, n);
    for (std::size_t q = 1; q < sources; ++q) cascade(block, x[q] + from, n);
    return settle(block, n, out);
}

// The same for two numbers of one type, whose sum the processor rounds once.
template <typename Float>
FPNA_CLONES bool sum_two(const Float *a, const Float *b, std::size_t n, Block &block, Float *out) {
    long long any = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const Float r = a[i] + b[i] + Float(0);
        any |= r == r ? 0 : 1;
        out[i] = r;
    }
    if (any)
        for (std::size_t i = 0; i < n; ++i) block.unsure[i] = out[i] != out[i];
    return any;
}

// The same for few sources, whose sums stay in registers.
template <int COUNT, typename Source, typename Float>
FPNA_CLONES bool sum_few(const Source *const *x, std::size_t from, std::size_t n, Block &block, Float *out) {
    const Source *source[COUNT];
    for (int q = 0; q < COUNT; ++q) source[q] = x[q] + from;
    for (std::size_t i = 0; i < n; ++i) {
        const double first = widen(source[0][i]);
        double sum = first, errors = 0, left = first - first;
        for (int q = 1; q < COUNT; ++q) {
            const double v = widen(source[q][i]), next = sum + v, error = error_of(sum, v, next);
            sum = next;
            if (sizeof(Source) < sizeof(double)) {
                left += std::fabs(error);
            } else {
                const double both = errors + error;
                left += std::fabs(error_of(errors, error, both));
                errors = both;
            }
        }
        block.sum[i] = sum;
        block.error[i] = errors;
        block.left[i] = left;
    }
    return settle(block, n, out);
}

template <typename Source, typename Float>
bool sum_any(const Source *const *x, std::size_t sources, std::size_t from, std::size_t n, Block &block, Float *out) {
    if constexpr (std::is_same_v<Source, Float> && std::is_floating_point_v<Float>)
        if (sources == 2) return sum_two(x[0] + from, x[1] + from, n, block, out);
    switch (sources) {
        case 2: return sum_few<2>(x, from, n, block, out);
        case 3: return sum_few<3>(x, from, n, block, out);
        case 4: return sum_few<4>(x, from, n, block, out);
        case 8: return sum_few<8>(x, from, n, block, out);
        default: return sum_block(x, sources, from, n, block, out);
    }
}

// Adds the numbers at(0), ..., at(count - 1) to words, which are carried before their room is used up.
template <typename At>
void deposit_all(long long *words, std::size_t count, const At &at) {
    for (std::size_t q = 0; q < count; ++q) {
        deposit(words, at(q));
        if (q % 512 == 511) carry(words);
    }
}

template <typename Source, typename Float>
Float by_words(const Source *const *x, std::size_t sources, std::size_t i, bool marks) {
    long long words[WORDS] = {}, room[CHUNKS];
    bool marked = false;
    deposit_all(words, sources, [&](std::size_t q) {
        marked |= marks && is_mark(x[q][i]);
        return widen(x[q][i]);
    });
    return marked ? mark(Float()) : round_into(words, room, Float());
}

// `out` may be one of the sources. `marks`: whether marked NaN are marks, and no numbers of the caller. Returns how
// many elements were added by words.
template <typename Source, typename Float>
std::size_t exact_sum(const Source *const *x, std::size_t sources, std::size_t n, Float *out, bool marks) {
    Block block;
    alignas(64) Float result[BLOCK];
    std::size_t resolved = 0;
    for (std::size_t from = 0; from < n; from += BLOCK) {
        const std::size_t count = std::min(BLOCK, n - from);
        if (sum_any(x, sources, from, count, block, result))
            for (std::size_t i = 0; i < count; ++i)
                if (block.unsure[i]) {
                    result[i] = by_words<Source, Float>(x, sources, from + i, marks);
                    ++resolved;
                }
        std::copy(result, result + count, out + from);
    }
    return resolved;
}
