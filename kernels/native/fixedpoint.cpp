// Fixed point on the CPU: words of many sums for kernels/exact/fixedpoint.py, and the sum of one array by threads.
// The twin in NumPy is kernels/exact/reference.py; both give the same words and the same bits.
//
// The sum mostly takes one pass over memory. Per element of float64, in vectors of eight: a load, two for the largest and
// seven for two slices (four of them additions of floating-point numbers).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "../include/superaccumulator.hpp"
#include "tiles.hpp"

namespace {

constexpr int LIMB = 42;  // bits of one limb
constexpr double LIMB_LIMIT = 0x1p42, LIMB_SCALE = 0x1p42;
constexpr double ROUNDER = 0x1.8p52;  // adding it rounds to an integer, which is then in the low bits
constexpr int EMPTY = -1074, NONFINITE = 1 << 20;

// ---------------------------------------------------------------- words of many sums

template <typename T>
inline int exponent_of(double most) {
    if (!(most <= std::numeric_limits<T>::max())) return NONFINITE;
    if (most == 0) return EMPTY;
    int e;
    std::frexp(most, &e);
    return e;
}

FPNA_CLONES int largest_float(const float *x, std::size_t n) {
    std::int32_t most = 0;
    for (std::size_t i = 0; i < n; ++i) {
        std::int32_t b;
        std::memcpy(&b, x + i, sizeof b);
        b &= 0x7FFFFFFF;
        most = b > most ? b : most;
    }
    return most;
}

int fixed_exponent(const double *x, std::size_t n) {
    return exponent_of<double>(double_of_bits(largest(x, n)));
}

int fixed_exponent(const float *x, std::size_t n) {
    const std::int32_t b = largest_float(x, n);
    float most;
    std::memcpy(&most, &b, sizeof most);
    return exponent_of<float>(most);
}

// One row added to out[limb][column]. Returns whether some |x| was not below 2^exponent (a NaN is not).
template <int LIMBS, typename T>
inline __attribute__((always_inline)) bool encode_row(const T *x, std::size_t columns, double f, double g, i64 *out,
                                                      std::size_t pitch) {
    const i64 offset = i64(bits_of(ROUNDER));
    i64 bad = 0;
    for (std::size_t c = 0; c < columns; ++c) {
        double y = double(x[c]) * f * g;
        bad |= std::fabs(y) <= LIMB_LIMIT ? 0 : 1;
        for (int k = 0; k < LIMBS; ++k) {
            const double shifted = y + ROUNDER;
            out[k * pitch + c] += i64(bits_of(shifted)) - offset;
            y = (y - (shifted - ROUNDER)) * LIMB_SCALE;
        }
    }
    return bad != 0;
}

FPNA_CLONES bool encode_row_float(const float *x, std::size_t n, double f, double g, i64 *out, std::size_t pitch) {
    return encode_row<1>(x, n, f, g, out, pitch);
}

FPNA_CLONES bool encode_row_double(const double *x, std::size_t n, double f, double g, i64 *out, std::size_t pitch) {
    return encode_row<2>(x, n, f, g, out, pitch);
}

inline bool encode(const float *x, std::size_t n, double f, double g, i64 *out, std::size_t pitch) {
    return encode_row_float(x, n, f, g, out, pitch);
}

inline bool encode(const double *x, std::size_t n, double f, double g, i64 *out, std::size_t pitch) {
    return encode_row_double(x, n, f, g, out, pitch);
}

// x (rows, columns) summed over its rows into out (limbs, columns). Narrow x is read as fewer, wider rows, which
// are folded at the end: integers do not mind.
template <typename T>
bool fixed_encode(const T *x, std::size_t rows, std::size_t columns, int exponent, i64 *out) {
    constexpr int limbs = sizeof(T) == 4 ? 1 : 2;
    constexpr std::size_t WIDE = 64;
    const int shift = LIMB - exponent;
    const double f = std::ldexp(1.0, shift >> 1), g = std::ldexp(1.0, shift - (shift >> 1));
    bool bad = false;
    if (columns > 0 && columns <= WIDE / 2 && rows >= WIDE) {
        const std::size_t fold = WIDE / columns, width = fold * columns;
        i64 wide[limbs * WIDE] = {};
        for (; rows >= fold; rows -= fold, x += width) bad |= encode(x, width, f, g, wide, WIDE);
        for (int k = 0; k < limbs; ++k)
            for (std::size_t i = 0; i < width; ++i) out[k * columns + i % columns] += wide[k * WIDE + i];
    }
    for (; rows > 0; --rows, x += columns) bad |= encode(x, columns, f, g, out, columns);
    return bad;
}

// Rounds once, to the precision of normal numbers, and scales by f * g. Scaling is exact: a sum so small that it
// is subnormal has no bits below the lowest one of its type, for its elements have none, and was not rounded.
FPNA_CLONES void decode_float(const i64 *words, std::size_t n, double f, double g, float *out) {
    for (std::size_t i = 0; i < n; ++i) out[i] = float(double(float(words[i])) * f * g);
}

FPNA_CLONES void decode_double(const i64 *words, std::size_t n, double f, double g, double *out) {
    for (std::size_t i = 0; i < n; ++i) {
        const i64 low = words[n + i], high = words[i] + (low >> LIMB);
        const double leading = double(high);  // the error of this is below 2^10, so that `rest` is below 2^53
        const i64 rest = ((high - i64(leading)) << LIMB) + (low & ((i64(1) << LIMB) - 1));
        out[i] = (leading * LIMB_SCALE + double(rest)) * f * g;
    }
}

inline void decode(const i64 *words, std::size_t n, double f, double g, float *out) {
    decode_float(words, n, f, g, out);
}

inline void decode(const i64 *words, std::size_t n, double f, double g, double *out) {
    decode_double(words, n, f, g, out);
}

template <typename T>
void fixed_decode(const i64 *words, std::size_t n, int exponent, T *out) {
    const int unit = exponent - LIMB * (sizeof(T) == 4 ? 1 : 2);
    decode(words, n, std::ldexp(1.0, unit >> 1), std::ldexp(1.0, unit - (unit >> 1)), out);
}

// ---------------------------------------------------------------- the sum of one array

constexpr int SCALED_BY = 64;  // where the first rounder would overflow; what underflows is far below half a unit
constexpr std::size_t LOOKED_AT = 64;  // tiles of a long array among which the largest element is guessed

template <typename Element>
constexpr int LIMBS = sizeof(Element) == 8 ? 2 : 1;

struct Largest {
    u64 most = 0;
    long long special[3] = {};
};

struct Fixed {
    Wide sum[2];
    u64 most = 0;  // largest |x| as bits; where it is not below 2^exponent the sums mean nothing
};

// The least e with |x| < 2^e, given the bits of |x|.
int exponent_above(u64 most) {
    int exponent;
    std::frexp(double_of_bits(most), &exponent);
    return exponent;
}

// The largest term of every `step`-th tile.
template <typename Element>
Largest largest_term(const Terms<Element> &terms, std::size_t n, int threads, std::size_t step) {
    return in_parts(
        n, sizeof(Element), threads, Largest{},
        [&](Largest &found, std::size_t begin, std::size_t end) {
            for (std::size_t i = begin; i < end; i += step * TILE)
                for_tiles<false>(terms, i, step == 1 ? end : std::min(end, i + TILE), [&](const auto &tile) {
                    const u64 most = largest(tile.values, tile.n);
                    if (most >= INFINITE)
                        count_special(tile.values, tile.n, found.special);
                    else
                        found.most = std::max(found.most, most);
                });
        },
        [](Largest &into, const Largest &found) {
            into.most = std::max(into.most, found.most);
            for (int k = 0; k < 3; ++k) into.special[k] += found.special[k];
        });
}

template <typename Element>
int unit(int exponent, int limb) {
    return std::max(exponent - LIMB * (limb + 1), LOWEST_UNIT);
}

// Each term rounded to a multiple of 2^(exponent - LIMB * LIMBS), and the largest of all; errors of products likewise.
template <typename Element>
Fixed add_up(const Terms<Element> &terms, std::size_t n, int threads, int exponent) {
    constexpr int limbs = LIMBS<Element>;
    const int down = exponent - LIMB > HIGHEST_UNIT ? SCALED_BY : 0;
    double rounders[limbs];
    for (int k = 0; k < limbs; ++k) rounders[k] = rounder(unit<Element>(exponent, k) - down);
    const auto add_tile = [&](Fixed &state, const auto &tile) {
        // Errors are below 2^-53 of the largest, hence below half a unit of the first limb.
        const auto add_numbers = [&](const auto *x) {
            const Slices slices = cut<limbs, false>(x, tile.n, rounders);
            for (int k = 0; k < limbs; ++k) add(state.sum[k], slices.sum[k]);
            state.most = std::max(state.most, slices.most);
        };
        const auto add_errors = [&](const double *x) {
            add(state.sum[limbs - 1], cut<1, false>(x, tile.n, rounders + limbs - 1).sum[0]);
        };
        if (!down) {
            add_numbers(tile.values);
            if (tile.errors) add_errors(tile.errors);
            return;
        }
        double scaled[TILE];
        scale(tile.values, tile.n, std::ldexp(1.0, -down), scaled);
        add_numbers(scaled);
        if (!tile.errors) return;
        scale(tile.errors, tile.n, std::ldexp(1.0, -down), scaled);
        add_errors(scaled);
    };
    return in_parts(
        n, sizeof(Element), threads, Fixed{},
        [&](Fixed &state, std::size_t begin, std::size_t end) {
            for_tiles(terms, begin, end, [&](const auto &tile) { add_tile(state, tile); });
        },
        [](Fixed &into, const Fixed &state) {
            for (int k = 0; k < limbs; ++k) add(into.sum[k], state.sum[k]);
            into.most = std::max(into.most, state.most);
        });
}

// The unit follows the largest term, which is looked for in a part of the tiles. Mostly that finds its exponent, and one
// pass adds all up; where that pass meets a larger one, it has found the largest of all, and a second one adds.
template <typename Element>
Accumulator<Element> fixed_point(const Terms<Element> &terms, std::size_t n, int threads) {
    constexpr int limbs = LIMBS<Element>;
    const std::size_t tiles = (n + TILE - 1) / TILE;
    Largest found = largest_term(terms, n, threads, std::max(tiles / LOOKED_AT, tiles > 4 ? std::size_t(4) : 1));
    int exponent = exponent_above(found.most);
    Fixed total;
    bool done = false;
    if (exponent - LIMB <= HIGHEST_UNIT) {  // else the numbers are scaled, and what is the largest does not show
        total = add_up(terms, n, threads, exponent);
        found.most = total.most;
        done = total.most < INFINITE && exponent_above(total.most) == exponent;
    } else {
        found.most = INFINITE;
    }
    if (!done) {
        if (found.most >= INFINITE) found = largest_term(terms, n, threads, 1);
        long long words[WORDS] = {};
        std::copy(found.special, found.special + 3, words + NOT_A_NUMBER);
        if (found.special[0] || found.special[1] || found.special[2])
            return round_words<Accumulator<Element>>(words, words);
        exponent = exponent_above(found.most);
        total = add_up(terms, n, threads, exponent);
    }
    long long words[WORDS] = {};
    for (int k = 0; k < limbs; ++k) deposit_units(words, total.sum[k], unit<Element>(exponent, k));
    return round_words<Accumulator<Element>>(words, words);
}

using words_t = py::array_t<i64, py::array::c_style>;

template <typename T>
bool is(const py::array &a) {
    return py::isinstance<py::array_t<T, py::array::c_style>>(a);
}

}  // namespace

