// Sums and dot products on the CPU, each in its own order (see kernels/sums/native.py for their guarantees). All are
// written once, over terms (terms.hpp), for all types of elements.
#include <omp.h>

#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>

#include "arrivals.hpp"
#include "../include/compensated.hpp"
#include "kernels.hpp"
#include "lanes.hpp"

namespace {

constexpr std::size_t WIDTH = Lanes::WIDTH;  // lanes of all sums that have no launch shape
constexpr std::size_t MOST_LANES = 1024;     // of a launch shape
constexpr std::size_t FEW = 1 << 15;         // terms that take less time than waking a team of threads

// ---- one thread ---------------------------------------------------------------------------------------------

template <typename Terms>
FPNA_CLONES Sum<Terms> in_64_lanes(Terms terms, std::size_t n) {
    alignas(64) Sum<Terms> lane[WIDTH] = {};
    add_rows(lane, WIDTH, terms, n);
    return tree_over(lane, WIDTH);
}

template <typename Terms>
FPNA_CLONES Sum<Terms> in_wide_lanes(Terms terms, std::size_t n, std::size_t width) {
    alignas(64) Sum<Terms> lane[MOST_LANES];
    for (std::size_t l = 0; l < width; ++l) lane[l] = 0;
    add_rows(lane, width, terms, n);
    return tree_over(lane, width);
}

template <typename Terms>
Sum<Terms> in_lanes(Terms terms, std::size_t n, std::size_t width) {
    return width == WIDTH ? in_64_lanes(terms, n) : in_wide_lanes(terms, n, width);
}

// Halves, cut at a multiple of 64 terms, down to runs of at most 1024, which are summed in 64 lanes.
template <typename Terms>
Sum<Terms> pairwise(Terms terms, std::size_t n) {
    if (n <= 1024) return in_64_lanes(terms, n);
    const std::size_t half = (n / 2 + 63) / 64 * 64;
    return pairwise(terms, half) + pairwise(terms.from(half), n - half);
}

template <typename Terms>
Sum<Terms> left_to_right(Terms terms, std::size_t n) {
    Sum<Terms> sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += terms(i);
    return sum;
}

// p[i] += p[i + s] for s = 1, 2, 4, ... and i a multiple of 2 s; consumes p.
template <typename T>
T aligned_tree(T *p, std::size_t n) {
    for (std::size_t s = 1; s < n; s *= 2)
        for (std::size_t i = 0; i + s < n; i += 2 * s) p[i] += p[i + s];
    return n ? p[0] : T(0);
}

template <template <typename> class Compensated, typename Terms>
Sum<Terms> compensated(Terms terms, std::size_t n) {
    Compensated<Sum<Terms>> sum;
    for (std::size_t i = 0; i < n; ++i) sum.add(terms(i));
    return sum.total();
}

// Left to right, the errors of products and of additions added separately (Ogita, Rump & Oishi 2005, algorithm 5.3).
template <typename Element>
FPNA_CLONES Accumulator<Element> dot2(Products<Element> terms, std::size_t n) {
    using T = Accumulator<Element>;
    T sum = 0, error = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const T a = widen(terms.x[i]), b = widen(terms.y[i]);
        const T product = a * b, next = sum + product;
        const T of_product = std::fma(a, b, -product);
        const T taken = next - sum;
        const T of_sum = (sum - (next - taken)) + (product - taken);
        error += of_sum + of_product;
        sum = next;
    }
    return is_finite(sum) && is_finite(error) ? sum + error : sum;
}

// ---- threads ------------------------------------------------------------------------------------------------

// An empty array is one empty segment.
std::size_t segments_of(std::size_t n, std::size_t segment) { return n ? (n + segment - 1) / segment : 1; }

// The sums of consecutive segments, each in lanes.
template <typename Terms>
void partial_sums(Terms terms, std::size_t n, std::size_t segment, std::size_t width, int threads, Sum<Terms> *p) {
    const std::ptrdiff_t segments = segments_of(n, segment);
#pragma omp parallel num_threads(threads) if (threads > 1 && n > FEW)
    {
        const DefaultEnvironment environment;
#pragma omp for schedule(static)
        for (std::ptrdiff_t b = 0; b < segments; ++b) {
            const std::size_t from = b * segment;
            p[b] = in_lanes(terms.from(from), n - from < segment ? n - from : segment, width);
        }
    }
}

