// Numbers into the words of a superaccumulator, a tile at a time (include/superaccumulator.hpp). The twin in NumPy is
// kernels/exact/reference.py; both give the same words.
//
// In the common case the numbers of a tile are added as a plain loop adds, once the upper 26 bits and once the bits below:
// float64 has room for such sums of numbers that are up to 15 binades apart. Whether every addition was without error the
// processor itself says, by its flags (and where it sets none, as under valgrind, nothing is added so); if not, the tile is
// cut into slices. The order of the additions is free, since no
// addition rounds. That takes four operations per vector, and a plain loop one: with vectors of eight and two operations
// at a time 1/4 of a cycle per element.
//
// Slices take, per vector, two operations for the largest, eight for two slices of 51 bits, and one to see whether
// anything is left. A tile's slices enter the words as two integers. Two slices hold numbers that are up to 48 binades
// apart, each of two more slices 51 binades more, for four operations and one.
#pragma once
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "../include/environment.hpp"
#include "tiles.hpp"
#include "words.hpp"

namespace superaccumulator {

constexpr int FIRST_SLICE = 50, SLICE = 51;  // bits; a tile of numbers below 2^e has a sum below 2^62 units
constexpr int HIGHEST = HIGHEST_UNIT + FIRST_SLICE;
constexpr int MOST_SLICES = 4;
constexpr std::size_t FEWEST = 32;  // numbers for which it pays to look at the flags, or for the largest
constexpr std::size_t FEW = 512;  // numbers that are added one by one in less time than sums of binades take to read

// The number of slices for the next tile, from the remainders of this one: one more if that helps most numbers that
// need it, or if many need it. If many need more than the most, the next tiles are not cut at all.
struct Depth {
    int slices = 2;

    // Numbers of a tile with a remainder (`left`), and with one even after one more slice (`deeper`). `last`: whether
    // the last slice took anything.
    std::size_t left = 0, deeper = 0;
    bool last = false;

    void follow(std::size_t n) {
        if (left > n / 8 || (slices < MOST_SLICES && 2 * deeper < left))
            slices = slices < MOST_SLICES ? slices + 1 : 0;
        else if (slices > 2 && !left && !last)
            --slices;
        left = deeper = 0;
        last = false;
    }

    void skip() {
        if (slices || ++skipped < SKIPPED) return;
        slices = MOST_SLICES;
        skipped = 0;
    }

  private:
    static constexpr int SKIPPED = 16;
    int skipped = 0;
};

// How many of the next numbers to add as a plain loop does: a tile at first, a stretch after tiles without error, and for
// some tiles none after one with an error, longer each time.
struct Plain {
    std::size_t next() {
        if (pause) return --pause, 0;
        if (!errors_show()) return 0;
        return proven ? STRETCH : TILE;
    }

    void tried(bool exact) {
        proven = exact;
        pause = after_error = exact ? 0 : std::min(2 * after_error + 1, LONGEST);
    }

  private:
    static constexpr int LONGEST = 15;
    bool proven = false;
    int pause = 0, after_error = 0;
};

// Words that take tiles, each as the tiles before suggest.
struct Tiled : Words {
    using Words::Words;

    u64 largest_before = 0;  // |x| of another tile, as bits
    Depth depth;
    Plain plain;
};

// e with |x| < 2^e, from the bits of |x|.
inline int exponent_above(u64 magnitude) { return int(magnitude >> 52) - 1022; }

// Where numbers below 2^(unit[0] + FIRST_SLICE) are cut. The errors of products begin with the second slice.
struct Cuts {
    int unit[MOST_SLICES + 1];
    double rounders[MOST_SLICES + 1];

