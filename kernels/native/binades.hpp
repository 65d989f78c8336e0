// A large superaccumulator (Neal, arXiv 1505.05571): one integer for each sign and exponent, to which mantissas are added
// whole, without a shift.
#pragma once
#include <cstddef>
#include <cstdint>

#include "../include/bits.hpp"
#include "../include/slices.hpp"

class Binades {
    static constexpr std::size_t BINS = 4096;
    static constexpr std::uint16_t FULL = 1024;  // numbers below 2^53 add up below 2^63

    std::uint64_t sums[BINS] = {};  // of the bits of all numbers, modulo 2^64
    std::uint16_t counts[BINS] = {};

  public:
    // Adds finite numbers. When a bin is full, give(sum, unit) takes over sum * 2^unit.
    template <typename Give>
    void add(const double *x, std::size_t n, Give &&give) {
        for (std::size_t i = 0; i < n; ++i) {
            const std::uint64_t bits = bits_of(x[i]);
            const std::size_t bin = bits >> 52;
            sums[bin] += bits;
            if (++counts[bin] == FULL) empty(bin, give);
        }
    }

    // Gives all sums.
    template <typename Give>
    void take(Give &&give) {
        for (std::size_t bin = 0; bin < BINS; ++bin)
            if (counts[bin]) empty(bin, give);
    }

  private:
    template <typename Give>
    void empty(std::size_t bin, Give &&give) {
        const std::uint64_t biased = bin & 0x7FF, count = counts[bin];
        const std::uint64_t hidden = count * (biased != 0), mantissas = sums[bin] + ((hidden - count * bin) << 52);
        sums[bin] = counts[bin] = 0;
        const auto sum = std::int64_t(mantissas);
        give(bin >> 11 ? -sum : sum, int(biased ? biased : 1) - 1 + LOWEST_UNIT);
    }
};
