// Scatter-adds out[index[i]] += x[i] on the CPU (see kernels/scatter/native.py for their guarantees).
#include <omp.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "by_bin.hpp"
#include "../include/elements.hpp"
#include "kernels.hpp"
#include "limb_sums.hpp"
#include "quotients.hpp"

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

template <typename Element, bool ROWS>
Extremes<Accumulator<Element>> extremes_of_rows(const Scatter<Element, ROWS> &in, int threads) {
    return extremes_of(in.x, in.n * in.columns(), threads);
}

// Of the whole table if that is less to read: rows that are not added change the way, and no bits.
template <typename Element>
Extremes<Accumulator<Element>> extremes_of_rows(const Lookup<Element> &in, int threads) {
    if (in.table <= in.n) return extremes_of(in.x, in.table * in.wide, threads);
    Extremes<Accumulator<Element>> found;
    for (i64 i = 0; i < in.n; ++i) found.include(extremes_of(in.row(i), in.wide));
    return found;
}

// The extremes of all terms: the elements, and the numbers in `out`.
template <typename In>
Extremes<Accumulator<typename In::Element>> extremes(const In &in, const Accumulator<typename In::Element> *out,
                                                     int threads) {
    auto found = extremes_of_rows(in, threads);
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

// The exact sum, in words of zero, of `first` and of column c over the rows at `places`, for any range of numbers.
template <typename In>
void exactly(double first, const In &in, const i64 *places, i64 count, i64 c, long long *words) {
    constexpr i64 DEPOSITS = 512;
    deposit(words, first);
    for (i64 k = 0; k < count; ++k) {
        deposit(words, double(widen(in.row(places[k])[c])));
        if (k % DEPOSITS == DEPOSITS - 1) carry(words);
    }
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
i64 add_segments(const In &in, const Accumulator<typename In::Element> *out,
                 const Finish<Accumulator<typename In::Element>> &finish, int threads) {
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
                const i64 cell = b * in.columns() + c;
                if (!count && out[cell] == 0) {
                    finish.finite(cell, 0, 0);
                    continue;
                }
                long long words[WORDS] = {};
                exactly(out[cell], in, places.data() + start, count, c, words);
                finish.words(cell, words);
            }
        }
    }
    return NONE_BAD;
}

template <typename In>
i64 add_exact(const In &in, Accumulator<typename In::Element> *out, const Finish<Accumulator<typename In::Element>> &finish,
              int threads) {
    const auto found = extremes(in, out, threads);
    if (found.empty()) return add_integers(in, out, 0, finish, threads);
    const int exponent = found.exponent(), range = exponent - found.unit();
    if (found.finite() && has_few_bins(in)) {  // limbs that round nothing
        if (range <= LIMB_BITS) return add_limbs<1>(in, out, exponent, finish, threads);
        if (range <= 2 * LIMB_BITS) return add_limbs<2>(in, out, exponent, finish, threads);
    }
    int carries = 1;
    while (i64(1) << carries < in.n + 1) ++carries;
    if (range + carries < 127) return add_integers(in, out, found.unit(), finish, threads);
    return add_segments(in, out, finish, threads);
}

// Rounds each sum once, to the type of the sums.
template <typename Float>
struct Rounded : Finish<Float> {
    explicit Rounded(Float *to) : out(to) {}

    void finite(i64 cell, i128 sum, int unit) const override { out[cell] = nearest<Float>(sum, unit); }
    void special(i64 cell, Float sum) const override { out[cell] = std::isnan(sum) ? not_a_number<Float>() : sum; }
    void words(i64 cell, long long *sum) const override { out[cell] = round_words<Float>(sum, sum); }
    void row(i64 cell, const double *sums, i64 count, bool *unsure) const override {
        if constexpr (sizeof(Float) == 4) return quotients(sums, count, 1.0, out + cell, unsure);
        for (i64 c = 0; c < count; ++c) {
            out[cell + c] = Float(sums[c]);
            unsure[c] = sums[c] != 0 && !(std::fabs(sums[c]) >= 0x1p-1000 && std::fabs(sums[c]) <= 0x1p1000);
        }
    }

    Float *out;
};

// Divides each sum by the count of its bin and rounds once, to the type of the elements; NaN for a count of 0.
template <typename Number>
struct Divided : Finish<Accumulator<Number>> {
    Divided(Number *to, const i64 *of_bins, i64 wide) : out(to), counts(of_bins), columns(wide) {}