void register_fixed_point(Module &m) {
    // The shapes are checked in kernels/exact/fixedpoint.py.
    m.def("fixed_exponent", [](py::array x) {
        return is<float>(x) ? fixed_exponent(static_cast<const float *>(x.data()), x.size())
                            : fixed_exponent(static_cast<const double *>(x.data()), x.size());
    });
    m.def("fixed_encode", [](py::array x, int exponent, words_t out) {
        const std::size_t rows = x.shape(0), columns = rows ? x.size() / rows : 0;
        i64 *o = out.mutable_data();
        return is<float>(x) ? fixed_encode(static_cast<const float *>(x.data()), rows, columns, exponent, o)
                            : fixed_encode(static_cast<const double *>(x.data()), rows, columns, exponent, o);
    });
    m.def("fixed_decode", [](words_t words, int exponent, py::array out) {
        if (is<float>(out))
            fixed_decode(words.data(), out.size(), exponent, static_cast<float *>(out.mutable_data()));
        else
            fixed_decode(words.data(), out.size(), exponent, static_cast<double *>(out.mutable_data()));
    }, py::arg("words").noconvert(), py::arg("exponent"), py::arg("out"));
    define_order_free(m, "fixed_point",
                      [](auto terms, std::size_t n, int threads) { return fixed_point(terms, n, threads); });
}
