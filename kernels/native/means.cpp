// Means of a few vectors, element by element: the exact sum divided by a whole number and rounded once, to the type of the
// sources (kernels/allreduce/means.py). No order of the sources shows, and no sum overflows where its mean does not.
//
// cascade.hpp gives r = fl(s + e), the error d of that addition, and a bound b of the rest U. Let q = fl(r / n) and
// rem = r - q n. rem is exact: q is cut into 24 and 29 bits, and the product of each with n < 2^24 is exact. The mean is
// q + (rem + d + U) / n with |U| <= b. Where both ends of an interval around it round alike, it rounds as they do; where
// rem = d = b = 0 it is q. All other elements, and those near the ends of the range, are divided as integers.
#include <limits>

#include "cascade.hpp"
#include "kernels.hpp"
#include "quotients.hpp"

namespace {

// The ends of intervals that hold the means; both are the quotient where that is exact, and NaN where nothing is known.
struct Ends {
    alignas(64) double low[BLOCK], high[BLOCK];
};

// `wide`: for a result of float64 the ends are rounded to it here; for a narrower one they lie an ulp further out. The
// limits are magnitudes between which no step over- or underflows, nor rounds to fewer digits than the type has.
template <bool WIDE>
FPNA_CLONES void divide(const Block &b, std::size_t n, double divisor, Ends &ends) {
    const double least = WIDE ? 0x1p-900 : 0x1p-120, most = WIDE ? 0x1p1000 : 0x1p126;
    for (std::size_t i = 0; i < n; ++i) {
        const double r = b.sum[i] + b.error[i], d = error_of(b.sum[i], b.error[i], r), q = r / divisor;
        const double upper = double_of_bits(bits_of(q) & ~((1ull << 29) - 1));
        const double rem = (r - upper * divisor) - (q - upper) * divisor;
        const double t = (rem + d) / divisor, size = std::fabs(q);
        const double h = 2 * b.left[i] / divisor + 0x1p-50 * std::fabs(t) + (WIDE ? 0 : 0x1p-52 * size);
        const bool exact = (rem == 0) & (d == 0) & (b.left[i] == 0);
        const bool fits = ((size >= least) & (size <= most)) | ((r == 0) & exact);
        ends.low[i] = fits ? exact ? q : q + (t - h) : std::numeric_limits<double>::quiet_NaN();
        ends.high[i] = exact ? q : q + (t + h);
    }
}

template <typename Number>
Number by_words(const std::vector<const Number *> &x, std::size_t i, long long divisor) {
    long long words[WORDS] = {};
    deposit_all(words, x.size(), [&](std::size_t q) { return widen(x[q][i]); });
    return quotient<Number>(words, divisor);
}

template <typename Number>
FPNA_CLONES void sum_of(const Number *const *x, std::size_t sources, std::size_t from, std::size_t n, Block &block) {
    begin(block, x[0] + from, n);
    for (std::size_t q = 1; q < sources; ++q) cascade(block, x[q] + from, n);
}

// `out` may be one of the sources. Returns how many elements went through integers.
template <typename Number>
std::size_t mean(const std::vector<const Number *> &x, long long divisor, std::size_t n, Number *out) {
    Block block;
    Ends ends;
    alignas(64) Number result[BLOCK];
    std::size_t resolved = 0;
    for (std::size_t from = 0; from < n; from += BLOCK) {
        const std::size_t count = std::min(BLOCK, n - from);
        sum_of(x.data(), x.size(), from, count, block);
        divide<sizeof(Number) == 8>(block, count, double(divisor), ends);
        for (std::size_t i = 0; i < count; ++i) {
            const double low = ends.low[i], high = ends.high[i];
            result[i] = rounded(low + 0.0, Number());
            // The sign of an inexact mean must be sure, too.
            if (widen(result[i]) == widen(rounded(high, Number())) && (low == high || low * high > 0)) continue;
            result[i] = by_words(x, from + i, divisor);
            ++resolved;
        }
        std::copy(result, result + count, out + from);
    }
    return resolved;
}

}  // namespace

std::size_t exact_mean(const Sources &sources, long long divisor, const Array &out) {
    if (divisor < 1 || divisor >= 1ll << 24) throw std::invalid_argument("the divisor must be 1 to 2^24 - 1");
    std::size_t resolved = 0;
    with_type_of(out, [&](auto zero) {
        using Number = decltype(zero);
        const std::size_t n = out.size();
        resolved = mean(sources_of<Number>(sources, n), divisor, n, mutable_pointer<Number>(out));
    }, "the mean");
    return resolved;
}
