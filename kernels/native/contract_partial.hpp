// Sums of the elements of one row, exponentials and logarithms for one instruction set: the files that need them include
// this one after contract_tiles.hpp (no include guard). Partial sum t has the terms t, t + SUMS, t + 2 SUMS, ...; the
// number of terms alone decides which.

template <typename T>
constexpr int VECTORS_OF_SUMS = int(SUMS) / LANES<T>;

template <typename T>
FPNA_INLINE Vector<T> all(T x) {
    return x - Vector<T>{};
}

// The partial sums, joined by halves: t and t + 8, then t and t + 4, ...
template <typename T, typename Join>
FPNA_INLINE T joined(T (&x)[SUMS], Join join) {
#pragma GCC unroll 4
    for (int half = int(SUMS) / 2; half > 0; half /= 2)
#pragma GCC unroll 8
        for (int t = 0; t < half; ++t) x[t] = join(x[t], x[t + half]);
    return x[0];
}

template <typename T, typename Join>
FPNA_INLINE T joined(const Vector<T> *parts, Join join) {
    T x[SUMS];
    for (int v = 0; v < VECTORS_OF_SUMS<T>; ++v) store<T>(x + v * LANES<T>, parts[v]);
    return joined(x, join);
}

// ---- exponentials and logarithms ----------------------------------------------------------------------------

template <typename T>
using Whole = typename Of<T>::Whole;
template <typename T>
constexpr int MANTISSA = sizeof(T) == 4 ? 23 : 52;

// 2^n of whole numbers n, given with Series::SHIFT added: n is then in the last bits.
template <typename V>
FPNA_INLINE V power_of_two(const V &shifted) {
    using T = std::decay_t<decltype(shifted[0])>;
    using Bits = std::conditional_t<sizeof(T) == 4, int, long long>;
    return (V)(((Whole<T>)shifted << MANTISSA<T>)+(Bits(sizeof(T) == 4 ? 127 : 1023) << MANTISSA<T>));
}

template <typename V>
FPNA_INLINE V split(const V &x, V &f) {
    using T = std::decay_t<decltype(x[0])>;
    using Bits = std::conditional_t<sizeof(T) == 4, int, long long>;
    constexpr Bits ROOT = sizeof(T) == 4 ? Bits(0x3f3504f3) : Bits(0x3fe6a09e667f3bcd);  // of 1/2
    const Whole<T> bits = (Whole<T>)x, e = (bits - ROOT) >> MANTISSA<T>;
    f = (V)(bits - (e << MANTISSA<T>));
    return __builtin_convertvector(e, V);
}

#define FPNA_EACH FPNA_INLINE
#include "../include/exponential.hpp"
#undef FPNA_EACH
