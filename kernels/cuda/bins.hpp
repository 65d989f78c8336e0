// Order-free sums in registers. Every element is cut into multiples of FOLD fixed powers of two, WIDTH bits apart below
// 2^top. Multiples of one power are added exactly, for at most 2^(52 - WIDTH) elements, so that their order cannot
// show. The part below the last power is rounded off, to nearest even, or returned.
//
// If `top` rises while elements come, the sum is still that of elements all cut from the last top. The reason: the cuts
// down to any power add up to x rounded once to that power. The rest is cut at an even multiple of the next power, so
// that ties go the same way. Nothing is missing above the first cut: |x| < 2^(top - 1) rounds to no multiple of 2^top
// but 0.
#pragma once
#include "portable.hpp"

// The high half of x without its sign: ordered as |x|, and enough to see its exponent.
__device__ inline unsigned magnitude(double x) { return unsigned(bits_of(x) >> 32) & 0x7FFFFFFFu; }

constexpr unsigned INFINITE = 0x7FF00000u;  // NaN is above it

template <int WIDTH_, int FOLD_>
struct Bins {
    static constexpr int WIDTH = WIDTH_, FOLD = FOLD_;
    // Above 2^HIGH a rounder would overflow: there all numbers are 2^SCALE times smaller, which loses nothing that
    // counts.
    static constexpr int HIGH = 1000, SCALE = 80;
    static constexpr double DOWN = 0x1p-80;

    int top;
    unsigned limit;  // magnitude of 2^(top - 1): elements that reach it ask for a larger top
    double rounder[FOLD], sum[FOLD];

    __device__ explicit Bins(int top_) {
        set_top(top_);
        for (double &s : sum) s = 0.0;
    }

    __device__ bool high() const { return top > HIGH; }
    __device__ int unit(int k) const { return top - WIDTH * (k + 1); }  // sum[k] counts multiples of 2^unit(k)

    // Cuts v, |v| < 2^top (times DOWN if high()); returns the rest.
    __device__ double add(double v) {
#pragma unroll
        for (int k = 0; k < FOLD; ++k) {
            const double q = (v + rounder[k]) - rounder[k];
            v -= q;
            sum[k] += q;
        }
        return v;
    }

    // Moves to a larger top, by a multiple of WIDTH; drop(number) is called for each sum that falls off the end.
    template <typename Drop>
    __device__ void rise(int wanted, Drop &&drop) {
        const double scale = wanted > HIGH && !high() ? DOWN : 1.0;
        for (int k = 0, by = (wanted - top) / WIDTH; k < by && k <= FOLD; ++k) {
            if (sum[FOLD - 1] != 0.0) drop(sum[FOLD - 1]);
#pragma unroll
            for (int m = FOLD - 1; m > 0; --m) sum[m] = sum[m - 1];
            sum[0] = 0.0;
        }
#pragma unroll
        for (int k = 0; k < FOLD; ++k) sum[k] *= scale;
        set_top(wanted);
    }

    // sum[k] in units of 2^unit(k).
    __device__ i64 word(int k) const { return i64(scaled(sum[k], (high() ? SCALE : 0) - unit(k))); }

  private:
    __device__ void set_top(int to) {
        top = to;
        limit = to > 1024 ? INFINITE : unsigned(to + 1022) << 20;
#pragma unroll
        for (int k = 0; k < FOLD; ++k) rounder[k] = scaled(1.5, 52 + unit(k) - (high() ? SCALE : 0));
    }
};

// The binned sum cuts at multiples of 40 bits, the same for all elements, with at least one bit between the
// largest and the top.
constexpr int LOWEST_TOP = -1000;  // below it there is nothing left to cut

__device__ inline int aligned_top(unsigned magnitude) { return 40 * (int((magnitude >> 20) + 98) / 40 - 27); }

// The least e with |x| < 2^e; for subnormal numbers that of the largest of them, since none of their bits is cut off.
__device__ inline int exponent(unsigned magnitude) { return int(magnitude < 0x00100000u ? 1 : magnitude >> 20) - 1022; }
