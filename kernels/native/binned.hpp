// The binned sum (docs/reference/definitions.md): every element is rounded to a unit that the largest element fixes, in
// one pass.
//
// Levels cut the binary digits every 40, at fixed places: a slice at level L is a multiple of 2^(40 L). With j the
// level of the largest element so far, |x| < 2^(40 (j + 1) - 1), each element is cut at levels j, j - 1 and j - 2, and
// the slices of each level are added apart, in integers.
//
// The sum does not depend on when the largest element comes. Let R_L(x) be x rounded to a multiple of 2^(40 L), ties to
// even. Claim: of the slices q_j, q_(j-1), ... of x, those down to level L add up to R_L(x). For L > j there are none,
// and R_L(x) is 0, as |x| is less than half of 2^(40 L): without that one bit to spare, elements could round up to a
// level at which they have no slice. For L = j this is what a slice is. If it holds for L + 1, then what is left to be
// cut is x - R_(L+1)(x), and the next slice R_L(x - R_(L+1)(x)). R_(L+1)(x) is a multiple of 2^(40 (L + 1)), that is an
// even number of units of level L; rounding to those commutes with adding it, ties included. So the slices add up to
// R_L(x). In short: the point where the cutting began does not show, and dropping the lower slices leaves the element
// rounded once to the higher unit, not twice. Therefore, when the level of the largest rises from j to j', the sums
// of slices below j' - 2 are dropped, those that remain are the sums of R_(j'-2) over all elements before, and later
// elements are rounded to the same unit. For the same reason merging is associative and commutative. It needs a fixed
// grid of levels: with units that follow the largest element digit by digit, a slice could not be cut again.
#pragma once

#include "../include/slices.hpp"

constexpr int LEVEL_BITS = 40;
constexpr int LOWEST_LEVEL = -27, HIGHEST_LEVEL = 25;  // of float64: 2^-1074 and 2^1023
// From this level on the rounder would overflow, and elements are scaled by 2^-80, two levels. What underflows then is
// far below half a unit.
constexpr int SCALED_LEVEL = 25, SCALED_BY = 2;
constexpr int SLICES = 3;

struct Binned {
    int level;          // that of the largest element; LOWEST_LEVEL if all are zero
    Wide sum[SLICES];   // of the slices at level, level - 1, level - 2, in units of these
    long long special[3];  // numbers of NaN, +inf, -inf. Where there are any, the sums mean nothing.
};

FPNA_POINT Binned nothing_binned() { return {LOWEST_LEVEL, {}, {}}; }

// floor(e / 40), e the least with |x| < 2^e, given the bits of |x| finite; for zero the lowest. Digits that float64 does
// not have are zero, so that levels below the lowest unit are all multiples of that.
FPNA_POINT int level_of(unsigned long long magnitude) {
    const int biased = int(magnitude >> 52);
    if (biased == 0) return magnitude >> 33 ? LOWEST_LEVEL + 1 : LOWEST_LEVEL;  // 2^-1041 is that far up
    return (biased - 1022 + 40 * 27) / 40 - 27;
}

FPNA_POINT int unit_of(int level) {
    return LEVEL_BITS * level > LOWEST_UNIT ? LEVEL_BITS * level : LOWEST_UNIT;
}

// The factor of elements before they are cut: exact, or without effect on their slices.
FPNA_POINT double scale_at(int level) { return level < SCALED_LEVEL ? 1.0 : power_of_two(-LEVEL_BITS * SCALED_BY); }

// The rounder of slice k = 0, 1, 2 where the largest is at `level`.
FPNA_POINT double rounder_at(int level, int k) {
    return rounder(unit_of((level < SCALED_LEVEL ? level : level - SCALED_BY) - k));
}

// Makes room for elements up to `level`. No effect where there is room.
FPNA_POINT void raise(Binned &state, int level) {
    const int by = level - state.level;
    if (by <= 0) return;
    for (int k = SLICES - 1; k >= 0; --k) state.sum[k] = k >= by ? state.sum[k - by] : Wide{0, 0};
    state.level = level;
}

FPNA_POINT void merge(Binned &into, Binned other) {
    raise(other, into.level);
    raise(into, other.level);
    for (int k = 0; k < SLICES; ++k) {
        add(into.sum[k], other.sum[k]);
        into.special[k] += other.special[k];
    }
}
