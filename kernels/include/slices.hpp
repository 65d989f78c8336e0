// Cuts float64 numbers into slices that are added as integers.
//
// A slice of v is v rounded to a multiple of 2^unit, ties to even: v + rounder(unit) has it in its low bits, as its
// last place is one unit. The bits of neighbouring numbers are neighbouring integers. So adding the bits of v +
// rounder, modulo 2^64, and subtracting those of the rounders adds the slices in units. Nothing is rounded, so the
// order is free, and the number of slices has no limit while the sum of units stays below 2^63. It needs |v| < 2^(unit
// + 51). The rest, v - slice, is exact, and the next rounder cuts it.
#pragma once

#include "bits.hpp"

constexpr int LOWEST_UNIT = -1074;   // all float64 are multiples of 2^-1074
constexpr int HIGHEST_UNIT = 971;    // the rounder of the next would be infinite
constexpr unsigned long long INFINITE = 0x7FFull << 52;  // bits of infinity; those of |NaN| are above

// 2^exponent, for normal numbers.
FPNA_POINT double power_of_two(int exponent) { return double_of_bits((unsigned long long)(exponent + 1023) << 52); }

// 1.5 * 2^(52 + unit), LOWEST_UNIT <= unit <= HIGHEST_UNIT.
FPNA_POINT double rounder(int unit) { return 1.5 * power_of_two(52 + unit); }

// Takes the slice at `rounder` off v and adds its bits to `sum`. Number: double, or a vector of them; Integer:
// unsigned, of the same size.
template <typename Number, typename Integer>
FPNA_POINT void slice(Number &v, const Number &rounder, Integer &sum) {
    union {
        Number number;
        Integer bits;
    } shifted = {v + rounder};
    sum += shifted.bits;
    v -= shifted.number - rounder;
}

// The sum of `count` slices in units, from that of the bits.
FPNA_POINT long long in_units(unsigned long long bits, double rounder, unsigned long long count) {
    return (long long)(bits - count * bits_of(rounder));
}

// A wide sum of integers: low + 2^32 high. Halves are added separately, so that wide sums can be added in any order, as
// integers; they have room for 2^31 additions.
struct Wide {
    long long low, high;
};

FPNA_POINT void add(Wide &sum, long long value) {
    sum.low += value & 0xFFFFFFFF;
    sum.high += value >> 32;
}

FPNA_POINT void add(Wide &sum, const Wide &other) {
    sum.low += other.low;
    sum.high += other.high;
}
