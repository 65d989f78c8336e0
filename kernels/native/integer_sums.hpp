// Sums of bins as integers of 128 bits, which add up to the same in any order. The unit is a power of two of which every
// element of the array is a multiple: nothing is rounded, so no bin depends on another. NaN and infinities go to the
// result itself, by IEEE rules, and override the integer.
#pragma once
#include <omp.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>

#include "arrays.hpp"
#include "by_bin.hpp"
#include "../include/elements.hpp"
#include "../include/superaccumulator.hpp"

constexpr int LIMB_BITS = 42;

using i128 = __int128;
using u128 = unsigned __int128;

template <typename Float>
struct BitsOf;

template <>
struct BitsOf<double> {
    using type = std::uint64_t;
};

template <>
struct BitsOf<float> {
    using type = std::uint32_t;
};

// Magnitudes of the largest and the least finite elements but zero, as bits; least - 1, so that zero wraps around. `any` is
// the largest of all, infinities and NaN among them.
template <typename Float>
struct Extremes {
    using Bits = typename BitsOf<Float>::type;
    static constexpr int DIGITS = Format<Float>::DIGITS, LOWEST = Format<Float>::LEAST - DIGITS + 1;
    static constexpr Bits INFINITY_BITS = Bits(2 * Format<Float>::MOST + 1) << (DIGITS - 1);
    Bits most = 0, least = ~Bits(0), any = 0;

    void include(const Extremes &other) {
        most = std::max(most, other.most);
        least = std::min(least, other.least);
        any = std::max(any, other.any);
    }
    bool finite() const { return any < INFINITY_BITS; }
    bool empty() const { return most == 0; }

    // The exponent of the last place of the number with these bits.
    static int last_place(Bits bits) { return std::max(int(bits >> (DIGITS - 1)), 1) - 1 + LOWEST; }
    int unit() const { return last_place(least + 1); }

    // The least e such that all are below 2^e.
    int exponent() const {
        const int subnormal = std::numeric_limits<std::uint64_t>::digits - __builtin_clzll(most);
        return most >> (DIGITS - 1) ? last_place(most) + DIGITS : LOWEST + subnormal;
    }
};

template <typename Float>
inline __attribute__((always_inline)) typename BitsOf<Float>::type magnitude_bits(Float v) {
    union {
        Float number;
        typename BitsOf<Float>::type bits;
    } both = {v};
    return both.bits & (~typename BitsOf<Float>::type(0) >> 1);
}

template <typename Element>
FPNA_CLONES Extremes<Accumulator<Element>> extremes_of(const Element *x, std::int64_t n) {
    using Found = Extremes<Accumulator<Element>>;
    typename Found::Bits most = 0, least = ~typename Found::Bits(0), any = 0;
    for (std::int64_t i = 0; i < n; ++i) {
        const auto bits = magnitude_bits(widen(x[i]));
        // No branch anywhere, or the loop is not vectorised.
        const typename Found::Bits finite = bits & -typename Found::Bits(bits < Found::INFINITY_BITS);
        most = std::max(most, finite);
        least = std::min<typename Found::Bits>(least, finite - 1);
        any = std::max(any, bits);
    }
    Found found;
    found.most = most;
    found.least = least;
    found.any = any;
    return found;
}

template <typename Element>
Extremes<Accumulator<Element>> extremes_of(const Element *x, std::int64_t n, int threads) {
    constexpr std::int64_t PIECE = 1 << 16;
    Extremes<Accumulator<Element>> all;
#pragma omp parallel num_threads(n > PIECE ? threads : 1)
    {
        const DefaultEnvironment environment;
        Extremes<Accumulator<Element>> mine;
#pragma omp for schedule(static) nowait
        for (std::int64_t i = 0; i < n; i += PIECE) mine.include(extremes_of(x + i, std::min(PIECE, n - i)));
#pragma omp critical
        all.include(mine);
    }
    return all;
}

// A number as multiples of 2^unit, of which it is one.
template <typename Float>
struct Whole {
    const int unit;

    i128 operator()(Float v) const {
        using Found = Extremes<Float>;
        const auto bits = magnitude_bits(v);
        const auto hidden = typename Found::Bits(1) << (Found::DIGITS - 1);
        const i128 mantissa = (bits & (hidden - 1)) | (bits >= hidden ? hidden : 0);
        const i128 units = mantissa << ((Found::last_place(bits) - unit) & 127);  // of zero any shift will do
        const i128 sign = -i128(std::signbit(v));  // 0 or -1: a branch would be mispredicted half of the time
        return (units ^ sign) - sign;
    }
};

template <typename In>
struct IntegerSums {
    static constexpr bool MOVES = true;
    const In &in;
    i128 *words;
    Accumulator<typename In::Element> *out;  // holds +0.0, or the sum of NaN and infinities
    Whole<Accumulator<typename In::Element>> units;

