// Sums of the elements of one row for one instruction set: the files that need them include this one after
// contract_tiles.hpp (no include guard). Partial sum t has the terms t, t + SUMS, t + 2 SUMS, ...; the number of terms
// alone decides which.

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
