// The 64-lane sum: lane l adds elements l, l + 64, l + 128, ... in ascending order, then a binary tree adds the
// lanes. It is what a GPU block of 64 threads does, and vectorises here without any reordering, so that the
// order depends on the number of elements alone. An absent tail element adds nothing.
#pragma once
#include <cstddef>

struct Lanes {
    static constexpr std::size_t WIDTH = 64;
    alignas(64) double lane[WIDTH] = {};
    std::size_t next = 0;  // lane of the next element

    // Adds n further elements: the sum does not depend on how the sequence is cut into calls.
    inline __attribute__((always_inline)) void add(const double *x, std::size_t n) {
        for_segments(n, [&](std::size_t from, double *to, std::size_t count) {
#pragma GCC ivdep
            for (std::size_t i = 0; i < count; ++i) to[i] += x[from + i];
        });
    }

    inline __attribute__((always_inline)) void add_products(const double *x, const double *y, std::size_t n) {
        for_segments(n, [&](std::size_t from, double *to, std::size_t count) {
#pragma GCC ivdep
            for (std::size_t i = 0; i < count; ++i) to[i] += x[from + i] * y[from + i];
        });
    }

    // Consumes the lanes.
    inline __attribute__((always_inline)) double total() {
        for (std::size_t w = WIDTH / 2; w > 0; w /= 2)
            for (std::size_t i = 0; i < w; ++i) lane[i] += lane[i + w];
        return lane[0];
    }

  private:
    template <typename Add>
    inline __attribute__((always_inline)) void for_segments(std::size_t n, Add &&add_segment) {
        std::size_t i = 0;
        if (next != 0 || n < WIDTH) {  // up to the end of the row of lanes
            while (i < n) {
                if (next == 0 && n - i >= WIDTH) break;
                const std::size_t count = n - i < WIDTH - next ? n - i : WIDTH - next;
                add_segment(i, lane + next, count);
                i += count;
                next = (next + count) % WIDTH;
            }
        }
        for (; i + WIDTH <= n; i += WIDTH) add_segment(i, lane, WIDTH);
        if (i < n) {
            add_segment(i, lane, n - i);
            next = n - i;
        }
    }
};

inline __attribute__((always_inline)) double lanes_sum(const double *x, std::size_t n) {
    Lanes lanes;
    lanes.add(x, n);
    return lanes.total();
}