    // Begins the sums with the finite numbers in the result, which become 0 there.
    void begin(std::int64_t cells) {
        for (std::int64_t k = 0; k < cells; ++k)
            if (std::isfinite(out[k])) words[k] = units(std::exchange(out[k], 0));
    }

    void add(std::int64_t bin, std::int64_t, const typename In::Element *x) {
        for (std::int64_t c = 0, k = bin * in.columns(); c < in.columns(); ++c, ++k) {
            const auto v = widen(x[c]);
            if (std::isfinite(v)) {
                words[k] += units(v);
            } else {
#pragma omp atomic
                out[k] += v;
            }
        }
    }
};

template <typename Float>
Float nearest(i128 units, int unit) {
    if (units == 0) return 0;
    u128 magnitude = units < 0 ? -u128(units) : u128(units);
    const std::uint64_t top = std::uint64_t(magnitude >> 64);
    const int zeros = top ? __builtin_clzll(top) : 64 + __builtin_clzll(std::uint64_t(magnitude));
    magnitude <<= zeros;
    const bool below = std::uint64_t(magnitude) != 0;
    return with_sign<Float>(nearest<Float>(std::uint64_t(magnitude >> 64), below, unit + 64 - zeros), units < 0);
}

struct Freed {
    void operator()(void *words) const { std::free(words); }
};

// Zeroed where it is first touched.
template <typename Word>
std::unique_ptr<Word[], Freed> zeros(std::int64_t count) {
    std::unique_ptr<Word[], Freed> words(static_cast<Word *>(std::calloc(std::max<std::int64_t>(count, 1), sizeof(Word))));
    if (!words) throw std::bad_alloc();
    return words;
}

// What becomes of an exact sum, by its cell. Virtual: else every kernel would be compiled once more.
template <typename Float>
struct Finish {
    virtual void finite(std::int64_t cell, i128 sum, int unit) const = 0;
    virtual void special(std::int64_t cell, Float sum) const = 0;  // NaN or infinite
    virtual void words(std::int64_t cell, long long *sum) const = 0;  // of a superaccumulator, used up
    // Exact sums of neighbouring cells of a bin, rounded to float64; `unsure` is set where they do not decide.
    virtual void row(std::int64_t cell, const double *sums, std::int64_t count, bool *unsure) const = 0;
    virtual ~Finish() = default;
};

// Finishes all sums; `out` holds those that are NaN or infinite, and 0 for the others.
template <typename Float>
void finish_all(const i128 *words, std::int64_t cells, int copies, int unit, const Float *out, const Finish<Float> &finish,
                int threads) {
#pragma omp parallel num_threads(cells > FEW ? threads : 1)
    {
        const DefaultEnvironment environment;
#pragma omp for schedule(static)
        for (std::int64_t k = 0; k < cells; ++k) {
            i128 sum = 0;
            for (int t = 0; t < copies; ++t) sum += words[t * cells + k];
            if (out[k] == 0) finish.finite(k, sum, unit);
            else finish.special(k, out[k]);
        }
    }
}

// Few bins for many elements: every thread has sums of its own, `stride` words after those of the thread before, which are
// added at the end.
template <typename In>
bool better_apart(const In &in, int threads) {
    return threads > 1 && in.n >= FEW && in.bins <= in.n / (4 * threads);
}

template <typename Sums, typename In>
std::int64_t add_apart(const In &in, const Sums &sums, std::int64_t stride, int threads) {
    std::int64_t bad = in.n;
#pragma omp parallel num_threads(threads) reduction(min : bad)
    {
        const DefaultEnvironment environment;
        Sums mine = sums;
        mine.words += omp_get_thread_num() * stride;
#pragma omp for schedule(static)
        for (std::int64_t i = 0; i < in.n; ++i) {
            if (in.fits(i))
                mine.add(in.bin(i), i, in.row(i));
            else
                bad = std::min(bad, i);
        }
    }
    return bad < in.n ? bad : NONE_BAD;
}

// Adds to `out`; 2^unit divides all numbers, and all carries fit into 127 bits.
template <typename In>
std::int64_t add_integers(const In &in, Accumulator<typename In::Element> *out, int unit,
                          const Finish<Accumulator<typename In::Element>> &finish, int threads) {
    const std::int64_t cells = in.bins * in.columns();
    const bool apart = better_apart(in, threads);
    const int copies = apart ? threads : 1;
    const auto words = zeros<i128>(copies * cells);
    IntegerSums<In> sums{in, words.get(), out, {unit}};
    sums.begin(cells);
    const std::int64_t bad = apart ? add_apart(in, sums, cells, threads) : by_bin(in, sums, threads);
    if (bad == NONE_BAD) finish_all(words.get(), cells, copies, unit, out, finish, threads);
    return bad;
}
