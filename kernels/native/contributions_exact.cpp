// Order-free sums of a few vectors, element by element, without integers in between: what the owner of a chunk adds
// when the contributions themselves travel (kernels/allreduce/execution/order_free.py). The bits are those of the words in
// kernels/exact, which stay the definition. All sources are read once and the result is written once.
//
// Exact. Each element goes through a cascade of error-free additions (TwoSum: Knuth 1969; the cascade: Ogita, Rump,
// Oishi 2005): s the sum, e the sum of the errors of s, and for float64 the errors of e are what is left,
//
//     sum of all x  =  s + e + U,   |U| <= b (1 + 2^-52)^p,   b the sum of |errors of e|, added as floating-point numbers.
//
// TwoSum is exact also where results are subnormal, for a sum that is subnormal is exact. Let r = fl(s + e) and
// d = s + e - r, again exact. The sum rounds to r
//   - if b = 0, for then U = 0 and r = fl(s + e) is what was asked; or
//   - if fl(r + low) = r = fl(r + high) for some low <= d + U <= high, since rounding is monotonic.
// low, high = fl(d -+ h) with h = 2 b + 2^-51 |d| will do: with b > 0, b >= 2^-1074 as all numbers are multiples of
// that, so the product is off by at most 2^-1075 <= b/2 where it underflows, and h >= 1.4 b + (2^-51 - 2^-103) |d|; the
// rounding of d -+ h takes at most 2^-53 (|d| + h) of this away (nothing where the result is subnormal), which leaves
// more than 1.3 b >= |U| for all p below 2^50.
// Elements for which neither holds, as all with infinities, NaN or overflow, for their errors are NaN, are added by a
// superaccumulator. Of narrower results the number to be rounded is r, and all that is not in it counts as error:
// b + |d| in place of b, and r in place of d. Sums of float32 are cascaded once less.
#include <algorithm>
#include <cmath>
#include <limits>

#include "contributions.hpp"
#include "../include/superaccumulator.hpp"

namespace {

struct Block {
    alignas(64) double sum[BLOCK], error[BLOCK], left[BLOCK];
    alignas(64) long long unsure[BLOCK];
};

// The error of a + b = sum.
inline __attribute__((always_inline)) double error_of(double a, double b, double sum) {
    const double rounded = sum - a;
    return (a - (sum - rounded)) + (b - rounded);
}

// x - x is 0, or NaN for an infinity or NaN.
template <typename Source>
inline __attribute__((always_inline)) void begin(Block &to, const Source *x, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
        const double v = x[i];
        to.sum[i] = v;
        to.error[i] = 0;
        to.left[i] = v - v;
    }
}

inline __attribute__((always_inline)) void cascade(Block &to, const double *x, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
        const double sum = to.sum[i] + x[i], error = error_of(to.sum[i], x[i], sum);
        const double errors = to.error[i] + error;
        to.left[i] += std::fabs(error_of(to.error[i], error, errors));
        to.sum[i] = sum;
        to.error[i] = errors;
    }
}

inline __attribute__((always_inline)) void cascade(Block &to, const float *x, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
        const double v = x[i], sum = to.sum[i] + v;
        to.left[i] += std::fabs(error_of(to.sum[i], v, sum));
        to.sum[i] = sum;
    }
}

// The sums of the first n elements into `out`; returns whether some are unsure, which then are marked. Adding 0 makes
// -0.0 to +0.0.
inline __attribute__((always_inline)) bool settle(Block &b, std::size_t n, double *out) {
    long long any = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const double r = b.sum[i] + b.error[i], d = error_of(b.sum[i], b.error[i], r);
        const double h = 2 * b.left[i] + 0x1p-51 * std::fabs(d);
        const bool sure = (b.left[i] == 0) | ((r + (d + h) == r) & (r + (d - h) == r));
        b.unsure[i] = !sure;
        any |= b.unsure[i];
        out[i] = r + 0.0;
    }
    return any;
}

inline __attribute__((always_inline)) bool settle(Block &b, std::size_t n, float *out) {
    long long any = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const double r = b.sum[i] + b.error[i];
        const double left = b.left[i] + std::fabs(error_of(b.sum[i], b.error[i], r));
        const double h = 2 * left + 0x1p-51 * std::fabs(r);
        const float low = float(r - h), high = float(r + h);
        const bool sure = (left == 0) | ((low == high) & (low != 0));  // a result of 0 takes the sign of the sum
        b.unsure[i] = !sure;
        any |= b.unsure[i];
        out[i] = float(r + 0.0);
    }
    return any;
}

template <typename Source, typename Float>
FPNA_CLONES bool sum_block(const Source *const *x, std::size_t sources, std::size_t from, std::size_t n, Block &block,
                           Float *out) {
    begin(block, x[0] + from, n);
    for (std::size_t q = 1; q < sources; ++q) cascade(block, x[q] + from, n);
    return settle(block, n, out);
}

template <typename Source, typename Float>
Float by_words(const Source *const *x, std::size_t sources, std::size_t i) {
    long long words[WORDS] = {};
    for (std::size_t q = 0; q < sources; ++q) {
        deposit(words, double(x[q][i]));
        if (q % 512 == 511) carry(words);
    }
    return round_words<Float>(words, words);
}

