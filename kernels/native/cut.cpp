// Eight numbers at a time: the compiler maps these vectors to the registers of each clone. All sums are of integers,
// so that every width gives the same.
#include "cut.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "arrays.hpp"

namespace {

constexpr std::size_t WIDTH = 8, ROW = 64;
typedef double Numbers __attribute__((vector_size(64)));
typedef unsigned long long Bits __attribute__((vector_size(64)));
typedef long long Signed __attribute__((vector_size(64)));

inline __attribute__((always_inline)) void load(Numbers &v, const double *x) { std::memcpy(&v, x, sizeof v); }

// One by one, which compilers turn into a conversion of the whole vector; __builtin_convertvector goes by halves.
template <typename Vector, typename From>
inline __attribute__((always_inline)) void convert(Vector &to, const From &x) {
    to = Vector{x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]};
}

inline __attribute__((always_inline)) void load(Numbers &v, const float *x) { convert(v, x); }

// As `widen` in elements.hpp, for eight.
template <typename Half>
inline __attribute__((always_inline)) void load(Numbers &v, const Half *x) {
    typedef unsigned Words __attribute__((vector_size(32)));
    typedef float Floats __attribute__((vector_size(32)));
    unsigned short halves[WIDTH];
    std::memcpy(halves, x, sizeof halves);
    Words bits, wide;
    convert(bits, halves);
    if constexpr (std::is_same_v<Half, bfloat16>) {
        wide = bits << 16;
    } else {
        const Words magnitude = (bits & 0x7FFF) << 13;
        const Floats number = (Floats)magnitude * 0x1p112f;
        wide = magnitude >= 0x0F800000 ? magnitude | 0x7F800000 : (Words)number;
        wide |= (bits & 0x8000) << 16;
    }
    convert(v, (Floats)wide);
}

// The last numbers, and zeros.
template <typename Number>
inline __attribute__((always_inline)) void load_some(Numbers &v, const Number *x, std::size_t n) {
    Number some[WIDTH] = {};
    std::memcpy(some, x, n * sizeof *x);
    load(v, some);
}

// Prefetches 16 KiB ahead: the hardware alone looks less far ahead, and leaves part of the memory bandwidth of a core
// unused.
template <typename Number>
inline __attribute__((always_inline)) void fetch_ahead(const Number *x) {
    __builtin_prefetch(reinterpret_cast<const char *>(x) + (16 << 10));
}

inline __attribute__((always_inline)) void take_most(Signed &most, const Numbers &v) {
    const Signed magnitude = (Signed)v & ~(1ll << 63);
    most = magnitude > most ? magnitude : most;
}

inline u64 most_of(const Signed &most) {
    long long m = 0;
    for (std::size_t l = 0; l < WIDTH; ++l) m = most[l] > m ? most[l] : m;
    return u64(m);
}

// f(i) for all i, in rows of 64, each prefetched in time.
template <typename Number, typename F>
inline __attribute__((always_inline)) void for_rows(const Number *a, const Number *b, std::size_t n, F &&f) {
    constexpr std::size_t LINE = 64 / sizeof(Number);
    std::size_t i = 0;
    for (; i + ROW <= n; i += ROW) {
        for (std::size_t k = 0; k < ROW; k += LINE) {
            fetch_ahead(a + i + k);
            fetch_ahead(b + i + k);
        }
#pragma GCC ivdep
        for (std::size_t k = i; k < i + ROW; ++k) f(k);
    }
    for (; i < n; ++i) f(i);
}

}  // namespace

template <typename Number>
FPNA_CLONES u64 largest(const Number *x, std::size_t n) {
    Signed most = {};
    Numbers v;
    std::size_t i = 0;
#pragma GCC unroll 4
    for (; i + WIDTH <= n; i += WIDTH) {
        fetch_ahead(x + i);
        load(v, x + i);
        take_most(most, v);
    }
    load_some(v, x + i, n - i);
    take_most(most, v);
    return most_of(most);
}

