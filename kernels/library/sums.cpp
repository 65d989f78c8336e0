// Sums, dot products and norms of the elements of all ranks (fpna.h).
#include <limits>

#include "call.hpp"
#include "errors.hpp"
#include "over_ranks.hpp"
#include "report.hpp"

namespace fpna {
namespace {

template <typename Real>
Passed passed(const Arguments<Real> &a) {
    const bool report = a.options.report;
    return {a.of, letter_of<Real>(a.width), a.guarantee, "fields", std::int64_t(a.fields), "reports", report};
}

// What is wrong so that there can be no message with sums; empty if nothing is.
template <typename Real>
std::string no_message(const Arguments<Real> &a) {
    if (a.guarantee < FPNA_RUN || a.guarantee > FPNA_EXACT)
        return "guarantee " + std::to_string(a.guarantee) + " is not FPNA_RUN, FPNA_LAYOUT or FPNA_EXACT";
    const size_t most = size_t(std::numeric_limits<int>::max()) / Exact::WORDS / 4;
    if (a.fields > most) return std::to_string(a.fields) + " fields: one call adds at most " + std::to_string(most);
    return "";
}

// What is wrong on this rank alone; empty if nothing is.
template <typename Real>
std::string trouble(const Arguments<Real> &a) {
    if (a.refused) return a.refused;
    if (a.fields && !a.total) return "total is NULL";
    if (a.n && a.fields && !a.x) return "x is NULL, and n is " + std::to_string(a.n);
    if (a.n && a.fields && a.of == Of::DOT && !a.y) return "y is NULL, and n is " + std::to_string(a.n);
    if (a.n > size_t(std::numeric_limits<std::int64_t>::max()) / sizeof(Real)) return "n is negative or beyond memory";
    if (a.options.weights && a.of == Of::NORM) return "norm2 takes no weights: use the root of a weighted dot product";
    if (a.options.threads < 0) return "threads is " + std::to_string(a.options.threads) + ": 0 is as many as OpenMP takes";
    return "";
}

template <typename Real>
Operands<Real> operands_of(const Arguments<Real> &a) {
    Operands<Real> in;
    in.step = a.stride * a.width;
    in.step_y = (a.of == Of::DOT ? a.stride_y : a.stride) * a.width;
    in.n = a.fields ? a.n : 0;
    in.mask = a.options.mask;
    const auto *weights = static_cast<const Real *>(a.options.weights);
    if (a.of != Of::SUM) in.weights = weights;
    for (size_t f = 0; f < a.fields; ++f) {
        const Real *x = a.x + ptrdiff_t(f) * a.field_stride * a.width;
        const Real *y = a.of == Of::DOT ? a.y + ptrdiff_t(f) * a.field_stride_y * a.width : x;
        if (a.of == Of::SUM) {
            for (int c = 0; c < a.width; ++c) in.totals.push_back({{x + c, weights}});
        } else if (a.of == Of::NORM) {
            in.totals.push_back({{x, x}});
            if (a.width == 2) in.totals.back().push_back({x + 1, x + 1});
        } else if (a.width == 1) {
            in.totals.push_back({{x, y}});
        } else {  // conj(x) y
            in.totals.push_back({{x, y}, {x + 1, y + 1}});
            in.totals.push_back({{x, y + 1}, {x + 1, y, true}});
        }
    }
    if (a.of == Of::SUM && weights) in.step_y = 1;
    return in;
}

// The largest |x| of all fields and ranks, by field; NaN where there is one.
template <typename Real>
std::vector<double> largest_of(const Operands<Real> &in, fpna_comm comm) {
    std::vector<double> most(2 * in.totals.size());  // of numbers; 1 where there is a NaN
    for_parts(in, 0, in.n, [&](size_t t, size_t, const Real *x, const Real *, size_t n) {
        for (size_t i = 0; i < n; ++i) {
            if (x[i] != x[i])
                most[2 * t + 1] = 1;
            else
                most[2 * t] = std::max(most[2 * t], double(std::fabs(x[i])));
        }
    });
    join(most.data(), most.size(), Join::MAX, comm);
    for (size_t t = 0; t < in.totals.size(); ++t)
        most[t] = most[2 * t + 1] ? std::numeric_limits<double>::quiet_NaN() : most[2 * t];
    most.resize(in.totals.size());
    return most;
}

// The root of a sum of squares, as `norm_by` of kernels/sums/norm.py: where the squares leave the range of the type, the
// numbers are scaled by a power of two and added again. All ranks have the same sums, and so decide the same.
template <typename Real>
void take_roots(const Arguments<Real> &a, const Operands<Real> &in, Totals<Real> &totals) {
    using Number = std::numeric_limits<Real>;
    std::vector<Real> &values = totals.values;
    const Real least = Real(totals.beside.n * a.width) * (Number::min() / Number::epsilon());
    std::vector<size_t> again;
    for (size_t t = 0; t < values.size(); ++t) {
        if (least <= values[t] && values[t] <= Number::max())
            values[t] = std::sqrt(values[t]);
        else
            again.push_back(t);
    }
    if (again.empty()) return;
    const std::vector<double> largest = largest_of(in, a.comm);
    for (size_t t : again) {
        if (std::isnan(largest[t]) || largest[t] == 0 || std::isinf(largest[t])) {
            values[t] = std::isnan(largest[t]) ? std::sqrt(values[t]) : Real(largest[t]);
            continue;
        }
        int exponent;
        std::frexp(largest[t], &exponent);
        const int bits = bit_length((unsigned long long)(totals.beside.n * a.width));
        const int shift = ((Number::max_exponent - 2 - bits) >> 1) - exponent, half = shift >> 1;
        Operands<Real> one = in;
        one.totals = {in.totals[t]};
        one.scaled = true;
        one.scale[0] = std::ldexp(Real(1), half);
        one.scale[1] = std::ldexp(Real(1), shift - half);
        const Real square = totals_of(a.guarantee, one, a.options.threads, {}, a.comm).values[0];
        values[t] = std::ldexp(std::sqrt(square), -shift);
    }
}

}  // namespace

template <typename Real>
int carry_out(const Arguments<Real> &a) {
    return outcome(a.who, [&] {
        const Clock clock;
        require_communicator(a.comm);
        agree(passed(a), no_message(a), a.comm, a.options.check);
        const std::string own = trouble(a);
        Operands<Real> in = operands_of(a);
        if (!own.empty()) in.n = 0;
        const Beside beside = {!own.empty(), std::int64_t(in.n), passed(a).call()};
        Totals<Real> totals = totals_of(a.guarantee, in, a.options.threads, beside, a.comm);
        require_taken(own, totals.beside.refused, a.comm);
        if (a.options.report)
            fill(*a.options.report, in, totals.values, a.guarantee, a.of == Of::NORM ? 1 : a.width, a.options, a.comm, clock);
        if (a.of == Of::NORM) take_roots(a, in, totals);
        std::copy(totals.values.begin(), totals.values.end(), a.total);
    });
}

template int carry_out(const Arguments<float> &);
template int carry_out(const Arguments<double> &);

namespace {

template <typename Real>
const Real *real(const void *x) {
    return static_cast<const Real *>(x);
}

constexpr fpna_options USUAL = {};

const fpna_options &given(const fpna_options *options) { return options ? *options : USUAL; }

}  // namespace
}  // namespace fpna