    explicit Cuts(u64 most) {
        int to = exponent_above(most) - FIRST_SLICE;
        for (int k = 0; k <= MOST_SLICES; ++k, to -= SLICE) {
            unit[k] = std::max(to, LOWEST_UNIT);
            rounders[k] = rounder(unit[k]);
        }
    }
};

// f(std::integral_constant) of a number of slices.
template <typename F>
auto with_slices(int slices, F &&f) {
    switch (slices) {
        case 2: return f(std::integral_constant<int, 2>());
        case 3: return f(std::integral_constant<int, 3>());
        default: return f(std::integral_constant<int, MOST_SLICES>());
    }
}

template <typename Number>
Slices cut_into(int slices, const Number *x, std::size_t n, const double *rounders) {
    return with_slices(slices, [&](auto count) { return cut<count, true>(x, n, rounders); });
}

// Finite numbers, at most TILE.
template <typename Number>
void add_whole(Words &words, const Number *x, std::size_t n) {
    if (n < FEW) return words.add_each(x, n, 1);
    if constexpr (std::is_same_v<Number, double>) return words.add_binades(x, n);
    double wide[TILE];
    scale(x, n, 1.0, wide);
    words.add_binades(wide, n);
}

// Adds numbers in slices, and their remainders.
template <typename Number>
void add_cut(Tiled &words, const Number *x, std::size_t n, const Slices &slices, const Cuts &cuts, int first) {
    Depth &depth = words.depth;
    words.add_units(slices.sum, cuts.unit + first, depth.slices);
    depth.last |= slices.last;
    if (!slices.rest) return;
    double rest[TILE];
    const double *rounders = cuts.rounders + first, next = rounders[std::min(depth.slices, MOST_SLICES - 1)];
    const std::size_t left = with_slices(depth.slices, [&](auto k) { return remainders<k>(x, n, rounders, rest); });
    depth.left += left;
    for (std::size_t i = 0; i < left; ++i) depth.deeper += (rest[i] + next) - next != rest[i];
    add_whole(words, rest, left);
}

// Sums of parts of the numbers, by a plain loop. Returns their number.
template <typename Number>
int plain_sums(const Number *x, std::size_t n, double *sums) {
    if constexpr (std::is_same_v<Number, double>) {
        add_halves(x, n, sums);
        return 2;
    } else {
        sums[0] = plain_sum(x, n);
        return 1;
    }
}

// Adds at most STRETCH numbers, or a tile of products, if their plain sums have no error, and says whether it did.
template <typename Number>
bool add_plainly(Tiled &words, const Tile<Number> &tile) {
    double sums[2 * (STRETCH / TILE) + 2];
    int count = 0;
    ErrorFlags::clear();
    for (std::size_t i = 0; i < tile.n; i += TILE)
        count += plain_sums(tile.values + i, std::min(TILE, tile.n - i), sums + count);
    if (tile.errors) count += plain_sums(tile.errors, tile.n, sums + count);
    bool exact = !ErrorFlags::set();
    for (int k = 0; k < count; ++k) exact &= std::isfinite(sums[k]);
    if (exact) words.add_each(sums, std::size_t(count), 1);
    words.plain.tried(exact);
    return exact;
}

// Adds at most TILE numbers. They are cut by the largest of the tile before, and again if that was less than the
// largest here, or so much more that remainders are left.
template <typename Number>
void add_in_slices(Tiled &words, const Tile<Number> &tile) {
    const std::size_t n = tile.n;
    Depth &depth = words.depth;
    const bool guess = depth.slices && words.largest_before;
    u64 most = n < FEWEST ? INFINITE : guess ? words.largest_before : largest(tile.values, n);
    for (;;) {
        if (most >= INFINITE) {  // or NaN
            words.add_each(tile.values, n, 1);
            if (tile.errors) words.add_each(tile.errors, n, 1);
            return;
        }
        if (!depth.slices || exponent_above(most) > HIGHEST) {  // the rounder would be infinite
            add_whole(words, tile.values, n);
            if (tile.errors) add_whole(words, tile.errors, n);
            depth.skip();
            return;
        }
        const Cuts cuts(most);
        const Slices slices = cut_into(depth.slices, tile.values, n, cuts.rounders);
        const int too_high = exponent_above(most) - exponent_above(slices.most);
        if (too_high < 0 || (too_high > 0 && slices.rest)) {
            most = slices.most;
            continue;
        }
        words.largest_before = most;
        add_cut(words, tile.values, n, slices, cuts, 0);
        if (tile.errors)  // below 2^-53 of the largest, hence below half a unit of the first slice
            add_cut(words, tile.errors, n, cut_into(depth.slices, tile.errors, n, cuts.rounders + 1), cuts, 1);
        depth.follow(n);
        return;
    }
}

// Adds at most STRETCH numbers, or a tile of products.
template <typename Number>
void add(Tiled &words, const Tile<Number> &tile) {
    for (std::size_t i = 0; i < tile.n;) {
        const double *errors = tile.errors ? tile.errors + i : nullptr;
        Tile<Number> next{tile.values + i, errors, tile.n - i};
        const std::size_t plain = next.n < FEWEST ? 0 : words.plain.next();
        next.n = std::min(next.n, plain);
        if (!plain || !add_plainly(words, next)) {
            next.n = std::min(TILE, tile.n - i);
            add_in_slices(words, next);
        }
        i += next.n;
    }
}

template <typename Element>
void add(Tiled &words, const Terms<Element> &terms, std::size_t begin, std::size_t end) {
    for_tiles<true, STRETCH>(terms, begin, end, [&](const auto &tile) { add(words, tile); });
}

template <typename Element>
void add(long long *w, const Terms<Element> &terms, std::size_t begin, std::size_t end) {
    Tiled words(w);
    add(words, terms, begin, end);
    words.finish();
}

inline void add_column(long long *w, const double *x, std::size_t n, std::size_t stride) {
    if (stride == 1) return add(w, Terms<double>{x, nullptr}, 0, n);
    Words words(w);
    words.add_each(x, n, stride);
    words.finish();
}

}  // namespace superaccumulator
