// The kernels of layer norm for one instruction set: contract_norm.cpp includes this file once for each, inside a
// namespace and under a target of its own (no include guard). `W` is a vector, or one element at the end of a row.
#include "contract_tiles.hpp"
#include "contract_partial.hpp"

template <typename W, typename T>
FPNA_INLINE W at(const T *from) {
    W v;
    __builtin_memcpy(&v, from, sizeof v);
    return v;
}

// Stores v with the one NaN without sign and payload.
template <typename W, typename T>
FPNA_INLINE void put(T *to, const W &v) {
    const W one = v == v ? v : W{} + T(__builtin_nanf(""));
    __builtin_memcpy(to, &one, sizeof one);
}

// Calls each(k, W{}) for the elements of a row from k on.
template <typename T, typename Each>
FPNA_INLINE void every(i64 n, Each each) {
    i64 k = 0;
    for (; k + LANES<T> <= n; k += LANES<T>) each(k, Vector<T>{});
    for (; k < n; ++k) each(k, T{});
}

// The sum of the terms term(k, W{}) of a row, in partial sums.
template <typename T, typename Term>
FPNA_INLINE T sum_of(i64 n, Term term) {
    constexpr int N = LANES<T>, PARTS = VECTORS_OF_SUMS<T>;
    Vector<T> parts[PARTS] = {};
    i64 k = 0;
    for (; k + SUMS <= n; k += SUMS)
#pragma GCC unroll 8
        for (int p = 0; p < PARTS; ++p) parts[p] = parts[p] + term(k + p * N, Vector<T>{});
    T sums[SUMS];
    for (int p = 0; p < PARTS; ++p) store<T>(sums + p * N, parts[p]);
    for (i64 t = 0; k < n; ++k, ++t) sums[t] = sums[t] + term(k, T{});
    return joined(sums, [](T x, T y) { return x + y; });
}

#define FPNA_EACH(W) [&](i64 k, auto tag) __attribute__((always_inline)) { using W = decltype(tag);

template <typename T>
void normalised(const Norm<T> &of, i64 begin, i64 end) {
    const i64 n = of.columns;
    for (i64 r = begin; r < end; ++r) {
        const T *x = of.x + r * n;
        T *y = of.y + r * n;
        const T mean = sum_of<T>(n, FPNA_EACH(W) return at<W>(x + k); }) / T(n);
        const T squares = sum_of<T>(n, FPNA_EACH(W) const W apart = at<W>(x + k) - mean; return apart * apart; });
        const T scale = T(1) / root(squares / T(n) + of.eps);
        every<T>(n, FPNA_EACH(W)
            W v = (at<W>(x + k) - mean) * scale;
            if (of.weight) v = v * at<W>(of.weight + k);
            if (of.bias) v = v + at<W>(of.bias + k);
            put(y + k, v);
        });
        put(of.mean + r, mean);
        put(of.scale + r, scale);
    }
}

template <typename T>
void slopes_of(const Norm<T> &of, i64 begin, i64 end, T *of_weight, T *of_bias) {
    const i64 n = of.columns;
    for (i64 r = begin; r < end; ++r) {
        const T *x = of.x + r * n, *slopes = of.slopes + r * n, mean = of.mean[r], scale = of.scale[r];
        const auto unit = FPNA_EACH(W) return (at<W>(x + k) - mean) * scale; };
        const auto slope = FPNA_EACH(W) const W v = at<W>(slopes + k); return of.weight ? v * at<W>(of.weight + k) : v; };
        if (of.of_x) {
            const T sum = sum_of<T>(n, slope);
            const T along = sum_of<T>(n, FPNA_EACH(W) return slope(k, W{}) * unit(k, W{}); });
            every<T>(n, FPNA_EACH(W)
                put(of.of_x + r * n + k, (slope(k, W{}) - (unit(k, W{}) * along + sum) / T(n)) * scale);
            });
        }
        if (of_weight)
            every<T>(n, FPNA_EACH(W) put(of_weight + k, at<W>(of_weight + k) + at<W>(slopes + k) * unit(k, W{})); });
        if (of_bias) every<T>(n, FPNA_EACH(W) put(of_bias + k, at<W>(of_bias + k) + at<W>(slopes + k)); });
    }
}

#undef FPNA_EACH

template <typename T>
constexpr NormKernels<T> NORM_KERNELS = {normalised<T>, slopes_of<T>};
