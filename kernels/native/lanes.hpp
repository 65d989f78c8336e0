// Sums in lanes: lane l adds terms l, l + width, l + 2 width, ... in ascending order, then a binary tree adds the
// lanes. A GPU block of `width` threads does the same. Here it vectorises without any reordering, so that the order
// depends on the number of terms alone. An absent tail term adds nothing.
#pragma once
#include <cstddef>

#include "terms.hpp"

// Adds terms 0 ... n - 1 to as many lanes.
template <typename Terms>
inline __attribute__((always_inline)) void add_row(Sum<Terms> *lane, Terms terms, std::size_t n) {
#pragma GCC ivdep
    for (std::size_t l = 0; l < n; ++l) lane[l] += terms(l);
}

// Adds terms 0 ... n - 1 to the lanes, row by row, the first of them to lane 0.
template <typename Terms>
inline __attribute__((always_inline)) void add_rows(Sum<Terms> *lane, std::size_t width, Terms terms, std::size_t n) {
    std::size_t i = 0;
    for (; i + width <= n; i += width) add_row(lane, terms.from(i), width);
    if (i < n) add_row(lane, terms.from(i), n - i);
}

// The tree over the lanes; consumes them. width: a power of two.
template <typename Accumulator>
inline __attribute__((always_inline)) Accumulator tree_over(Accumulator *lane, std::size_t width) {
    for (std::size_t w = width / 2; w > 0; w /= 2) {
#pragma GCC ivdep
        for (std::size_t i = 0; i < w; ++i) lane[i] += lane[i + w];
    }
    return lane[0];
}

// 64 lanes of float64 that take their terms in several calls: the sum does not depend on how they are cut.
struct Lanes {
    static constexpr std::size_t WIDTH = 64;
    alignas(64) double lane[WIDTH] = {};
    std::size_t next = 0;  // lane of the next term

    inline __attribute__((always_inline)) void add(const double *x, std::size_t n) {
        add_terms(Elements<double>{x}, n);
    }

    inline __attribute__((always_inline)) void add_products(const double *x, const double *y, std::size_t n) {
        add_terms(Products<double>{x, y}, n);
    }

    inline __attribute__((always_inline)) void add_products(const float *x, const float *y, std::size_t n) {
        add_terms(WideProducts<float>{x, y}, n);
    }

    // Consumes the lanes.
    inline __attribute__((always_inline)) double total() { return tree_over(lane, WIDTH); }

  private:
    template <typename Terms>
    inline __attribute__((always_inline)) void add_terms(Terms terms, std::size_t n) {
        std::size_t i = 0;
        if (next != 0) {  // up to the end of the row of lanes
            i = n < WIDTH - next ? n : WIDTH - next;
            add_row(lane + next, terms, i);
            next = (next + i) % WIDTH;
        }
        for (; i + WIDTH <= n; i += WIDTH) add_row(lane, terms.from(i), WIDTH);
        if (i < n) {
            add_row(lane, terms.from(i), n - i);
            next = n - i;
        }
    }
};
