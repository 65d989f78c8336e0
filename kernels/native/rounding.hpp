// Rounding once, to nearest even, in integers: shared by the C++ and the CUDA kernels.
#pragma once
#include "bits.hpp"

template <typename Float>
struct Format;

template <>
struct Format<double> {
    static constexpr int DIGITS = 53, LEAST = -1022, MOST = 1023;  // exponents of normal numbers
    FPNA_POINT static double of_bits(unsigned long long bits) { return double_of_bits(bits); }
};

template <>
struct Format<float> {
    static constexpr int DIGITS = 24, LEAST = -126, MOST = 127;
    FPNA_POINT static float of_bits(unsigned long long bits) { return float_of_bits(unsigned(bits)); }
};

template <typename Float>
FPNA_POINT Float with_sign(unsigned long long magnitude, bool negative) {
    return Format<Float>::of_bits(magnitude | (unsigned long long)(negative) << (sizeof(Float) * 8 - 1));
}

// leading * 2^exponent, and something below that if `sticky`, rounded to nearest even: the bits of a Float. The first
// bit of `leading` is set.
template <typename Float>
FPNA_POINT unsigned long long nearest(unsigned long long leading, bool sticky, int exponent) {
    using F = Format<Float>;
    const unsigned long long infinite = (unsigned long long)(F::MOST + F::MOST + 1) << (F::DIGITS - 1);
    const int first = exponent + 63;  // of the number: it is at least 2^first
    if (first > F::MOST) return infinite;
    int drop = 64 - F::DIGITS;
    unsigned long long bits = 0;
    if (first >= F::LEAST)
        bits = (unsigned long long)(first - F::LEAST) << (F::DIGITS - 1);  // the leading bit adds the missing 1
    else
        drop += F::LEAST - first;
    if (drop > 64) return 0;
    const unsigned long long kept = drop < 64 ? leading >> drop : 0;
    const unsigned long long half = 1ull << (drop - 1), rest = leading & (half | (half - 1));
    return bits + kept + (rest > half || (rest == half && (sticky || (kept & 1))));
}
