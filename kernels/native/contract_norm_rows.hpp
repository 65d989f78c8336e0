// The kernels of layer norm and softmax for one instruction set: contract_norm.cpp includes this file once for each, inside a
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

// Calls each(k, W{}) for all elements of a row: element k, or the vector that begins there.
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

#define FPNA_INLINE_CALL __attribute__((always_inline))
#define FPNA_EACH(W) [&](i64 k, auto tag) FPNA_INLINE_CALL { using W = decltype(tag);

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

// Calls each(k, count) for groups of SUMS elements of a row, of which the last has fewer.
template <typename Each>
FPNA_INLINE void in_groups(i64 n, Each each) {
    i64 k = 0;
    for (; k + SUMS <= n; k += SUMS) each(k, std::integral_constant<i64, SUMS>{});
    if (k < n) each(k, n - k);
}

// Elements k to k + count of a row and `fill` behind them, in vectors.
template <typename T, typename Count>
FPNA_INLINE void group_of(Vector<T> *to, const T *from, Count count, T fill) {
    T x[SUMS];
    for (i64 i = 0; i < SUMS; ++i) x[i] = fill;
    __builtin_memcpy(x, from, count * sizeof(T));
    __builtin_memcpy(to, x, sizeof x);
}

template <typename T>
void softmax(const Softmax<T> &of, i64 begin, i64 end) {
    constexpr int PARTS = VECTORS_OF_SUMS<T>;
    const T none = -T(__builtin_inff());
    const i64 n = of.columns;
    for (i64 r = begin; r < end; ++r) {
        const T *x = of.x + r * n;
        T *y = of.y + r * n;
        Vector<T> most[PARTS], sums[PARTS] = {}, now[PARTS];
        for (int p = 0; p < PARTS; ++p) most[p] = all(none);
        in_groups(n, [&](i64 k, auto count) FPNA_INLINE_CALL {
            group_of<T>(now, x + k, count, none);
            for (int p = 0; p < PARTS; ++p) most[p] = now[p] > most[p] ? now[p] : most[p];
        });
        const T top = joined<T>(most, [](T x, T y) { return x > y ? x : y; });
        in_groups(n, [&](i64 k, auto count) FPNA_INLINE_CALL {
            group_of<T>(now, x + k, count, none);
            for (int p = 0; p < PARTS; ++p) {
                now[p] = exponential<T>(now[p] - top);
                sums[p] = sums[p] + now[p];
            }
            if (!of.log) __builtin_memcpy(y + k, now, count * sizeof(T));
        });
        const T sum = joined<T>(sums, [](T x, T y) { return x + y; }), log = logarithm<T>(all(sum))[0];
        if (of.log)
            every<T>(n, FPNA_EACH(W) put(y + k, sum == sum ? (at<W>(x + k) - top) - log : W{} + sum); });  // log is of numbers
        else
            every<T>(n, FPNA_EACH(W) put(y + k, at<W>(y + k) / sum); });
    }
}

// Of softmax g y - y sum(g y), of its logarithm g - exp(y) sum(g).
template <typename T>
void softmax_slopes(const Softmax<T> &of, i64 begin, i64 end) {
    constexpr int PARTS = VECTORS_OF_SUMS<T>;
    const i64 n = of.columns;
    for (i64 r = begin; r < end; ++r) {
        const T *y = of.x + r * n, *slopes = of.slopes + r * n;
        T *to = of.y + r * n;
        if (!of.log) {
            const T sum = sum_of<T>(n, FPNA_EACH(W) return at<W>(slopes + k) * at<W>(y + k); });
            every<T>(n, FPNA_EACH(W) const W v = at<W>(y + k); put(to + k, at<W>(slopes + k) * v - v * sum); });
            continue;
        }
        const T sum = sum_of<T>(n, FPNA_EACH(W) return at<W>(slopes + k); });
        in_groups(n, [&](i64 k, auto count) FPNA_INLINE_CALL {
            Vector<T> powers[PARTS], own[PARTS];
            group_of<T>(powers, y + k, count, T(0));
            group_of<T>(own, slopes + k, count, T(0));
            for (int p = 0; p < PARTS; ++p) {
                own[p] = own[p] - exponential<T>(powers[p]) * sum;
                own[p] = own[p] == own[p] ? own[p] : all(T(__builtin_nanf("")));
            }
            __builtin_memcpy(to + k, own, count * sizeof(T));
        });
    }
}

#undef FPNA_EACH
#undef FPNA_INLINE_CALL

template <typename T>
void softmax_pass(const Softmax<T> &of, i64 begin, i64 end) {
    of.slopes ? softmax_slopes(of, begin, end) : softmax(of, begin, end);
}

template <typename T>
constexpr NormKernels<T> NORM_KERNELS = {normalised<T>, slopes_of<T>, softmax_pass<T>};