#define FPNA_SUM(LETTER, REAL, NUMBER, WIDTH)                                                                              \
    int fpna_sum_##LETTER(int guarantee, fpna_comm comm, size_t n, size_t fields, const NUMBER *x, ptrdiff_t stride,      \
                          ptrdiff_t field_stride, NUMBER *total, const fpna_options *options) {                           \
        using namespace fpna;                                                                                             \
        return carry_out<REAL>({"fpna_sum_" #LETTER, Of::SUM, guarantee, WIDTH, comm, n, fields, real<REAL>(x), stride,    \
                                field_stride, nullptr, 0, 0, static_cast<REAL *>(total), given(options)});                \
    }

#define FPNA_DOT(LETTER, REAL, NUMBER, WIDTH)                                                                              \
    int fpna_dot_##LETTER(int guarantee, fpna_comm comm, size_t n, size_t fields, const NUMBER *x, ptrdiff_t stride,      \
                          ptrdiff_t field_stride, const NUMBER *y, ptrdiff_t stride_y, ptrdiff_t field_stride_y,          \
                          NUMBER *total, const fpna_options *options) {                                                   \
        using namespace fpna;                                                                                             \
        return carry_out<REAL>({"fpna_dot_" #LETTER, Of::DOT, guarantee, WIDTH, comm, n, fields, real<REAL>(x), stride,    \
                                field_stride, real<REAL>(y), stride_y, field_stride_y, static_cast<REAL *>(total),        \
                                given(options)});                                                                         \
    }

#define FPNA_NORM(LETTER, REAL, NUMBER, WIDTH)                                                                             \
    int fpna_norm2_##LETTER(int guarantee, fpna_comm comm, size_t n, size_t fields, const NUMBER *x, ptrdiff_t stride,    \
                            ptrdiff_t field_stride, REAL *total, const fpna_options *options) {                           \
        using namespace fpna;                                                                                             \
        return carry_out<REAL>({"fpna_norm2_" #LETTER, Of::NORM, guarantee, WIDTH, comm, n, fields, real<REAL>(x), stride, \
                                field_stride, nullptr, 0, 0, total, given(options)});                                     \
    }

#define FPNA_OF_TYPE(LETTER, REAL, NUMBER, WIDTH) \
    FPNA_SUM(LETTER, REAL, NUMBER, WIDTH)         \
    FPNA_DOT(LETTER, REAL, NUMBER, WIDTH)         \
    FPNA_NORM(LETTER, REAL, NUMBER, WIDTH)

extern "C" {
FPNA_OF_TYPE(s, float, float, 1)
FPNA_OF_TYPE(d, double, double, 1)
FPNA_OF_TYPE(c, float, void, 2)
FPNA_OF_TYPE(z, double, void, 2)

const char *fpna_error(void) { return fpna::sentence().c_str(); }
const char *fpna_version(void) { return FPNA_VERSION; }
}