template <int COUNT, bool REST, typename Number>
FPNA_CLONES Slices cut(const Number *x, std::size_t n, const double *rounders) {
    Numbers rounder[COUNT], v;
    for (int k = 0; k < COUNT; ++k) rounder[k] = Numbers{} + rounders[k];
    Bits sum[COUNT] = {}, rest = {}, last = {};
    Signed most = {};
    const auto take = [&]() __attribute__((always_inline)) {
        take_most(most, v);
        for (int k = 0; k < COUNT; ++k) {
            if (REST && k > 1 && k == COUNT - 1) last |= (Bits)v;
            slice(v, rounder[k], sum[k]);
        }
        if (REST) rest |= (Bits)v;
    };
    std::size_t i = 0;
#pragma GCC unroll 4
    for (; i + WIDTH <= n; i += WIDTH) {
        fetch_ahead(x + i);
        load(v, x + i);
        take();
    }
    load_some(v, x + i, n - i);
    take();

    Slices found = {};
    const std::size_t count = i / WIDTH + 1;
    u64 any_rest = 0, any_last = 0;
    for (int k = 0; k < COUNT; ++k) {
        unsigned long long bits = 0;
        for (std::size_t l = 0; l < WIDTH; ++l) bits += sum[k][l];
        found.sum[k] = in_units(bits, rounders[k], count * WIDTH);
    }
    for (std::size_t l = 0; l < WIDTH; ++l) {
        any_rest |= rest[l];
        any_last |= last[l];
    }
    found.most = most_of(most);
    found.rest = any_rest << 1;  // zeros of either sign are none
    found.last = any_last << 1;
    return found;
}

template <int COUNT, typename Number>
FPNA_CLONES std::size_t remainders(const Number *x, std::size_t n, const double *rounders, double *rest) {
    for (std::size_t i = 0; i < n; ++i) {
        double v = widen(x[i]);
        for (int k = 0; k < COUNT; ++k) v -= (v + rounders[k]) - rounders[k];
        rest[i] = v;
    }
    std::size_t found = 0;
    for (std::size_t from = 0; from < n; from += ROW) {
        const std::size_t to = std::min(n, from + ROW);
        u64 any = 0;
        for (std::size_t i = from; i < to; ++i) any |= bits_of(rest[i]) << 1;
        if (!any) continue;
        for (std::size_t i = from; i < to; ++i) {
            const double v = rest[i];
            rest[found] = v;
            found += bits_of(v) << 1 != 0;
        }
    }
    return found;
}

template <typename Number>
FPNA_CLONES double plain_sum(const Number *x, std::size_t n) {
    double lane[ROW] = {};
    std::size_t i = 0;
    for (; i + ROW <= n; i += ROW)
        for (std::size_t l = 0; l < ROW; ++l) lane[l] += widen(x[i + l]);
    for (std::size_t l = 0; i + l < n; ++l) lane[l] += widen(x[i + l]);
    for (std::size_t w = ROW / 2; w > 0; w /= 2)
        for (std::size_t l = 0; l < w; ++l) lane[l] += lane[l + w];
    return lane[0];
}

template <typename Number>
FPNA_CLONES void scale(const Number *x, std::size_t n, double by, double *to) {
    for (std::size_t i = 0; i < n; ++i) to[i] = widen(x[i]) * by;
}

FPNA_CLONES void two_products(const double *a, const double *b, std::size_t n, double *p, double *e) {
    for_rows(a, b, n, [=](std::size_t i) __attribute__((always_inline)) {
        const double product = a[i] * b[i], error = std::fma(a[i], b[i], -product);
        p[i] = product;
        e[i] = std::fabs(product) <= std::numeric_limits<double>::max() ? error : 0.0;
    });
}

template <typename Number>
FPNA_CLONES void products(const Number *a, const Number *b, std::size_t n, double *p) {
    for_rows(a, b, n, [=](std::size_t i) __attribute__((always_inline)) {
        p[i] = double(widen(a[i])) * double(widen(b[i]));
    });
}

template double plain_sum(const float *, std::size_t);
template double plain_sum(const float16 *, std::size_t);
template double plain_sum(const bfloat16 *, std::size_t);

#define FOR_ALL_TYPES(Number)                                                                  \
    template u64 largest(const Number *, std::size_t);                                         \
    template Slices cut<1, false>(const Number *, std::size_t, const double *);                \
    template Slices cut<2, false>(const Number *, std::size_t, const double *);                \
    template Slices cut<3, false>(const Number *, std::size_t, const double *);                \
    template Slices cut<2, true>(const Number *, std::size_t, const double *);                 \
    template Slices cut<3, true>(const Number *, std::size_t, const double *);                 \
    template Slices cut<4, true>(const Number *, std::size_t, const double *);                 \
    template std::size_t remainders<2>(const Number *, std::size_t, const double *, double *); \
    template std::size_t remainders<3>(const Number *, std::size_t, const double *, double *); \
    template std::size_t remainders<4>(const Number *, std::size_t, const double *, double *); \
    template void scale(const Number *, std::size_t, double, double *);                        \
    template void products(const Number *, const Number *, std::size_t, double *);

FOR_ALL_TYPES(double)
FOR_ALL_TYPES(float)
FOR_ALL_TYPES(float16)
FOR_ALL_TYPES(bfloat16)
