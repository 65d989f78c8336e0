// Slices of whole arrays on the CPU (slices.hpp).
#pragma once
#include <cstddef>
#include <cstdint>

#include "elements.hpp"
#include "slices.hpp"

using i64 = std::int64_t;
using u64 = std::uint64_t;

// Largest |x| as bits; those of infinity and NaN are above those of all numbers.
u64 largest(const double *x, std::size_t n);

struct Slices {
    i64 sum[3];  // in units of the rounders
    u64 most;    // largest |x| as bits. If it is too large for the first rounder, the sums mean nothing.
    bool rest;   // whether digits below the last slice are left, where that was asked
};

// Cut n numbers into 1, 2 or 3 slices each, by the rounders given.
Slices cut1(const double *x, std::size_t n, const double *rounders);
Slices cut2(const double *x, std::size_t n, const double *rounders);
Slices cut3(const double *x, std::size_t n, const double *rounders);

// These also look for a rest.
Slices cut2_rest(const double *x, std::size_t n, const double *rounders);
Slices cut3_rest(const double *x, std::size_t n, const double *rounders);

// What is left of each number.
void after_slices(const double *x, std::size_t n, const double *rounders, int count, double *rest);

// Adds the numbers of NaN, +inf and -inf in x to `special`.
void count_special(const double *x, std::size_t n, i64 *special);

void widen_all(const float *x, std::size_t n, double *to);
void widen_all(const float16 *x, std::size_t n, double *to);
void widen_all(const bfloat16 *x, std::size_t n, double *to);

// p = fl(ab), e = fl(ab - p) (TwoProduct); where p is not finite it has said all, and e is 0.
void two_products(const double *a, const double *b, std::size_t n, double *p, double *e);

// x *= y
void multiply(double *x, const double *y, std::size_t n);
void scale(const double *x, std::size_t n, double by, double *to);
