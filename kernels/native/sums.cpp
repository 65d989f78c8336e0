// Sums of a float64 array on the CPU, each in its own order (see kernels/sums/native.py for what they promise).
#include <omp.h>

#include <cmath>
#include <cstddef>

#include "lanes.hpp"
#include "native.hpp"

namespace {

FPNA_CLONES double lanes(const double *x, std::size_t n) { return lanes_sum(x, n); }

// Halves, cut at a multiple of 64 elements, down to runs of at most 1024, which are summed in 64 lanes.
double pairwise(const double *x, std::size_t n) {
    if (n <= 1024) return lanes(x, n);
    const std::size_t half = (n / 2 + 63) / 64 * 64;
    return pairwise(x, half) + pairwise(x + half, n - half);
}

// Left to right with the error of each addition added up apart (Neumaier 1974). Non-finite sums keep their value.
double neumaier(const double *x, std::size_t n) {
    double sum = 0.0, error = 0.0;
    for (std::size_t i = 0; i < n; ++i) {
        const double next = sum + x[i];
        error += std::fabs(sum) >= std::fabs(x[i]) ? (sum - next) + x[i] : (x[i] - next) + sum;
        sum = next;
    }
    return std::isfinite(sum) && std::isfinite(error) ? sum + error : sum;
}

double omp_reduction(const double *x, std::ptrdiff_t n, int threads) {
    double sum = 0.0;
#pragma omp parallel for reduction(+ : sum) schedule(static) num_threads(threads)
    for (std::ptrdiff_t i = 0; i < n; ++i) sum += x[i];
    return sum;
}

double omp_atomic(const double *x, std::ptrdiff_t n, int threads) {
    double sum = 0.0;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (std::ptrdiff_t i = 0; i < n; ++i) {
#pragma omp atomic
        sum += x[i];
    }
    return sum;
}

void serial(py::module_ &m, const char *name, double (*f)(const double *, std::size_t)) {
    m.def(name, [f](array<double> x) { return f(x.data(), x.size()); }, py::arg("x").noconvert());
}

// threads = 0: as many as OpenMP would take.
void parallel(py::module_ &m, const char *name, double (*f)(const double *, std::ptrdiff_t, int)) {
    m.def(name, [f](array<double> x, int threads) {
        return f(x.data(), x.size(), threads > 0 ? threads : omp_get_max_threads());
    }, py::arg("x").noconvert(), py::arg("threads") = 0);
}

}  // namespace

void register_sums(py::module_ &m) {
    serial(m, "sum_lanes", lanes);
    serial(m, "sum_pairwise", pairwise);
    serial(m, "sum_neumaier", neumaier);
    parallel(m, "sum_omp_reduction", omp_reduction);
    parallel(m, "sum_omp_atomic", omp_atomic);
}