    void finite(i64 cell, i128 sum, int unit) const override {
        const i64 count = counts[cell / columns];
        out[cell] = count ? quotient<Number>(sum, unit, count) : not_a_number<Number>();
    }
    void special(i64 cell, Accumulator<Number> sum) const override {
        const bool nan = std::isnan(sum) || !counts[cell / columns];
        out[cell] = nan ? not_a_number<Number>() : infinity<Number>(sum < 0);
    }
    void words(i64 cell, long long *sum) const override {
        const i64 count = counts[cell / columns];
        out[cell] = count ? quotient<Number>(sum, count) : not_a_number<Number>();
    }
    void row(i64 cell, const double *sums, i64 count, bool *unsure) const override {
        const i64 divisor = counts[cell / columns];
        if constexpr (std::is_same_v<Number, float>)
            if (divisor) return quotients(sums, count, double(divisor), out + cell, unsure);
        std::fill_n(unsure, count, true);
    }

    Number *out;
    const i64 *counts;
    i64 columns;
};

// ---------------------------------------------------------------- types

// kernel(in) for elements, or for rows of a table where `rows` has any.
template <typename Element, typename Kernel>
i64 with_rows(const Array &x, const Array &rows, const Array &index, i64 bins, const Kernel &kernel) {
    const auto *elements = static_cast<const Element *>(x.data());
    const Indices places{index.data(), index.itemsize() == 8};
    const i64 n = index.size(), columns = x.ndim() == 2 ? i64(x.shape(1)) : 1;
    if (rows.size())
        return kernel(Lookup<Element>{elements, places, n, bins, columns, {rows.data(), rows.itemsize() == 8}, x.shape(0)});
    return columns == 1 ? kernel(Scatter<Element, false>{elements, places, n, bins, 1})
                        : kernel(Scatter<Element, true>{elements, places, n, bins, columns});
}

template <typename Kernel>
i64 with_types(const Array &x, const std::string &type, const Array &rows, const Array &index, i64 bins, const Kernel &kernel) {
    if (type == "float64") return with_rows<double>(x, rows, index, bins, kernel);
    if (type == "float32") return with_rows<float>(x, rows, index, bins, kernel);
    if (type == "float16") return with_rows<float16>(x, rows, index, bins, kernel);
    if (type == "bfloat16") return with_rows<bfloat16>(x, rows, index, bins, kernel);
    throw std::invalid_argument("scatter_add of " + type);
}

template <typename In>
using Sum = Accumulator<typename In::Element>;

template <typename In>
Sum<In> *sums_of(const In &, const Array &out) {
    return static_cast<Sum<In> *>(out.mutable_data());
}

int team(int threads) { return threads > 0 ? threads : omp_get_max_threads(); }

}  // namespace

i64 scatter_atomic(const Array &x, const std::string &type, const Array &rows, const Array &index, const Array &out,
                   int threads) {
    return with_types(x, type, rows, index, out.shape(0),
                      [&](const auto &in) { return add_atomic(in, sums_of(in, out), team(threads)); });
}

i64 scatter_sorted(const Array &x, const std::string &type, const Array &rows, const Array &index, const Array &out,
                   int threads) {
    return with_types(x, type, rows, index, out.shape(0),
                      [&](const auto &in) { return add_sorted(in, sums_of(in, out), team(threads)); });
}

i64 scatter_exact(const Array &x, const std::string &type, const Array &rows, const Array &index, const Array &out,
                  int threads) {
    return with_types(x, type, rows, index, out.shape(0), [&](const auto &in) {
        auto *sums = sums_of(in, out);
        return add_exact(in, sums, Rounded<std::remove_pointer_t<decltype(sums)>>(sums), team(threads));
    });
}

i64 scatter_means(const Array &x, const std::string &type, const Array &rows, const Array &index, array<i64> counts,
                  const Array &out, int threads) {
    return with_types(x, type, rows, index, out.shape(0), [&](const auto &in) {
        using Element = typename std::decay_t<decltype(in)>::Element;
        const auto sums = zeros<Accumulator<Element>>(in.bins * in.columns());
        const Divided<Element> finish(static_cast<Element *>(out.mutable_data()), counts.data(), in.columns());
        return add_exact(in, sums.get(), finish, team(threads));
    });
}
