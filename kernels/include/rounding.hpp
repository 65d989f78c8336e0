// Rounding once, in integers, to the nearest number of a type: ties to even, beyond the largest an infinity. Shared by the
// C++ and the CUDA kernels.
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

// leading * 2^exponent, plus something below it if `sticky`, rounded to nearest even: the bits of a Float. The first
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

FPNA_POINT int bit_length(unsigned long long x) {
    int length = 0;
    for (int step = 32; step > 0; step /= 2)
        if (x >> step) {
            x >>= step;
            length += step;
        }
    return length + int(x);
}

// Brings all words but the last into [0, 2^RADIX); the last then has the sign.
template <int RADIX, int COUNT>
FPNA_POINT void carry(long long *words) {
    long long over = 0;
    for (int i = 0; i + 1 < COUNT; ++i) {
        const long long word = words[i] + over;
        over = word >> RADIX;
        words[i] = word & ((1ll << RADIX) - 1);
    }
    words[COUNT - 1] += over;
}

// The sum of words[i] 2^(unit + RADIX i); the words are used up.
template <typename Number, int RADIX, int COUNT>
FPNA_POINT Number round_words(long long *words, int unit) {
    carry<RADIX, COUNT>(words);
    const bool negative = words[COUNT - 1] < 0;
    if (negative) {
        for (int i = 0; i < COUNT; ++i) words[i] = -words[i];
        carry<RADIX, COUNT>(words);
    }
    int at = COUNT - 1;
    while (at > 0 && words[at] == 0) --at;

    // The leading 64 bits as `window` 2^lowest, and whether there is anything below.
    unsigned long long window = (unsigned long long)words[at];
    int lowest = unit + RADIX * at, room = 64 - bit_length(window);
    bool below = false;
    while (at > 0 && room > 0) {
        const unsigned long long next = (unsigned long long)words[--at];
        const int take = room < RADIX ? room : RADIX;
        window = window << take | next >> (RADIX - take);
        below = below || (next & ((1ull << (RADIX - take)) - 1)) != 0;
        lowest -= take;
        room -= take;
    }
    while (at > 0) below |= words[--at] != 0;

    if (window == 0) return with_sign<Number>(0, false);
    const int zeros = 64 - bit_length(window);  // none if anything is below
    return with_sign<Number>(nearest<Number>(window << zeros, below, lowest - zeros), negative);
}
