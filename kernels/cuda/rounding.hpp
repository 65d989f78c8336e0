// From words of many bits to the nearest number of a type, once: ties to even, beyond the largest an infinity.
#pragma once
#include "../native/rounding.hpp"
#include "portable.hpp"

__device__ inline int bit_length(u64 x) {
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
__device__ void carry(i64 *words) {
    for (int i = 0; i + 1 < COUNT; ++i) {
        words[i + 1] += words[i] >> RADIX;
        words[i] &= (i64(1) << RADIX) - 1;
    }
}

// The sum of words[i] 2^(unit + RADIX i); the words are used up.
template <typename Number, int RADIX, int COUNT>
__device__ Number round_words(i64 *words, int unit) {
    carry<RADIX, COUNT>(words);
    const bool negative = words[COUNT - 1] < 0;
    if (negative) {
        for (int i = 0; i < COUNT; ++i) words[i] = -words[i];
        carry<RADIX, COUNT>(words);
    }
    int at = COUNT - 1;
    while (at > 0 && words[at] == 0) --at;

    // The leading 64 bits as `window` 2^lowest, and whether there is anything below.
    u64 window = u64(words[at]);
    int lowest = unit + RADIX * at, room = 64 - bit_length(window);
    bool below = false;
    while (at > 0) {
        const u64 next = u64(words[--at]);
        const int take = room < RADIX ? room : RADIX;
        window = take ? window << take | next >> (RADIX - take) : window;
        below = below || (next & ((u64(1) << (RADIX - take)) - 1)) != 0;
        lowest -= take;
        room -= take;
    }

    if (window == 0) return 0;
    const int zeros = 64 - bit_length(window);  // none where there is anything below
    return with_sign<Number>(nearest<Number>(window << zeros, below, lowest - zeros), negative);
}
