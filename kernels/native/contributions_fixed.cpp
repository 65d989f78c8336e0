// Fixed-point sums of a few vectors, element by element, without integers in between: what the owner of a chunk adds
// when the contributions themselves travel (kernels/allreduce/execution/order_free.py). The bits are those of the words of
// kernels/exact/fixedpoint.py, which stay the definition. All sources are read once and the result is written once.
//
// An element x, |x| < 2^exponent, is cut into multiples of 2^(exponent - 42) and, of float64,
// 2^(exponent - 84) by adding and subtracting a rounder (slices.hpp), ties to even, as fixed_encode does. Sums of up
// to 2^11 slices stay below 2^53 units: float64 adds them exactly, in any order. The two sums are then rounded as one.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>

#include "contributions.hpp"
#include "../include/slices.hpp"

namespace {

constexpr std::size_t MOST_SOURCES = 1 << 11;
constexpr int LIMB = 42, EMPTY = -1074, NONFINITE = 1 << 20;

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
                             const Grid &grid, double *out) {
    alignas(64) double high[BLOCK], low[BLOCK];
    const double scale = grid.scale, back = grid.back, coarse = grid.coarse, fine = grid.fine;
    for (std::size_t i = 0; i < n; ++i) high[i] = low[i] = 0;
    for (std::size_t q = 0; q < sources; ++q)
        for (std::size_t i = 0; i < n; ++i) {
            const double v = x[q][from + i] * scale, first = (v + coarse) - coarse;
            high[i] += first;
            low[i] += ((v - first) + fine) - fine;
        }
    for (std::size_t i = 0; i < n; ++i) out[i] = (high[i] + low[i]) * back;
}

FPNA_CLONES void fixed_block(const float *const *x, std::size_t sources, std::size_t from, std::size_t n,
                             const Grid &grid, float *out) {
    alignas(64) double sum[BLOCK];
    const double coarse = grid.coarse;
    for (std::size_t i = 0; i < n; ++i) sum[i] = 0;
    for (std::size_t q = 0; q < sources; ++q)
        for (std::size_t i = 0; i < n; ++i) sum[i] += (double(x[q][from + i]) + coarse) - coarse;
    for (std::size_t i = 0; i < n; ++i) out[i] = float(sum[i]);
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
    alignas(64) Float result[BLOCK];
    for (std::size_t from = 0; from < n; from += BLOCK) {
        const std::size_t count = std::min(BLOCK, n - from);
        fixed_block(x, sources, from, count, grid, result);
        std::copy(result, result + count, out + from);
    }
}

// ---------------------------------------------------------------- short vectors

// A record: exponent, number of contributions, then the one contribution or zeros.
constexpr std::size_t HEAD = 2;

template <typename Float>
void record(const Float *x, std::size_t k, std::size_t n, Float *to) {
    constexpr Float MANY = 1 << 22;  // above the limit of contributions, and still exact in float32
    Float most = 0;
    bool finite = true;
    for (std::size_t i = 0; i < k * n; ++i) {
        most = std::max(most, std::fabs(x[i]));
        finite &= std::isfinite(x[i]);
    }
    int exponent = EMPTY;
    if (most > 0) std::frexp(most, &exponent);
    to[0] = Float(finite ? exponent : NONFINITE);
    to[1] = std::min(Float(k), MANY);
    for (std::size_t i = 0; i < n; ++i) to[HEAD + i] = k == 1 ? x[i] : Float(0);
}

struct Heads {
    double exponent = EMPTY, most = 0, contributions = 0;
};

template <typename Float>
Heads heads_of(const Float *records, std::size_t count, std::size_t n) {
    Heads all;
    for (std::size_t q = 0; q < count; ++q, records += HEAD + n) {
        all.exponent = std::max(all.exponent, double(records[0]));
        all.most = std::max(all.most, double(records[1]));
        all.contributions += records[1];
    }
    return all;
}

// ---------------------------------------------------------------- Python

template <typename Float>
void define(Module &m) {
    m.def("fixed_sum", [](const py::object &sources, int exponent, array<Float> out) {
        const std::size_t n = out.size();
        const auto x = sources_of<Float>(sources, n);
        if (x.size() > MOST_SOURCES)
            throw std::invalid_argument("there is room for 2048 sources, not for " + std::to_string(x.size()));
        Float *to = out.mutable_data();
        py::gil_scoped_release release;
        fixed_sum(x.data(), x.size(), n, exponent, to);
    }, py::arg("sources"), py::arg("exponent"), py::arg("out").noconvert());
    m.def("fixed_record", [](const array<Float> &x, array<Float> to) {
        const std::size_t k = x.shape(0), n = to.size() - HEAD;
        if (std::size_t(x.size()) != k * n) throw std::invalid_argument("a record has two numbers more than a contribution");
        record(x.data(), k, n, to.mutable_data());
    }, py::arg("x").noconvert(), py::arg("record").noconvert());
    // (exponent, most contributions of a rank, contributions of all); the sum is made where the second is at most 1.
    m.def("fixed_sum_records", [](const array<Float> &records, array<Float> out) {
        const std::size_t count = records.shape(0), n = out.size();
        if (std::size_t(records.size()) != count * (HEAD + n) || count > MOST_SOURCES)
            throw std::invalid_argument("there must be 1 to 2048 records, each with two numbers more than the result");
        const Heads all = heads_of(records.data(), count, n);
        if (all.most <= 1) {
            std::vector<const Float *> x(count);
            for (std::size_t q = 0; q < count; ++q) x[q] = records.data() + q * (HEAD + n) + HEAD;
            fixed_sum(x.data(), count, n, int(all.exponent), out.mutable_data());
        }
        return std::make_tuple(int(all.exponent), long(all.most), long(all.contributions));
    }, py::arg("records").noconvert(), py::arg("out").noconvert());
}

}  // namespace

void register_contributions_fixed(Module &m) {
    define<double>(m);
    define<float>(m);
    m.attr("FIXED_MOST_SOURCES") = MOST_SOURCES;
}
