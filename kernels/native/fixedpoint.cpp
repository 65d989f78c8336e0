// The sum of one array in fixed point, by threads. The twin in NumPy is kernels/exact/reference.py; both give the same bits.
//
// The sum mostly takes one pass over memory. Per element of float64, in vectors of eight: a load, two for the largest and
// seven for two slices (four of them additions of floating-point numbers).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "../include/superaccumulator.hpp"
#include "kernels.hpp"
#include "tiles.hpp"

namespace {

constexpr int LIMB = 42;  // bits of one limb

constexpr int SCALED_BY = 64;  // where the first rounder would overflow; what underflows is far below half a unit
constexpr std::size_t LOOKED_AT = 64;  // tiles of a long array that are searched for the largest element

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

// The unit follows the largest term, which is guessed from a part of the tiles. Mostly the guess has the right
// exponent, and one pass adds all terms. If that pass meets a larger term, it has found the largest of all, and a
// second pass adds.
template <typename Element>
Accumulator<Element> fixed_point_of(const Terms<Element> &terms, std::size_t n, int threads) {
    constexpr int limbs = LIMBS<Element>;
    const std::size_t tiles = (n + TILE - 1) / TILE;
    Largest found = largest_term(terms, n, threads, std::max(tiles / LOOKED_AT, tiles > 4 ? std::size_t(4) : 1));
    int exponent = exponent_above(found.most);
    Fixed total;
    bool done = false;
    if (exponent - LIMB <= HIGHEST_UNIT) {  // else the numbers are scaled, which hides the largest
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

}  // namespace

double fixed_point(const Array &x, const OtherFactor &y, const std::string &element, int threads) {
    return order_free(x, y, element, [threads](auto terms, std::size_t n) { return fixed_point_of(terms, n, threads); });
}
