// Scatter-adds out[index[i]] += x[i] on the CPU (see kernels/scatter/native.py for their guarantees).
#include <omp.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "by_bin.hpp"
#include "../include/elements.hpp"
#include "kernels.hpp"
#include "limb_sums.hpp"

namespace {

using i64 = std::int64_t;

// Each adds to the numbers in `out`, and returns the place of the first index that is out of range, or NONE_BAD.
template <typename In>
i64 add_atomic(const In &in, Accumulator<typename In::Element> *out, int threads) {
    i64 bad = in.n;
#pragma omp parallel num_threads(threads)
    {
        const DefaultEnvironment environment;
#pragma omp for schedule(static) reduction(min : bad)
        for (i64 i = 0; i < in.n; ++i) {
            if (!in.fits(i)) {
                bad = std::min(bad, i);
                continue;
            }
            Accumulator<typename In::Element> *sums = out + in.bin(i) * in.columns();
            const typename In::Element *x = in.row(i);
            for (i64 c = 0; c < in.columns(); ++c) {
#pragma omp atomic
                sums[c] += widen(x[c]);
            }
        }
    }
    return bad < in.n ? bad : NONE_BAD;
}

// Floating-point sums, each by ascending place: the bits of the reference.
template <typename In>
struct FloatSums {
    static constexpr bool MOVES = true;
    const In &in;
    Accumulator<typename In::Element> *out;

    void add(i64 bin, i64, const typename In::Element *x) {
        auto *sums = out + bin * in.columns();
        const i64 columns = in.columns();
        for (i64 c = 0; c < columns; ++c) sums[c] += widen(x[c]);
    }
};

template <typename In>
i64 add_sorted(const In &in, Accumulator<typename In::Element> *out, int threads) {
    FloatSums<In> sums{in, out};
    return by_bin(in, sums, threads);
}

// ---------------------------------------------------------------- exact

// The extremes of all terms: the elements, and the numbers in `out`.
template <typename In>
Extremes<Accumulator<typename In::Element>> extremes(const In &in, const Accumulator<typename In::Element> *out,
                                                     int threads) {
    auto found = extremes_of(in.x, in.n * in.columns(), threads);
    found.include(extremes_of(out, in.bins * in.columns(), threads));
    return found;
}

// Whether carrying words of 64 bits now and then pays.
template <typename In>
bool has_few_bins(const In &in) {
    return in.bins * (in.n / ROWS_BEFORE_CARRY) <= in.n;
}

// The bins of elements, without their values.
using Bins = Scatter<char, false>;

// starts[bin]: the number of elements in the bin.
struct Counts {
    static constexpr bool MOVES = false;
    i64 *counts;

    void add(i64 bin, i64, const char *) { ++counts[bin]; }
};

struct Places {
    static constexpr bool MOVES = false;
    i64 *next, *places;

