// Sums whose bits do not depend on the order of the additions: the C++17 interface of fpna.h.
//
//     std::vector<double> u = ...;
//     double total = fpna::sum(u.data(), u.size(), comm);                      // of the elements of all ranks
//     double energy = fpna::dot(u.data(), v.data(), u.size(), comm, fpna::layout);
//
//     fpna::accumulator<double> sum;                                           // filled piece by piece
//     for (const Tile &tile : tiles) sum.add(tile.data(), tile.size());
//     total = sum.allreduce(comm).value();
//
// Errors are thrown, on all ranks, as fpna::error.
#pragma once

#include <complex>
#include <stdexcept>
#include <vector>

#include "fpna.h"

namespace fpna {

enum class guarantee : int { run = FPNA_RUN, layout = FPNA_LAYOUT, exact = FPNA_EXACT };
constexpr guarantee run = guarantee::run, layout = guarantee::layout, exact = guarantee::exact;

// `code`: an fpna_code.
struct error : std::runtime_error {
    explicit error(int code) : std::runtime_error(fpna_error()), code(code) {}
    int code;
};

inline void require(int code) {
    if (code != FPNA_OK) throw error(code);
}

using options = fpna_options;
using report = fpna_report;

// Elements i of field f at data[i * stride + f * field_stride], i < n.
template <typename T>
struct elements {
    const T *data;
    std::size_t n;
    std::size_t fields = 1;
    std::ptrdiff_t stride = 1, field_stride = 0;
};

namespace detail {

template <typename T>
struct real {
    using type = T;
};
template <typename T>
struct real<std::complex<T>> {
    using type = T;
};
template <typename T>
using real_t = typename real<T>::type;

#define FPNA_DETAIL(LETTER, NUMBER)                                                                                        \
    inline int sum(int g, fpna_comm c, const elements<NUMBER> &x, NUMBER *total, const options *o) {                      \
        return fpna_sum_##LETTER(g, c, x.n, x.fields, x.data, x.stride, x.field_stride, total, o);                        \
    }                                                                                                                     \
    inline int dot(int g, fpna_comm c, const elements<NUMBER> &x, const elements<NUMBER> &y, NUMBER *total,               \
                   const options *o) {                                                                                    \
        return fpna_dot_##LETTER(g, c, x.n, x.fields, x.data, x.stride, x.field_stride, y.data, y.stride, y.field_stride, \
                                 total, o);                                                                               \
    }                                                                                                                     \
    inline int norm2(int g, fpna_comm c, const elements<NUMBER> &x, real_t<NUMBER> *total, const options *o) {            \
        return fpna_norm2_##LETTER(g, c, x.n, x.fields, x.data, x.stride, x.field_stride, total, o);                      \
    }
FPNA_DETAIL(s, float)
FPNA_DETAIL(d, double)
FPNA_DETAIL(c, std::complex<float>)
FPNA_DETAIL(z, std::complex<double>)
#undef FPNA_DETAIL

#define FPNA_DETAIL(LETTER, REAL)                                                                                          \
    inline int minloc(fpna_comm c, std::size_t n, const REAL *x, const std::int64_t *numbers, REAL *value,                \
                      std::int64_t *number) {                                                                             \
        return fpna_minloc_##LETTER(c, n, x, 1, numbers, value, number);                                                  \
    }                                                                                                                     \
    inline int maxloc(fpna_comm c, std::size_t n, const REAL *x, const std::int64_t *numbers, REAL *value,                \
                      std::int64_t *number) {                                                                             \
        return fpna_maxloc_##LETTER(c, n, x, 1, numbers, value, number);                                                  \
    }                                                                                                                     \
    inline int scatter_add(fpna_comm c, std::size_t n, const std::int64_t *cell, const REAL *x, std::size_t cells,        \
                           REAL *totals, int threads) {                                                                   \
        return fpna_scatter_add_##LETTER(c, n, cell, x, cells, totals, threads);                                          \
    }
FPNA_DETAIL(s, float)
FPNA_DETAIL(d, double)
#undef FPNA_DETAIL

inline void add(fpna_acc &sum, const float *x, std::size_t n, std::ptrdiff_t stride) { fpna_acc_add_s(&sum, n, x, stride); }
inline void add(fpna_acc &sum, const double *x, std::size_t n, std::ptrdiff_t stride) { fpna_acc_add_d(&sum, n, x, stride); }
inline void add_products(fpna_acc &sum, const float *x, const float *y, std::size_t n) {
    fpna_acc_dot_s(&sum, n, x, 1, y, 1);
}
inline void add_products(fpna_acc &sum, const double *x, const double *y, std::size_t n) {
    fpna_acc_dot_d(&sum, n, x, 1, y, 1);
}
inline float value(const fpna_acc &sum, float) { return fpna_acc_value_s(&sum); }
inline double value(const fpna_acc &sum, double) { return fpna_acc_value_d(&sum); }

}  // namespace detail

