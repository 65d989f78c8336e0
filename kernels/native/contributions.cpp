// Order-free sums of a few vectors, element by element, without integers in between: what the owner of a chunk adds
// when the contributions themselves travel (kernels/allreduce/order_free.py). The bits are those of the words in
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
//
// Fixed point. An element x, |x| < 2^exponent, is cut into multiples of 2^(exponent - 42) and, of float64,
// 2^(exponent - 84) by adding and subtracting a rounder (slices.hpp), ties to even, as fixed_encode does. Sums of up
// to 2^11 slices stay below 2^53 units: float64 adds them exactly, in any order. The two sums are then rounded as one.
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "native.hpp"
#include "superaccumulator.hpp"

namespace {

constexpr std::size_t BLOCK = 1024;  // elements at a time: what is between source and result stays in the first cache
constexpr std::size_t MOST_SOURCES = 1 << 11;
constexpr int LIMB = 42, NONFINITE = 1 << 20;

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

// ---------------------------------------------------------------- fixed point

// Where a number is cut. So near overflow that sums or rounders might be infinite, all is scaled: what underflows then
// is far below half a unit.
struct Grid {
    double scale = 1, back = 1, coarse, fine;

    explicit Grid(int exponent) {
        constexpr int HIGH = 1000, DOWN = 64;
        if (exponent > HIGH) {
            scale = power_of_two(-DOWN);
            back = power_of_two(DOWN);
            exponent -= DOWN;
        }
        coarse = rounder(std::max(exponent - LIMB, LOWEST_UNIT));
        fine = rounder(std::max(exponent - 2 * LIMB, LOWEST_UNIT));
    }
};

FPNA_CLONES void fixed_block(const double *const *x, std::size_t sources, std::size_t from, std::size_t n,
                             const Grid &grid, Block &block, double *out) {
    const double scale = grid.scale, back = grid.back, coarse = grid.coarse, fine = grid.fine;
    for (std::size_t i = 0; i < n; ++i) block.sum[i] = block.error[i] = 0;
    for (std::size_t q = 0; q < sources; ++q)
        for (std::size_t i = 0; i < n; ++i) {
            const double v = x[q][from + i] * scale, first = (v + coarse) - coarse;
            block.sum[i] += first;
            block.error[i] += ((v - first) + fine) - fine;
        }
    for (std::size_t i = 0; i < n; ++i) out[i] = (block.sum[i] + block.error[i]) * back;
}

FPNA_CLONES void fixed_block(const float *const *x, std::size_t sources, std::size_t from, std::size_t n,
                             const Grid &grid, Block &block, float *out) {
    const double coarse = grid.coarse;
    for (std::size_t i = 0; i < n; ++i) block.sum[i] = 0;
    for (std::size_t q = 0; q < sources; ++q)
        for (std::size_t i = 0; i < n; ++i) block.sum[i] += (double(x[q][from + i]) + coarse) - coarse;
    for (std::size_t i = 0; i < n; ++i) out[i] = float(block.sum[i]);
}

// Infinities by IEEE rules; all other elements are NaN, for the exponent of the finite ones is not known.
template <typename Float>
void nonfinite(const Float *const *x, std::size_t sources, std::size_t n, Float *out) {
    constexpr Float INFINITY_ = std::numeric_limits<Float>::infinity();
    for (std::size_t i = 0; i < n; ++i) {
        bool nan = false, plus = false, minus = false;
        for (std::size_t q = 0; q < sources; ++q) {
            const Float v = x[q][i];
            nan |= std::isnan(v);
            plus |= v == INFINITY_;
            minus |= v == -INFINITY_;
        }
        out[i] = nan || plus == minus ? std::numeric_limits<Float>::quiet_NaN() : plus ? INFINITY_ : -INFINITY_;
    }
}

template <typename Float>
void fixed_sum(const Float *const *x, std::size_t sources, std::size_t n, int exponent, Float *out) {
    if (exponent >= NONFINITE) return nonfinite(x, sources, n, out);
    const Grid grid(exponent);
    Block block;
    alignas(64) Float result[BLOCK];
    for (std::size_t from = 0; from < n; from += BLOCK) {
        const std::size_t count = std::min(BLOCK, n - from);
        fixed_block(x, sources, from, count, grid, block, result);
        std::copy(result, result + count, out + from);
    }
}

// ---------------------------------------------------------------- Python

template <typename Float>
std::vector<const Float *> sources_of(const py::list &sources, py::ssize_t n) {
    std::vector<const Float *> x;
    x.reserve(sources.size());
    for (const py::handle &source : sources) {
        if (!array<Float>::check_(source) || py::reinterpret_borrow<py::array>(source).size() != n)
            throw py::type_error("sources need the type and the length of the result, and must be contiguous");
        x.push_back(py::reinterpret_borrow<array<Float>>(source).data());
    }
    if (x.empty() || x.size() > MOST_SOURCES)
        throw std::invalid_argument("there must be 1 to 2048 sources, not " + std::to_string(x.size()));
    return x;
}

template <typename Float>
void define(py::module_ &m) {
    m.def("exact_sum", [](const py::list &sources, array<Float> out) {
        const auto x = sources_of<Float>(sources, out.size());
        Float *to = out.mutable_data();
        const std::size_t n = out.size();
        py::gil_scoped_release release;
        return exact_sum(x.data(), x.size(), n, to);
    }, py::arg("sources"), py::arg("out").noconvert());
    m.def("fixed_sum", [](const py::list &sources, int exponent, array<Float> out) {
        const auto x = sources_of<Float>(sources, out.size());
        Float *to = out.mutable_data();
        const std::size_t n = out.size();
        py::gil_scoped_release release;
        fixed_sum(x.data(), x.size(), n, exponent, to);
    }, py::arg("sources"), py::arg("exponent"), py::arg("out").noconvert());
}

}  // namespace

void register_contributions(py::module_ &m) {
    define<double>(m);
    define<float>(m);
}