// Part t of `parts` nearly equal ones, in 64 lanes.
template <typename Terms>
Sum<Terms> part(Terms terms, std::size_t n, std::size_t t, std::size_t parts) {
    const std::size_t each = n / parts, longer = n % parts;  // the first parts have one term more
    const std::size_t from = t * each + (t < longer ? t : longer);
    return in_64_lanes(terms.from(from), each + (t < longer));
}

template <typename Terms>
Sum<Terms> omp_reduction(Terms terms, std::size_t n, int threads) {
    Sum<Terms> sum = 0;
#pragma omp parallel num_threads(threads)
    {
        const DefaultEnvironment environment;
#pragma omp for reduction(+ : sum) schedule(static)
        for (int t = 0; t < threads; ++t) sum += part(terms, n, t, threads);
    }
    return sum;
}

template <typename Terms>
Sum<Terms> omp_ordered(Terms terms, std::size_t n, int threads) {
    Sum<Terms> sum = 0;
#pragma omp parallel num_threads(threads)
    {
        const DefaultEnvironment environment;
#pragma omp for ordered schedule(static, 1)
        for (int t = 0; t < threads; ++t) {
            const Sum<Terms> mine = part(terms, n, t, threads);
#pragma omp ordered
            sum += mine;
        }
    }
    return sum;
}

template <typename Terms>
Sum<Terms> omp_atomic(Terms terms, std::size_t n, int threads) {
    Sum<Terms> sum = 0;
    const std::ptrdiff_t count = n;
#pragma omp parallel num_threads(threads)
    {
        const DefaultEnvironment environment;
#pragma omp for schedule(static)
        for (std::ptrdiff_t i = 0; i < count; ++i) {
            const Sum<Terms> term = terms(i);
#pragma omp atomic
            sum += term;
        }
    }
    return sum;
}

// ---- orders of arrival --------------------------------------------------------------------------------------

// out[k] = the sum of all terms from +0.0, in the order of arrival by seeds[k] of units of `unit` terms.
template <typename Terms>
void in_seeded_orders(Terms terms, std::size_t n, std::size_t unit, std::size_t resident, const std::uint64_t *seeds,
                      std::ptrdiff_t samples, int threads, Sum<Terms> *out) {
#pragma omp parallel num_threads(threads) if (threads > 1 && samples > 1)
    {
        const DefaultEnvironment environment;
#pragma omp for schedule(static)
        for (std::ptrdiff_t k = 0; k < samples; ++k) {
            Sum<Terms> sum = 0;
            in_order_of_arrival((n + unit - 1) / unit, resident, seeds[k], [&](std::size_t u) {
                const std::size_t from = u * unit, to = n - from < unit ? n : from + unit;
                for (std::size_t i = from; i < to; ++i) sum += terms(i);
            });
            out[k] = sum;
        }
    }
}

// ---- arrays -------------------------------------------------------------------------------------------------

const void *data_of(const Array &x, std::size_t size, const char *name) {
    if (x.ndim() != 1 || std::size_t(x.itemsize()) != size || !x.contiguous())
        throw std::invalid_argument(std::string(name) + ": expected a contiguous vector of elements of " +
                                    std::to_string(size) + " bytes");
    return x.data();
}

template <typename Element, typename F>
auto with_terms_of(const Array &x, const OtherFactor &y, const F &f) {
    const auto *a = static_cast<const Element *>(data_of(x, sizeof(Element), "x"));
    const std::size_t n = x.size();
    if (!y) return f(Elements<Element>{a}, n);
    if (y->size() != x.size()) throw std::invalid_argument("y: expected as many elements as x has");
    return f(Products<Element>{a, static_cast<const Element *>(data_of(*y, sizeof(Element), "y"))}, n);
}

// f(terms, n), terms: the elements of x or, where there is a y, the products of both; element: the type of both.
template <typename Result, typename F>
Result with_terms(const Array &x, const OtherFactor &y, const std::string &element, const F &f) {
    if (element == "float64") return with_terms_of<double>(x, y, f);
    if (element == "float32") return with_terms_of<float>(x, y, f);
    if (element == "float16") return with_terms_of<float16>(x, y, f);
    if (element == "bfloat16") return with_terms_of<bfloat16>(x, y, f);
    throw std::invalid_argument("element " + element + ": expected float64, float32, float16 or bfloat16");
}

