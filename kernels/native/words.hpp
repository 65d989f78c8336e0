// The words of a superaccumulator (include/superaccumulator.hpp) as they take numbers one by one, and integers.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "../include/elements.hpp"
#include "../include/superaccumulator.hpp"
#include "binades.hpp"

namespace superaccumulator {

constexpr std::size_t DEPOSITS = 512;  // below 2^53 each: they fit beside the sum of 2^20 ranks' words

// Words that are carried when their room is used up, and not before.
class Words {
  public:
    explicit Words(long long *words) : w(words) { ::carry(w); }

    template <typename Number>
    void add_each(const Number *x, std::size_t n, std::size_t stride) {
        for (std::size_t i = 0; i < n; ++i) {
            const double v = widen(x[i * stride]);
            if (v == 0) continue;
            take_room(1);
            deposit(w, v);
        }
    }

    void add_units(const std::int64_t *sums, const int *unit, int count) {
        take_room(count);
        for (int k = 0; k < count; ++k) deposit_units(w, sums[k], unit[k]);
    }

    // Finite numbers.
    void add_binades(const double *x, std::size_t n) {
        if (!binades) binades = std::make_unique<Binades>();
        binades->add(x, n, [this](std::int64_t sum, int unit) { add_units(&sum, &unit, 1); });
    }

    // Brings all numbers into the words, and these into their normal form.
    void finish() {
        if (binades) binades->take([this](std::int64_t sum, int unit) { add_units(&sum, &unit, 1); });
        carry();
    }

  private:
    void take_room(std::size_t n) {
        if (room < n) carry();
        room -= n;
    }

    void carry() {
        ::carry(w);
        room = DEPOSITS;
    }

    long long *w;
    std::size_t room = DEPOSITS;
    std::unique_ptr<Binades> binades;
};

struct Sum {
    long long words[WORDS] = {};

    void operator+=(const Sum &other) {
        for (int i = 0; i < WORDS; ++i) words[i] += other.words[i];
    }
};

// The sum of x[0], x[stride], ... (n numbers), rounded once: for few numbers. Adds and keeps the rounding errors (Knuth's
// TwoSum); if they do not decide the rounding of the sum, adds all again without error.
template <typename Float>
Float rounded_sum(const Float *x, std::size_t n, std::size_t stride) {
    double sum = 0, error = 0, size = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const double value = x[i * stride], before = sum;
        sum += value;
        const double part = sum - before, lost = (before - (sum - part)) + (value - part);
        error += lost;
        size += std::fabs(lost);
    }
    const double bound = double(n) * 0x1p-52 * size;
    if (sizeof(Float) == sizeof(double)) {
        const double low = sum + (error - bound), high = sum + (error + bound);
        if (low == high && low != 0) return Float(low);
    } else {  // this rounds twice, so widen the bounds by one unit of double on each side
        const Float low = Float(std::nextafter(sum + (error - bound), -INFINITY));
        const Float high = Float(std::nextafter(sum + (error + bound), INFINITY));
        if (low == high && low != 0) return low;
    }
    Sum exact;
    Words words(exact.words);
    words.add_each(x, n, stride);
    return round_words<Float>(exact.words, exact.words);
}

}  // namespace superaccumulator
