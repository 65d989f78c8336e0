// Sums in lanes: lane l adds terms l, l + width, l + 2 width, ... in ascending order, then a binary tree adds the
// lanes. It is what a GPU block of `width` threads does, and vectorises here without any reordering, so that the
// order depends on the number of terms alone. An absent tail term adds nothing.
#pragma once
#include <cstddef>

#include "terms.hpp"

// Adds terms 0 ... n to the lanes, the first of them to lane 0.
template <typename Terms>
inline __attribute__((always_inline)) void add_rows(Sum<Terms> *lane, std::size_t width, Terms terms, std::size_t n) {
    std::size_t i = 0;
    for (; i + width <= n; i += width) {
        const Terms row = terms.from(i);
#pragma GCC ivdep
        for (std::size_t l = 0; l < width; ++l) lane[l] += row(l);
    }
    const Terms row = terms.from(i);
#pragma GCC ivdep
    for (std::size_t l = 0; l < n - i; ++l) lane[l] += row(l);
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

    // Consumes the lanes.
    inline __attribute__((always_inline)) double total() { return tree_over(lane, WIDTH); }

  private:
    template <typename Terms>
    inline __attribute__((always_inline)) void add_terms(Terms terms, std::size_t n) {
        std::size_t i = 0;
        if (next != 0) {  // up to the end of the row of lanes
            i = n < WIDTH - next ? n : WIDTH - next;
            add_rows(lane + next, WIDTH, terms, i);
            next = (next + i) % WIDTH;
        }
        if (i == n) return;
        add_rows(lane, WIDTH, terms.from(i), n - i);
        next = (n - i) % WIDTH;
    }
};
