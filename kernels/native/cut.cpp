// Eight numbers at a time: the compiler maps these vectors to the registers of each clone. All sums are of integers,
// so that every width gives the same.
#include "cut.hpp"

#include <cmath>
#include <cstring>
#include <limits>

#include "native.hpp"

namespace {

constexpr std::size_t WIDTH = 8;
typedef double Numbers __attribute__((vector_size(64)));
typedef unsigned long long Bits __attribute__((vector_size(64)));
typedef long long Signed __attribute__((vector_size(64)));

inline __attribute__((always_inline)) void load(Numbers &v, const double *x) { std::memcpy(&v, x, sizeof v); }

// The last numbers, and zeros.
inline __attribute__((always_inline)) void load_some(Numbers &v, const double *x, std::size_t n) {
    v = Numbers{};
    std::memcpy(&v, x, n * sizeof *x);
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

// Cuts n numbers into COUNT slices each, by the rounders given.
template <int COUNT, bool REST>
inline __attribute__((always_inline)) Slices cut(const double *x, std::size_t n, const double *rounders) {
    Numbers rounder[COUNT], v;
    for (int k = 0; k < COUNT; ++k) rounder[k] = Numbers{} + rounders[k];
    Bits sum[COUNT] = {}, rest = {};
    Signed most = {};
    const auto take = [&]() __attribute__((always_inline)) {
        take_most(most, v);
        for (int k = 0; k < COUNT; ++k) slice(v, rounder[k], sum[k]);
        if (REST) rest |= (Bits)v;
    };
    std::size_t i = 0;
#pragma GCC unroll 4
    for (; i + WIDTH <= n; i += WIDTH) {
        load(v, x + i);
        take();
    }
    load_some(v, x + i, n - i);
    take();

    Slices found = {};
    const std::size_t count = i / WIDTH + 1;
    u64 any = 0;
    for (int k = 0; k < COUNT; ++k) {
        unsigned long long bits = 0;
        for (std::size_t l = 0; l < WIDTH; ++l) bits += sum[k][l];
        found.sum[k] = in_units(bits, rounders[k], count * WIDTH);
    }
    for (std::size_t l = 0; l < WIDTH; ++l) any |= rest[l];
    found.most = most_of(most);
    found.rest = any << 1;  // zeros of either sign are none
    return found;
}

template <typename Element>
inline __attribute__((always_inline)) void widen_here(const Element *x, std::size_t n, double *to) {
    for (std::size_t i = 0; i < n; ++i) to[i] = widen(x[i]);
}

}  // namespace

FPNA_CLONES u64 largest(const double *x, std::size_t n) {
    Signed most = {};
    Numbers v;
    std::size_t i = 0;
#pragma GCC unroll 4
    for (; i + WIDTH <= n; i += WIDTH) {
        load(v, x + i);
        take_most(most, v);
    }
    load_some(v, x + i, n - i);
    take_most(most, v);
    return most_of(most);
}

FPNA_CLONES Slices cut1(const double *x, std::size_t n, const double *rounders) {
    return cut<1, false>(x, n, rounders);
}

FPNA_CLONES Slices cut2(const double *x, std::size_t n, const double *rounders) {
    return cut<2, false>(x, n, rounders);
}

FPNA_CLONES Slices cut3(const double *x, std::size_t n, const double *rounders) {
    return cut<3, false>(x, n, rounders);
}

FPNA_CLONES Slices cut2_rest(const double *x, std::size_t n, const double *rounders) {
    return cut<2, true>(x, n, rounders);
}

FPNA_CLONES Slices cut3_rest(const double *x, std::size_t n, const double *rounders) {
    return cut<3, true>(x, n, rounders);
}

FPNA_CLONES void after_slices(const double *x, std::size_t n, const double *rounders, int count, double *rest) {
    for (std::size_t i = 0; i < n; ++i) {
        double v = x[i];
        for (int k = 0; k < count; ++k) v -= (v + rounders[k]) - rounders[k];
        rest[i] = v;
    }
}

void count_special(const double *x, std::size_t n, i64 *special) {
    for (std::size_t i = 0; i < n; ++i) {
        if (std::isfinite(x[i])) continue;
        special[std::isnan(x[i]) ? 0 : x[i] > 0 ? 1 : 2] += 1;
    }
}

FPNA_CLONES void widen_all(const float *x, std::size_t n, double *to) { widen_here(x, n, to); }

FPNA_CLONES void widen_all(const float16 *x, std::size_t n, double *to) { widen_here(x, n, to); }

FPNA_CLONES void widen_all(const bfloat16 *x, std::size_t n, double *to) { widen_here(x, n, to); }

FPNA_CLONES void two_products(const double *a, const double *b, std::size_t n, double *p, double *e) {
    for (std::size_t i = 0; i < n; ++i) {
        const double product = a[i] * b[i], error = std::fma(a[i], b[i], -product);
        p[i] = product;
        e[i] = std::fabs(product) <= std::numeric_limits<double>::max() ? error : 0.0;
    }
}

FPNA_CLONES void multiply(double *x, const double *y, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) x[i] *= y[i];
}

FPNA_CLONES void scale(const double *x, std::size_t n, double by, double *to) {
    for (std::size_t i = 0; i < n; ++i) to[i] = x[i] * by;
}