    void add(i64 bin, i64 i, const char *) { places[next[bin]++] = i; }
};

// The rounded exact sum of `first` and of column c over the rows at `places`, for any range of numbers.
template <typename In>
Accumulator<typename In::Element> exactly(double first, const In &in, const i64 *places, i64 count, i64 c) {
    constexpr i64 DEPOSITS = 512;
    long long words[WORDS] = {};
    deposit(words, first);
    for (i64 k = 0; k < count; ++k) {
        deposit(words, double(widen(in.row(places[k])[c])));
        if (k % DEPOSITS == DEPOSITS - 1) carry(words);
    }
    return round_words<Accumulator<typename In::Element>>(words, words);
}

// The places of elements, bin by bin, each bin's up to its end; or the first index that is out of range.
i64 sort_places(const Bins &in, i64 *ends, i64 *places, int threads) {
    Counts counts{ends};
    const i64 bad = by_bin(in, counts, threads);
    if (bad != NONE_BAD) return bad;
    i64 before = 0;
    for (i64 b = 0; b <= in.bins; ++b) before += std::exchange(ends[b], before);
    Places order{ends, places};  // turns each bin's start into its end
    return by_bin(in, order, threads);
}

// Sorted by bin, then bin by bin with a superaccumulator.
template <typename In>
i64 add_segments(const In &in, Accumulator<typename In::Element> *out, int threads) {
    std::vector<i64> ends(in.bins + 1), places(in.n);
    const i64 bad = sort_places(Bins{nullptr, in.index, in.n, in.bins, 1}, ends.data(), places.data(), threads);
    if (bad != NONE_BAD) return bad;
#pragma omp parallel num_threads(in.n > FEW ? threads : 1)
    {
        const DefaultEnvironment environment;
#pragma omp for schedule(dynamic, 64)
        for (i64 b = 0; b < in.bins; ++b) {
            const i64 start = b ? ends[b - 1] : 0, count = ends[b] - start;
            for (i64 c = 0; c < in.columns(); ++c) {
                auto &sum = out[b * in.columns() + c];
                if (count || sum != 0) sum = exactly(sum, in, places.data() + start, count, c);
                else sum = 0;  // removes a sign
            }
        }
    }
    return NONE_BAD;
}

template <typename In>
i64 add_exact(const In &in, Accumulator<typename In::Element> *out, int threads) {
    const auto found = extremes(in, out, threads);
    if (found.empty()) return add_integers(in, out, 0, threads);
    const int exponent = found.exponent(), range = exponent - found.unit();
    if (found.finite() && has_few_bins(in)) {  // limbs that round nothing
        if (range <= LIMB_BITS) return add_limbs<1>(in, out, exponent, threads);
        if (range <= 2 * LIMB_BITS) return add_limbs<2>(in, out, exponent, threads);
    }
    int carries = 1;
    while (i64(1) << carries < in.n + 1) ++carries;
    if (range + carries < 127) return add_integers(in, out, found.unit(), threads);
    return add_segments(in, out, threads);
}

// ---------------------------------------------------------------- types

template <typename Element, typename Kernel>
i64 with_rows(const Array &x, const Array &index, const Array &out, const Kernel &kernel) {
    auto *sums = static_cast<Accumulator<Element> *>(out.mutable_data());
    const auto *elements = static_cast<const Element *>(x.data());
    const Indices places{index.data(), index.itemsize() == 8};
    const i64 n = x.shape(0), bins = out.shape(0), columns = x.ndim() == 2 ? i64(x.shape(1)) : 1;
    return columns == 1 ? kernel(Scatter<Element, false>{elements, places, n, bins, 1}, sums)
                        : kernel(Scatter<Element, true>{elements, places, n, bins, columns}, sums);
}

template <typename Kernel>
i64 with_types(const Array &x, const std::string &type, const Array &index, const Array &out, const Kernel &kernel) {
    if (type == "float64") return with_rows<double>(x, index, out, kernel);
    if (type == "float32") return with_rows<float>(x, index, out, kernel);
    if (type == "float16") return with_rows<float16>(x, index, out, kernel);
    if (type == "bfloat16") return with_rows<bfloat16>(x, index, out, kernel);
    throw std::invalid_argument("scatter_add of " + type);
}

int team(int threads) { return threads > 0 ? threads : omp_get_max_threads(); }

}  // namespace

i64 scatter_atomic(const Array &x, const std::string &type, const Array &index, const Array &out, int threads) {
    return with_types(x, type, index, out, [&](const auto &in, auto *sums) { return add_atomic(in, sums, team(threads)); });
}

i64 scatter_sorted(const Array &x, const std::string &type, const Array &index, const Array &out, int threads) {
    return with_types(x, type, index, out, [&](const auto &in, auto *sums) { return add_sorted(in, sums, team(threads)); });
}

i64 scatter_exact(const Array &x, const std::string &type, const Array &index, const Array &out, int threads) {
    return with_types(x, type, index, out, [&](const auto &in, auto *sums) { return add_exact(in, sums, team(threads)); });
}