// `out` may be one of the sources.
template <typename Source, typename Float>
std::size_t exact_sum(const Source *const *x, std::size_t sources, std::size_t n, Float *out) {
    Block block;
    alignas(64) Float result[BLOCK];
    std::size_t resolved = 0;
    for (std::size_t from = 0; from < n; from += BLOCK) {
        const std::size_t count = std::min(BLOCK, n - from);
        if (sum_block(x, sources, from, count, block, result))
            for (std::size_t i = 0; i < count; ++i)
                if (block.unsure[i]) {
                    result[i] = by_words<Source, Float>(x, sources, from + i);
                    ++resolved;
                }
        std::copy(result, result + count, out + from);
    }
    return resolved;
}

// ---------------------------------------------------------------- several contributions as few numbers

constexpr std::size_t PARTS = 4;  // numbers that stand for the exact sum of a rank's contributions

// Rows of x (k, columns) added to a cascade of PARTS numbers per element; returns whether something is left over, or
// is not finite.
template <typename Float>
FPNA_CLONES bool cascade_parts(const Float *x, std::size_t k, std::size_t columns, std::size_t n,
                               double (*part)[BLOCK]) {
    for (std::size_t p = 0; p < PARTS; ++p) std::fill(part[p], part[p] + n, 0.0);
    long long left = 0;
    for (std::size_t q = 0; q < k; ++q, x += columns)
        for (std::size_t i = 0; i < n; ++i) {
            double v = x[i];
            for (std::size_t p = 0; p < PARTS; ++p) {
                const double sum = part[p][i] + v;
                v = error_of(part[p][i], v, sum);
                part[p][i] = sum;
            }
            left |= v == 0 ? 0 : 1;
        }
    return left;
}

// x (k, n) as parts (PARTS, n) whose sums are the same exactly. Returns how many rows of these are not zero, at least
// one; or PARTS + 1 where they do not suffice.
template <typename Float>
int expand(const Float *x, std::size_t k, std::size_t n, double *parts) {
    alignas(64) double part[PARTS][BLOCK];
    int used = 1;
    for (std::size_t from = 0; from < n; from += BLOCK) {
        const std::size_t count = std::min(BLOCK, n - from);
        if (cascade_parts(x + from, k, n, count, part)) used = PARTS + 1;
        for (std::size_t p = 0; p < PARTS; ++p) {
            std::copy(part[p], part[p] + count, parts + p * n + from);
            if (int(p) >= used && std::any_of(part[p], part[p] + count, [](double v) { return v != 0; })) used = p + 1;
        }
    }
    return used;
}

// The same of sums in words (n, WORDS): each part is what rounding takes of the words before.
int expand_words(const long long *words, std::size_t n, double *parts) {
    int used = 1;
    for (std::size_t i = 0; i < n; ++i, words += WORDS) {
        long long w[WORDS], room[CHUNKS];
        std::copy(words, words + WORDS, w);
        double part = 1;
        for (std::size_t p = 0; p < PARTS; ++p) {
            if (part != 0) part = round_words<double>(w, room);
            parts[p * n + i] = part;
            if (part == 0) continue;
            if (int(p) >= used) used = p + 1;
            deposit(w, -part);
        }
        if (part != 0 && round_words<double>(w, room) != 0) used = PARTS + 1;
    }
    return used;
}

// ---------------------------------------------------------------- Python

template <typename Source, typename Float>
std::size_t exact_sum(const py::handle &sources, const py::handle &out) {
    auto to = py::reinterpret_borrow<array<Float>>(out);
    const std::size_t n = to.size();
    const auto x = sources_of<Source>(sources, n);
    Float *total = to.mutable_data();
    if (n <= BLOCK) return exact_sum(x.data(), x.size(), n, total);
    py::gil_scoped_release release;
    return exact_sum(x.data(), x.size(), n, total);
}

py::handle first_of(const py::handle &sources) {
    if (!py::isinstance<py::list>(sources)) return sources;
    const auto list = py::reinterpret_borrow<py::list>(sources);
    return list.empty() ? py::handle(Py_None) : py::handle(list[0]);
}

template <typename Float>
int expand(const array<Float> &x, array<double> &parts) {
    const std::size_t k = x.shape(0), n = parts.shape(1);
    if (std::size_t(x.size()) != k * n) throw std::invalid_argument("parts must be (4, n) for contributions (k, n)");
    double *to = parts.mutable_data();
    if (x.size() <= py::ssize_t(BLOCK)) return expand(x.data(), k, n, to);
    py::gil_scoped_release release;
    return expand(x.data(), k, n, to);
}

}  // namespace

void register_contributions_exact(Module &m) {
    // sources: vectors of the type of `out`, or of float64. Returns how many elements were added by words.
    m.def("exact_sum", [](const py::object &sources, const py::object &out) {
        const bool wide = is<double>(first_of(sources));
        if (is<double>(out)) return exact_sum<double, double>(sources, out);
        if (is<float>(out)) return wide ? exact_sum<double, float>(sources, out) : exact_sum<float, float>(sources, out);
        throw py::type_error("the result must be a contiguous vector of float64 or float32");
    });
    m.def("exact_expand", [](const array<double> &x, array<double> parts) { return expand(x, parts); },
          py::arg("x").noconvert(), py::arg("parts").noconvert());
    m.def("exact_expand", [](const array<float> &x, array<double> parts) { return expand(x, parts); },
          py::arg("x").noconvert(), py::arg("parts").noconvert());
    m.def("exact_expand_words", [](const array<long long> &words, array<double> parts) {
        const std::size_t n = parts.shape(1);
        if (std::size_t(words.size()) != n * WORDS) throw std::invalid_argument("parts must be (4, n) for words (n, 70)");
        return expand_words(words.data(), n, parts.mutable_data());
    }, py::arg("words").noconvert(), py::arg("parts").noconvert());
    m.attr("EXACT_PARTS") = PARTS;
}
