// Slices of whole arrays on the CPU (slices.hpp).
#pragma once
#include <cstddef>
#include <cstdint>

#include "../include/elements.hpp"
#include "../include/slices.hpp"

using i64 = std::int64_t;
using u64 = std::uint64_t;

struct Slices {
    i64 sum[4];  // in units of the rounders
    u64 most;    // largest |x| as bits. If it is too large for the first rounder, the sums mean nothing.
    bool rest;   // whether digits below the last slice are left, if REST
    bool last;   // whether the last slice takes anything, if REST and there are more than two
};

// All of these read numbers of any type of element as float64.

// Largest |x| as bits; the bits of infinity and NaN are above all numbers.
template <typename Number>
u64 largest(const Number *x, std::size_t n);

// Cuts n numbers into COUNT slices each, by the given rounders. REST: whether to look for digits below them.
template <int COUNT, bool REST, typename Number>
Slices cut(const Number *x, std::size_t n, const double *rounders);

// The remainders of COUNT slices, without zeros, in the order of the numbers. Returns their number.
template <int COUNT, typename Number>
std::size_t remainders(const Number *x, std::size_t n, const double *rounders, double *rest);

// The sum of the upper 26 bits of each number, and that of the bits below, added in float64 in any order (halves.cpp).
// `level`: an instruction set of levels.hpp; -1: the best of this processor.
void add_halves(const double *x, std::size_t n, double *sums, int level = -1);

// Whether errors of additions show in the floating-point flags. Under valgrind and some emulators they do not.
bool errors_show();

// The sum of the numbers, added in float64 in any order. For types narrower than float64.
template <typename Number>
double plain_sum(const Number *x, std::size_t n);

template <typename Number>
void scale(const Number *x, std::size_t n, double by, double *to);

// Adds the numbers of NaN, +inf and -inf in x to `special`.
template <typename Number>
void count_special(const Number *x, std::size_t n, long long *special) {
    for (std::size_t i = 0; i < n; ++i) {
        const u64 bits = bits_of(widen(x[i])), magnitude = bits & ~(u64(1) << 63);
        if (magnitude >= INFINITE) special[magnitude > INFINITE ? 0 : bits == magnitude ? 1 : 2] += 1;
    }
}

// p = fl(ab), e = fl(ab - p) (TwoProduct); where p is not finite, e is 0.
void two_products(const double *a, const double *b, std::size_t n, double *p, double *e);

// p = fl(ab), which is exact for narrower types.
template <typename Number>
void products(const Number *a, const Number *b, std::size_t n, double *p);