template <typename Terms>
constexpr bool are_products = false;

template <typename Element>
constexpr bool are_products<Products<Element>> = true;

// threads = 0: as many as OpenMP would take.
int or_default(int threads) { return threads > 0 ? threads : omp_get_max_threads(); }

}  // namespace

double sum_lanes(const Array &x, const OtherFactor &y, const std::string &element, std::size_t width) {
    return with_terms<double>(x, y, element, [=](auto t, std::size_t n) { return in_lanes(t, n, width); });
}

double sum_left_to_right(const Array &x, const OtherFactor &y, const std::string &element) {
    return with_terms<double>(x, y, element, [](auto t, std::size_t n) { return left_to_right(t, n); });
}

double sum_pairwise(const Array &x, const OtherFactor &y, const std::string &element) {
    return with_terms<double>(x, y, element, [](auto t, std::size_t n) { return pairwise(t, n); });
}

double sum_kahan(const Array &x, const OtherFactor &y, const std::string &element) {
    return with_terms<double>(x, y, element, [](auto t, std::size_t n) { return compensated<Kahan>(t, n); });
}

double sum_neumaier(const Array &x, const OtherFactor &y, const std::string &element) {
    return with_terms<double>(x, y, element, [](auto t, std::size_t n) { return compensated<Neumaier>(t, n); });
}

double sum_omp_reduction(const Array &x, const OtherFactor &y, const std::string &element, int threads) {
    return with_terms<double>(x, y, element,
                              [=](auto t, std::size_t n) { return omp_reduction(t, n, or_default(threads)); });
}

double sum_omp_ordered(const Array &x, const OtherFactor &y, const std::string &element, int threads) {
    return with_terms<double>(x, y, element, [=](auto t, std::size_t n) { return omp_ordered(t, n, or_default(threads)); });
}

double sum_omp_atomic(const Array &x, const OtherFactor &y, const std::string &element, int threads) {
    return with_terms<double>(x, y, element, [=](auto t, std::size_t n) { return omp_atomic(t, n, or_default(threads)); });
}

double dot2(const Array &x, const OtherFactor &y, const std::string &element) {
    return with_terms<double>(x, y, element, [](auto terms, std::size_t n) -> double {
        if constexpr (are_products<decltype(terms)>) return dot2(terms, n);
        throw std::invalid_argument("y: expected a second factor");
    });
}

double sum_aligned(array<double> p) { return aligned_tree(p.mutable_data(), p.size()); }

double sum_aligned(array<float> p) { return aligned_tree(p.mutable_data(), p.size()); }

MadeSums sum_partials(const Array &x, const OtherFactor &y, const std::string &element, std::size_t segment,
                      std::size_t width, int threads) {
    if (width == 0 || width > MOST_LANES || (width & (width - 1)) || segment == 0)
        throw std::invalid_argument("width: expected a power of two up to 1024, and a segment above 0");
    return with_terms<MadeSums>(x, y, element, [&](auto terms, std::size_t n) {
        Made<Sum<decltype(terms)>> p(segments_of(n, segment));
        partial_sums(terms, n, segment, width, or_default(threads), p.data());
        return MadeSums(std::move(p));
    });
}

MadeSums sum_samples(const Array &x, const std::string &element, std::size_t unit, std::size_t resident,
                     array<std::uint64_t> seeds, int threads) {
    return with_terms<MadeSums>(x, {}, element, [&](auto terms, std::size_t n) {
        Made<Sum<decltype(terms)>> sums(seeds.size());
        in_seeded_orders(terms, n, unit, resident, seeds.data(), seeds.size(), or_default(threads), sums.data());
        return MadeSums(std::move(sums));
    });
}

Made<std::int64_t> arrivals(std::size_t units, std::size_t resident, std::uint64_t seed) {
    Made<std::int64_t> order(units);
    std::int64_t *to = order.data();
    in_order_of_arrival(units, resident, seed, [&](std::size_t unit) { *to++ = unit; });
    return order;
}