// T: float, double, or their std::complex. Collective over `comm`. Throw error.
template <typename T>
std::vector<T> sum(const elements<T> &x, fpna_comm comm, guarantee g = exact, const options &o = {}) {
    std::vector<T> totals(x.fields);
    require(detail::sum(int(g), comm, x, totals.data(), &o));
    return totals;
}

template <typename T>
T sum(const T *x, std::size_t n, fpna_comm comm, guarantee g = exact, const options &o = {}) {
    return sum(elements<T>{x, n}, comm, g, o)[0];
}

template <typename T>
std::vector<T> dot(const elements<T> &x, const elements<T> &y, fpna_comm comm, guarantee g = exact, const options &o = {}) {
    std::vector<T> totals(x.fields);
    require(detail::dot(int(g), comm, x, y, totals.data(), &o));
    return totals;
}

template <typename T>
T dot(const T *x, const T *y, std::size_t n, fpna_comm comm, guarantee g = exact, const options &o = {}) {
    return dot(elements<T>{x, n}, elements<T>{y, n}, comm, g, o)[0];
}

template <typename T>
std::vector<detail::real_t<T>> norm2(const elements<T> &x, fpna_comm comm, guarantee g = exact, const options &o = {}) {
    std::vector<detail::real_t<T>> totals(x.fields);
    require(detail::norm2(int(g), comm, x, totals.data(), &o));
    return totals;
}

template <typename T>
detail::real_t<T> norm2(const T *x, std::size_t n, fpna_comm comm, guarantee g = exact, const options &o = {}) {
    return norm2(elements<T>{x, n}, comm, g, o)[0];
}

// The smallest or the largest element of all ranks, and of the numbers that have this value the smallest.
template <typename T>
struct location {
    T value;
    std::int64_t number;  // -1 if no rank has an element
};

template <typename T>
location<T> minloc(const T *x, std::size_t n, const std::int64_t *numbers, fpna_comm comm) {
    location<T> found;
    require(detail::minloc(comm, n, x, numbers, &found.value, &found.number));
    return found;
}

template <typename T>
location<T> maxloc(const T *x, std::size_t n, const std::int64_t *numbers, fpna_comm comm) {
    location<T> found;
    require(detail::maxloc(comm, n, x, numbers, &found.value, &found.number));
    return found;
}

// The exact sum of x[i] with cell[i] == c, over all ranks, for every cell c.
template <typename T>
std::vector<T> scatter_add(const std::int64_t *cell, const T *x, std::size_t n, std::size_t cells, fpna_comm comm,
                           int threads = 0) {
    std::vector<T> totals(cells);
    require(detail::scatter_add(comm, n, cell, x, cells, totals.data(), threads));
    return totals;
}

// An exact sum of float or double that is filled piece by piece, merged and sent. Its bytes are those of fpna_acc, which
// may be written to a file.
template <typename T>
class accumulator {
  public:
    accumulator() = default;
    explicit accumulator(const fpna_acc &words) : words_(words) {}

    accumulator &add(T x) { return add(&x, 1); }
    accumulator &add(const T *x, std::size_t n, std::ptrdiff_t stride = 1) {
        detail::add(words_, x, n, stride);
        return *this;
    }
    accumulator &add_products(const T *x, const T *y, std::size_t n) {
        detail::add_products(words_, x, y, n);
        return *this;
    }
    accumulator &operator+=(const accumulator &other) {
        fpna_acc_merge(&words_, &other.words_);
        return *this;
    }
    // Becomes the sum of that of all ranks. Collective.
    accumulator &allreduce(fpna_comm comm) {
        require(fpna_acc_allreduce(&words_, 1, comm));
        return *this;
    }
    T value() const { return detail::value(words_, T()); }  // rounded once
    const fpna_acc &words() const { return words_; }

  private:
    fpna_acc words_ = {};
};

}  // namespace fpna
