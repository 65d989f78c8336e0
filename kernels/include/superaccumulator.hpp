// The superaccumulator (kernels/exact/superaccumulator.py): a sum as 67 chunks of 32 bits in 64-bit words, then the
// numbers of NaN, +inf and -inf.
#pragma once

#include "rounding.hpp"
#include "slices.hpp"

constexpr int CHUNKS = 67, NOT_A_NUMBER = 67, PLUS_INF = 68, MINUS_INF = 69, WORDS = 70;
constexpr int LOWEST = -1075;  // chunk i counts multiples of 2^(32 i + LOWEST)

// Adds x exactly. Chunks grow by less than 2^53: carried words have room for 512 additions, and then for the words of
// 2^20 others.
FPNA_POINT void deposit(long long *w, double x) {
    const unsigned long long bits = bits_of(x);
    const unsigned biased = (bits >> 52) & 0x7FF;
    unsigned long long mantissa = bits & ((1ull << 52) - 1);
    if (biased == 0x7FF) {
        w[mantissa ? NOT_A_NUMBER : bits >> 63 ? MINUS_INF : PLUS_INF] += 1;
        return;
    }
    mantissa |= (unsigned long long)(biased != 0) << 52;
    const unsigned exponent = biased + (biased == 0), chunk = exponent >> 5, shift = exponent & 31;
    const long long sign = -(long long)(bits >> 63);  // 0 or -1: (v ^ sign) - sign negates or not
    const long long low = (mantissa << shift) & 0xFFFFFFFF, high = mantissa >> (32 - shift);
    w[chunk] += (low ^ sign) - sign;
    w[chunk + 1] += (high ^ sign) - sign;
}

// Adds value * 2^unit exactly, unit >= LOWEST; chunks grow by less than 2^34, the last by the rest of the value.
FPNA_POINT void deposit_units(long long *w, long long value, int unit) {
    const int place = unit - LOWEST, chunk = place >> 5, shift = place & 31;
    const unsigned long long low = (unsigned long long)(value & 0xFFFFFFFF) << shift;
    const long long high = (long long)((unsigned long long)(value >> 32) << shift);
    const long long top = high >> 32;
    w[chunk] += low & 0xFFFFFFFF;
    w[chunk + 1] += (long long)(low >> 32) + (high & 0xFFFFFFFF);
    if (chunk + 2 < CHUNKS)
        w[chunk + 2] += top;
    else
        w[chunk + 1] += (long long)((unsigned long long)top << 32);
}

FPNA_POINT void deposit_units(long long *w, const Wide &value, int unit) {
    deposit_units(w, value.low, unit);
    deposit_units(w, value.high, unit + 32);
}

// Brings chunks 0 ... 65 into [0, 2^32), the sign into chunk 66.
FPNA_POINT void carry(long long *w) { carry<32, CHUNKS>(w); }

// The sum in `words`, which need not be carried, rounded once to nearest even. `w` is room for CHUNKS chunks, and may be
// the words themselves.
template <typename Float>
FPNA_POINT Float round_words(const long long *words, long long *w) {
    using F = Format<Float>;
    const unsigned long long infinite = (unsigned long long)(F::MOST + F::MOST + 1) << (F::DIGITS - 1);
    const bool nan = words[NOT_A_NUMBER], plus = words[PLUS_INF], minus = words[MINUS_INF];
    if (nan || (plus && minus)) return with_sign<Float>(infinite | 1ull << (F::DIGITS - 2), false);
    if (plus || minus) return with_sign<Float>(infinite, minus);
    for (int i = 0; i < CHUNKS; ++i) w[i] = words[i];
    return round_words<Float, 32, CHUNKS>(w, LOWEST);
}
